"""The ratios that are kept: ratios.json, whether others got worse, and the tables of docs/performance.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.same_bits.checkout import ROOT
from fedpns_ray.atomic_file import write_whole

KEPT = ROOT / "benchmarks" / "ratios.json"
PAGE = ROOT / "docs" / "performance.md"
BETWEEN = re.compile(r"(<!-- written by `make bench WRITE=1` -->\n).*?(<!-- until here -->)", re.DOTALL)
LEAST = 0.1
"""The smallest tolerance, as a fraction; it is larger where the kept repeats were further apart."""
Found = Mapping[str, Any]
"""Entries by name, as ratios.json holds them."""


def kept(path: Path = KEPT) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def keep(found: Found, order: list[str], path: Path = KEPT) -> None:
    """Replace these entries, and leave the others as they are."""
    merged = kept(path) | {name: entry for name, entry in found.items() if "figures" in entry}
    merged = {name: merged[name] for name in order if name in merged}
    write_whole(path, (json.dumps(merged, indent=1) + "\n").encode())


# --- verdicts --------------------------------------------------------------------------------------------------------


def tolerance(before: Found) -> float:
    """How much worse a figure may be, in its own unit: a tenth, or as far as its repeats were apart."""
    return max(LEAST * abs(before["median"]), before["high"] - before["low"])


def is_worse(before: Found, now: Found) -> bool:
    higher_is_better = before.get("goal", "").startswith(">")
    change = now["median"] - before["median"]
    return (-change if higher_is_better else change) > tolerance(before)


def worsened(before: Found, now: Found) -> Iterator[str]:
    """One line per figure that got worse, or cannot be compared."""
    for name, entry in now.items():
        if "skipped" in entry or name not in before:
            reason = entry.get("skipped", f"not in {KEPT.name}")
            yield f"{name}: not compared ({reason})"
            continue
        if entry["setting"] != before[name]["setting"]:
            yield f"{name}: not compared (measured with {entry['setting']}, kept with {before[name]['setting']})"
            continue
        for figure, old in before[name]["figures"].items():
            new = entry["figures"].get(figure)
            if new is None:
                yield f"{name}, {figure}: not measured, kept {old['median']:g}"
            elif is_worse(old, new):
                limits = f"tolerance {tolerance(old):.3g}{_goal(old)}"
                yield f"{name}, {figure}: worse, {new['median']:g} against {old['median']:g} ({limits})"


def misses(figure: Found) -> bool:
    """Whether a figure misses its goal."""
    sign, _, number = figure.get("goal", "").partition(" ")
    return bool(sign) and (figure["median"] < float(number) if sign == ">=" else figure["median"] > float(number))


# --- words -----------------------------------------------------------------------------------------------------------


def amount(value: float, unit: str) -> str:
    """What a side took."""
    if unit == "MB":
        return f"{value:.0f} MB"
    for factor, name in ((1, "s"), (1e3, "ms")):
        if abs(value) * factor >= 1:
            return f"{value * factor:.3g} {name}"
    return f"{value * 1e6:.3g} us"


def shown(figure: Found) -> str:
    """The median and the spread."""
    unit = figure.get("unit", "")
    numbers = [f"{figure[key]:.0f}" if unit == "MB" else f"{figure[key]:.3g}" for key in ("median", "low", "high")]
    return f"{numbers[0]}{unit and ' ' + unit} ({numbers[1]} to {numbers[2]}, {figure['repeats']} x)"


def _goal(figure: Found) -> str:
    return f", goal {figure['goal']}" if "goal" in figure else ""


def lines(entry: Found) -> Iterator[str]:
    """An entry for the terminal."""
    for name, figure in entry["figures"].items():
        verdict = " MISSED" if misses(figure) else ""
        sides = " / ".join(amount(figure[side], figure.get("unit", "")) for side in ("over", "under"))
        yield f"  {name:52s}{shown(figure):38s}{sides:22s}{_goal(figure)[2:]}{verdict}"


def table(found: Found) -> str:
    """All ratios but the profile, as a table."""
    rows = ["| `ONLY=` | what | goal | measured | of |", "| --- | --- | ---: | ---: | ---: |"]
    for name, entry in found.items():
        if name == "profile":
            continue
        clock = "; seconds of a core" if entry["setting"]["clock"] == "cpu" else ""
        rows.append(f"| **{name}** | {entry['what']}{clock} | | | |")
        for title, figure in entry["figures"].items():
            sides = " / ".join(amount(figure[side], figure.get("unit", "")) for side in ("over", "under"))
            value = f"{shown(figure)}{' (missed)' if misses(figure) else ''}"
            rows.append(f"| | {title} | {figure.get('goal', '')} | {value} | {sides} |")
    return "\n".join([*rows, "", measured_on(found)]) + "\n"


def measured_on(found: Found) -> str:
    """When, on what, and what else the machine had to do."""
    if not found:
        return "Not measured yet."
    days, loads, versions, cores = set(), set(), set(), set()
    for entry in found.values():
        measured = entry["measured"]
        days.add(measured["on"])
        loads.add(measured["load_before"])
        versions.add(", ".join(f"{name} {measured[name]}" for name in ("python", "torch", "ray")))
        cores.add(str(entry["setting"]["cores"]))
    when = " and ".join(sorted({min(days), max(days)}))
    load = f"load before each entry {min(loads)} to {max(loads)}"
    return f"Measured on {when}, {' or '.join(sorted(cores))} cores, {load}; {'; '.join(sorted(versions))}."


def profile(entry: Found) -> str:
    """Where the time of a round goes: one row per model and layout."""
    phases: dict[str, dict[str, str]] = {}
    whole: dict[str, float] = {}
    for name, figure in entry["figures"].items():
        row, _, phase = name.partition(": ")
        phases.setdefault(row, {})[phase] = f"{amount(figure['over'], '')} ({figure['median']:.0%})"
        whole[row] = figure["under"]
    columns = list(dict.fromkeys(phase for row in phases.values() for phase in row))
    rows = [f"| | {' | '.join(columns)} | round |", f"| --- |{' ---: |' * (len(columns) + 1)}"]
    for row, found in phases.items():
        cells = " | ".join(found.get(phase, "") for phase in columns)
        rows.append(f"| {row} | {cells} | {amount(whole[row], '')} |")
    return "\n".join(rows) + "\n"


def page(text: str, found: Found) -> str:
    """The page with its tables as they should be now: first the ratios, then the profile."""
    parts = iter([table(found), profile(found["profile"]) if "profile" in found else ""])
    return BETWEEN.sub(lambda match: f"{match[1]}{next(parts)}{match[2]}", text)
