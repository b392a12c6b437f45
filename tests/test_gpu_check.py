"""`make gpu-check`, tried without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


def check(*options):
    command = [sys.executable, "-m", "benchmarks.gpu.check", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_line():
    done = check()
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("no GPU: ") and done.stderr.count("\n") == 1


def test_the_whole_program_on_a_cpu():
    """Cohorts on the CPU, and fractions of a GPU that only Ray believes in."""
    done = check("--device", "cpu", "--models", "mlr")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("# GPU check\n") and done.stdout.endswith("All of it holds.\n")
    assert "**no**" not in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| mlr |", "| cnn-m |"))]
    assert len(rows) == 4 + 3  # four sections, three fractions
