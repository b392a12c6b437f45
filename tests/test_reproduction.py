"""The paper's numbers for MNIST, sigma 0.2, rho 1 (Figure 3, left column): minutes, not seconds.

Runs are kept under runs/, by a digest of the package's source: a second call reads them, a changed package runs anew.
"""

import hashlib
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedpns_ray import Experiment, run

ROOT = Path(__file__).parent.parent
SOURCE = hashlib.sha256(b"".join(path.read_bytes() for path in sorted((ROOT / "fedpns_ray").rglob("*.py"))))
OUT = ROOT / "runs" / f"reproduce-quick-{SOURCE.hexdigest()[:8]}"

pytestmark = pytest.mark.reproduction


def one(model, strategy, seed):
    e = Experiment(strategy=strategy, dataset="mnist", model=model, sigma=0.2, rho=1, rounds=100, seed=seed)
    return run(e, OUT / f"{model}-{strategy}-seed{seed}").rounds["test_accuracy"].to_numpy(dtype=float)


def curves(model, seeds):
    """Strategy → one row of accuracies (%) a seed, as many runs at once as there are cores."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {(strategy, seed): pool.submit(one, model, strategy, seed) for seed in seeds for strategy in STRATEGIES}
        return {s: 100 * np.array([jobs[s, seed].result() for seed in seeds]) for s in STRATEGIES}


STRATEGIES = ("fedpns", "fedavg")


def test_cnn_m(mnist):
    """Mean of seeds 1-5, mean of rounds 96-100. Published: FedPNS 83.1, FedAvg 74.8."""
    final = {s: rows[:, 95:].mean() for s, rows in curves("cnn-m", range(1, 6)).items()}
    print(f"\nCNN-M: FedPNS {final['fedpns']:.2f} (published 83.1), FedAvg {final['fedavg']:.2f} (published 74.8)")
    assert final["fedpns"] == pytest.approx(83.1, abs=3) and final["fedavg"] == pytest.approx(74.8, abs=4)
    assert final["fedpns"] > final["fedavg"]


def test_mlr(mnist):
    """Mean of 10 seeds at round 100. Published: FedPNS 88.8, FedAvg 87.9."""
    final = {s: rows[:, 99].mean() for s, rows in curves("mlr", range(1, 11)).items()}
    print(f"\nMLR: FedPNS {final['fedpns']:.2f} (published 88.8), FedAvg {final['fedavg']:.2f} (published 87.9)")
    assert final["fedpns"] == pytest.approx(88.8, abs=1) and final["fedavg"] == pytest.approx(87.9, abs=1)
