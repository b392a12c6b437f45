"""User-defined parts and models: imported by name, and blamed by file and line if they fail, wherever they ran."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from fedpns_ray.errors import InputError, Shown, UserCodeError, one_line

LONGEST = 1000
"""Characters of an error raised by user code that are shown: its author needs more of it than other readers."""


@contextmanager
def blamed_on(packages: Collection[str]) -> Iterator[None]:
    """Turn an error raised in (or below) one of these top-level packages into a UserCodeError.

    An InputError, and an error without one of their lines in its traceback, passes through unchanged.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as found:
        # a run is a generator, in which Python replaces a StopIteration, with its lines, by a RuntimeError
        error = found.__cause__ if isinstance(found.__cause__, StopIteration) else found
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages:
                place = _place(frame.f_code.co_filename, line, frame.f_code.co_name)
                raise UserCodeError("", problem=_reason(error), place=place) from error
        raise


def refused(function: Callable[..., Any], problem: str) -> UserCodeError:
    """The error for a method of a part that returned something impossible."""
    code = inspect.unwrap(function).__code__
    return UserCodeError("", problem=problem, place=_place(code.co_filename, code.co_firstlineno, code.co_name))


def import_path(path: str, field: str) -> Any:
    """The object that `package.module:Name` names."""
    module, _, name = path.partition(":")
    if not re.fullmatch(r"[\w.]*\w", module) or not name.isidentifier():
        raise InputError(field, path, "it must be like package.module:Name")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the user's: whatever it raises is for them to see
        raise InputError(field, Shown(path), problem=f"cannot be imported ({_reason(error)})") from error


def path_of(thing: Any, field: str) -> str:
    """The import path of a class, a function or another object of a module, so that every worker can import it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if name is None:  # an object does not know its own name; the module that holds it does
        holders = [m for m in list(sys.modules.values()) if any(value is thing for value in vars(m).values())]
        module = next((m.__name__ for m in holders if m.__name__ != "__main__"), "__main__")
        name = next((key for m in holders for key, value in vars(m).items() if value is thing), "")
    if module in (None, "__main__") or not name or not str(name).isidentifier():
        raise InputError(
            field,
            Shown(name or type(thing).__name__),
            "workers cannot import what is defined only in a notebook or script",
            "put it at the top level of a file, such as mine.py, and import it from there",
        )
    return f"{module}:{name}"


def _reason(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", LONGEST)


def _place(file: str, line: int, function: str) -> str:
    return f"{file}, line {line}, in {function}"
