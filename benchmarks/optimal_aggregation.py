"""Optimal Aggregation by Gram matrix against transcriptions of Algorithm 1, in one run.

    python -m benchmarks.optimal_aggregation

There are two transcriptions. One loops over the model's parameters, tensor by tensor, for every node of every candidate
set, as the paper's released code does; the other computes the same sums over flat vectors. All three decide alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.models import CNNM
from fedpns_ray.strategies.optimal_aggregation import Decision, gram_matrix, optimal_subset

M, V, REPEATS = 10, 0.7, 7

Expectation = Callable[[list[int]], float]
Loss = Callable[[list[int]], float]


def algorithm_1(expectation: Expectation, check_loss: Loss) -> list[int]:
    """Algorithm 1, line by line."""
    members = list(range(M))
    highest = expectation(members)
    while len(members) > V * M:
        temp = {i: expectation([j for j in members if j != i]) for i in members}
        key = max(temp, key=lambda i: temp[i])
        if not temp[key] > highest:
            break
        without = [j for j in members if j != key]
        if check_loss(without) > check_loss(members):
            break
        members, highest = without, temp[key]
    return members


def by_parameter(gradients: list[dict[str, Tensor]]) -> Expectation:
    """E over S of <gbar, g_i>, one tensor of the model after another."""

    def expectation(chosen: list[int]) -> float:
        mean = {name: sum((gradients[i][name] for i in chosen), torch.zeros(())) / len(chosen) for name in gradients[0]}
        total = 0.0
        for i in chosen:
            for name, part in mean.items():
                total += float((part * gradients[i][name]).sum())
        return total / len(chosen)

    return expectation


def by_vector(gradients: NDArray[np.float64]) -> Expectation:
    """The same, over flat vectors."""

    def expectation(chosen: list[int]) -> float:
        mean = np.zeros(gradients.shape[1])
        for i in chosen:
            mean += gradients[i]
        mean /= len(chosen)
        return sum(float((mean * gradients[i]).sum()) for i in chosen) / len(chosen)

    return expectation


def best(function: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    torch.set_num_threads(1)
    sizes = {name: p.shape for name, p in CNNM().named_parameters()}
    n = sum(shape.numel() for shape in sizes.values())
    rng = np.random.default_rng(0)
    common = rng.standard_normal(n)
    deltas = (0.3 * common + rng.standard_normal((M, n))).astype(np.float32)
    deltas[[2, 5, 8]] -= (0.9 * common).astype(np.float32)  # three nodes that work against the others
    pieces = [torch.from_numpy(row).double().split([shape.numel() for shape in sizes.values()]) for row in deltas]
    tensors = [{name: p.view(sizes[name]) for name, p in zip(sizes, row, strict=True)} for row in pieces]

    def no_loss(kept: list[int]) -> float:
        return 0.0

    def ours() -> Decision:
        return optimal_subset(gram_matrix(deltas), no_loss, V)

    def parameters() -> list[int]:
        return algorithm_1(by_parameter(tensors), no_loss)

    def vectors() -> list[int]:
        return algorithm_1(by_vector(deltas.astype(np.float64)), no_loss)

    assert ours().kept == parameters() == vectors(), "all must decide alike"
    fast = best(ours)
    print(f"Optimal Aggregation, m = {M}, n = {n:,}: best of {REPEATS}, decisions alone (Check Loss left out)")
    for name, function in (("transcription, by parameter", parameters), ("transcription, flat vectors", vectors)):
        slow = best(function)
        print(f"  {name:30s}{slow * 1e3:8.2f} ms   {slow / fast:5.1f} times as long")
    print(f"  {'Gram matrix':30s}{fast * 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
