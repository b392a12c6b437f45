"""How far a study has got, in the words that stand above its tables and pictures."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fedpns_ray.errors import InputError
from fedpns_ray.study.study_file import Study, Trial, read_study
from fedpns_ray.yaml_file import parse_yaml


def label(asked: Collection[str], over: Collection[str], whole: Collection[str], selection: str, noun: str) -> str:
    """`partial: 7 of 12 trials finished; selected: model=mlr`; empty for a study that is complete.

    A selection that was made on purpose is named, and what it leaves out is not missing. Beside trials of an earlier
    command it would not say what is shown, so then their number is given.
    """
    done, more, said = set(asked) & set(over), set(over) - set(asked), []
    if len(done) < len(set(asked)):
        said.append(f"partial: {len(done)} of {len(set(asked))} {noun} finished")
    if selection and set(whole) - set(over) - set(asked):
        count = f"{len(set(asked) | more)} of the study's {len(set(whole) | set(asked))} {noun}"
        said.append(f"selected: {count if more else selection}")
    return "; ".join(said)


class Asked(NamedTuple):
    """What commands asked a study for."""

    trials: list[Trial]
    whole: list[Trial]
    """These, and all that the same commands would have run without a selection."""
    selection: str
    """What was selected, in words; empty if any command selected nothing."""


class Request(NamedTuple):
    """One command: what it changed in the study's file, and what it selected from it."""

    changes: tuple[tuple[str, str], ...] = ()
    only: tuple[tuple[str, str], ...] = ()
    seeds: str | None = None

    def read(self, text: bytes) -> Study:
        only = {key: values.split(",") for key, values in self.only}
        return read_study(parse_yaml(text), dict(self.changes), self.seeds, only, importing=False)


def asked_for(study: Study, commands: Sequence[str]) -> Asked:
    """The trials that the commands of a study asked for; without any that can be read, all of the file's."""
    requests = list(dict.fromkeys(map(_request, commands)))
    trials, whole, selections = dict[str, Trial](), dict[str, Trial](), list[str]()
    for request in requests:
        try:
            asked = request.read(study.text)
        except InputError:  # the file does not describe them, or not without importing a part of the user's
            continue
        trials |= {trial.name: trial for trial in asked.trials}
        whole |= {trial.name: trial for trial in (*asked.whole, *asked.trials)}
        selections.append(asked.selection)
    if not trials:
        return Asked(study.trials, study.trials, "")
    words = "; ".join(selections) if all(selections) else ""
    return Asked(list(trials.values()), list(whole.values()), words)


def _request(command: str) -> Request:
    """What a noted command says of the trials; one that cannot be read asks for all of them."""
    try:
        words = shlex.split(command)
    except ValueError:
        return Request()
    values: dict[str, list[str]] = {"--only": [], "--set": [], "--rounds": [], "--seeds": []}
    flags = iter(words)
    for word in flags:
        flag, equals, value = word.partition("=")
        if flag in values:
            values[flag].append(value if equals else next(flags, ""))
    changes = [*_pairs(values["--set"]), *(("rounds", rounds) for rounds in values["--rounds"])]
    only, seeds = _pairs(values["--only"]), values["--seeds"]
    return Request(tuple(changes), tuple(only), seeds[-1] if seeds else None)


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """As the command reads them: `key=value`, where the key may be spelled like a flag."""
    return [(key.strip().replace("-", "_"), value) for key, _, value in (text.partition("=") for text in texts)]
