"""A strategy, by name or import path, against all invariants."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from fedpns_ray.conformance.invariants import INVARIANTS, FailedError, NotApplicableError, Parts
from fedpns_ray.conformance.world import RefusedError, World, begun
from fedpns_ray.errors import InputError, UserCodeError, one_line
from fedpns_ray.registry import find_preset

Result = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """One invariant and one strategy."""

    strategy: str
    invariant: str
    result: Result
    detail: str = ""
    """The counterexample, or why the invariant does not apply."""


def findings(name: str, invariants: Mapping[str, Callable[[Parts], None]] = INVARIANTS) -> Iterator[Finding]:
    """Check a strategy: a registered name, or the import path of a preset or of the class of a part."""
    parts = find_preset(name).parts
    try:
        begun(parts, World())
    except RefusedError as error:
        raise InputError("strategy", name, problem=f"cannot be checked: it refuses {World()} ({error})") from error
    for invariant, check in invariants.items():
        yield Finding(name, invariant, *_result(check, parts))


def _result(check: Callable[[Parts], None], parts: Parts) -> tuple[Result, str]:
    try:
        check(parts)
    except (NotApplicableError, RefusedError) as reason:
        return "not applicable", str(reason)
    except FailedError as counterexample:
        return "failed", str(counterexample)
    except UserCodeError as error:
        return "failed", one_line(error)
    except Exception as error:  # it is the strategy's: whatever it raises is a finding
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "failed", one_line(f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})")
    return "passed", ""
