"""Gram matrices: the inner products of all pairs of updates, as fast as one matrix product, or without any rounding."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.threads import one_thread

BLOCK = 1 << 17
"""Numbers of a block of columns: what is converted to float64 at a time, small enough for a core's cache."""
BITS, GROUP = 22, 1 << 9
"""Integers of 22 bits and a sign: a sum of 2^9 products of two of them is at most 2^53, so exact in float64."""
GROUPS = 1 << 6
"""The most groups in a block: their sum, at most 2^59, is exact in int64."""
LIMB = 32
"""Sums over blocks are kept as two numbers: one counts 2^32, the other the rest."""


def gram_matrix(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """<x_i, x_j> of all pairs of rows, in float64, with one thread: bits must not depend on their number.

    The last digits depend on the kind of CPU, as those of training do: the matrix product is the library's.
    """
    m, n = vectors.shape
    gram = torch.zeros(m, m, dtype=torch.float64)
    columns = max(1024, BLOCK // max(1, m))
    block = np.empty((m, min(columns, n)))
    with one_thread():
        for start in range(0, n, columns):
            some = vectors[:, start : start + columns]
            block[:, : some.shape[1]] = some
            part = torch.from_numpy(block[:, : some.shape[1]])
            gram.addmm_(part, part.T)
    lower = np.tril(gram.numpy(), -1)
    return lower + lower.T + np.diag(np.diag(gram.numpy()))


@one_thread()
def exact_gram_matrix(vectors: NDArray[np.float32]) -> NDArray[np.object_]:
    """`gram_matrix` times a power of two, as whole numbers of any size: nothing is rounded.

    Every row is written as a sum of slices, each a power of two times integers of few bits. The products of two slices,
    summed over a group of columns, are exact in float64 in any order (Ozaki et al. 2012), and their sums in int64.
    """
    m, n = vectors.shape
    exponents = np.frexp(np.abs(vectors).max(axis=1, initial=0))[1].astype(np.int64)
    at_most_1 = np.ldexp(1.0, -exponents)[:, None]
    sums: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    columns = GROUP * min(GROUPS, max(1, BLOCK // (GROUP * max(1, m))), max(1, -(-n // GROUP)))
    rest, room = np.zeros((m, columns)), np.empty((1, m, columns))
    for start in range(0, n, columns):
        some = vectors[:, start : start + columns]
        np.multiply(some, at_most_1, out=rest[:, : some.shape[1]])
        depth, room = _slice(rest, room)
        grouped = torch.from_numpy(room[:depth]).view(depth * m, -1, GROUP).transpose(0, 1)
        for s in range(depth):
            products = grouped[:, s * m : (s + 1) * m] @ grouped[:, : (s + 1) * m].mT
            for t in range(s + 1):
                whole = products[:, :, t * m : (t + 1) * m] * 2.0 ** (BITS * (s + t + 2))
                found = whole.to(torch.int64).sum(dim=0)
                upper, lower = sums.setdefault((s, t), (torch.zeros_like(found), torch.zeros_like(found)))
                upper.add_(found >> LIMB)
                lower.add_(found & ((1 << LIMB) - 1))
    return _joined(sums, m) * _powers_of_two(exponents)


def _slice(rest: NDArray[np.float64], room: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    """Numbers of at most 1 as a sum of whole multiples of 2^-22, 2^-44, …: how many slices, and the room they are in.

    `rest` is used up: it ends as zeros. `room` is used again if it suffices, as fresh memory is slow.
    """
    depth = 0
    while not depth or rest.any():
        if depth == len(room):
            room = np.concatenate([room, np.empty_like(room[:1])])
        large = 1.5 * 2.0 ** (52 - BITS * (depth + 1))  # what is added to it is rounded to such a multiple
        np.add(rest, large, out=room[depth])
        room[depth] -= large
        rest -= room[depth]
        depth += 1
    return depth, room


def _joined(sums: dict[tuple[int, int], tuple[Tensor, Tensor]], m: int) -> NDArray[np.object_]:
    """The sum of all pairs of slices, times 2^(bits of all slices)."""
    depth = 1 + max((s for s, _ in sums), default=0)
    gram = np.zeros((m, m), dtype=object)
    for (s, t), (upper, lower) in sums.items():
        whole = upper.numpy().astype(object) * (1 << LIMB) + lower.numpy().astype(object)
        gram += (whole if s == t else whole + whole.T) * (1 << (BITS * (2 * depth - s - t)))
    return gram


def _powers_of_two(exponents: NDArray[np.int64]) -> NDArray[np.object_]:
    """2^(e_i + e_j) of all pairs, times a power of two that makes them whole."""
    least = int(exponents.min(initial=0))
    powers = np.array([1 << (int(exponent) - least) for exponent in exponents], dtype=object)
    return np.multiply.outer(powers, powers)
