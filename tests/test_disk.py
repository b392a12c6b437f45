"""What the file system refuses is one line, and nothing is lost: a full disk, a folder that vanishes, long names."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.terminal.command_line import main
from tests.conftest import missing

SETTINGS = {"nodes": 12, "fraction": 0.5, "samples_per_node": 50, "epochs": 1, "rounds": 120}
FLAGS = [word for key, value in SETTINGS.items() for word in (f"--{key.replace('_', '-')}", str(value))]
RUN = ["run", "--in-process", "--checkpoint-every", "5", *FLAGS]
MOUNTED = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
size, folder, *commands = sys.argv[1:]
def mount(flags, options):
    if libc.mount(b"none", folder.encode(), b"tmpfs", flags, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
os.unshare(os.CLONE_NEWNS) if hasattr(os, "unshare") else libc.unshare(0x20000)
libc.mount(None, b"/", None, 1 << 18 | 1 << 14, None)
mount(0, size)
for command in commands:
    if command.startswith("remount "):
        mount(32 | (1 if command == "remount ro" else 0), "size=20m" if command == "remount ro" else command.split()[1])
    else:
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        print(repr((done.returncode, done.stdout, done.stderr)))
"""
"""Commands with a disk of their own, which goes away with the process."""


@pytest.fixture
def disk(tmp_path):
    """`disk(size, *commands)`: their exit codes, outputs and messages."""
    if os.geteuid():
        missing("mounting a disk of its own needs root")
    (tmp_path / "disk").mkdir()

    def use(size, *commands):
        words = [f"{sys.executable} -m fedpns_ray {c}" if c.startswith(("run", "report")) else c for c in commands]
        done = subprocess.run(
            [sys.executable, "-c", MOUNTED, f"size={size}", str(tmp_path / "disk"), *words],
            capture_output=True,
            text=True,
            timeout=600,  # up to four commands
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return [eval(line) for line in done.stdout.splitlines()]

    return use


def test_a_full_disk_ends_a_run_with_one_line_and_it_resumes_to_the_same_bits(disk, tmp_path):
    command = f"{' '.join(RUN)} --json --out {tmp_path}/disk/r"
    full, left, page, resumed = disk(
        "90k", command, "ls -A disk/r", "report disk/r --out disk/p.html; ls -A disk", "remount size=20m", command
    )
    assert (
        full[:2] == (1, "")
        and full[2] == f"fedpns: {tmp_path}/disk/r: No space left on device; the same command resumes\n"
    )
    assert "rounds.jsonl" in left[1] and "partial" not in left[1]
    assert page[2] == f"fedpns: {'disk/p.html'}: No space left on device\n" and page[1] == "r\n"
    assert resumed[0] == 0 and "damaged" not in resumed[2]
    whole = run(Experiment(**SETTINGS))
    assert json.loads(resumed[1])["weights_sha256"] == whole.summary["weights_sha256"]


def test_a_read_only_disk_is_one_line(disk, tmp_path):
    run(Experiment(**SETTINGS | {"rounds": 2}), tmp_path / "r")
    refused, page = disk("1m", "remount ro", f"{' '.join(RUN)} --out disk/r", "report r --out disk/p.html; ls -A disk")
    assert refused == (2, "", f"fedpns: out: {tmp_path}/disk cannot be written to; name another folder\n")
    assert page[1:] == ("", "fedpns: disk/p.html: Read-only file system\n")


def test_a_folder_that_vanishes_is_one_line(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "r"

    def vanish(bar, record):
        if record.round == 7:
            shutil.rmtree(folder)

    monkeypatch.setattr("fedpns_ray.progress.run_bar.RunBar.advance", vanish)
    assert main([*RUN, "--out", str(folder)]) == 1
    assert capsys.readouterr().err == f"fedpns: {folder}: the folder is gone; the same command resumes\n"


@pytest.mark.parametrize(
    "words",
    [
        [*RUN, "--out", "a" * 300],
        [*RUN, "--out", "a/" * 3000],
        ["run", "a" * 300],
        ["study", "a" * 300],
        ["report", "a" * 300],
        ["report", ".", "--out", "a" * 300],
        ["watch", "a" * 300, "--once"],
        ["data", "show", "--out", "a" * 300 + ".png", *FLAGS],
        [*RUN, "--devices", "file", "--device-file", "a" * 300],
    ],
    ids=lambda words: " ".join(words)[:20],
)
def test_a_name_that_is_too_long_is_one_line(words, tmp_path, monkeypatch, capsys):
    run(Experiment(**SETTINGS | {"rounds": 1}), tmp_path / "r")
    monkeypatch.chdir(tmp_path / "r")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("fedpns: ") and len(said) < 500


def test_a_broken_pipe_is_silent(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m fedpns_ray data show --nodes 60 | true", shell=True, capture_output=True, text=True
    )
    assert done.stderr == ""
