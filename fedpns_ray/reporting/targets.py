"""Where pages and pictures are written: never over something that is not ours."""

from __future__ import annotations

import stat
from pathlib import Path

from fedpns_ray.atomic_file import kind_of
from fedpns_ray.errors import InputError

MARKS = {
    ".html": b'<meta name="generator" content="fedpns-ray">',
    ".png": b"\x89PNG",
    ".pdf": b"%PDF",
    ".svg": b"<svg",
}
"""What a file of ours holds near its beginning, by its ending: a page says who made it, a picture is a picture."""
HEAD = 4096


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
        head = file.read(HEAD)
    if head and MARKS[ending] not in head:
        what = "page of ours" if ending == ".html" else f"{ending[1:].upper()} picture"
        raise InputError(field, path, problem=f"exists and is no {what}", hint="name another file, or delete it")
