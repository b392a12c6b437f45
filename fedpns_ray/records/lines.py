"""rounds.jsonl: one JSON object per round, appended and flushed as it happens."""

from __future__ import annotations

import json
import math
from typing import Any

from fedpns_ray.core.run import Record


def whole_records(content: bytes) -> list[Record]:
    """The records of rounds.jsonl, up to the first line that is torn, damaged or out of order."""
    whole: list[Record] = []
    for line in content.splitlines(keepends=True):
        try:
            record = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.get("round") != len(whole) + 1:
            break
        whole.append(record)
    return whole


def to_json(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def finite(record: Record) -> Record:
    """JSON has no NaN: a number that is not finite is written as null, and the record names it."""
    lost = [key for key, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
    return plain(record) | ({"non_finite": lost} if lost else {})


def plain(value: Any) -> Any:
    """Numbers that are not finite as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
