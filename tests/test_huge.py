"""Huge populations: what they need is known before they start, and what they leave is small."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, load, run
from fedpns_ray.records.counts import COMPRESSED, MOST_LISTED, counts_of, read_counts
from fedpns_ray.records.summary import counts
from fedpns_ray.runtime import memory
from fedpns_ray.terminal.command_line import main

# --- what they leave -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, MOST_LISTED, MOST_LISTED + 1, 100_000])
def test_counts_survive_either_form(count):
    written = json.loads(json.dumps(counts_of([0, 3, 3, count - 1], count)))
    assert isinstance(written, list) == (count <= MOST_LISTED)
    times = read_counts(written, count)
    assert times.sum() == 4 and times[3] == 2 and times[count - 1] == 1 and len(times) == count


@pytest.mark.parametrize(
    "damaged",
    [None, 5, "x", [1, 2], {}, {COMPRESSED: 5}, {COMPRESSED: "!"}, {COMPRESSED: "aGVsbG8="}, {"else": ""},
     counts_of([], 20_001), counts_of([], 10_000_000), [None] * 20_000, [[1]] * 20_000, [1e300] * 20_000],
)  # fmt: skip
def test_damaged_counts_are_none(damaged):
    """A bomb, too: no more is unpacked than there are nodes."""
    assert read_counts(damaged, 20_000) is None


def test_a_huge_run_leaves_little_and_is_read_as_others_are(tmp_path):
    e = Experiment(nodes=11_000, samples_per_node=5, fraction=0.001, rounds=2, epochs=1, strategy="fedpns")
    result = run(e, tmp_path / "r", progress=False)
    assert (tmp_path / "r/summary.json").stat().st_size < 20_000
    again = load(tmp_path / "r")
    drawn = counts(again.summary, "drawn", e.nodes)
    expected = np.bincount([node for record in result.records for node in record["drawn"]], minlength=e.nodes)
    assert (drawn == expected).all() and drawn.sum() == 22
    page, pictures = str(tmp_path / "p.html"), str(tmp_path / "figures")
    assert main(["report", str(tmp_path / "r"), "--out", page, "--figures", pictures]) == 0
    from fedpns_ray.reporting.collecting import gather

    (row,) = gather([tmp_path / "r"]).results.trials.to_dict("records")
    assert row["drawn_iid"] + row["drawn_other"] == 22


# --- what they need --------------------------------------------------------------------------------------------------

PEAK = """
import re, sys
from pathlib import Path
from fedpns_ray import Experiment, run
run(Experiment(rounds=1, epochs=1, strategy="fedavg", **eval(sys.argv[1])), progress=False)
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]))
"""
SIZES = [
    {},
    {"nodes": 20_000, "samples_per_node": 60, "fraction": 0.001},
    {"nodes": 60_000, "samples_per_node": 4, "fraction": 0.001},
    {"nodes": 8_000, "samples_per_node": 5, "fraction": 1.0, "model": "tests.test_huge:Wide"},
]


def Wide(shape, classes):  # noqa: N802
    """12,210 parameters: 391 MB for 8,000 updates."""
    from torch import nn

    return nn.Sequential(nn.Linear(shape[0], 170), nn.Linear(170, classes))


@pytest.mark.parametrize("settings", SIZES, ids=str)
def test_what_is_needed_is_known_within_a_factor_of_2(settings):
    done = subprocess.run([sys.executable, "-c", PEAK, repr(settings)], capture_output=True, text=True, timeout=240)
    measured = int(done.stdout) if done.returncode == 0 else pytest.fail(done.stderr)
    needed = memory.needed(Experiment(rounds=1, epochs=1, strategy="fedavg", **settings)).total
    assert measured / 2 < needed < 2 * measured, f"{needed / 1e6:.0f} MB, measured {measured / 1e6:.0f} MB"


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"nodes": 10_000_000}, "nodes"), ({"samples_per_node": 10**7}, "samples_per_node"),
     ({"nodes": 2_000_000, "samples_per_node": 5, "model": "tests.test_huge:Wide"}, "fraction")],
)  # fmt: skip
def test_more_than_there_is_is_refused_with_numbers(settings, why, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 8 * 10**9)
    e = Experiment(**settings)
    said = rf"{why}: .* GB of memory.*8.0 GB are free.*the nearest that fits: --"
    with pytest.raises(InputError, match=said) as caught:
        run(e, progress=False)
    flag, value = caught.value.hint.rpartition("--")[2].split()
    smaller = e.but(**{flag.replace("-", "_"): value})
    assert 4 * 10**9 < memory.needed(smaller).total <= 8 * 10**9


def test_the_command_refuses_it_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--nodes", "10000000", "--samples-per-node", "10000000"]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_a_container_counts_with_its_own_limit(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("2000000000\n")
    (tmp_path / "memory.current").write_text("500000000\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.free() == 1_500_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free() > 0


def test_a_study_is_refused_before_anything_starts(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("base: {nodes: 9000000}\naxes: {sigma: [0.2, 0.3]}\n")
    monkeypatch.setattr(memory, "free", lambda: 4 * 10**9)
    assert main(["study", "s.yaml", "--out", "o"]) == 2
    said = capsys.readouterr().err
    assert "nodes: 9000000 needs about" in said and said.count("\n") == 1 and not (tmp_path / "o").exists()


def test_the_doctor_says_how_much_fits(capsys):
    main(["doctor"])
    assert "such nodes fit" in " ".join(capsys.readouterr().out.replace("│", " ").split())  # however lines break
