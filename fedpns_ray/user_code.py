"""Errors in code that the user brought: their file and line, in one line, wherever that code ran."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from fedpns_ray.errors import InputError, UserCodeError


@contextmanager
def blamed_on(packages: Collection[str]) -> Iterator[None]:
    """Turn an error raised in (or below) one of these top-level packages into a UserCodeError.

    Errors without a line of theirs in the traceback, and errors that say it all already, pass through.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages:
                place = _place(frame.f_code.co_filename, line, frame.f_code.co_name)
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise UserCodeError(f"{place}: {reason}") from error
        raise


def refused(function: Callable[..., Any], problem: str) -> UserCodeError:
    """The error for a function of a part that gave something impossible."""
    code = inspect.unwrap(function).__code__
    return UserCodeError(f"{_place(code.co_filename, code.co_firstlineno, code.co_name)}: {problem}")


def _place(file: str, line: int, function: str) -> str:
    return f"{file}, line {line}, in {function}"
