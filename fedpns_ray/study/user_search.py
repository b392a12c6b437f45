"""Search algorithms and schedulers that the user brings, held to what a study needs of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.errors import InputError, Shown, one_line, shown
from fedpns_ray.study.search_block import Search
from fedpns_ray.study.trial import TrialReport

Point = tuple[float, ...]
"""The values of a suggestion, in the order of the space."""

DECIDES = "on_trial_result"
METHODS = (DECIDES, "on_trial_add", "on_trial_error", "on_trial_complete", "on_trial_remove", "choose_trial_to_run")
"""What Tune calls a scheduler for."""
REPEATS = 100
"""Suggestions in a row, beyond all that were tried, that may be repetitions; then an algorithm has nothing new."""


class Trap:
    """Keeps the first error of a search algorithm or scheduler.

    Tune would turn it into text and abandon its trials; a search stops them, each with a checkpoint, and raises it.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the class is the user's: it may raise anything
            self.error = self.error or error

    def release(self, search: Search) -> None:
        """Raise what was kept, if anything."""
        if self.error:
            with in_one_line(search):
                raise self.error


@contextmanager
def in_one_line(search: Search) -> Iterator[None]:
    """Turn an error of the user's algorithm or scheduler into one line, with their file and line where it has one."""
    names = [name for name in (search.algorithm, search.scheduler) if ":" in name]
    try:
        with blamed_on({name.partition(":")[0].partition(".")[0] for name in names}):
            yield
    except InputError:
        raise
    except Exception as error:
        if not names:
            raise
        problem = f"failed ({type(error).__name__}: {one_line(error)})"
        raise InputError("search", Shown(" and ".join(names)), problem=problem) from error


class Unrepeated(Searcher):
    """Suggests what another searcher suggests, on the steps of the space, and nothing twice.

    A suggestion whose cost is known is answered at once; one that is running is held until it is over, as two trials
    cannot share a run folder. So any algorithm can be resumed, whether or not it can be told of earlier points.
    """

    def __init__(self, searcher: Searcher, search: Search, known: Mapping[Point, float], trap: Trap) -> None:
        super().__init__(metric=TrialReport.cost, mode="min")
        self._searcher, self._search, self._trap = searcher, search, trap
        self._known: dict[Point, float] = {}
        self._running: dict[str, tuple[str, Point]] = {}
        self._held: tuple[str, Point] | None = None
        self._ids = map(str, itertools.count())  # of suggestions, as Tune gives an id only to those that are run
        for point, cost in known.items():
            self._learn("", point, {TrialReport.cost: cost})

    def begin_with(self, point: Point) -> None:
        """Suggest this point first, unless it was tried; it need not be on a step."""
        self._held = None if point in self._known else ("", point)

    def suggest(self, trial_id: str) -> Any:
        with self._trap():
            return self._unknown(trial_id)
        return None

    def _unknown(self, trial_id: str) -> Any:
        for _ in range(len(self._known) + REPEATS):
            if self._held is None:
                number = next(self._ids)
                found = self._searcher.suggest(number)
                if found is None or found == Searcher.FINISHED:
                    return found
                self._held = number, self._on_steps(found)
            number, point = self._held
            if any(point == other for _, other in self._running.values()):
                return None  # Tune asks again
            self._held = None
            if point not in self._known:
                self._running[trial_id] = number, point
                return dict(zip(self._search.space, point, strict=True))
            self._learn(number, point, {TrialReport.cost: self._known[point]})
        return Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        number, _ = self._running.get(trial_id, ("", ()))
        if number:
            with self._trap():
                self._searcher.on_trial_result(number, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id in self._running:
            with self._trap():
                self._learn(*self._running.pop(trial_id), result or {}, error)

    def _learn(self, number: str, point: Point, result: dict[str, Any], error: bool = False) -> None:
        """Note a cost, and tell the searcher: it knows its own suggestions by number, and others not at all."""
        if TrialReport.cost in result:
            self._known[point] = result[TrialReport.cost]
        if number:
            self._searcher.on_trial_complete(number, result or None, error)
        settings = dict(zip(self._search.space, point, strict=True))
        if not number and TrialReport.cost in result and self._search.holds(settings):
            with suppress(NotImplementedError):  # most searchers cannot be told of what they did not suggest
                self._searcher.add_evaluated_point(settings, result[TrialReport.cost])

    def _on_steps(self, found: Any) -> Point:
        name, space = Shown(self._search.algorithm), self._search.space
        if not isinstance(found, Mapping) or set(found) != set(space):
            raise InputError("search.algorithm", name, f"it must suggest {', '.join(space)}", problem=_suggested(found))
        point = []
        for key, span in space.items():
            nearest = span.nearest(found[key]) if isinstance(found[key], (int, float)) else None
            if nearest is None:
                allowed = f"{key} must be between {span.min:g} and {span.max:g}"
                raise InputError("search.algorithm", name, allowed, problem=_suggested(found))
            point.append(nearest)
        return tuple(point)


def _suggested(found: Any) -> str:
    return f"suggested {shown(Shown(found))}"


def trapped(scheduler: type[Any], name: str, trap: Trap) -> type[Any]:
    """A user's scheduler class whose errors go into the trap, and which may let trials run or stop them, no more."""

    def guarded(method: str) -> Callable[..., Any]:
        own = getattr(scheduler, method)

        @functools.wraps(own)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with trap():
                decision = own(self, *args, **kwargs)
                if method == DECIDES and decision not in (TrialScheduler.CONTINUE, TrialScheduler.STOP):
                    allowed = "a study's trials are not set aside: it must return CONTINUE or STOP"
                    raise InputError("search.scheduler", Shown(name), allowed, problem=f"returned {shown(decision)}")
                return decision
            return TrialScheduler.CONTINUE if method == DECIDES else None

        return call

    return type(scheduler.__name__, (scheduler,), {method: guarded(method) for method in METHODS})
