"""The house rules: nothing imports upwards, the science imports no Ray, pins cover what is needed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fedpns_ray"
LAYERS = (
    ("errors",),
    ("yaml_file",),
    ("core",),
    ("strategies",),
    ("experiment",),
    ("data",),
    ("records",),
    ("runtime",),
    ("study",),
    ("reporting", "doctor"),
    ("api",),
    ("terminal",),
    ("__main__",),
)
"""From the bottom up; a room imports what stands above it in this list, and itself."""
RAY_ROOMS = ("runtime", "study", "doctor")


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def statements(node):
    """Everything that runs: what stands under TYPE_CHECKING names types, and imports nothing."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
            continue
        yield child
        yield from statements(child)


def imported(path):
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_imports_upwards_and_ray_stays_in_its_rooms(path):
    level = {name: k for k, names in enumerate(LAYERS) for name in names}
    for name in imported(path):
        if name.startswith("fedpns_ray."):
            target = name.split(".")[1]
            if target in level:
                assert level[target] <= level[room(path)], f"{room(path)} imports {name}"
        if name.split(".")[0] == "ray":
            assert room(path) in RAY_ROOMS, f"{room(path)} imports Ray"


def test_every_dependency_is_pinned():
    project = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"dependencies = \[(.*?)\n\]", project, re.DOTALL)[1]
    wanted = {re.split(r"[\[>=\"]", line.strip().lstrip('"'))[0].lower() for line in block.splitlines() if line.strip()}
    pins = {}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert "==" in line, f"{line} is not pinned"
            pins[re.split(r"[\[=]", line)[0].lower()] = line
    assert wanted <= set(pins)
    assert pins["ray"] == "ray[default,tune]==2.60.0" and pins["torch"] == "torch==2.13.0"
