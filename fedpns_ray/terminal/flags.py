"""Flags that several commands share: settings, address, CPU fallback."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.registry import PARTS, Parameter, describe_default, known_parameters
from fedpns_ray.settings import defaults_of, overridden
from fedpns_ray.yaml_file import read_yaml

SECTIONS = {
    "strategy": ("strategy", "selection", "objective", "aggregation", "server"),
    "data": ("dataset", "partition", "nodes", "samples_per_node", "size_spread", "noisy_nodes", "label_noise"),
    "model and training": (
        "model", "vectorize", "buffers", "loss", "fraction", "rounds", "epochs", "batch_size", "optimizer", "max_steps",
        "lr", "lr_decay", "lr_floor", "clip_updates", "evaluate_every", "metrics", "centralised", "seed",
    ),
    "simulated behaviour of nodes": ("drop_probability", "slow_fraction", "slow_seconds"),
    "device model (simulated time)": (
        "devices", "device_speed", "device_uplink", "device_spread", "device_file", "device_fading",
    ),
}  # fmt: skip
KINDS = {
    "parameters of the strategy": ("selection", "objective", "aggregation", "server"),
    "parameters of the optimizer": ("optimizer",),
    "parameters of the data": ("dataset", "partition"),
}
"""Sections of flags for the parameters of parts."""


def add_settings(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Add a flag for every field of Experiment and every parameter of every part."""
    parser.add_argument("config", nargs="?", type=Path, help="a YAML file with settings; flags override it")
    for section, names in SECTIONS.items():
        group = parser.add_argument_group(section)
        for name in names:
            if name not in without:
                group.add_argument(_flag(name), dest=f"set.{name}", metavar=_metavar(name), help=_help(name))
    for section, kinds in KINDS.items():
        group = parser.add_argument_group(section)
        for name, takers in known_parameters(kinds).items():
            group.add_argument(_flag(name), dest=f"set.{name}", metavar="X", help=_parameter_help(takers))
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, such as a parameter of a user-defined part",
    )


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The file's settings, overridden by flags."""
    flags = {key.removeprefix("set."): value for key, value in vars(options).items() if key.startswith("set.")}
    given = {key: value for key, value in flags.items() if value is not None}
    given |= pairs(options.set, "set")
    return overridden(read_yaml(options.config) if options.config else {}, given)


def pairs(texts: Sequence[str], field: str) -> dict[str, str]:
    """The `key=value` pairs of a flag that may be given several times."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(field, text, "it must be like key=value")
        found[key.strip().replace("-", "_")] = value
    return found


def add_address(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--address", help="join the Ray cluster there (auto: the one on this machine; default: RAY_ADDRESS)"
    )


def add_cpu_fallback(parser: argparse._ActionsContainer, what: str = "a trial") -> None:
    parser.add_argument(
        "--cpu-fallback",
        action="store_true",
        help=f"train on the CPU where {what} is given a GPU that torch cannot use; otherwise that is refused",
    )


def add_patience(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        help="the least silence after which a worker is killed and its work redone (default: 60)",
    )


def patience(options: argparse.Namespace) -> float | None:
    """The flag as a number of seconds; None if it was not given."""
    if options.patience is None:
        return None
    try:
        seconds = float(options.patience)
    except ValueError:
        raise InputError("patience", options.patience, "it must be a number") from None
    if not 1 <= seconds < float("inf"):
        raise InputError("patience", options.patience, "it must be at least 1")
    return seconds


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(name: str) -> str:
    choices = get_args(Experiment.model_fields[name].annotation)
    return "{" + ",".join(choices) + "}" if choices and isinstance(choices[0], str) else "X"


def _parameter_help(takers: Sequence[Parameter]) -> str:
    first = takers[0]
    what = f"{' or '.join(it.part.name for it in takers)}: {first.description}".replace("%", "%%")
    return f"{what} Default: {describe_default(first.part, first.field)}."


def _help(name: str) -> str:
    field = Experiment.model_fields[name]
    what = (field.description or "").replace("%", "%%")
    by_dataset = {dataset: defaults_of(dataset)[name] for dataset in PARTS["dataset"] if name in defaults_of(dataset)}
    default = f" Default: {field.default}." if field.default not in ("", None) else ""
    others = "".join(f" For {dataset}: {value}." for dataset, value in by_dataset.items() if value != field.default)
    return f"{what}{default}{others}"
