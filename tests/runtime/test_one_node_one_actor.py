"""The paper's picture, literally: every node is an actor, pleasant to start and as small as torch allows."""

import json
import subprocess
import sys

from fedpns_ray import Experiment, run
from fedpns_ray.runtime.layout import Layout, Machine, plan
from tests.bench import Bench

E = Experiment(nodes=10, fraction=0.5, samples_per_node=40, epochs=1, rounds=3)
ALLOWED = {"fedpns_ray", "numpy", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "yaml", "_yaml",
           "platformdirs", "psutil"}  # fmt: skip
"""Installed packages that a node actor may import beside Ray, torch, and what these bring along."""
IMPORTED = """
import json, sys
import ray, torch
before = set(sys.modules)
import fedpns_ray.runtime.node_actor
files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in set(sys.modules) - before}
print(json.dumps(sorted({name.partition(".")[0] for name, file in files.items() if "site-packages" in file})))
print(json.dumps([name for name in files if name.startswith("fedpns_ray.")]))
"""


def test_a_node_actor_imports_only_what_it_needs():
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    packages, own = map(json.loads, done.stdout.splitlines())
    assert "pydantic" in packages and set(packages) <= ALLOWED, set(packages) - ALLOWED
    rooms = {name.split(".")[1] for name in own}
    assert not rooms & {"api", "doctor", "progress", "records", "reporting", "study", "terminal"}, rooms


def test_the_terminal_says_beforehand_what_it_takes_and_how_far_it_is(tmp_path):
    """And nothing of Ray's own: with so many workers on a few cores, each raylet warns."""
    (tmp_path / "e.yaml").write_text(E.to_yaml())
    process = Bench(tmp_path, "run", "e.yaml", "--out", "r", "--nodes-per-actor", "1").start()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "starting 10 actors, " in err and "GB of memory, and " in err and "all 10 node actors are ready" in err
    assert "WARNING" not in out + err and "raylet" not in out + err, out + err
    digest = json.loads((tmp_path / "r" / "summary.json").read_text())["weights_sha256"]
    assert digest == run(E).summary["weights_sha256"]


def test_few_actors_are_not_announced():
    machines = [Machine("m", 4, 4, 64e9)] * 4
    hundred = plan(Layout(nodes_per_actor=1, gpus_per_actor=0.04), machines, nodes=100, drawn=10)
    assert hundred.announce(16).startswith("starting 100 actors, 0.04 GPU each: about ")
    assert plan(Layout(actors=2), machines, 100, 10).announce(16) == ""
