"""What stands below a field in the source of its class: its documentation, read only when needed.

Pydantic would read it for every field of every part as soon as it is imported, which takes a node actor a tenth of its
start.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap


def field_doc(owner: type, name: str) -> str:
    """The text below a field, from the class that declares it; empty if there is none, or no source."""
    declaring = (kind for kind in owner.__mro__ if name in vars(kind).get("__annotations__", {}))
    return next((_docs(kind).get(name, "") for kind in declaring), "")


@functools.cache
def _docs(kind: type) -> dict[str, str]:
    try:
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # made without a file, as in a notebook's past
        return {}
    lines = itertools.pairwise(getattr(found, "body", []))
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in lines
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
