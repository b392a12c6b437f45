"""Flags that several commands share: address, CPU fallback, patience, limits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fedpns_ray.errors import InputError


def pairs(texts: Sequence[str], field: str) -> dict[str, str]:
    """The `key=value` pairs of a flag that may be given several times."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(field, text, "it must be like key=value")
        found[key.strip().replace("-", "_")] = value
    return found


def add_address(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="join the Ray cluster there (auto: the one on this machine; default: RAY_ADDRESS)",
    )


def add_cpu_fallback(parser: argparse._ActionsContainer, what: str = "a trial") -> None:
    parser.add_argument(
        "--cpu-fallback",
        action="store_true",
        help=f"train on the CPU where {what} is given a GPU that torch cannot use; otherwise that is refused",
    )


def add_patience(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        help="the least silence after which a worker is killed and its work redone (default: 60)",
    )


def patience(options: argparse.Namespace) -> float | None:
    """The flag as a number of seconds; None if it was not given."""
    if options.patience is None:
        return None
    try:
        seconds = float(options.patience)
    except ValueError:
        raise InputError("patience", options.patience, "it must be a number") from None
    if not 1 <= seconds < float("inf"):
        raise InputError("patience", options.patience, "it must be at least 1")
    return seconds


def add_fuse(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--fuse",
        metavar="{auto,off,N}",
        help="train and test N trials that share their shapes together, in one worker; auto: on GPUs, and the tests of "
        "MLR on cores (default: the file's, or auto)",
    )


def add_submit(parser: argparse._ActionsContainer, what: str, results: str) -> None:
    parser.add_argument(
        "--submit",
        metavar="URL",
        help=f"send this folder and the {what} to the cluster whose dashboard is there; follow it, fetch its {results} "
        "to runs/NAME (see also fedpns jobs)",
    )


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_time_limit(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--time-limit",
        metavar="TIME",
        help="stop after so long, such as 90m, 2h or 1d, with a checkpoint; the same command resumes",
    )


def time_limit(options: argparse.Namespace) -> float | None:
    """The flag in seconds; None if the command has no such flag or it was not given."""
    text = getattr(options, "time_limit", None)
    if text is None:
        return None
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds < float("inf"):
        raise InputError("time_limit", text, "it must be like 3600, 90m, 2h or 1d, and at least 1 s")
    return seconds
