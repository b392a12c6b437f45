"""How far a study has got, in the words that stand above its tables and pictures."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from fedpns_ray.errors import InputError
from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.study.study_file import Study, Trial
from fedpns_ray.study.trials import chosen, selection_words


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


def asked_for(study: Study, commands: Sequence[str]) -> tuple[list[Trial], str]:
    """The trials that the commands of a study asked for, and the selection that they made; by default all of them."""
    made = [selection for command in commands if (selection := _selection(command))]
    if len(made) < max(1, len(commands)):
        return study.trials, ""
    found: dict[str, Trial] = {}
    for only, seeds in made:
        try:
            kept = [t for t in study.trials if not seeds or t.experiment.seed in parse_seeds(seeds)]
            found |= {trial.name: trial for trial in chosen(kept, only)}
        except InputError:  # trials that the file does not describe
            continue
    return list(found.values()), "; ".join(dict.fromkeys(selection_words(*one) for one in made))


def _selection(command: str) -> tuple[dict[str, list[str]], str] | None:
    """What a noted command selects: its --only and --seeds; None if it runs everything, or cannot be read."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    values: dict[str, list[str]] = {"--only": [], "--seeds": []}
    flags = iter(words)
    for word in flags:
        flag, equals, value = word.partition("=")
        if flag in values:
            values[flag].append(value if equals else next(flags, ""))
    only = {key: texts.split(",") for key, _, texts in (pair.partition("=") for pair in values["--only"])}
    seeds = values["--seeds"][-1] if values["--seeds"] else ""
    return (only, seeds) if only or seeds else None
