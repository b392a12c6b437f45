"""The picture of the README: python docs/front.py (20 runs of MLR on MNIST, in this process: two minutes)."""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
mpl.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from scipy import stats  # noqa: E402

from fedpns_ray import Experiment, run  # noqa: E402
from fedpns_ray.reporting.palette import COLOURS  # noqa: E402

NAMES = {"fedpns": "FedPNS", "fedavg": "FedAvg"}
SEEDS, ROUNDS, NODES, SIGMA, WINDOW = range(1, 11), 100, 50, 0.2, 10
IID = round(SIGMA * NODES)


def runs(strategy: str) -> list:
    base = Experiment(strategy=strategy, dataset="mnist", model="mlr", sigma=SIGMA, rho=1, nodes=NODES, rounds=ROUNDS)
    return [run(base.but(seed=seed), progress=False).records for seed in SEEDS]


def draws(records: list) -> np.ndarray:
    """Node x round: how often a node was drawn in the WINDOW rounds up to this one, as a multiple of a uniform draw."""
    drawn = np.zeros((NODES, ROUNDS))
    for one in records:
        for record in one:
            drawn[record.drawn, record.round - 1] += 1 / len(records)
    sums = np.cumsum(np.pad(drawn, ((0, 0), (WINDOW, 0))), axis=1)
    return (sums[:, WINDOW:] - sums[:, :-WINDOW]) / np.minimum(np.arange(ROUNDS) + 1, WINDOW) / 0.2


def main() -> None:
    found = {strategy: runs(strategy) for strategy in NAMES}
    shown = dict(zip(NAMES, COLOURS, strict=False))
    figure, (left, *right) = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=(1.5, 1, 1), layout="constrained")
    for strategy, records in found.items():
        accuracy = 100 * np.array([[record.test_accuracy for record in one] for one in records])
        mean, half = accuracy.mean(0), stats.t.ppf(0.975, len(SEEDS) - 1) * stats.sem(accuracy)
        left.plot(np.arange(ROUNDS) + 1, mean, color=shown[strategy])
        left.fill_between(np.arange(ROUNDS) + 1, mean - half, mean + half, color=shown[strategy], alpha=0.2, lw=0)
        left.annotate(
            NAMES[strategy],
            (ROUNDS, mean[-1]),
            (4, 5 if strategy == "fedpns" else -6),
            textcoords="offset points",
            color=shown[strategy],
            va="center",
        )
    left.set(xlabel="round", ylabel="test accuracy in %", title="MNIST, MLR, mean of 10 seeds", ylim=(60, None))
    for axes, (strategy, records) in zip(right, found.items(), strict=True):
        picture = axes.imshow(
            draws(records), aspect="auto", cmap="viridis", vmin=0, vmax=3, extent=(0.5, ROUNDS + 0.5, NODES, 0)
        )
        axes.axhline(IID, color="white", lw=1)
        axes.text(ROUNDS - 3, IID / 2, "i.i.d. nodes", color="white", ha="right", va="center")
        axes.text(ROUNDS - 3, (IID + NODES) / 2, "nodes with one label", color="white", ha="right", va="center")
        axes.set(xlabel="round", ylabel="node", title=f"who {NAMES[strategy]} draws")
    figure.colorbar(picture, ax=right, label="draws, relative to a uniform draw")
    figure.savefig(ROOT / "docs" / "front.png", dpi=150)


if __name__ == "__main__":
    main()
