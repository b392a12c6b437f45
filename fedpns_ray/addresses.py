"""Addresses as they may be shown: a URI can carry keys and passwords, which belong in no file, error or log."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from fedpns_ray.errors import one_line

LOCAL = ("file", "sqlite")
HARMLESS = ("region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion")
"""What may be shown of a query; everything else might be a key or a signature."""
WITHIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+(\S*)")
"""In a message; as a path, an address has lost one of its slashes."""
SHORTEST = 3
"""Characters of a piece of a secret that is looked for in another library's message."""


def is_uri(place: str) -> bool:
    """Whether it is more than a path: it begins with a scheme."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", place))


def redacted(place: str) -> str:
    """An address without user, password, and unknown parts of its query; a path, or that of a local file, as it is."""
    if not is_uri(place) or place.partition(":")[0] in LOCAL:
        return place
    try:
        parts = urlsplit(place)
    except ValueError:
        return "the address"
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":  # a password with a / or ? in it: its end is unknown
        return f"{parts.scheme}://…"
    kept = "&".join(pair for pair in parts.query.split("&") if pair.partition("=")[0] in HARMLESS)  # as it is spelled
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=kept, fragment="").geturl()


def carries_secrets(place: str) -> bool:
    """Whether something is left out when the address is shown."""
    return redacted(place) != place


def reason(error: Exception, place: str) -> str:
    """Another library's error about an address, in one line; only its type where its text repeats a secret."""
    text = one_line(error)
    secret = place if carries_secrets(place) else ""
    shown = set(_pieces(redacted(place)))
    told = [piece for piece in _pieces(secret) if piece not in shown and piece in text]
    return type(error).__name__ if told else text


def _pieces(address: str) -> list[str]:
    pieces = re.split(r"[:/@?&=#]+", address)
    return [piece for whole in pieces for piece in (whole, unquote(whole)) if len(piece) >= SHORTEST]


def redacted_text(text: str) -> str:
    """A text in which every address is shown without its secrets: a word of a command line, or a message."""
    return WITHIN.sub(lambda found: redacted(f"{found[1]}://{found[2]}") if found[1] not in LOCAL else found[0], text)
