"""What a run needs is in requirements.txt, pinned, and nothing else: proven where nothing else is installed."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
RUN = "fedpns_ray/requirements.txt"
EVERY_MODULE = """
import importlib, pkgutil, fedpns_ray
for module in pkgutil.walk_packages(fedpns_ray.__path__, "fedpns_ray."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def pinned(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def installed_by(requirements: list[Requirement]) -> dict[str, Distribution]:
    """These and everything that they require in turn, as pip would install it here."""
    found: dict[str, Distribution] = {}
    waiting = [(requirement, "") for requirement in requirements]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if (requirement.marker and not requirement.marker.evaluate({"extra": extra})) or key in seen:
            continue
        seen.add(key)
        one = found[key[0]] = distribution(requirement.name)
        for line in one.requires or []:
            waiting += [(Requirement(line), extra) for extra in ("", *requirement.extras)]
    return found


@pytest.mark.parametrize("name", [RUN, "requirements-dev.txt"])
def test_every_version_is_exact(name):
    for requirement in pinned(name):
        assert [one.operator for one in requirement.specifier] == ["=="], requirement


def test_a_run_needs_what_the_project_declares():
    block = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)[1]
    pins = {canonicalize_name(pin.name): pin for pin in pinned(RUN)}
    declared = [Requirement(line) for line in re.findall(r'"(.+)"', block)]
    assert names(declared) == set(pins)
    for requirement in declared:
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.extras == pin.extras
        assert requirement.specifier.contains(next(iter(pin.specifier)).version)
    assert str(pins["ray"]) == "ray[default,tune]==2.60.0" and str(pins["torch"]) == "torch==2.13.0"


def test_the_pins_travel_with_the_package():
    """`ray up` copies the package's folder, and nothing beside it."""
    assert (ROOT / "requirements.txt").read_text().splitlines()[-1] == f"-r {RUN}"


def test_development_adds_to_it():
    text = (ROOT / "requirements-dev.txt").read_text()
    assert "\n-r requirements.txt\n" in text
    assert not names(pinned(RUN)) & names(pinned("requirements-dev.txt"))
    makefile = (ROOT / "Makefile").read_text()
    assert "-r requirements-dev.txt" in makefile and "-r requirements.txt" not in makefile


def test_machines_of_a_cluster_install_no_tools():
    installed = installed_by(pinned(RUN))
    for tool in ("selenium", "mypy", "moto", "wandb", "boto3", "pytest", "ruff", "hypothesis", "tensorboard"):
        assert tool not in installed
        assert distribution(tool), "else this test would pass for want of it"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """An interpreter that has what requirements.txt names, and what that requires: links to what is installed here."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (folder / "packages").mkdir()
    for one in installed_by(pinned(RUN)).values():
        for top in {file.parts[0] for file in one.files or [] if file.parts[0] != ".."}:
            link = folder / "packages" / top
            if not link.is_symlink():
                link.symlink_to(Path(str(one.locate_file(top))))
    return folder


def call(small: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT}{os.pathsep}{small / 'packages'}"
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(small / "venv" / "bin" / "python"), *arguments]
    return subprocess.run(command, cwd=small, env=environment, capture_output=True, text=True, timeout=300)


def test_it_runs_and_reports_with_nothing_else(small):
    assert "No module named 'boto3'" in call(small, "-c", "import boto3").stderr, "nothing else is there"
    short = ("--nodes", "5", "--samples-per-node", "20", "--epochs", "1", "--rounds", "3", "--json", "--out", "r")
    done = call(small, "-m", "fedpns_ray", "run", "--in-process", *short)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 3
    done = call(small, "-m", "fedpns_ray", "report", "r")
    assert done.returncode == 0 and (small / "report.html").exists(), done.stderr


def test_every_module_is_imported_with_nothing_else(small):
    done = call(small, "-c", EVERY_MODULE)
    assert done.returncode == 0, done.stderr
