"""Code that the user brings: imported by name, and blamed by file and line if it fails, wherever it ran."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
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


def import_path(path: str, field: str) -> Any:
    """The object that `package.module:Name` names."""
    module, _, name = path.partition(":")
    if not re.fullmatch(r"[\w.]*\w", module) or not name.isidentifier():
        raise InputError(f"{field}: {path!r} is not allowed; it must be like package.module:Name")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the user's: whatever it raises is for them to see
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{field}: {path} cannot be imported ({reason})") from error


def path_of(thing: Any, field: str) -> str:
    """The import path of a class, a function or another object of a module, so that every worker can import it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if name is None:  # an object knows no name of its own: the module that holds it does
        holders = [m for m in list(sys.modules.values()) if any(value is thing for value in vars(m).values())]
        module = next((m.__name__ for m in holders if m.__name__ != "__main__"), "__main__")
        name = next((key for m in holders for key, value in vars(m).items() if value is thing), "")
    if module in (None, "__main__") or not name or not str(name).isidentifier():
        shown = name or type(thing).__name__
        raise InputError(
            f"{field}: {shown} is not allowed; workers cannot import what lives only in a notebook or script: put it at the "
            f"top of a file, such as mine.py, and import it from there"
        )
    return f"{module}:{name}"


def _place(file: str, line: int, function: str) -> str:
    return f"{file}, line {line}, in {function}"
