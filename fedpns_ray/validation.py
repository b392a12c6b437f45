"""Checks of what comes from outside; the one place that knows pydantic's wording."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from fedpns_ray.errors import InputError, one_line

WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "it must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "it must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it must be true or false"),
    **dict.fromkeys(("dict_type", "model_type"), "it must be keys and values"),
    "string_type": "it must be text",
    "list_type": "it must be a list",
    "too_short": "its length must be at least {min_length}",
    "value_error": "{error}",
}
"""What is said for each type of error. All others keep pydantic's words ("Input should be less than 1")."""
PREFIX = "Input should be "
MOST_DIGITS = 18
"""Of a whole number: so many always fit into 64 bits."""


def refusal(error: ValidationError, nested: bool = False) -> InputError:
    """The first of pydantic's errors. Its field is a field of the model or, if `nested`, a dotted path within it."""
    first: Any = error.errors()[0]
    keys = first["loc"] if nested else first["loc"][:1]
    field = ".".join(str(key) for key in keys) or error.title
    if first["type"] == "missing":
        return InputError(field, allowed="it has no default", problem="is missing")
    message = first["msg"].replace(PREFIX, "it must be ", 1)
    allowed = WORDS[first["type"]].format(**first.get("ctx", {})) if first["type"] in WORDS else one_line(message)
    return InputError(field, first["input"], allowed)


def whole_number(text: str) -> int | None:
    """The number that a text is; None if it is none. `str.isdigit` is true of some that `int` refuses, such as "²"."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def nearest(word: str, known: Iterable[str]) -> str:
    """A question with the known word or flag that is most like this one; empty if none is like it."""
    spelled = {name.lower().lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lower().lstrip("-"), spelled, n=1)
    return f"did you mean {spelled[near[0]]}?" if near else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown word: the nearest known one, or any of them."""
    words = list(known)
    return nearest(word, words) or f"choose from {', '.join(words)}"


def unknown_name(field: str, name: str, known: Iterable[str], otherwise: str = "") -> InputError:
    """The refusal of a name that is not among the known ones; `otherwise` is what else could be written."""
    names = list(known)
    allowed = f"choose from {', '.join(names)}{otherwise and f', or {otherwise}'}"
    return InputError(field, name, allowed, nearest(name, names), problem="is unknown")
