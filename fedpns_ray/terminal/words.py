"""The words of a command as they were typed, for a job on a cluster and for the study's folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from fedpns_ray.addresses import redacted

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//.*|.*@.*)", re.DOTALL)
"""An address, up to the end of a word."""
Change = Callable[[str], str | None]
"""Maps a flag's value to another; None drops the flag with its value."""


def rewritten(words: Sequence[str], changes: Mapping[str, Change]) -> Iterator[str]:
    """The words, with the values of some flags changed, in both spellings: `--flag VALUE` and `--flag=VALUE`."""
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag not in changes:
            yield word
            continue
        changed = changes[flag](value if equals else next(rest))
        if changed is not None:
            yield from [f"{flag}={changed}"] if equals else [flag, changed]


def without_submit(words: Sequence[str]) -> list[str]:
    """The same command on the cluster."""
    return list(rewritten(words, {"--submit": _dropped}))


def noted_command(words: Sequence[str]) -> str:
    """The command as the study's folder may show it: without the credentials that an address can carry.

    Where it ran and how it printed do not belong to the study.
    """
    changes: dict[str, Change] = {"--address": _dropped, "--submit": _dropped, "--time-limit": _dropped}
    kept = (word for word in rewritten(words, changes) if word != "--json")
    return shlex.join(["fedpns", *map(_shown, kept)])


def _shown(word: str) -> str:
    """`VALUE`, `--flag=VALUE` or `key=VALUE`; an address may hold anything, even a blank, up to its end."""
    value = URI.search(word)
    return word[: value.start()] + redacted(value[0]) if value else word


def _dropped(value: str) -> None:
    return None
