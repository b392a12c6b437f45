"""Runs as their folders hold them, finished or not: read once, on this machine or from a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.data import count_iid
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records import schema
from fedpns_ray.records.file_names import CONFIG, ROUNDS, SCHEMA, SUMMARY
from fedpns_ray.records.lines import Content, read_lines, unfit
from fedpns_ray.records.record import Record
from fedpns_ray.records.storage import Storage
from fedpns_ray.records.summary import Summary, damage, diverged_in, is_over, parse_summary
from fedpns_ray.yaml_file import parse_yaml

FILES = (CONFIG, SCHEMA, ROUNDS, SUMMARY)
"""The files of a run that are read; weights are not shown."""


@dataclass(frozen=True)
class Run:
    """One run folder."""

    name: str
    """The folder's name."""
    experiment: Experiment
    records: list[Record]
    summary: Summary | None
    quantities: tuple[Quantity, ...]
    """What its records hold."""

    @property
    def over(self) -> bool:
        """All its rounds are done, or it diverged."""
        return is_over(self.summary, self.experiment.rounds)

    @property
    def diverged(self) -> bool:
        return self.summary is not None and diverged_in(self.summary) is not None

    @property
    def finished(self) -> bool:
        return self.over and not self.diverged

    @property
    def status(self) -> str:
        return "finished" if self.finished else "diverged" if self.over else "unfinished"

    @property
    def iid_nodes(self) -> int:
        return count_iid(self.experiment)


def read_runs(storage: Storage, folders: Sequence[str], notes: list[str] | None = None) -> list[Run]:
    """The runs in these folders; those without a config.yaml are left out.

    With a list for `notes`, a run that cannot be read becomes a note instead of an error.
    """
    contents = storage.read_each(f"{folder}/{name}".lstrip("/") for folder in folders for name in FILES)
    found = []
    for k, folder in enumerate(folders):
        own = contents[k * len(FILES) : (k + 1) * len(FILES)]
        if own[0] is None:
            continue
        place = f"{str(storage).partition('?')[0].rstrip('/')}/{folder}".rstrip("/")
        try:
            found.append(_run(place, own))
        except InputError:
            try:  # a run that ended while it was read has a summary for more than was read
                found.append(_run(place, storage.read_each(f"{folder}/{name}".lstrip("/") for name in FILES)))
            except InputError as error:
                if notes is None:
                    raise
                notes.append(f"{_name(folder)} was left out: {error}")
    return found


def _name(place: str) -> str:
    return place.rpartition("/")[2]


def _run(place: str, contents: Sequence[Content]) -> Run:
    config, declarations, lines, content = (_readable(place, one) for one in contents)
    experiment, summary = _experiment(place, config or b""), parse_summary(content)
    if content is not None and summary is None:
        raise InputError(f"{place}/{SUMMARY}", problem="is damaged", hint="no summary can be read from it")
    recorded, quantities = read_lines(lines), schema.from_json(declarations, experiment)
    damaged = damage(summary, recorded, None, with_weights=False) if summary else recorded.damage
    if damaged := damaged or unfit(recorded.records, quantities, experiment.nodes):
        raise InputError(place, problem=f"is damaged ({damaged})")
    return Run(_name(place), experiment, recorded.records, summary, quantities)


def _readable(place: str, content: Content) -> bytes | None:
    if isinstance(content, InputError):
        raise InputError(place, problem=f"is damaged ({content})")
    return content


def _experiment(place: str, config: bytes) -> Experiment:
    try:
        return Experiment.recorded(parse_yaml(config))
    except InputError as error:
        raise InputError(f"{place}/{CONFIG}", problem=f"does not describe an experiment ({error})") from None
