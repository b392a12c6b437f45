"""rounds.jsonl: one JSON object per round, appended and flushed as rounds complete.

Every line ends with a chain: the digest of its content and of the chain before it. So each line vouches for all before
it, and lines that were edited, moved or dropped are noticed. Files from before there were chains are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.errors import InputError
from fedpns_ray.records.record import FATES, Record

Content = bytes | None | InputError
"""Of a file: None if there is none, the error if it cannot be read."""
DIGITS = 16
"""Hexadecimal digits of a chain."""
CHAINED = re.compile(rb'(.*), "%s": "([0-9a-f]{%d})"}\n' % (Record.chain.encode(), DIGITS), re.DOTALL)


class Lines(NamedTuple):
    """What rounds.jsonl holds."""

    records: list[Record]
    """Up to the first line that is torn, damaged, changed or out of order; without their chains."""
    chains: list[str]
    """The chain at each of them, computed from the lines."""
    damage: str = ""
    """Which line is not as it was written. A last line without its end is none: the writer was stopped."""
    digest: str | None = None
    """The SHA-256 of the file; None if there is none."""


def read_lines(content: Content) -> Lines:
    """What the content of rounds.jsonl holds; of a file that cannot be read, the error is the damage."""
    if isinstance(content, InputError):
        return Lines([], [], str(content))
    if content is None:
        return Lines([], [])
    return _read(content)._replace(digest=hashlib.sha256(content).hexdigest())


def _read(content: bytes) -> Lines:
    records: list[Record] = []
    chains: list[str] = []
    chain, chained = "", False
    for line in content.splitlines(keepends=True):
        match = CHAINED.fullmatch(line)
        written = match[1] + b"}\n" if match else line
        chain = _next(chain, written)
        record = _record(written, len(records) + 1)
        if record is None or (chained and not match) or (match and match[2].decode() != chain):
            torn = not line.endswith(b"\n")
            damage = "" if torn else f"line {len(records) + 1} of rounds.jsonl is not as it was written"
            return Lines(records, chains, damage)
        records.append(record)
        chains.append(chain)
        chained = match is not None
    return Lines(records, chains)


def to_line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """The line of a record, and its chain; `before` is that of the record before, empty for the first."""
    content = json.dumps(record, allow_nan=False).encode() + b"\n"
    chain = _next(before, content)
    return content[:-2] + f', "{Record.chain}": "{chain}"}}\n'.encode(), chain


def to_lines(records: Iterable[Mapping[str, Any]]) -> tuple[bytes, str]:
    """rounds.jsonl as a whole, and the chain of its last line."""
    lines, chain = [], ""
    for record in records:
        line, chain = to_line(record, chain)
        lines.append(line)
    return b"".join(lines), chain


def _next(before: str, content: bytes) -> str:
    return hashlib.sha256(before.encode() + content).hexdigest()[:DIGITS]


def _record(line: bytes, number: int) -> Record | None:
    """None if the line is not a whole record of this round."""
    found = parsed(line) if line.endswith(b"\n") else None
    if not isinstance(found, dict) or found.get(Record.round) != number or Record.chain in found:
        return None
    lists = (*FATES, Record.aggregated)
    fine = is_number(found.get(Record.seconds)) and all(is_nodes(found.get(key)) for key in lists)
    tests = (found.get(Record.test_accuracy), found.get(Record.test_loss))
    return Record(found) if fine and all(value is None or is_number(value) for value in tests) else None


def unfit(records: Iterable[Record], quantities: Iterable[Quantity], nodes: int) -> str:
    """Which round holds something else than it declares: nodes that do not exist, text for a number; or nothing."""
    listed = list(quantities)
    for record in records:
        ids = [record.get(key) for key in (*FATES, Record.aggregated, Record.returned)]
        fine = all(one is None or (is_nodes(one) and max(one, default=0) < nodes) for one in ids)
        fine = fine and all(_is_measured(record.get(quantity.key), quantity, nodes) for quantity in listed)
        norms, who = record.gradient_norms, record.returned or record.drawn
        if not fine or (norms and len(norms) != len(who)):
            return f"round {record.round} does not match its declared quantities"
    return ""


def _is_measured(value: Any, quantity: Quantity, nodes: int) -> bool:
    if value is None or quantity.per == "round":
        return value is None or is_number(value)
    several = isinstance(value, list) and all(one is None or is_number(one) for one in value)
    return several and (quantity.per != "node" or len(value) == nodes)


def parsed(content: bytes) -> Any:
    """JSON from a file that may hold anything; None if it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_nodes(value: Any) -> bool:
    """Whether it is a list of ids."""
    return isinstance(value, list) and all(type(node) is int and node >= 0 for node in value)


def finite(record: Record) -> Record:
    """JSON has no NaN: a number that is not finite is written as null, and the record names its key."""
    lost = [key for key, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
    return Record(plain(dict(record)) | ({Record.non_finite: lost} if lost else {}))


def plain(value: Any) -> Any:
    """The same value with null for every number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
