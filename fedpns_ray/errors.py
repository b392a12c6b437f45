"""What can go wrong that a user should read in one line: errors as data, put into words here and nowhere else."""

from __future__ import annotations

from typing import Any

NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "NOTHING"})()
"""The value of an error that concerns no value, such as a missing key."""
LONGEST = 200
"""Characters of a value, or of another library's message, that are shown."""


class InputError(ValueError):
    """Bad input: the field, its value, what is allowed, and what to do. The command line exits with 2.

    >>> str(InputError("sigma", 2, "it must be at most 1"))
    'sigma: 2 is not allowed; it must be at most 1'

    `problem` says what is wrong where "is not allowed" does not; `place` is where the field was written, such as
    "study.yaml: line 3". Strings are shown in quotes; a path is passed as a Path, and shown as it is.
    """

    def __init__(
        self, field: str, value: Any = NOTHING, allowed: str = "", hint: str = "", *, problem: str = "", place: str = ""
    ) -> None:
        self.field, self.value, self.allowed, self.hint = field, value, allowed, hint
        self.problem = problem or ("is not allowed" if value is not NOTHING else "")
        self.place = place
        super().__init__(field, value, allowed, hint)

    def __str__(self) -> str:
        about = " ".join(filter(None, [shown(self.value), self.problem]))
        where = ": ".join(filter(None, [self.place, self.field, about]))
        return "; ".join(filter(None, [where, self.allowed, self.hint]))

    def __reduce__(self) -> Any:
        """Errors travel between processes; what cannot be pickled travels as its text."""
        return _restored, (type(self), {**self.__dict__, "value": Shown(shown(self.value))})

    def at(self, place: str, field: str | None = None) -> InputError:
        """The same error, with the place where the field was written."""
        return _restored(type(self), {**self.__dict__, "place": place, "field": field or self.field})


class Shown(str):
    """A value that is already text, shown without quotes."""

    __slots__ = ()


def shown(value: Any) -> str:
    """A value within a message: short, strings in quotes, and empty for NOTHING."""
    if value is NOTHING:
        return ""
    try:
        plain = isinstance(value, Shown) or not isinstance(value, (str, bytes))
        text = str(value) if plain else repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return "such a number"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def one_line(error: object, longest: int = LONGEST) -> str:
    """Another library's error, shortened to one line."""
    text = " ".join(str(error).split())
    return text[:longest] or type(error).__name__


def _restored(kind: type[InputError], parts: dict[str, Any]) -> InputError:
    error = kind.__new__(kind, parts["field"])
    error.__dict__.update(parts)
    error.args = (parts["field"], parts["value"], parts["allowed"], parts["hint"])
    return error


class UserCodeError(InputError):
    """A user-defined strategy, model or other part failed: one line that names its file and line."""


class LostError(RuntimeError):
    """More processes or machines were lost than a run can survive. Its folder is kept; the same command resumes it."""


class DivergedError(RuntimeError):
    """Training diverged: no finite update or model is left. The command line exits with 3.

    `result` holds everything up to there: the records, and the weights of the last finite model.
    """

    def __init__(self, result: Any) -> None:
        super().__init__(result.diverged)
        self.result = result

    def __reduce__(self) -> Any:
        return DivergedError, (self.result,)
