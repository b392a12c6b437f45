"""HiCS-FL's `server_hics.py`, told again in plain loops: entropies, distances, cluster probabilities."""

import math

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from scipy.stats import entropy


def released_entropy(magnitudes, temperature):
    high = max(magnitudes)
    powers = [math.exp((x - high) / temperature) for x in magnitudes]
    return float(entropy([power / sum(powers) for power in powers]))


def released_clusters(updates, entropies, weight, count):
    """Ward over the rows of the distance matrix, cut into so many clusters; as AgglomerativeClustering does."""
    n = len(updates)
    far = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            a, b = updates[i], updates[j]
            norms = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
            cosine = sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 1.0
            turn = math.acos(max(-1.0, min(1.0, cosine))) if i != j and norms else 0.0
            far[i, j] = turn + weight * abs(entropies[i] - entropies[j])
    labels = fcluster(linkage(pdist(far), "ward"), count, criterion="maxclust")
    return sorted(sorted(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist()))


def released_probabilities(cluster_entropies, gamma, done, rounds):
    powers = [math.exp(gamma * (rounds - done) * h / rounds) for h in cluster_entropies]
    return [power / sum(powers) for power in powers]
