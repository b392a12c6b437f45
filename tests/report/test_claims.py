"""Claims: stated before a study runs; kept, refuted or undecided after it."""

import numpy as np
import pandas as pd
import pytest

from fedpns_ray import InputError
from fedpns_ray.reporting.judgement import judged, table_of
from fedpns_ray.reporting.tables import Results
from fedpns_ray.study.claims_block import Claim
from fedpns_ray.study.study_file import read_study
from fedpns_ray.terminal.command_line import main

FILE = """
base: {rounds: 2, nodes: 4, fraction: 0.5, samples_per_node: 20, epochs: 1}
axes:
  sigma: [%s]
  strategy: [fedpns, fedavg]
seeds: 1-%d
claims:
%s"""


def study_of(folder, claims, sigmas="0.5", seeds=5):
    path = folder / "s.yaml"
    path.write_text(FILE % (sigmas, seeds, "".join(f"  - {{{claim}}}\n" for claim in claims)))
    return read_study(path)


def results_of(study, differences, status="done"):
    """`differences`: for each sigma the points by which fedpns is ahead, by seed; None for a trial that failed."""
    rows = []
    for sigma, points in differences.items():
        for seed, ahead in enumerate(points, 1):
            for strategy, accuracy in (("fedavg", 0.5), ("fedpns", 0.5 + (ahead or 0) / 100)):
                there = "failed" if ahead is None and strategy == "fedpns" else status
                rows.append({"sigma": sigma, "strategy": strategy, "seed": seed, "status": there,
                             "final_accuracy": accuracy, "best_accuracy": 0.5})  # fmt: skip
    return Results(study, pd.DataFrame(rows), pd.DataFrame())


def test_kept_as_computed_by_hand(tmp_path):
    """Mean 3, variance 2.5, so t = 3 √2; with 4 degrees of freedom its tail has a closed form."""
    study = study_of(tmp_path, ["better: fedpns, than: fedavg"])
    (one,) = judged(results_of(study, {0.5: [1, 2, 3, 4, 5]}))
    t = 3 * np.sqrt(2)
    tail = 0.5 - 0.375 * t / np.sqrt(1 + t**2 / 4) * (1 - t**2 / (12 + 3 * t**2))
    assert one.p_kept == pytest.approx(tail) and one.p_refuted == pytest.approx(1 - tail)
    assert one.p_sign_flip == 1 / 32  # only one of the 32 ways to choose signs is as large
    assert one.half == pytest.approx(2.776445 * np.sqrt(2.5 / 5), abs=1e-6)
    assert str(one) == (
        "kept: fedpns is better than fedavg: +3.00 ± 1.96 points over 5 seeds (p = 0.0066, sign-flip test 0.031)"
    )


@pytest.mark.parametrize(
    ("claim", "points", "verdict"),
    [
        ("better: fedpns, than: fedavg, margin_points: 5", [1, 2, 3, 4, 5], "refuted"),
        ("better: fedpns, than: fedavg, margin_points: 2.9", [1, 2, 3, 4, 5], "undecided"),
        ("better: fedpns, than: fedavg", [-1, 2, -3, 4, -1], "undecided"),
        ("better: fedpns, than: fedavg, level: 0.001", [1, 2, 3, 4, 5], "undecided"),
        ("better: fedpns, than: fedavg", [2, 2, 2, 2, 2], "kept"),  # all seeds alike
        ("better: fedpns, than: fedavg, margin_points: 4", [2, 2, 2, 2, 2], "refuted"),
        ("better: fedpns, than: fedavg", [0, 0, 0, 0, 0], "undecided"),
        ("not_worse: fedpns, than: fedavg, margin_points: 1", [0.1, -0.2, 0, 0.2, -0.1], "kept"),
        ("not_worse: fedpns, than: fedavg, margin_points: 1", [-5, 5, 0, 4, -4], "undecided"),
        ("not_worse: fedpns, than: fedavg, margin_points: 1", [-5, -6, -5, -6, -5], "refuted"),
        ("not_worse: fedavg, than: fedpns, margin_points: 1", [1, 2, 3, 4, 5], "refuted"),
        ("better: fedpns, than: fedavg, on: best_accuracy", [1, 2, 3, 4, 5], "undecided"),
    ],
)
def test_verdicts(tmp_path, claim, points, verdict):
    (one,) = judged(results_of(study_of(tmp_path, [claim]), {0.5: points}))
    assert one.verdict == verdict and str(one).startswith(verdict)


@pytest.mark.parametrize("margin, said", [(1, "1 point"), (0.5, "0.5 points")])
def test_a_margin_in_words(margin, said):
    assert Claim(better="a", than="b", margin_points=margin).describe() == f"a is better than b by more than {said}"
    assert Claim(not_worse="a", than="b", margin_points=margin).describe() == f"a is not worse than b by {said} or more"


def test_the_number_of_seeds_that_would_decide(tmp_path):
    """With mean 1 and standard deviation 2 the one-sided t-test needs √n > 2 t(0.95, n - 1): 13 seeds."""
    points = np.array([-1.0, 3.0, 1.0, -1.0, 3.0])
    (one,) = judged(results_of(study_of(tmp_path, ["better: fedpns, than: fedavg"]), {0.5: points}))
    assert points.mean() == 1 and points.std(ddof=1) == 2
    assert one.seeds == 13 and str(one).endswith("; about 13 seeds would decide")


def test_holm_over_claims_and_settings(tmp_path):
    """The smallest of four p-values counts four times, the next three times; none is below the one before it."""
    claims = ["better: fedpns, than: fedavg", "not_worse: fedpns, than: fedavg, margin_points: 1"]
    found = judged(results_of(study_of(tmp_path, claims, "0.2, 0.5"), {0.2: [1, 2, 3, 4, 5], 0.5: [1, 1, 2, 0, 2]}))
    alone = [
        judged(results_of(study_of(tmp_path, [claim]), {sigma: points}))[0].p_kept
        for claim in claims
        for sigma, points in ((0.2, [1, 2, 3, 4, 5]), (0.5, [1, 1, 2, 0, 2]))
    ]
    largest, expected = 0.0, {}
    for times, p in zip((4, 3, 2, 1), sorted(alone), strict=True):
        largest = max(largest, times * p)
        expected[p] = largest
    assert [one.p_kept for one in found] == pytest.approx([expected[p] for p in alone])
    assert [dict(one.where) for one in found] == [{"sigma": 0.2}, {"sigma": 0.5}] * 2
    assert list(table_of(found)["sigma"]) == [0.2, 0.5] * 2


def test_limited_to_some_settings(tmp_path):
    study = study_of(tmp_path, ["better: fedpns, than: fedavg, where: {sigma: 0.2}"], "0.2, 0.5")
    (one,) = judged(results_of(study, {0.2: [1, 2, 3, 4, 5], 0.5: [-9, -9, -8, -9, -9]}))
    assert one.effect == pytest.approx(3) and one.verdict == "kept"


def test_nothing_is_decided_while_seeds_are_missing(tmp_path):
    study = study_of(tmp_path, ["better: fedpns, than: fedavg"])
    (one,) = judged(results_of(study, {0.5: [3, 3, 3.1, 3, None]}))
    assert one.verdict == "undecided" and one.p_kept < 0.001
    assert str(one) == (
        "undecided: fedpns is better than fedavg: so far +3.03 ± 0.08 points over 4 of 5 seeds; "
        "the others are unfinished, failed or diverged"
    )
    (one,) = judged(results_of(study, {0.5: [3, None]}))
    assert str(one).endswith("1 of 2 seeds; at least 2 are needed")


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("better: fedpns, not_worse: fedpns, than: fedavg", "claims.0: names both better and not_worse"),
        ("than: fedavg", "claims.0: names neither better nor not_worse"),
        ("better: fedpnss, than: fedavg", "claims.0.better: 'fedpnss' is not a strategy of this study; did you mean"),
        ("better: fedpns, than: oort", "claims.0.than: 'oort' is not a strategy of this study; choose from fedpns"),
        ("better: fedpns, than: fedpns", "claims.0.than: 'fedpns' is compared with itself"),
        ("better: fedpns, than: fedavg, on: speed", "claims.0.on: 'speed' is not allowed; it must be final_accuracy"),
        ("better: fedpns, than: fedavg, level: 0", "claims.0.level: 0"),
        ("better: fedpns, than: fedavg, margin_points: -1", "claims.0.margin_points: -1"),
        ("better: fedpns, than: fedavg, margn_points: 1", "claims.0.margn_points: unknown key"),
        ("better: fedpns, than: fedavg, where: {sigma: 0.9}", "claims.0.where"),
    ],
)
def test_a_claim_that_the_study_cannot_decide_is_refused(tmp_path, claim, message):
    with pytest.raises(InputError) as refused:
        study_of(tmp_path, [claim])
    assert f"s.yaml: line 8: {message}" in str(refused.value)


def test_a_study_reports_its_claims(tmp_path, capsys):
    study_of(tmp_path, ["not_worse: fedavg, than: fedpns, margin_points: 100"], seeds=2)
    out = tmp_path / "out"
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(out)]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("kept: "))
    assert "fedavg is not worse than fedpns by 100 points or more" in said
    assert pd.read_csv(out / "claims.csv")["verdict"].tolist() == ["kept"]
    assert said.partition(" (p")[0].replace("±", "\\u00b1") in (out / "report.html").read_text()
