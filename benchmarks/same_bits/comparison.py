"""Compares the results of both sides and puts the verdict into words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpns_ray.errors import InputError, one_line

TIMES = ("seconds", "seconds_by_phase")
"""Keys that differ from run to run and are not compared."""
SHOWN = 20
"""Differences of one case that are printed; the rest are counted."""
LONGEST = 300
"""Characters of a value that are printed."""


@dataclass
class Comparison:
    """How the two results of one case compare."""

    differences: list[str] = field(default_factory=list)
    """One line each: where, which key, both values."""
    new_keys: set[str] = field(default_factory=set)
    """Keys that only this tree records, which is allowed."""
    rounds: int = 0


def compare(base: Mapping[str, Any], here: Mapping[str, Any]) -> Comparison:
    """Compare the results of one case on both sides."""
    found = Comparison()
    if "error" in base or "error" in here:
        found.differences.append(
            f"did not run: base {base.get('error', 'succeeded')}, here {here.get('error', 'succeeded')}"
        )
        return found
    for key in ("weights_sha256", "population_sha256"):
        _compare_value(key, base[key], here[key], found)
    records = {record["round"]: record for record in base["records"]}
    records_here = {record["round"]: record for record in here["records"]}
    for number in sorted(records.keys() | records_here.keys()):
        if number not in records_here:
            found.differences.append(f"round {number}: missing here, recorded at base")
        elif number not in records:
            found.differences.append(f"round {number}: missing at base, recorded here")
        else:
            found.rounds += 1
            _compare_keys(f"round {number}, ", "", records[number], records_here[number], found)
    if not records:
        found.differences.append("no round was recorded")
    return found


def _compare_keys(place: str, prefix: str, base: Mapping[str, Any], here: Mapping[str, Any], found: Comparison) -> None:
    for key in dict.fromkeys((*base, *here)):
        name = f"{prefix}{key}"
        if name in TIMES:
            if key in base and key not in here:
                found.differences.append(f"{place}{name}: missing here, recorded at base")
        elif key not in base:
            found.new_keys.add(name)
        elif key not in here:
            found.differences.append(f"{place}{name}: missing here, base {shown(base[key])}")
        elif isinstance(base[key], dict) and isinstance(here[key], dict):
            _compare_keys(place, f"{name}.", base[key], here[key], found)
        else:
            _compare_value(f"{place}{name}", base[key], here[key], found)


def _compare_value(place: str, base: Any, here: Any, found: Comparison) -> None:
    """Compares their JSON, which keeps every bit and tells 0.0 from -0.0 and 1 from 1.0; NaN equals NaN."""
    if json.dumps(base, sort_keys=True) != json.dumps(here, sort_keys=True):
        found.differences.append(f"{place}: base {shown(base)}, here {shown(here)}")


def shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass
class Verdict:
    """The sum of all comparisons so far."""

    equal: int = 0
    differing: int = 0
    rounds: int = 0
    new_keys: set[str] = field(default_factory=set)

    def add(self, name: str, base: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
        """Compare one case; returns the lines to print."""
        found = compare(base, here)
        self.rounds += found.rounds
        self.new_keys |= found.new_keys
        if not found.differences:
            self.equal += 1
            return []
        self.differing += 1
        lines = [f"DIFFERS: {name}, {difference}" for difference in found.differences[:SHOWN]]
        if len(found.differences) > SHOWN:
            lines.append(f"DIFFERS: {name}, and {len(found.differences) - SHOWN} more")
        return lines

    def add_missing(self, name: str, side: str) -> list[str]:
        self.differing += 1
        return [f"DIFFERS: {name}, missing {side}"]

    def closing(self, base: str, planned: int, seconds: float | None = None) -> tuple[list[str], int]:
        """The last lines, and the exit code."""
        lines = [f"new here: {', '.join(sorted(self.new_keys))}"] if self.new_keys else []
        counts = f"{self.equal} of {planned} cases equal, {self.differing} differ, {self.rounds} rounds compared"
        took = f", {seconds:.0f} s" if seconds is not None else ""
        same = self.equal == planned > 0 and not self.differing
        lines.append(f"same-bits: {'the same bits as' if same else 'NOT the same bits as'} {base}: {counts}{took}")
        return lines, 0 if same else 1


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """The cases in one side's result file, by name."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError("compare", path, problem=f"cannot be read ({one_line(error)})") from None
    return {line["case"]: line for line in lines if "case" in line}


def compare_files(base: Path, here: Path) -> int:
    """Only compare two existing result files."""
    results, results_here, verdict = read_results(base), read_results(here), Verdict()
    names = list(dict.fromkeys((*results, *results_here)))
    for name in names:
        if name not in results or name not in results_here:
            lines = verdict.add_missing(name, "here" if name in results else "at base")
        else:
            lines = verdict.add(name, results[name], results_here[name])
        print(*lines, sep="\n", end="\n" if lines else "")
    lines, code = verdict.closing(str(base), len(names))
    print(*lines, sep="\n")
    return code
