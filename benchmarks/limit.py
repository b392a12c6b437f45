"""The limit: rounds of FedAvg as one would write them by hand, with nothing around the steps but torch and numpy.

One process, one thread. All samples are in memory as the models see them (channels last, float32), a model's weights
and gradients are one vector each, and MLR, which has its gradient in closed form, trains all nodes in one step. Nothing
is recorded, checked, or repeatable from another layout.

    python -c "from benchmarks.limit import main; main('TASK.npz', 'cnn-m')"     (asked by `python -m benchmarks limit`)
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LR, BATCH, DRAWN, CHUNK = 0.01, 20, 10, 500


class MLR(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


class CNNM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.hidden, self.out = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(F.dropout2d(self.conv2(x), 0.5, self.training), 2))
        return self.out(F.dropout(F.relu(self.hidden(x.flatten(1))), 0.5, self.training))


class CNNC(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.hidden1, self.hidden2, self.out = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.out(F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1))))))


MODELS: dict[str, type[nn.Module]] = {"mlr": MLR, "cnn-m": CNNM, "cnn-c": CNNC}


def images(x: Tensor) -> Tensor:
    """[sample, height, width, channel] as what a module takes; in memory, channels stay last."""
    return x.permute(0, 3, 1, 2)


class Limit:
    """The model and everything that it is trained and tested on."""

    def __init__(self, task: str, name: str) -> None:
        torch.set_num_threads(1)
        held = np.load(task)
        self.x, self.y, self.test_x, self.test_y = (
            torch.from_numpy(held[key]) for key in ("x", "y", "test_x", "test_y")
        )
        self.global_weights = torch.from_numpy(held["initial"]).clone()
        self.rng = np.random.default_rng(0)
        self.model = MODELS[name]()
        self.train = self.train_together if name == "mlr" else self.train_one_by_one
        self.flatten()

    def flatten(self) -> None:
        """Make parameters and gradients views of two vectors."""
        self.weights = torch.zeros_like(self.global_weights)
        self.gradient = torch.zeros_like(self.weights)
        at = 0
        for p in self.model.parameters():
            here = slice(at, at := at + p.numel())
            p.data, p.grad = self.weights[here].view_as(p), self.gradient[here].view_as(p)

    def step(self, x: Tensor, y: Tensor) -> None:
        self.gradient.zero_()
        F.cross_entropy(self.model(x), y).backward()
        self.weights.add_(self.gradient, alpha=-LR)

    def train_node(self, node: int) -> None:
        """One epoch."""
        self.weights.copy_(self.global_weights)
        order = torch.from_numpy(self.rng.permutation(self.y.shape[1]))
        x, y = images(self.x[node].index_select(0, order)), self.y[node].index_select(0, order)
        for x_batch, y_batch in zip(x.split(BATCH), y.split(BATCH), strict=True):
            self.step(x_batch, y_batch)

    def train_one_by_one(self, nodes: list[int]) -> Tensor:
        self.model.train()
        total = torch.zeros_like(self.global_weights)
        for node in nodes:
            self.train_node(node)
            total += self.weights
        return total / len(nodes)

    @torch.no_grad()
    def train_together(self, nodes: list[int]) -> Tensor:
        """MLR: the gradient is (softmax(W x + b) - onehot(y)) x^T."""
        m, size = len(nodes), self.y.shape[1]
        order = torch.from_numpy(
            np.stack([self.rng.permutation(size) for _ in nodes]) + size * np.array(nodes)[:, None]
        )
        x = self.x.view(-1, 784).index_select(0, order.view(-1)).view(m, size, 784)
        y = F.one_hot(self.y.view(-1).index_select(0, order.view(-1)), 10).to(torch.float32).view(m, size, 10)
        w = self.global_weights[:-10].view(10, 784).repeat(m, 1, 1)
        b = self.global_weights[-10:].repeat(m, 1).unsqueeze(1)
        for x_batch, y_batch in zip(x.split(BATCH, dim=1), y.split(BATCH, dim=1), strict=True):
            error = torch.baddbmm(b, x_batch, w.transpose(1, 2)).softmax(-1).sub_(y_batch)
            w.baddbmm_(error.transpose(1, 2), x_batch, alpha=-LR / BATCH)
            b.sub_(error.sum(1, keepdim=True), alpha=LR / BATCH)
        return torch.cat([w.mean(0).view(-1), b.mean(0).view(-1)])

    @torch.no_grad()
    def test(self) -> tuple[float, float]:
        """Accuracy and mean loss on the test set."""
        self.weights.copy_(self.global_weights)
        self.model.eval()
        right, loss = torch.zeros(()), torch.zeros(())
        for x, y in zip(self.test_x.split(CHUNK), self.test_y.split(CHUNK), strict=True):
            outputs = self.model(images(x))
            right += (outputs.argmax(1) == y).sum()
            loss += F.cross_entropy(outputs, y, reduction="sum")
        return float(right) / len(self.test_y), float(loss) / len(self.test_y)

    def round(self, test: bool) -> None:
        nodes = sorted(self.rng.choice(len(self.x), DRAWN, replace=False).tolist())
        self.global_weights = self.train(nodes)
        if test:
            self.test()

    # --- the check of the loop itself -------------------------------------------------------------------------------

    def steps(self, epochs: int) -> float:
        """Seconds of a core per step, within the loop."""
        self.model.train()
        began = time.process_time()
        for _ in range(epochs):
            self.train_node(0)
        return (time.process_time() - began) / (epochs * self.y.shape[1] / BATCH)

    def bare_steps(self, count: int) -> float:
        """Seconds of a core per step on one batch, over and over."""
        self.model.train()
        x, y = images(self.x[0, :BATCH].contiguous()), self.y[0, :BATCH].contiguous()
        began = time.process_time()
        for _ in range(count):
            self.step(x, y)
        return (time.process_time() - began) / count


def main(task: str, name: str) -> None:
    from benchmarks.serving import Questions, Stopwatch

    limit = Limit(task, name)

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        if question.get("accuracy"):
            return {"accuracy": limit.test()[0]}
        if epochs := question.get("steps"):
            within, bare = limit.steps(epochs), limit.bare_steps(10 * epochs)
            return {"within": within, "bare": bare}
        watch = Stopwatch()
        if rounds := question.get("bare"):
            limit.bare_steps(rounds * DRAWN * limit.y.shape[1] // BATCH)
            return watch.per(rounds)
        for _ in range(question["rounds"]):
            limit.round(question["test"])
        return watch.per(question["rounds"])

    Questions().serve(answer)
