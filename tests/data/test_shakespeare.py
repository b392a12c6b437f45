"""Shakespeare: roles, windows and the split, on the real text and by hand."""

import bz2
import gzip
import shutil

import numpy as np
import pytest
from torch import nn

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.data import build_population
from fedpns_ray.data.datasets import shakespeare
from fedpns_ray.data.datasets.shakespeare import ShakespeareDataset, roles
from fedpns_ray.data.sources import data_root
from fedpns_ray.terminal.command_line import main
from tests.conftest import missing

PLAY = """A:
To be, or not
to be.

B:
Ay.

C:


A:
That is it.
"""


class Next(nn.Module):
    """The next character from the last two."""

    def __init__(self, classes):
        super().__init__()
        self.embedding = nn.Embedding(classes, 8)
        self.out = nn.Linear(16, classes)

    def forward(self, x):
        return self.out(self.embedding(x[:, -2:].long()).flatten(1))


@pytest.fixture(scope="module")
def text():
    path = data_root() / "shakespeare" / "input.txt"
    if not path.exists():
        missing(f"the text is not at {path}")
    return path.read_text()


def test_roles_by_hand():
    assert roles(PLAY) == {"A": "To be, or not\nto be.\nThat is it.\n", "B": "Ay."}


def test_windows_by_hand(monkeypatch):
    monkeypatch.setattr(shakespeare, "_read", lambda root: "A:\n0123456789\n\nB:\n98")
    monkeypatch.setattr(shakespeare, "copies", lambda path: [path])
    monkeypatch.setattr(shakespeare, "FEWEST", 1)
    vocabulary = "\n0123456789:AB"
    samples = ShakespeareDataset(context=1, window_stride=3).load()

    def spelled(tokens):
        return ["".join(vocabulary[t] for t in row) for row in np.atleast_2d(tokens)]

    assert spelled(samples.train_x) == ["0", "3", "6"] and spelled(samples.train_y) == ["147"]
    assert spelled(samples.test_x) == ["8"] and spelled(samples.test_y) == ["9"]  # the last 20 %, apart
    assert samples.train_node.tolist() == [0, 0, 0] and samples.classes == 14


def test_the_real_text(text):
    said = roles(text)
    samples = ShakespeareDataset().load()
    vocabulary = sorted(set(text))
    assert samples.classes == len(vocabulary) == 65
    assert samples.train_x.dtype == np.int64 and samples.shape == (80,) and len(samples.test_y) == 10_000
    counts = np.bincount(samples.train_node)
    expected = {role: (int(0.8 * len(lines)) - 80 + 9) // 10 for role, lines in said.items()}
    kept = [role for role, count in expected.items() if count >= 5]
    assert counts.tolist() == [expected[role] for role in kept] and len(kept) > 200 and len(samples.train_x) > 75_000
    first = said[kept[0]]
    assert "".join(vocabulary[t] for t in samples.train_x[0]) == first[:80]
    assert vocabulary[samples.train_y[0]] == first[80]
    assert "".join(vocabulary[t] for t in samples.train_x[1]) == first[10:90]
    assert len(ShakespeareDataset(test_samples=7).load().test_y) == 7


def test_a_run_on_the_real_text_learns(text):
    e = Experiment(
        dataset="shakespeare", model=Next, strategy="fedavg", nodes=40, fraction=0.25, rounds=8, lr=1, seed=3,
        window_stride=20, test_samples=1000,
    )  # fmt: skip
    assert e.partition == "natural"
    population = build_population(e)
    assert population.count == 40 and not population.iid.any() and population.histogram.shape == (40, 65)
    assert run(e).summary.best_accuracy > 0.19  # spaces alone make up 15 %


def test_the_text_is_verified_by_content(text, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPNS_DATA", str(tmp_path))
    whole = ShakespeareDataset(window_stride=100)
    folder = tmp_path / "shakespeare"
    folder.mkdir()
    for ending, pack in ((".gz", gzip.compress), (".bz2", bz2.compress)):
        (folder / f"input.txt{ending}").write_bytes(pack(text.encode()))
    assert whole.verify(tmp_path).startswith("as published") and len(whole.load().train_y) > 5000
    (folder / "input.txt").write_text(text.replace("e", "a", 1))
    with pytest.raises(InputError, match="input.txt does not hold the text that was published; delete it"):
        whole.load()
    (folder / "input.txt").unlink()
    (folder / "input.txt.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(InputError, match="input.txt.gz is damaged: it cannot be unpacked"):
        whole.load()
    shutil.rmtree(folder)
    monkeypatch.setattr(shakespeare, "URL", "http://127.0.0.1:9/none")
    with pytest.raises(InputError, match="shakespeare is not in .* and could not be fetched .*Connection refused"):
        whole.load()


def test_a_context_that_no_role_fills_is_refused(text):
    with pytest.raises(InputError, match="context: 10000 is not allowed; no role says enough"):
        ShakespeareDataset(context=10_000).load()


def test_strategies_are_compared_on_the_real_text(text, tmp_path, monkeypatch, capsys):
    """On Ray, as a user would, at a size for tests."""
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        "--dataset",
        "shakespeare",
        "--model",
        "char-lstm",
        "--strategies",
        "fedpns,fedavg",
        "--seeds",
        "1-2",
        "--rounds",
        "2",
    ]
    small = [
        "--nodes",
        "6",
        "--fraction",
        "0.5",
        "--context",
        "20",
        "--window-stride",
        "400",
        "--test-samples",
        "100",
        "--out",
        "c",
    ]
    assert main([*words, *small]) == 0
    assert "points" in capsys.readouterr().out and (tmp_path / "c" / "report.html").exists()
