"""A comparison of strategies: a study made from settings instead of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.record import Record
from fedpns_ray.settings import Settings, drop_idle
from fedpns_ray.study.study_file import Study, read_study

TARGETS = [0.7, 0.8, 0.9]
QUANTITIES = [Record.test_accuracy, Record.test_loss]


def comparison(settings: Mapping[str, Any], strategies: Sequence[Any], seeds: Sequence[int]) -> Study:
    """Every strategy with every seed, all else equal. Its text is a study file, so `fedpns study` can resume it."""
    names = [given if isinstance(given, str) else Experiment(strategy=given).strategy for given in strategies]
    if not names:
        raise InputError("strategies", problem="none is named", hint="such as fedpns,fedavg")
    examples = _one_of_each(settings, names)
    content = {
        "title": f"{', '.join(names)}: {examples[0].model} on {examples[0].dataset}",
        "base": _base(settings, examples),
        "axes": {"strategy": names},
        "seeds": list(seeds),
        "baseline": {"strategy": "fedavg" if "fedavg" in names else names[-1]},
        "targets": TARGETS,
        "plot": {"quantities": QUANTITIES},
    }
    study = read_study(content)
    return replace(study, name=folder_name(*(trial.experiment for trial in study.trials)), axes=["strategy"])


def _one_of_each(settings: Mapping[str, Any], strategies: Sequence[str]) -> list[Experiment]:
    """An experiment per strategy. A setting that none of them uses is a mistake; one that some use is not."""
    used = [drop_idle({**settings, "strategy": strategy}) for strategy in strategies]
    if set(settings) - set().union(*used):
        Experiment(**{**settings, "strategy": strategies[0]})  # raises the error that says why
    return [Experiment(**some) for some in used]


def _base(settings: Mapping[str, Any], examples: Sequence[Experiment]) -> Settings:
    """The given settings as experiments understood them: a flag's "20" is 20."""
    understood: Settings = {}
    for experiment in examples:
        understood |= experiment.settings()
    return {key: value for key, value in understood.items() if key in settings and key not in ("strategy", "seed")}
