"""Named random streams.

Every draw in this project comes from a stream named by (seed, purpose, round, node) and from nothing else. So a
node's shuffles do not depend on which process trains it, on how many nodes were trained before it, or on whether
the run was interrupted; and two strategies with the same seed share every stream that both name.
"""

import hashlib

import numpy as np


def _entropy(seed: int, purpose: str, round: int, node: int) -> list[int]:
    name = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    return [seed, name, round, node]


def stream(seed: int, purpose: str, round: int = 0, node: int = 0) -> np.random.Generator:
    """A new generator for the stream of this name, at its start."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(_entropy(seed, purpose, round, node))))


def torch_seed(seed: int, purpose: str, round: int = 0, node: int = 0) -> int:
    """A seed for `torch.manual_seed`, for what only torch can draw: initial weights and dropout."""
    words = np.random.SeedSequence(_entropy(seed, purpose, round, node)).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))
