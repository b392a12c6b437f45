"""What people install: an sdist, the wheel built from it, and the commands in an environment without a checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from fedpns_ray import __version__

ROOT = Path(__file__).parent.parent
FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def call(*command, cwd, **changes):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "FEDPNS"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment | changes, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the sdist alone, without a network."""
    folder = tmp_path_factory.mktemp("built")
    (source := folder / "source").mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "fedpns_ray", source / "fedpns_ray", ignore=shutil.ignore_patterns("__pycache__"))
    call(sys.executable, "-c", BUILD, folder, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", folder, sdist, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment with the wheel; what it requires is found where it is installed already."""
    folder = tmp_path_factory.mktemp("installed")
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (packages / "rest.pth").write_text(sysconfig.get_path("purelib"))
    options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--ignore-installed")
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=folder)
    return python.parent


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name for name in names if not name.startswith(f"fedpns_ray-{__version__}.dist-info/")}
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "fedpns_ray").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert code == here


def test_it_runs_in_an_empty_folder_and_an_empty_home(installed, tmp_path):
    home = {"HOME": str(tmp_path / "home"), "PATH": f"{installed}:{os.environ['PATH']}"}
    (tmp_path / "home").mkdir()
    where = call("python", "-c", "import fedpns_ray; print(fedpns_ray.__file__)", cwd=tmp_path, **home)
    assert where.startswith(str(installed.parent))
    assert call("fedpns", "--version", cwd=tmp_path, **home) == f"fedpns {__version__}\n"
    assert "optimal-aggregation" in call("fedpns", "strategies", cwd=tmp_path, **home)
    short = ("--nodes", "5", "--samples-per-node", "20", "--epochs", "1", "--rounds", "3", "--out", "r", "--json")
    summary = json.loads(call("fedpns", "run", "--in-process", *short, cwd=tmp_path, **home))
    assert summary["rounds"] == 3 and summary["versions"]["fedpns-ray"] == __version__


OWN = """
from fedpns_ray.core.interfaces import Selection


class Mine(Selection):
    name = "mine"

    def begin(self, nodes):
        self._size = nodes.per_round

    def draw(self, rng, probe):
        there = probe.available
        return rng.choice(there, min(self._size, len(there)), replace=False).tolist()
"""


def test_the_invariants_take_a_class_of_ones_own_in_an_empty_folder(installed, tmp_path):
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "mod.py").write_text(OWN)
    home = {"HOME": str(tmp_path), "PATH": f"{installed}:{os.environ['PATH']}"}
    said = call("fedpns", "conformance", "mypkg.mod:Mine", cwd=tmp_path, **home)
    assert "10 of 11" in said and "unbiased: the selection does not claim it" in said
