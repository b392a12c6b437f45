"""summary.json: what came out of a run, with the digests that vouch for its other files."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from fedpns_ray import __version__
from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.run import Record
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.lines import plain, to_json, whole_records

if TYPE_CHECKING:
    from fedpns_ray.runtime.hardware import Hardware

Summary = dict[str, Any]


TARGETS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)


LAST = 5
"""Rounds whose mean is the final accuracy."""


LEDGER = ("bytes_up", "bytes_down", "simulated_seconds")
"""What records count and runs add up; simulated seconds only with a device model."""


def summarise(
    experiment: Experiment,
    records: Sequence[Record],
    weights: Vector,
    population: dict[str, Any],
    hardware: Hardware,
) -> Summary:
    """What came out of a run, from its records alone. A run that diverged has no final accuracy."""
    tested = [record for record in records if record["test_accuracy"] is not None]
    accuracy = [record["test_accuracy"] for record in tested] or [None]
    diverged = bool(records) and "diverged" in records[-1]
    final = tested[-LAST:] if not diverged else []
    summary = {
        "strategy": experiment.label,
        "seed": experiment.seed,
        "rounds": len(records),
        "diverged": {"round": records[-1]["round"], "reason": records[-1]["diverged"]} if diverged else None,
        "final_accuracy": float(np.mean([record["test_accuracy"] for record in final])) if final else None,
        "last_accuracy": accuracy[-1],
        "last_loss": tested[-1]["test_loss"] if tested else None,
        "best_accuracy": max(accuracy),
        "rounds_to": {f"{target:g}": rounds_to(tested, target) for target in TARGETS},
        "nodes": {
            fate: _counts(records, fate, experiment.nodes) for fate in ("drawn", "labelled", "excluded", "aggregated")
        },
        "non_finite_updates": sum(len(record.get("non_finite_updates", ())) for record in records),
        **totals(records),
        "weights_sha256": sha256(weights),
        "records_sha256": hashlib.sha256(b"".join(map(to_json, records))).hexdigest(),
        "population": population,
        "seconds": sum(record["seconds"] for record in records),
        **hardware,
        "versions": {
            "python": platform.python_version(),
            "fedpns-ray": __version__,  # of this code: in a job's folder it runs without being installed
            **{name: version(name) for name in ("ray", "torch", "torchvision", "numpy")},
        },
    }
    return plain(summary)


def rounds_to(records: Sequence[Record], target: float) -> int | None:
    """The first round whose model reaches an accuracy."""
    return next((r["round"] for r in records if (r["test_accuracy"] or 0) >= target), None)


def totals(records: Sequence[Record]) -> dict[str, Any]:
    """Bytes up and down and simulated seconds of a whole run, where every record has them."""
    return {key: sum(r[key] for r in records) for key in LEDGER if records and all(key in r for r in records)}


def _counts(records: Sequence[Record], fate: str, nodes: int) -> list[int]:
    times = Counter(node for record in records for node in record[fate])
    return [times[node] for node in range(nodes)]


def sha256(weights: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


def parse_summary(content: bytes | None) -> Summary | None:
    """A summary from its file's content; None if there is none, or only half of one."""
    try:
        found = json.loads(content or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("rounds"), int) else None


def is_over(summary: Summary | None, rounds: int) -> bool:
    """Whether a run with this summary has come to its end: all its rounds, or divergence."""
    return summary is not None and (summary["rounds"] == rounds or diverged_in(summary) is not None)


def diverged_in(summary: Summary) -> int | None:
    """The round in which a run diverged; None if it did not."""
    return int(summary["diverged"]["round"]) if summary.get("diverged") else None


def damage(summary: Summary, lines: bytes | None, weights: bytes | None, with_weights: bool = True) -> str | None:
    """What of a finished run's files is not as its summary says, in words; None if all is.

    Runs recorded before summaries held the digest of rounds.jsonl are checked by the number of its records.
    """
    expected, there = summary["rounds"], len(whole_records(lines or b""))
    if lines is None or there != expected:
        return f"rounds.jsonl holds {there} of {expected} rounds"
    digest = summary.get("records_sha256")
    if digest and hashlib.sha256(lines).hexdigest() != digest:
        return "rounds.jsonl does not have the SHA-256 that summary.json gives"
    if not with_weights:
        return None
    if weights is None:
        return "weights.safetensors is missing"
    try:
        found = sha256(safetensors.numpy.load(weights)["weights"])
    except (safetensors.SafetensorError, KeyError, ValueError):
        return "weights.safetensors cannot be read"
    if found != summary.get("weights_sha256"):
        return "weights.safetensors does not have the SHA-256 that summary.json gives"
    return None
