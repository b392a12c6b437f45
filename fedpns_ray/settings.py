"""Settings of an experiment, flat, as they are written: choices, the defaults they bring, and what they rule out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from fedpns_ray.core.user_code import path_of
from fedpns_ray.errors import InputError, shown
from fedpns_ray.registry import KINDS, find_preset, known_parameters, parameters_of, registered_name
from fedpns_ray.strategies import Preset
from fedpns_ray.validation import refusal, suggestion

Settings = dict[str, Any]

MODELS = ("mlr", "cnn-m", "cnn-c")
"""The built-in models; a user-defined one is `package.module:Factory`."""

DATASETS: dict[str, Settings] = {
    "synthetic": {"model": "mlr", "partition": "natural", "samples_per_node": 1000, "epochs": 20},
    "mnist": {"model": "cnn-m"},
    "fashion-mnist": {"model": "cnn-m"},
    "cifar10": {"model": "cnn-c", "epochs": 5},
}
"""The data sets, with the defaults of Section V that depend on them."""

USED_BY = {
    "sigma": ("partition", ("sigma-rho", "natural")),
    "rho": ("partition", ("sigma-rho",)),
    "concentration": ("partition", ("dirichlet",)),
    "shards_per_node": ("partition", ("shards",)),
    "varrho": ("dataset", ("synthetic",)),
    "labeller": ("dataset", ("synthetic",)),
    "test_nodes": ("dataset", ("synthetic",)),
    "device_speed": ("devices", ("log-normal",)),
    "device_uplink": ("devices", ("log-normal",)),
    "device_spread": ("devices", ("log-normal",)),
    "device_file": ("devices", ("file",)),
    "device_fading": ("devices", ("log-normal", "file")),
}
"""Fields that are only used with some choices: field → (the choice, its values)."""

CHOICES = {"strategy", *KINDS, "dataset", "partition", "devices"}
"""Settings that decide which others are used."""


def names_user_code(settings: Mapping[str, Any]) -> bool:
    """Whether settings name a strategy or part by its import path; its parameters are known only by importing it."""
    return any(":" in str(settings.get(key) or "") for key in ("strategy", *KINDS))


def split(settings: Mapping[str, Any], known: Collection[str]) -> tuple[Settings, Settings]:
    """Known fields, and the rest: parameters of parts, written alongside the fields or under `parameters`."""
    fields = {key: value for key, value in settings.items() if key in known and key != "parameters"}
    given = {key: value for key, value in settings.items() if key not in fields and key != "parameters"}
    more = settings.get("parameters", {})
    if not isinstance(more, Mapping):
        raise InputError("parameters", more, "it must be keys and values, such as alpha: 2")
    return fields, given | dict(more)


def completed(fields: Mapping[str, Any], importing: bool = True) -> tuple[Settings, dict[str, str]]:
    """Fields with names for objects, the data set's defaults and the strategy's parts; and those parts, by kind.

    Unless `importing`, a strategy named by its import path stays a name, and its parts are empty.
    """
    filled = _spelled(fields)
    filled = DATASETS.get(filled.get("dataset", "synthetic"), {}) | filled
    strategy = filled.setdefault("strategy", "fedpns")
    own = find_preset(strategy).parts if importing or ":" not in strategy else dict.fromkeys(KINDS, "")
    return filled | {kind: filled.get(kind) or own[kind] for kind in KINDS}, own


def _spelled(fields: Mapping[str, Any]) -> Settings:
    """Fields with a name for every object, and with words for what YAML reads as booleans (on, off)."""
    spelled = dict(fields)
    for key in ("strategy", *KINDS, "model"):
        if isinstance(spelled.get(key), (Preset, type)) or callable(spelled.get(key)):
            spelled[key] = registered_name(spelled[key]) or path_of(spelled[key], key)
    for key in ("strategy", *KINDS, "dataset", "partition", "model"):
        if not isinstance(spelled.get(key, ""), str):
            raise InputError(key, spelled[key], "it must be a name")
    if isinstance(spelled.get("vectorize"), bool):
        spelled["vectorize"] = "on" if spelled["vectorize"] else "off"
    if spelled.get("devices") is False:
        spelled["devices"] = "off"
    return spelled


def checked_parameters(given: Mapping[str, Any], fields: Mapping[str, Any], names: Collection[str]) -> Settings:
    """The parameters of the chosen parts, with defaults. `names` are Experiment's fields, to suggest one of them."""
    takers = parameters_of(fields)
    for key, value in given.items():
        if key not in takers:
            raise _unknown(key, value, fields, names)
    parameters: Settings = {}
    for part in dict.fromkeys(takers.values()):
        mine = {key: value for key, value in given.items() if takers[key] is part}
        try:
            parameters |= part(**mine).model_dump()
        except ValidationError as error:
            raise refusal(error) from None
    return parameters


def _unknown(key: str, value: Any, fields: Mapping[str, Any], names: Collection[str]) -> InputError:
    known = known_parameters()
    if key not in known:
        words = [name for name in (*names, *known) if name != "parameters"]
        return InputError(key, problem=f"unknown key (value {shown(value)})", hint=suggestion(key, words))
    owners = " or ".join(part.name for part in known[key])
    parts = ", ".join(f"{kind} {fields[kind]}" for kind in KINDS)
    return InputError(key, value, f"{key} is a parameter of {owners}, and strategy {fields['strategy']} has {parts}")


def is_idle(key: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is not used with the choices made."""
    choice, values = USED_BY.get(key, ("", ()))
    return bool(choice) and fields[choice] not in values


def refuse_combinations(fields: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise an InputError for fields that are valid one by one but not together; `given` are those the user named."""
    for key in USED_BY:
        if key in given and is_idle(key, fields):
            choice, values = USED_BY[key]
            allowed = f"it is only used with {choice} {' or '.join(values)}, and {choice} is {fields[choice]}"
            raise InputError(key, fields[key], allowed)
    dataset, partition, nodes = fields["dataset"], fields["partition"], fields["nodes"]
    if (dataset == "synthetic") != (partition == "natural"):
        allowed = "natural" if dataset == "synthetic" else "sigma-rho, dirichlet, shards or iid"
        raise InputError("partition", partition, f"for dataset {dataset} it must be {allowed}")
    if fields["devices"] == "file" and not fields["device_file"]:
        needed = "devices file needs a CSV file with the columns node,speed,uplink"
        raise InputError("device_file", allowed=needed, problem="is missing")
    if fields["model"] not in MODELS and ":" not in fields["model"]:
        allowed = f"choose from {', '.join(MODELS)}, or package.module:Factory"
        raise InputError("model", fields["model"], allowed, problem="is unknown")
    if round(fields["fraction"] * nodes) < 1:
        allowed = f"it must be above {0.5 / nodes:.2g}"
        raise InputError("fraction", fields["fraction"], allowed, problem=f"draws 0 of {nodes} nodes")
    if fields["rho"] > fields["samples_per_node"] and not is_idle("rho", fields):
        raise InputError("rho", fields["rho"], f"a node has {fields['samples_per_node']} samples (samples_per_node)")


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Settings with changes; where the changes make another choice, settings that it does not use are dropped."""
    merged = {**settings, **changes}
    if "strategy" in changes:  # another strategy brings its own parts
        merged = {key: value for key, value in merged.items() if key not in KINDS or key in changes}
    if not set(changes) & CHOICES:
        return merged
    used = drop_idle(merged)
    return {key: value for key, value in merged.items() if key in used or key in changes}


def drop_idle(settings: Mapping[str, Any], importing: bool = True) -> Settings:
    """Settings without those that this strategy, data set, partition or device model does not use.

    For grids over several strategies, where only one of them has an alpha. Unknown keys stay, to be refused later.
    Unless `importing`, user-defined parts are not asked for their parameters: all parameters stay.
    """
    choices, _ = completed({key: value for key, value in settings.items() if key in CHOICES}, importing)
    choices = {"dataset": "synthetic", "partition": "sigma-rho", "devices": "off"} | choices
    foreign: set[str] = set()
    if importing or not names_user_code(choices):
        foreign = set(known_parameters()) - set(parameters_of(choices))
    return {
        key: value
        for key, value in settings.items()
        if key not in foreign and not (key in USED_BY and is_idle(key, choices))
    }
