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
    done = subprocess.run([sys.executable, "-c", PEAK, repr(settings)], capture_output=True, text=True, timeout=600)
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


def test_a_file_that_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """Its arrays say how large they are; compressed, 400 MB of zeros are small."""
    path = tmp_path / "zeros.npz"
    y = np.zeros(100_000, dtype=np.int64)
    np.savez_compressed(path, train_x=np.zeros((100_000, 1000), dtype=np.float32), train_y=y, test_x=y, test_y=y)
    assert path.stat().st_size < 1e6
    monkeypatch.setattr(memory, "free", lambda: 500 * 10**6)
    monkeypatch.setattr("fedpns_ray.data.datasets.file.read_arrays", None)  # to be called is an error
    with pytest.raises(InputError, match=r"dataset: file needs about 0.8 GB of memory .*0.5 GB are free; free some"):
        run(Experiment(dataset="file", data_file=path), progress=False)


def test_what_a_text_or_jsons_take_is_known_before_they_are_read(tmp_path, monkeypatch):
    plain = memory.needed(Experiment(dataset="shakespeare"))
    assert 0.14e9 < plain.data < 0.22e9 and plain.updates == 10 * 4 * (798_720 + 265 * 65)
    assert memory.needed(Experiment(dataset="shakespeare", window_stride=1)).data > 1.4e9
    (tmp_path / "femnist" / "train").mkdir(parents=True)
    (tmp_path / "femnist" / "train" / "a.json").write_bytes(bytes(10**6))
    monkeypatch.setenv("FEDPNS_DATA", str(tmp_path))
    assert Experiment(dataset="femnist").build_dataset().bytes_held() == 10**6
    np.savez(tmp_path / "femnist.npz", train_x=np.zeros((500, 1, 28, 28), dtype=np.uint8))
    e = Experiment(dataset="femnist")
    assert e.build_dataset().outline()[:3] == ((1, 28, 28), 500, 62)
    assert memory.needed(e).updates == 10 * 4 * (784 * 62 + 62)


def test_too_many_actors_are_refused_by_their_own_number(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 4 * 10**9)
    with pytest.raises(
        InputError, match=r"^actors: 100 actors need about .* each; 4.0 GB are free; .* --actors \d+$"
    ) as said:
        memory.refuse_too_large(Experiment(nodes=100), actors=100)
    memory.refuse_too_large(Experiment(nodes=100), actors=int(str(said.value).rpartition(" ")[2]))


def test_no_setting_is_suggested_that_would_be_refused(monkeypatch):
    """With two million nodes, a fraction that would fit draws none of them."""
    monkeypatch.setattr(memory, "free", lambda: 400 * 10**6)
    with pytest.raises(InputError, match="needs about .* are free"):
        memory.refuse_too_large(Experiment(nodes=2_000_000, fraction=0.5))
