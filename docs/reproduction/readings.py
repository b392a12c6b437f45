"""Why our FedAvg lies below the paper's at rho 1: other readings of the set-up, one at a time, ten seeds each.

    python docs/reproduction/readings.py            MLR on MNIST, in this process: five minutes on an idle core

The paper's code, as far as it was released, cuts the label-sorted training set into shards of 200; the text says only
that a node holds rho labels. Each reading below changes one thing.
"""

import sys
from pathlib import Path

import numpy as np
from scipy import stats

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from fedpns_ray import Experiment, run  # noqa: E402
from fedpns_ray.data import Dataset, Partition, Samples  # noqa: E402
from fedpns_ray.data.sources import load  # noqa: E402

PUBLISHED = {(0.3, "fedavg"): 88.77, (0.3, "fedpns"): 89.50, (0.5, "fedavg"): 89.72, (0.5, "fedpns"): 89.93}
"""Means of the published curves over rounds 96 to 100 (shared with docs/reproduction.md)."""
SEEDS = range(1, 11)


class Few(Partition):
    """As sigma-rho with rho 1, but for where a node's samples come from."""

    sigma: float = 0.3

    def iid_nodes(self, nodes):
        return round(self.sigma * nodes)

    def spread(self, rng, samples, sizes):
        whole, size = rng.permutation(len(samples.train_y)), int(sizes[0])
        count = self.iid_nodes(len(sizes))
        return [whole[k * size : (k + 1) * size] for k in range(count)] + self.others(
            rng, samples.train_y, len(sizes) - count, size
        )


class Shards(Few):
    """Shards of 200 of the label-sorted set, none twice: the released code."""

    name = "released-shards"

    def others(self, rng, labels, nodes, size):
        order = np.argsort(labels, kind="stable")
        return [order[k * size : (k + 1) * size] for k in rng.permutation(len(labels) // size)[:nodes]]


class Balanced(Few):
    """Every label on equally many nodes."""

    name = "balanced-labels"

    def others(self, rng, labels, nodes, size):
        piles = [rng.permutation(np.flatnonzero(labels == label)) for label in range(10)]
        return [piles[k % 10][k // 10 * size : (k // 10 + 1) * size] for k in range(nodes)]


class Unscaled(Dataset):
    """MNIST with pixels from 0 to 1, not normalised."""

    name = "unscaled-mnist"

    def load(self):
        s = load("mnist")
        return Samples(s.train_x, s.train_y, s.test_x, s.test_y)


READINGS = {
    "as in docs/reproduction.md": {},
    "shards of the sorted set (released code)": {"partition": "readings:Shards"},
    "every label on equally many nodes": {"partition": "readings:Balanced"},
    "no decay of the learning rate": {"lr_decay": 1.0},
    "pixels not normalised": {"dataset": "readings:Unscaled"},
    "two local epochs": {"epochs": 2},
}


def finals(strategy, sigma, changed):
    given = {
        "dataset": "mnist",
        "model": "mlr",
        "rho": 1,
        "rounds": 100,
        "sigma": sigma,
        "strategy": strategy,
    } | changed
    if "partition" in changed:
        del given["rho"]
    return [100 * run(Experiment(**given, seed=seed), progress=False).summary["final_accuracy"] for seed in SEEDS]


def main():
    print("| reading | " + " | ".join(f"{name}, sigma {sigma}" for sigma, name in PUBLISHED) + " |")
    print("| --- |" + " ---: |" * len(PUBLISHED))
    print("| published | " + " | ".join(f"{value:.2f}" for value in PUBLISHED.values()) + " |")
    for what, changed in READINGS.items():
        row = []
        for sigma, strategy in PUBLISHED:
            found = finals(strategy, sigma, changed)
            row.append(f"{np.mean(found):.2f} ± {stats.t.ppf(0.975, len(found) - 1) * stats.sem(found):.2f}")
        print(f"| {what} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
