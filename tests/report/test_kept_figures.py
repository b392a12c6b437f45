"""Kept data: a study becomes two small files, from which the page of the reproduction and its pictures are made."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedpns_ray import load
from fedpns_ray.reporting.kept_figures import keep, kept, study_of
from fedpns_ray.reporting.reproduction import (
    INCOMPLETE,
    NOT,
    ORDER,
    REPRODUCED,
    UNDECIDED,
    Compared,
    Difference,
    Value,
    compared,
)

ROOT = Path(__file__).parent.parent.parent


def value(ours, published, in_points=True, of=5):
    return Value("FedPNS", pd.Series(ours, index=range(1, 1 + len(ours)), dtype=float), of, published, in_points)


def around(mean, half, n=5):
    """Numbers with this mean and about this half of an interval."""
    steps = np.linspace(-1, 1, n)
    return list(mean + steps * half / (2.776 * steps.std(ddof=1) / np.sqrt(n)))


@pytest.mark.parametrize(
    "ours, published, in_points, verdict",
    [
        (around(90, 0.2), 90.9, True, REPRODUCED),  # within a point
        (around(90, 1.4), 91.3, True, REPRODUCED),  # within an interval that is narrow enough
        (around(90, 1.6), 91.3, True, UNDECIDED),  # within one that is not
        (around(90, 1.2), 91.3, True, NOT),
        ([90.0], 91.3, True, UNDECIDED),  # a single seed decides nothing
        (around(0.75, 0.01), 0.78, False, REPRODUCED),  # within 5 %
        (around(0.75, 0.01), 0.80, False, NOT),
        ([], 0.80, False, INCOMPLETE),
    ],
)
def test_a_value_by_the_stated_rule(ours, published, in_points, verdict):
    assert value(ours, published, in_points).verdict == verdict


def test_a_panel_by_the_stated_rule():
    good, bad, wide = value(around(90, 0.2), 90), value(around(90, 0.2), 95), value(around(90, 5), 94)
    up, flat, down = (Difference("", np.array(around(mean, 0.5)), 2.0) for mean in (1, 0.1, -1))

    def verdict(values, differences):
        return Compared("", "", values, differences).verdict

    assert verdict((good, good), (down,)) == REPRODUCED
    assert verdict((good, bad), (up, up)) == ORDER
    assert verdict((good, bad), (up, flat)) == UNDECIDED and verdict((good, wide), (down,)) == UNDECIDED
    assert verdict((good, bad), (up, down)) == NOT
    assert verdict((good, value([], 90)), (up,)) == INCOMPLETE


def test_a_study_survives_being_kept(study_folder, tmp_path):
    study = study_of(study_folder / "study.yaml")
    keep(study, [study_folder], tmp_path / "small")
    found = kept(study, tmp_path / "small")
    runs = {path.name: load(path) for path in (study_folder / "trials").iterdir()}
    assert set(found.done["trial"]) == set(runs)
    for row in found.done.to_dict("records"):
        summary = runs[row["trial"]].summary
        assert row["final_accuracy"] == summary.final_accuracy and row["weights_sha256"] == summary.weights_sha256
        curve = found.curves[found.curves["trial"] == row["trial"]]["test_accuracy"]
        assert list(curve) == pytest.approx(list(runs[row["trial"]].rounds["test_accuracy"]), abs=1e-6)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000
    keep(study, [tmp_path / "small"], tmp_path / "again")
    assert kept(study, tmp_path / "again").trials.equals(found.trials)
    (tmp_path / "small.csv").write_text("\n".join((tmp_path / "small.csv").read_text().splitlines()[:5]) + "\n")
    part = kept(study, tmp_path / "small")
    assert len(part.done) == 4 and len(part.trials) == 12


def test_the_data_in_the_repository_are_compared(study_folder):
    study = study_of(ROOT / "tune" / "fig3.yaml")
    panels = {panel.title: panel for panel in compared(kept(study, ROOT / "docs/reproduction/fig3"), "fig3")}
    panel = panels["CNN-M, σ = 0.3, ρ = 2"]
    assert panel.verdict == REPRODUCED and panel.whole and [len(one.finals) for one in panel.values] == [5, 5]
    assert panel.values[0].mean == pytest.approx(91.3, abs=0.5) and panel.values[0].half < 1


def test_the_page_of_the_reproduction_is_current():
    script = "import reproduce; assert reproduce.page() == reproduce.PAGE.read_text(), 'run `make reproduction`'"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT / "docs", check=True, timeout=300)


def test_a_figure_is_drawn_from_its_data_in_seconds(tmp_path):
    draw = [sys.executable, "docs/reproduce.py", "draw"]
    done = subprocess.run(
        [*draw, "3", str(tmp_path)], cwd=ROOT, check=True, timeout=300, capture_output=True, text=True
    )
    assert {path.name for path in tmp_path.iterdir()} == {"figure3.pdf", "figure3.png"}
    assert "of 180 trials" in done.stdout and b"/Type3" not in (tmp_path / "figure3.pdf").read_bytes()
