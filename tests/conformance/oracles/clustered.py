"""Algorithms 1 and 2 of Fraboni et al. 2021 with exact fractions, and the released cut of the tree by scipy."""

from fractions import Fraction

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist


def fill(rows, order, left):
    """Pour the masses of these nodes into the rows, each of which holds 1."""
    k = 0
    for node in order:
        while left[node] > 0:
            if sum(rows[k]) == 1:
                k += 1
                continue
            put = min(1 - sum(rows[k]), left[node])
            rows[k][node] += put
            left[node] -= put
    return rows


def algorithm_1(sizes, m):
    total = sum(sizes)
    rows = [[Fraction(0)] * len(sizes) for _ in range(m)]
    order = sorted(range(len(sizes)), key=lambda node: (-sizes[node], node))
    return fill(rows, order, [Fraction(m * size, total) for size in sizes])


def angle(a, b):
    norms = np.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
    return float(np.arccos(np.clip(sum(x * y for x, y in zip(a, b, strict=True)) / norms, -1, 1))) if norms else 0.0


def released_clusters(updates, sizes, m, squared=False):
    """get_clusters_with_alg2, up to its flat clusters: the tree's heights are replaced by masses and cut at 1/m."""
    n = len(updates)
    far = [
        [
            sum((x - y) ** 2 for x, y in zip(updates[i], updates[j], strict=True)) if squared
            else angle(updates[i], updates[j]) if i != j else 0.0
            for j in range(n)
        ]
        for i in range(n)
    ]  # fmt: skip
    tree = linkage(pdist(np.array(far)), "ward")
    masses = [size / sum(sizes) for size in sizes]
    for k, (a, b, _, _) in enumerate(tree):
        masses.append(masses[int(a)] + masses[int(b)])
        tree[k, 2] = round(masses[-1] * 1e10)
    labels = fcluster(tree, 1e10 / m + 1, criterion="distance")
    return sorted(sorted(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist()))
