"""A comparison of strategies: a study made from settings instead of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment, drop_idle, folder_name
from fedpns_ray.study.study_file import Plot, Study, Trial

TARGETS = [0.7, 0.8, 0.9]
QUANTITIES = ["test_accuracy", "test_loss"]


def comparison(settings: Mapping[str, Any], strategies: Sequence[Any], seeds: Sequence[int]) -> Study:
    """Every strategy with every seed, all else equal. Its text is a study file, so `fedpns study` can resume it."""
    strategies = [Experiment(strategy=given).strategy if not isinstance(given, str) else given for given in strategies]
    if not strategies:
        raise InputError("strategies: none is named; such as fedpns,fedavg")
    _refuse_useless(settings, strategies)
    experiments = {
        (strategy, seed): Experiment(**drop_idle({**settings, "strategy": strategy, "seed": seed}))
        for seed in seeds
        for strategy in strategies
    }
    base: dict[str, Any] = {}
    for experiment in experiments.values():  # as they were understood: a flag's "20" is 20
        base |= {key: value for key, value in experiment.settings().items() if key in settings}
    base = {key: value for key, value in base.items() if key not in ("strategy", "seed")}
    trials = [Trial(e, {**base, "strategy": strategy, "seed": seed}) for (strategy, seed), e in experiments.items()]
    baseline = {"strategy": "fedavg" if "fedavg" in strategies else strategies[-1]}
    first = trials[0].experiment
    title = f"{', '.join(strategies)}: {first.model} on {first.dataset}"
    content = {
        "title": title,
        "base": base,
        "axes": {"strategy": list(strategies)},
        "seeds": list(seeds),
        "baseline": baseline,
        "targets": TARGETS,
        "plot": {"quantities": QUANTITIES},
    }
    return Study(
        name=folder_name(*experiments.values()),
        title=title,
        trials=trials,
        axes=["strategy"],
        baseline=baseline,
        targets=TARGETS,
        plot=Plot(quantities=QUANTITIES),
        layout=None,
        cpus_per_trial=1.0,
        gpus_per_trial=None,
        search=None,
        text=yaml.safe_dump(content, sort_keys=False).encode(),
    )


def _refuse_useless(settings: Mapping[str, Any], strategies: Sequence[str]) -> None:
    """A setting that none of the strategies uses is a mistake; one that some use is not."""
    used = set().union(*(drop_idle({**settings, "strategy": strategy}) for strategy in strategies))
    for key in settings:
        if key not in used:
            Experiment(**{**settings, "strategy": strategies[0]})  # says why
