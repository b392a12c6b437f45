"""Optimal Aggregation by Gram matrix: against transcriptions of Algorithm 1, and against one matrix product.

There are two transcriptions. One loops over the model's parameters, tensor by tensor, for every node of every candidate
set, as the paper's released code does; the other computes the same sums over flat vectors. All three decide alike.
Check Loss is left out: what is measured are the decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import Costs, Entry, Figure, Setting, in_turn
from fedpns_ray.core.gram import exact_gram_matrix, gram_matrix
from fedpns_ray.core.models import CNNM
from fedpns_ray.core.threads import one_thread
from fedpns_ray.strategies.optimal_aggregation import Decision, optimal_subset

M, V = 10, 0.7
SIZES = ((10, 10**6), (100, 10**5), (100, 10**6), (1000, 21_840))
LARGE = ((100, 10**7), (1000, 10**6))
"""Updates and their length, up to 10^9 numbers; the large ones need 13 GB."""
TIED = (10, 11_000_000)

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


def no_loss(kept: list[int]) -> float:
    return 0.0


def updates(m: int, n: int) -> NDArray[np.float32]:
    """Of m nodes with a direction in common, against which a third of them works."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal(n, dtype=np.float32)
    deltas = rng.standard_normal((m, n), dtype=np.float32)
    deltas += np.float32(0.3) * common
    deltas[2::3] -= np.float32(0.9) * common
    return deltas


def decided(deltas: NDArray[np.float32]) -> Decision:
    return optimal_subset(gram_matrix(deltas), no_loss, V, exact=lambda: exact_gram_matrix(deltas))


def timed(function: Callable[[], object], setting: Setting, times: int = 1) -> Callable[[], float]:
    """Seconds of a call, as the mean over so many."""
    clock = time.process_time if setting.clock == "cpu" else time.perf_counter

    def seconds() -> float:
        began = clock()
        for _ in range(times):
            function()
        return (clock() - began) / times

    return seconds


def transcriptions(setting: Setting) -> Iterator[Costs]:
    sizes = {name: p.shape for name, p in CNNM().named_parameters()}
    deltas = updates(M, sum(shape.numel() for shape in sizes.values()))
    pieces = [torch.from_numpy(row).double().split([shape.numel() for shape in sizes.values()]) for row in deltas]
    tensors = [{name: p.view(sizes[name]) for name, p in zip(sizes, row, strict=True)} for row in pieces]

    def parameters() -> list[int]:
        return algorithm_1(by_parameter(tensors), no_loss)

    def vectors() -> list[int]:
        return algorithm_1(by_vector(deltas.astype(np.float64)), no_loss)

    with one_thread():
        assert decided(deltas).kept == parameters() == vectors(), "all must decide alike"
        sides = {
            "parameters": timed(parameters, setting),
            "vectors": timed(vectors, setting),
            "ours": timed(lambda: decided(deltas), setting, times=20),
        }
        yield from in_turn(sides, setting.repeats)


def products(setting: Setting) -> Iterator[Costs]:
    """Every size by itself, so that only one of them is in memory."""
    costs: list[dict[str, float]] = [{} for _ in range(setting.repeats)]
    large = LARGE if setting.full and psutil.virtual_memory().available > 15 * 10**9 else ()
    with one_thread():
        for m, n in (*SIZES, *large):
            deltas = updates(m, n)
            whole = torch.from_numpy(deltas).double()
            sides = {
                f"ours {m} {n}": timed(partial(decided, deltas), setting),
                f"product {m} {n}": timed(partial(torch.matmul, whole, whole.T), setting),
            }
            for cost, found in zip(costs, in_turn(sides, setting.repeats), strict=True):
                cost |= found
        del whole
        alone = np.random.default_rng(0).standard_normal(TIED, dtype=np.float32)
        alone += 1
        alone[2] -= 3  # against all others: the first to be excluded
        tied = alone.copy()
        tied[5] = tied[2]
        sides = {name: timed(partial(decided, d), setting) for name, d in (("tie", tied), ("no tie", alone))}
        for cost, found in zip(costs, in_turn(sides, setting.repeats), strict=True):
            cost |= found
    yield from costs


ENTRIES = (
    Entry(
        "algorithm-1",
        f"Optimal Aggregation, m = {M}, n = 21,840: a transcription of Algorithm 1 against the Gram matrix",
        (
            Figure("tensor by tensor", "parameters", "ours", at_least=20),
            Figure("flat vectors", "vectors", "ours", at_least=5),
        ),
        transcriptions,
        repeats=7,
        by_cpu=True,
    ),
    Entry(
        "optimal-aggregation",
        "Optimal Aggregation against one float64 product of the updates with themselves, one thread; what a tie costs",
        (
            *(
                Figure(f"m = {m}, n = {n:,}", f"ours {m} {n}", f"product {m} {n}", at_most=1.5)
                for m, n in (*SIZES, *LARGE)
            ),
            Figure(f"a tie, m = {TIED[0]}, n = {TIED[1]:,}", "tie", "no tie", at_most=1, unit="s"),
        ),
        products,
        repeats=2,
        by_cpu=True,
    ),
)
