"""The examples of a model, a loss and a metric of one's own: from Python and from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedpns_ray import Experiment, run

ROOT = Path(__file__).parent.parent
SMALL = {"dataset": "mnist", "strategy": "fedpns", "nodes": 4, "fraction": 0.5, "rounds": 2, "samples_per_node": 40}
EXAMPLES = {
    "own_model": {"model": "examples.own_model:SmallNet", "buffers": "average"},
    "own_loss": {"model": "mlr", "loss": "examples.own_loss:focal"},
    "own_metric": {"model": "mlr", "metrics": "macro-f1,examples.own_metric:KappaMetric"},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_the_same_from_python_and_from_the_command_line(mnist, tmp_path, name):
    settings = SMALL | EXAMPLES[name]
    flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "fedpns_ray", "run", "--in-process", "--json", "--out", str(tmp_path), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    result = run(Experiment(**settings))
    assert json.loads(done.stdout)["weights_sha256"] == result.summary.weights_sha256
    assert result.records[-1].test_loss > 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 40
