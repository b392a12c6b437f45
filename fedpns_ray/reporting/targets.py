"""Where pages and pictures are written: never over something that is not ours."""

from __future__ import annotations

import stat
from pathlib import Path

from fedpns_ray.atomic_file import kind_of
from fedpns_ray.errors import InputError

NAME = "fedpns-ray"
MARKS = {
    ".html": b'<meta name="generator" content="fedpns-ray">',
    **dict.fromkeys((".png", ".pdf", ".svg"), NAME.encode()),
}
"""What a file of ours holds, by its ending: it says who made it."""
LARGEST = 50_000_000
"""Bytes in which it is looked for."""


def marked(ending: str) -> dict[str, str | None]:
    """Metadata for matplotlib's savefig that mark a picture as ours."""
    if ending.lstrip(".") == "pdf":
        return {"Creator": NAME, "CreationDate": None}
    return {"Software" if ending.lstrip(".") == "png" else "Creator": NAME}


def refuse_foreign(path: Path, ending: str, field: str = "out") -> None:
    """An InputError unless the path is free, or a file of ours, of this kind, lies there."""
    try:
        if not path.parent.is_dir():
            raise InputError(field, path, "it must be a file in an existing folder")
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(field, path, problem=f"cannot be written to ({error.strerror})") from None
    if not stat.S_ISREG(found.st_mode):
        allowed = "it must be a file in an existing folder"
        raise InputError(field, path, allowed, problem=f"is {kind_of(found)}")
    with path.open("rb") as file:
        content = file.read(LARGEST)
    if content and MARKS.get(ending, NAME.encode()) not in content:
        raise InputError(
            field, path, problem="exists and was not written by fedpns", hint="name another file, or delete it"
        )
