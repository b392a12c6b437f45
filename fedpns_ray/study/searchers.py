"""The project's own search algorithms, in Ray Tune's form. Neither learns from costs.

They know nothing of what was tried before: `Unrepeated` passes over that, so a resumed search suggests what an
uninterrupted one would have suggested.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher

from fedpns_ray.core.streams import stream
from fedpns_ray.study.search_block import Range


class GridSearch(Searcher):
    """Every point of the space, from all minima on; the last setting of the file changes first."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        super().__init__()
        self._keys = list(ranges)
        self._points = itertools.product(*(map(span.value, range(span.count)) for span in ranges.values()))

    def suggest(self, trial_id: str) -> Any:
        point = next(self._points, None)
        return dict(zip(self._keys, point, strict=True)) if point else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass


class RandomSearch(Searcher):
    """Points drawn uniformly from the space, none twice, from a stream named by the seed."""

    def __init__(self, ranges: Mapping[str, Range], seed: int) -> None:
        super().__init__()
        self._ranges, self._rng = ranges, stream(seed, "random search")
        self._drawn: set[tuple[int, ...]] = set()

    def suggest(self, trial_id: str) -> Any:
        counts = [span.count for span in self._ranges.values()]
        while len(self._drawn) < math.prod(counts):
            point = tuple(int(self._rng.integers(count)) for count in counts)
            if point not in self._drawn:
                self._drawn.add(point)
                return {key: span.value(k) for (key, span), k in zip(self._ranges.items(), point, strict=True)}
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass
