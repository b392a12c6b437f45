"""What `ray up` reads and copies: the package with its pins and the token, by Ray's own hash; and what is run there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private.docker import validate_docker_config
from ray.autoscaler._private.util import hash_runtime_conf

from tests.cluster.validation import CUDA_CHECK, ROOT, validate

FILES = ["gpu.yaml", "gcp.yaml", "onprem.yaml"]
STAYS_HERE = (".venv", "runs", "data", ".git")
NO_GPU = """
__version__ = "2.13.0+cu130"
class version: cuda = {cuda!r}
class cuda: is_available = staticmethod(lambda: False)
"""
A_GPU = """
import torch
from torch.overrides import TorchFunctionMode
torch.version.cuda, torch.cuda.is_available, torch.cuda.get_device_name = "13.0", lambda: True, lambda: "A10G"
class OnCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ == {fails!r}:
            raise RuntimeError("no kernel image")
        on_cpu = {{"device": "cpu"}} if (kwargs or {{}}).get("device") == "cuda" else {{}}
        return func(*args, **{{**(kwargs or {{}}), **on_cpu}})
OnCpu().__enter__()
"""
"""This machine's torch, which computes on its CPU and takes that for a GPU."""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with everything that accumulates in one, as the current folder; the token is in the home folder."""
    home, clone = tmp_path / "home", tmp_path / "clone"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("a token")
    shutil.copytree(ROOT / "fedpns_ray", clone / "fedpns_ray", ignore=shutil.ignore_patterns("__pycache__"))
    for name in STAYS_HERE:
        (clone / name).mkdir()
        (clone / name / "large").write_text("large")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(clone)
    return clone


def hashed(mounts):
    """Ray's hash of the content of what is mounted."""
    return hash_runtime_conf(mounts, None, [], generate_file_mounts_contents_hash=True)[1]


@pytest.mark.parametrize("name", FILES)
def test_ray_up_reads_neither_environments_nor_results(clone, name):
    mounts = validate((ROOT / "cluster" / name).read_text())["file_mounts"]
    whole_clone = {"~/fedpns": "."}  # Ray reads what rsync_exclude leaves out
    before = hashed(mounts)
    for folder in STAYS_HERE:
        noticed = hashed(whole_clone)
        (clone / folder / "large").write_text("larger")
        assert hashed(mounts) == before and hashed(whole_clone) != noticed
    pins = clone / "fedpns_ray" / "requirements.txt"
    pins.write_text(pins.read_text().replace("rich==15.0.0", "rich==15.0.1"))
    with_other_pins = hashed(mounts)
    (Path.home() / ".ray" / "auth_token").write_text("another token")
    assert len({before, with_other_pins, hashed(mounts)}) == 3, "new pins and a new token are noticed"


@pytest.mark.parametrize("name", FILES[:2])
def test_no_single_file_is_mounted_into_a_container(clone, name, capsys):
    validate_docker_config(validate((ROOT / "cluster" / name).read_text()))
    said = capsys.readouterr()
    assert "refers to a file" not in said.out + said.err


# --- what the machines run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES[:2])
def test_every_python_of_a_machine_finds_the_package(clone, name, tmp_path):
    """The command that replaces an installation, run by a Python that knows of no other fedpns_ray."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (Path.home() / "fedpns").mkdir()
    (Path.home() / "fedpns" / "fedpns_ray").symlink_to(clone / "fedpns_ray")
    (command,) = (one for one in setup(name) if "fedpns.pth" in one)
    environment = {"HOME": os.environ["HOME"], "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], check=True, env=environment)
    where = "python -c 'import fedpns_ray; print(fedpns_ray.__file__)'"
    found = subprocess.run(["bash", "-c", where], check=True, env=environment, capture_output=True, text=True, cwd="/")
    assert found.stdout.strip() == str(Path.home() / "fedpns" / "fedpns_ray" / "__init__.py")


def setup(name):
    return yaml.safe_load((ROOT / "cluster" / name).read_text())["setup_commands"]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("sitecustomize", A_GPU.format(fails=""), ""),
        ("torch", NO_GPU.format(cuda=None), "is a build without CUDA"),
        ("torch", NO_GPU.format(cuda="13.0"), "finds no GPU: no GPU is attached, or its driver"),
        ("sitecustomize", A_GPU.format(fails="conv2d"), "cannot compute on A10G (no kernel image)"),
        (
            "torch",
            "raise ImportError('libcudart.so.13: not found')",
            "torch cannot be imported (libcudart.so.13: not found)",
        ),
    ],
)
def test_a_worker_without_cuda_does_not_join(tmp_path, name, code, message):
    """A torch that says what a machine's torch would say: there is no GPU here."""
    (tmp_path / f"{name}.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = CUDA_CHECK.replace("python", sys.executable, 1)
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
    assert done.returncode == (1 if message else 0), done.stderr
    assert message in done.stderr and done.stderr.count("\n") == bool(message)
