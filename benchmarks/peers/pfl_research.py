"""pfl-research: FederatedAveraging in its simulated backend, one process, one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from benchmarks.limit import BATCH, DRAWN, LR
from benchmarks.peers.plain import accuracy, load
from benchmarks.serving import Questions, Stopwatch


def as_pfl_wants(module: nn.Module) -> nn.Module:
    """A module with the two methods that pfl calls."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        module.train()
        return F.cross_entropy(module(x), y)

    def metrics(x: Tensor, y: Tensor) -> dict[str, Any]:
        return {"loss": Weighted(loss(x, y).item(), 1)}

    vars(module).update(loss=loss, metrics=metrics)
    return module


class Paced(TrainingProcessCallback):
    """Lets pfl run as many rounds as it is asked for, and answers how long they took."""

    def __init__(self, module: nn.Module, held: Any) -> None:
        self._module, self._held = module, held
        self._questions = Questions()
        self._asked = iter(self._questions)
        self._left = self._rounds = 1  # round 0, in which pfl tests every drawn user
        self._watch: Stopwatch | None = None

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self._left -= 1
        if self._left:
            return False, Metrics()
        if self._watch:
            self._questions.reply(self._watch.per(self._rounds))
        for question in self._asked:
            if "rounds" in question:
                self._left = self._rounds = question["rounds"]
                self._watch = Stopwatch()
                return False, Metrics()
            self._questions.reply({"accuracy": accuracy(self._module, self._held)})
        return True, Metrics()


def main(task: str, name: str) -> None:
    torch.set_num_threads(1)
    np.random.seed(0)
    held, module = load(task, name)
    vector_to_parameters(torch.from_numpy(held["initial"]).clone(), module.parameters())
    users = {
        k: [torch.from_numpy(x), torch.from_numpy(y)]
        for k, (x, y) in enumerate(zip(*(held[key] for key in "xy"), strict=True))
    }
    data = FederatedDataset.from_slices(users, get_user_sampler("random", list(users)))
    model = PyTorchModel(as_pfl_wants(module), torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    rounds = NNAlgorithmParams(
        central_num_iterations=10**9, evaluation_frequency=10**9, train_cohort_size=DRAWN, val_cohort_size=None
    )
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=BATCH)
    backend = SimulatedBackend(training_data=data, val_data=None)
    FederatedAveraging().run(rounds, backend, model, local, callbacks=[Paced(module, held)])
