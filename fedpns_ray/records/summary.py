"""summary.json: the outcome of a run, with the digests that vouch for its other files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Vector
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.code import code, versions
from fedpns_ray.records.counts import counts_of, read_counts
from fedpns_ray.records.lines import Content, Lines, is_number, parsed, plain, to_lines
from fedpns_ray.records.record import COSTS, FATES, Key, Record
from fedpns_ray.records.schema import SCHEMA

if TYPE_CHECKING:
    from fedpns_ray.runtime.hardware import Hardware

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)

LAST = 5
"""The number of tests whose mean is the final accuracy."""


class Summary(dict[str, Any]):
    """The outcome of a run: `summary.final_accuracy` is the value, `Summary.final_accuracy` the key."""

    schema = Key["int | None"]()
    """None in summaries from before there were versions."""
    strategy = Key[str]()
    seed = Key[int]()
    rounds = Key[int]()
    diverged = Key["dict[str, Any] | None"]()
    """`round` and `reason`."""
    final_accuracy = Key["float | None"]()
    """The mean of the last 5 tests; None for a run that diverged, and in a regression."""
    last_accuracy = Key["float | None"]()
    last_loss = Key["float | None"]()
    best_accuracy = Key["float | None"]()
    rounds_to = Key["dict[str, int | None]"]()
    nodes = Key["dict[str, Any]"]()
    """How often each node met each fate; see `counts`."""
    non_finite_updates = Key["int | None"]()
    bytes_up = Key["int | None"]()
    bytes_down = Key["int | None"]()
    simulated_seconds = Key["float | None"]()
    weights_sha256 = Key[str]()
    records_sha256 = Key["str | None"]()
    population = Key["dict[str, Any]"]()
    seconds = Key[float]()
    device = Key["str | None"]()
    gpu = Key["str | None"]()
    cpu = Key["str | None"]()
    training = Key["str | None"]()
    """How nodes were trained: one by one, or in cohorts (of so many rows). None in older summaries."""
    code = Key["dict[str, str | None] | None"]()
    """The commit, and the digest of the package's sources."""
    versions = Key["dict[str, str]"]()
    summary_sha256 = Key[str]()
    """In summary.json only: of the rest. Older ones do not have it."""


KINDS: dict[str, type] = {
    **dict.fromkeys((Summary.diverged, Summary.nodes, Summary.population, Summary.rounds_to, Summary.versions), dict),
    **dict.fromkeys((Summary.weights_sha256, Summary.records_sha256), str),
    **dict.fromkeys((Summary.final_accuracy, Summary.last_loss, Summary.best_accuracy, Summary.seconds), float),
    **dict.fromkeys((Summary.non_finite_updates, Summary.bytes_up, Summary.bytes_down), int),
    Summary.simulated_seconds: float,
}
"""What readers rely on; a summary that holds something else is damaged."""


def summarise(
    experiment: Experiment,
    records: Sequence[Record],
    weights: Vector,
    population: dict[str, Any],
    hardware: Hardware,
) -> Summary:
    """The outcome of a run, computed from its records. A run that diverged has no final accuracy."""
    tested = [record for record in records if record.test_loss is not None]
    accuracy = [record.test_accuracy for record in tested if record.test_accuracy is not None]
    diverged = records[-1].diverged if records else None
    summary = {
        Summary.schema: SCHEMA,
        Summary.strategy: experiment.label,
        Summary.seed: experiment.seed,
        Summary.rounds: len(records),
        Summary.diverged: {"round": records[-1].round, "reason": diverged} if diverged else None,
        Summary.final_accuracy: float(np.mean(accuracy[-LAST:])) if accuracy and not diverged else None,
        Summary.last_accuracy: accuracy[-1] if accuracy else None,
        Summary.last_loss: tested[-1].test_loss if tested else None,
        Summary.best_accuracy: max(accuracy, default=None),
        Summary.rounds_to: {f"{target:g}": rounds_to(tested, target) for target in TARGETS},
        Summary.nodes: {
            fate: counts_of((node for record in records for node in record[fate]), experiment.nodes)
            for fate in (*FATES, Record.aggregated)
        },
        Summary.non_finite_updates: sum(len(record.non_finite_updates or ()) for record in records),
        **totals(records),
        Summary.weights_sha256: sha256(weights),
        Summary.records_sha256: hashlib.sha256(to_lines(records)[0]).hexdigest(),
        Summary.population: population,
        Summary.seconds: sum(record.seconds for record in records),
        **hardware,
        Summary.code: code(),
        Summary.versions: versions(),
    }
    return Summary(plain(summary))


def rounds_to(records: Sequence[Record], target: float) -> int | None:
    """The first round whose model reaches an accuracy; None if there is none."""
    return next((r.round for r in records if (r.test_accuracy or 0) >= target), None)


def totals(records: Sequence[Record]) -> dict[str, Any]:
    """Bytes up and down and simulated seconds of a whole run, where every record has them."""
    keys = [cost.key for cost in COSTS]
    return {
        key: sum(r[key] for r in records) for key in keys if records and all(r.get(key) is not None for r in records)
    }


def counts(summary: Summary, fate: str, nodes: int) -> NDArray[np.int64] | None:
    """How often each of the nodes met a fate; None if the summary does not say."""
    return read_counts(summary.nodes.get(fate), nodes) if isinstance(summary.nodes, dict) else None


def sha256(weights: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


def to_content(summary: Summary) -> bytes:
    """summary.json, which ends with the digest of the rest."""
    return json.dumps(summary | {Summary.summary_sha256: _digest(summary)}, indent=1).encode() + b"\n"


def _digest(summary: Summary) -> str:
    """Whatever the order and the layout."""
    rest = {key: value for key, value in summary.items() if key != Summary.summary_sha256}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def parse_summary(content: bytes | None) -> Summary | None:
    """A summary from the content of its file; None if it is missing or damaged."""
    found = parsed(content or b"")
    if not isinstance(found, dict) or type(found.get(Summary.rounds)) is not int:
        return None
    summary = Summary(found)
    if summary.pop(Summary.summary_sha256, digest := _digest(summary)) != digest:
        return None
    usable = all(_is_usable(summary.get(key), kind) for key, kind in KINDS.items())
    diverged = summary.diverged
    return summary if usable and (not diverged or type(diverged.get("round")) is int) else None


def _is_usable(value: Any, kind: type) -> bool:
    return value is None or (is_number(value) if kind is float else isinstance(value, kind))


def is_over(summary: Summary | None, rounds: int) -> bool:
    """Whether a run with this summary has ended: all its rounds are done, or it diverged."""
    return summary is not None and (summary.rounds == rounds or diverged_in(summary) is not None)


def diverged_in(summary: Summary) -> int | None:
    """The round in which a run diverged; None if it did not."""
    return summary.diverged["round"] if summary.diverged else None


def damage(summary: Summary, lines: Lines, weights: Content, with_weights: bool = True) -> str | None:
    """How the files of a finished run differ from what its summary says, in words; None if they do not.

    Runs recorded before summaries held the digest of rounds.jsonl are checked by the number of records.
    """
    if lines.damage or isinstance(weights, InputError):
        return lines.damage or str(weights)
    if lines.digest is None or len(lines.records) != summary.rounds:
        return f"rounds.jsonl holds {len(lines.records)} of {summary.rounds} rounds"
    if summary.records_sha256 and lines.digest != summary.records_sha256:
        return "rounds.jsonl does not have the SHA-256 that summary.json gives"
    if not with_weights:
        return None
    if weights is None:
        return "weights.safetensors is missing"
    try:
        found = sha256(safetensors.numpy.load(weights)["weights"])
    except Exception:  # whatever damaged bytes make of it
        return "weights.safetensors cannot be read"
    if found != summary.weights_sha256:
        return "weights.safetensors does not have the SHA-256 that summary.json gives"
    return None
