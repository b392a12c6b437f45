"""The house rules: no import upwards or in circles, no Ray in the science, keys spelled once, small pieces."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fedpns_ray"
LAYERS = (
    ("errors",),
    ("addresses", "atomic_file", "file_lock", "third_party", "yaml_file", "validation"),
    ("core",),
    ("data",),
    ("strategies",),
    ("registry",),
    ("conformance",),
    ("settings",),
    ("experiment",),
    ("naming",),
    ("records",),
    ("runtime",),
    ("study",),
    ("reporting", "doctor"),
    ("progress",),
    ("api",),
    ("verification", "replay"),
    ("terminal",),
    ("__main__",),
)
"""From the bottom up; a room imports what stands above it in this list, and itself."""
RAY_ROOMS = ("runtime", "study", "doctor")
PUBLIC = {"__version__"}
RAY_PRIVATE = PACKAGE / "runtime" / "ray_private.py"


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
            if target in PUBLIC:  # `from fedpns_ray import __version__` imports nothing more
                continue
            assert level[target] <= level[room(path)], f"{room(path)} imports {name}"
        if name.split(".")[0] == "ray":
            assert room(path) in RAY_ROOMS, f"{room(path)} imports Ray"


def test_rays_private_modules_are_imported_in_one_file():
    users = {path for path in modules() for name in imported(path) if "_private" in name.split(".")}
    assert users == {RAY_PRIVATE}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_environment_variable_is_set_at_import(path):
    """Functions may set them; what stands at the top of a module, or in a class, may not."""
    stack = list(ast.parse(path.read_text()).body)
    while stack:
        node = stack.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            assert "environ" not in (getattr(node, "attr", ""), getattr(node, "id", "")), f"{path}: line {node.lineno}"
            stack.extend(ast.iter_child_nodes(node))


def test_no_module_imports_itself_through_others():
    """Imports within functions count, too."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in modules()
    }
    uses = {name: {used for used in imported(path) if used in names} - {name} for name, path in names.items()}
    done = set()

    def follow(name, above):
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            for used in sorted(uses[name]):
                follow(used, [*above, name])
            done.add(name)

    for name in names:
        follow(name, [])


# --- keys ------------------------------------------------------------------------------------------------------------


def spelled(tree):
    """String constants that are not docstrings, with their lines."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value, node.lineno


def declaring_files():
    """Key → the one file that may spell it: keys of several words, which nothing else is called by."""
    from fedpns_ray.records.record import Key, Record
    from fedpns_ray.records.summary import Summary
    from fedpns_ray.registry import PARTS

    homes = {}
    for kind, name in ((Record, "record"), (Summary, "summary")):
        homes |= {key: f"records/{name}.py" for key, entry in vars(kind).items() if isinstance(entry, Key)}
    for parts in PARTS.values():
        for part in parts.values():
            module = part.__module__.removeprefix("fedpns_ray.").replace(".", "/")
            homes |= {quantity.key: f"{module}.py" for quantity in part.quantities}
    return {key: home for key, home in homes.items() if "_" in key}


def test_keys_of_records_are_spelled_in_one_place():
    homes = declaring_files()
    assert {"test_accuracy", "weights_sha256", "iid_probability", "expectation_after"} <= set(homes)
    for path in modules():
        here = str(path.relative_to(PACKAGE))
        for text, line in spelled(ast.parse(path.read_text())):
            assert homes.get(text, here) == here, f"{here}: line {line} spells {text!r}, a key of {homes[text]}"


def test_records_are_read_by_attribute():
    """`record["round"]` would spell a key; `record.round` does not."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                name = getattr(node.value, "id", getattr(node.value, "attr", ""))
                assert name not in ("record", "summary", "last"), f"{path}: line {node.lineno}"


def test_the_page_spells_no_key():
    for path in (PACKAGE / "reporting").glob("page*.js"):
        script = path.read_text()
        assert not [key for key in declaring_files() if re.search(rf"\b{key}\b", script)], path
        assert max(map(len, script.splitlines())) <= 120 and len(script.splitlines()) <= LONGEST_FILE, path


# --- size ------------------------------------------------------------------------------------------------------------

LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 350, 50, 6
CODE = [*modules(), *sorted((ROOT / "benchmarks").rglob("*.py"))]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pieces_stay_small(path):
    """The length of lines is ruff's."""
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, f"{node.name} is too long"
            a = node.args
            named = [one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
            count = len(named) + (a.vararg is not None) + (a.kwarg is not None) - (named[:1] in (["self"], ["cls"]))
            assert count <= MOST_PARAMETERS, f"{node.name} has {count} parameters"
