"""cluster/Dockerfile without Docker: read strictly, and its steps after `USER` run in a home folder of their own."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.validation import ROOT, secret_free

DOCKERFILE = ROOT / "cluster" / "Dockerfile"
KNOWN = {"ARG", "CMD", "COPY", "ENV", "FROM", "RUN", "SHELL", "USER", "WORKDIR"}


def instructions():
    """(instruction, the rest), with comments dropped and continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]


def all_of(kind):
    return [rest for name, rest in instructions() if name == kind]


def copied():
    """(source, destination) of every COPY."""
    for rest in all_of("COPY"):
        words = [word for word in rest.split() if not word.startswith("--")]
        assert len(words) == 2, rest
        yield words


def test_it_names_what_it_needs_and_nothing_secret():
    secret_free(DOCKERFILE.read_text())
    assert {name for name, _ in instructions()} <= KNOWN, "no ADD, nothing fetched from an address"
    assert all_of("FROM") == ["python:3.11-slim-bookworm"], "the Python of the clone's environment, and of Ray's images"
    assert not re.search(r"(?i)(password|secret|api_key|auth_token)", DOCKERFILE.read_text())
    assert not re.search(r"https?://", DOCKERFILE.read_text())
    assert json.loads(all_of("SHELL")[0])[0] == "/bin/bash"


def test_what_ray_up_and_kuberay_ask_of_an_image():
    environment = dict(pair.split("=", 1) for rest in all_of("ENV") for pair in rest.split())
    assert environment["HOME"] == "/home/ray" == all_of("WORKDIR")[0], "Ray would take /root otherwise"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all", "no GPU would be seen otherwise"
    packages = next(rest for rest in all_of("RUN") if "apt-get install" in rest)
    assert {"rsync", "openssh-client", "procps", "wget"} <= set(packages.split())
    assert "--uid 1000" in packages and all_of("USER") == ["ray"], "the owner of what `ray up` mounts"


def test_every_source_is_there_and_sent_to_docker():
    ignored = (ROOT / "cluster" / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    for source, _ in copied():
        assert (ROOT / source).exists() and not (ROOT / source).is_symlink(), source
        assert Path(source).parts[0] in sent, f"{source} is not sent"
    assert sent == {Path(source).parts[0] for source, _ in copied()}


def test_every_version_is_pinned():
    installs = [rest for rest in all_of("RUN") if "pip install" in rest]
    assert len(installs) == 1 and "--requirement fedpns/fedpns_ray/requirements.txt" in installs[0]
    client = next(rest for rest in all_of("ARG") if rest.startswith("CLOUD_CLIENT=")).partition("=")[2]
    assert f"\n{client}\n" in (ROOT / "requirements-dev.txt").read_text()
    assert f"pip install --quiet {client} " in (ROOT / "cluster" / "gpu.yaml").read_text()
    other = re.search(r"CLOUD_CLIENT=(google\S+)", DOCKERFILE.read_text())[1]
    assert f"pip install --quiet {other} " in (ROOT / "cluster" / "gcp.yaml").read_text()


@pytest.mark.parametrize("index", ["", "file:///builds"])
def test_its_steps_make_an_environment_that_login_shells_find(tmp_path, index):
    """The steps of the user `ray`, with a pip that writes down its words, and a Python that knows nothing of ours."""
    home = tmp_path / "home"
    (home / "venv" / "bin").mkdir(parents=True)
    stub = home / "venv" / "bin" / "pip"
    stub.write_text('#!/bin/sh\nfor word; do echo "$word"; done > "$HOME/installed"\n')
    stub.chmod(0o755)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    arguments = dict(rest.replace('""', "").split("=", 1) for rest in all_of("ARG")) | {"TORCH_INDEX": index}
    steps = instructions()
    for name, rest in steps[steps.index(("USER", "ray")) :]:
        if name == "ENV":
            key, _, value = rest.partition("=")
            value = value.replace("/home/ray", str(home)).replace("$PATH", environment["PATH"])
            environment[key] = value
        elif name == "COPY":
            source, destination = (word for word in rest.split() if not word.startswith("--"))
            copy(ROOT / source, home / destination)
        elif name == "RUN":
            command = rest.replace("-m venv", "-m venv --without-pip").replace(
                " && python -m fedpns_ray --help", "; true"
            )
            subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, cwd=home, env=environment | arguments)
    installed = (home / "installed").read_text().splitlines()
    assert installed[-1] == arguments["CLOUD_CLIENT"] and ("--extra-index-url" in installed) == bool(index)
    assert "" not in installed
    for shell in (["bash", "--login", "-c"], ["bash", "--login", "-i", "-c"], ["bash", "-i", "-c"]):
        where = [*shell, "python -c 'import fedpns_ray; print(fedpns_ray.__file__)'"]
        clean = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        found = subprocess.run(where, env=clean, cwd="/", capture_output=True, text=True, timeout=180)
        assert found.stdout.strip() == str(home / "fedpns" / "fedpns_ray" / "__init__.py"), found.stderr


def copy(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, destination, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, destination)
