"""The example of a partition, from every door: the command line, a study and Python, in process and on Ray."""

import json
from pathlib import Path

import pytest

from fedpns_ray import Experiment, InputError, load, run
from fedpns_ray.data import build_population
from fedpns_ray.data.interfaces import Partition
from fedpns_ray.terminal.command_line import main

ROOT = Path(__file__).parents[2]
PATH = "examples.own_partition:Favourites"
SIZE = {"dataset": "mnist", "model": "mlr", "nodes": 10, "samples_per_node": 30, "rounds": 2, "strategy": "fedavg"}


class Careless(Partition):
    """Forgets a node."""

    name = "careless"

    def spread(self, rng, samples, sizes):
        return [[1, 2], []] + [[0]] * (len(sizes) - 2)


def test_it_is_short_and_does_what_it_says(mnist):
    assert len((ROOT / "examples/own_partition.py").read_text().splitlines()) <= 40
    p = build_population(Experiment(**SIZE, partition=PATH, favour=0.8))
    assert (p.histogram.diagonal() >= 24).all() and (p.sizes == 30).all()


def test_it_runs_from_every_door_with_equal_bits(mnist, tmp_path, capsys, monkeypatch):
    from fedpns_ray import Layout

    monkeypatch.chdir(ROOT)
    e = Experiment(**SIZE, partition=PATH, favour=0.8)
    digests = {run(e, progress=False).summary["weights_sha256"]}
    digests.add(run(e, layout=Layout(actors=2), progress=False).summary["weights_sha256"])
    flags = [text for key, value in SIZE.items() for text in (f"--{key.replace('_', '-')}", str(value))]
    out = str(tmp_path / "r")
    assert (
        main(["run", *flags, "--partition", PATH, "--set", "favour=0.8", "--in-process", "--out", out, "--json"]) == 0
    )
    digests.add(json.loads(capsys.readouterr().out)["weights_sha256"])
    study = tmp_path / "s.yaml"
    study.write_text(json.dumps({"base": {**SIZE, "partition": PATH}, "axes": {"favour": [0.8, 0.1]}}))
    assert main(["study", str(study), "--out", str(tmp_path / "o")]) == 0
    trials = [load(path.parent) for path in (tmp_path / "o/trials").glob("*/summary.json")]
    found = {trial.summary["weights_sha256"] for trial in trials}
    assert len(trials) == 2 and len(digests) == 1 and digests < found


def test_what_it_returns_is_checked(mnist):
    with pytest.raises(InputError, match="partition: node 1 holds no sample"):
        build_population(Experiment(**SIZE, partition=Careless))
    with pytest.raises(InputError, match="favour: 3"):
        Experiment(**SIZE, partition=PATH, favour=3)
