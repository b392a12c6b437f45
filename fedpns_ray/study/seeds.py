"""Seeds as people write them: 1-5, or 1,3,7."""

from __future__ import annotations

import re
from typing import Any

from fedpns_ray.errors import InputError

MOST_SEEDS = 10_000
"""The most seeds of one study: far more than are ever needed, and few enough to be held in memory."""
LARGEST_SEED = 2**63 - 1
"""Tables hold seeds as 64-bit integers."""


def parse_seeds(seeds: Any) -> list[int]:
    """`1-3,7`, [1, 2, 3, 7] or 4 → a list of seeds; counted before they are listed."""
    try:
        texts = [str(seed) for seed in seeds] if isinstance(seeds, list) else str(seeds).split(",")
        ranges = [_seed_range(text) for text in texts]
    except ValueError:
        raise InputError("seeds", seeds, "it must be like 1-5 or 1,3,7") from None
    if not ranges:
        raise InputError("seeds", seeds, "there must be at least one, such as 1")
    if any(last > LARGEST_SEED for _, last in ranges):
        raise InputError("seeds", seeds, f"the largest seed is {LARGEST_SEED}")
    count = sum(last - first + 1 for first, last in ranges)
    if count > MOST_SEEDS:
        raise InputError("seeds", seeds, f"at most {MOST_SEEDS:,} seeds are allowed; this is {count:,}")
    return list(dict.fromkeys(seed for first, last in ranges for seed in range(first, last + 1)))


def _seed_range(text: str) -> tuple[int, int]:
    """`3-5` or `3` → its first and last seed; a ValueError for anything else, including too many digits for Python."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise ValueError(text)
    return first, last
