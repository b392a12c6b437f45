"""Settings of an experiment, flat, as they are written: choices, the defaults they bring, and what they rule out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from fedpns_ray.core.interfaces import Aggregation, Objective, Part
from fedpns_ray.core.metrics import METRICS
from fedpns_ray.core.user_code import path_of
from fedpns_ray.data.interfaces import Dataset, GeneratedDataset, Partition
from fedpns_ray.errors import InputError, shown
from fedpns_ray.registry import (
    DATA_KINDS,
    KINDS,
    PART_KINDS,
    PARTS,
    PRESETS,
    find_metric,
    find_part,
    find_preset,
    known_parameters,
    parameters_of,
    registered_name,
)
from fedpns_ray.strategies import Preset
from fedpns_ray.third_party import offered
from fedpns_ray.validation import refusal, suggestion, unknown_name

Settings = dict[str, Any]

MODELS = ("mlr", "cnn-m", "cnn-c", "resnet18-gn", "char-lstm")
"""The built-in models; a user-defined one is `package.module:Factory`."""

DATA_FIELDS = ("dataset", "partition", "nodes", "samples_per_node", "size_spread", "noisy_nodes", "label_noise")
"""Settings that decide the population, with the parameters of the data set and the partition, and the seed."""
OFF = {
    "devices": "off",
    "centralised": False,
    "clip_updates": 0.0,
    "optimizer": "sgd",
    "compression": "none",
    "max_steps": 0,
    "noisy_nodes": 0.0,
    "label_noise": 0.5,
    "min_samples": 2,
    "loss": "",
    "buffers": "refuse",
    "metrics": "",
    "fast_math": False,
    "availability": "always",
}
"""Options that are not written when they are off: runs from before they existed keep their names."""

USED_BY = {
    "device_speed": ("devices", ("log-normal",)),
    "device_uplink": ("devices", ("log-normal",)),
    "device_spread": ("devices", ("log-normal",)),
    "device_file": ("devices", ("file",)),
    "device_fading": ("devices", ("log-normal", "file")),
}
"""Fields that are only used with some choices: field → (the choice, its values)."""

SIZES = ("samples_per_node", "size_spread")
"""Fields that are not used where nodes have sizes of their own."""

CHOICES = {"strategy", *PART_KINDS, "devices", "noisy_nodes"}
"""Settings that decide which others are used."""


def names_user_code(settings: Mapping[str, Any]) -> bool:
    """Whether settings name a strategy or part by its import path; its parameters are known only by importing it."""
    return any(":" in str(settings.get(key) or "") for key in ("strategy", *PART_KINDS))


def listed(names: str) -> list[str]:
    """`a, b` as names, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def split(settings: Mapping[str, Any], known: Collection[str]) -> tuple[Settings, Settings]:
    """Known fields, and the rest: parameters of parts, written alongside the fields or under `parameters`."""
    fields = {key: value for key, value in settings.items() if key in known and key != "parameters"}
    given = {key: value for key, value in settings.items() if key not in fields and key != "parameters"}
    more = settings.get("parameters", {})
    if not isinstance(more, Mapping):
        raise InputError("parameters", more, "it must be keys and values, such as alpha: 2")
    return fields, given | dict(more)


def is_built_in(kind: str, name: str) -> bool:
    """Whether a name is this package's own; an installed package cannot replace it."""
    return name in {"strategy": PRESETS, "model": MODELS, **PARTS}.get(kind, ())


def completed(fields: Mapping[str, Any], importing: bool = True) -> tuple[Settings, dict[str, str]]:
    """Fields with names for objects, the data set's defaults and the strategy's parts; and those parts, by kind.

    Unless `importing`, what is named by an import path stays a name: a strategy's parts are empty, and a data set
    brings no defaults.
    """
    filled = _spelled(fields)
    filled = defaults_of(filled.setdefault("dataset", "synthetic"), importing) | filled
    for kind in ("optimizer", "compression", "availability"):
        filled.setdefault(kind, OFF[kind])
    strategy = filled.setdefault("strategy", "fedpns")
    own = find_preset(strategy).parts if importing or ":" not in strategy else dict.fromkeys(KINDS, "")
    return filled | {kind: filled.get(kind) or own[kind] for kind in KINDS}, own


def defaults_of(dataset: str, importing: bool = True) -> Settings:
    """The settings that go with a data set."""
    part: Any = find_part("dataset", dataset) if importing else PARTS["dataset"].get(dataset)
    return {"partition": "sigma-rho"} | dict(part.defaults if part else {})


def _spelled(fields: Mapping[str, Any]) -> Settings:
    """Fields with a name for every object, and with words for what YAML reads as booleans (on, off)."""
    spelled = dict(fields)
    for key in ("strategy", *PART_KINDS, "model", "loss"):
        if isinstance(spelled.get(key), (Preset, type)) or callable(spelled.get(key)):
            spelled[key] = registered_name(spelled[key]) or path_of(spelled[key], key)
    for key in ("strategy", *PART_KINDS, "model", "loss"):
        if not isinstance(spelled.get(key, ""), str):
            raise InputError(key, spelled[key], "it must be a name")
        if key in spelled and not is_built_in(key, spelled[key]):
            spelled[key] = offered(key, spelled[key]) or spelled[key]
    if isinstance(spelled.get("metrics"), (list, tuple)):
        names = (one if isinstance(one, str) else path_of(one, "metrics") for one in spelled["metrics"])
        spelled["metrics"] = ",".join(names)
    if isinstance(spelled.get("metrics"), str):
        names = (name if name in METRICS else offered("metric", name) or name for name in listed(spelled["metrics"]))
        spelled["metrics"] = ",".join(names)
    if isinstance(spelled.get("vectorize"), bool):
        spelled["vectorize"] = "on" if spelled["vectorize"] else "off"
    if spelled.get("devices") is False:
        spelled["devices"] = "off"
    return spelled


def checked_parameters(
    given: Mapping[str, Any], fields: Mapping[str, Any], names: Collection[str]
) -> tuple[Settings, dict[str, Part]]:
    """The parameters of the chosen parts, with defaults; and those parts, by kind, as they were made to check them.

    `names` are Experiment's fields, to suggest one of them.
    """
    takers = parameters_of(fields)
    for key, value in given.items():
        if key not in takers:
            raise _unknown(key, value, fields, names)
    parameters: Settings = {}
    made: dict[str, Part] = {}
    for kind in PART_KINDS:
        own = {it.field: key for key, it in takers.items() if it.kind == kind}
        taken = {field: given[key] for field, key in own.items() if key in given}
        try:
            made[kind] = find_part(kind, fields[kind])(**taken)
        except ValidationError as error:
            refused = refusal(error)
            raise refused.at(refused.place, own.get(refused.field)) from None
        parameters |= {own[field]: value for field, value in made[kind].model_dump().items()}
    return parameters, made


def _unknown(key: str, value: Any, fields: Mapping[str, Any], names: Collection[str]) -> InputError:
    known = known_parameters()
    if key not in known:
        mine = parameters_of(fields)  # among them those of the user's own parts
        words = list(dict.fromkeys(name for name in (*names, *mine, *known) if name != "parameters"))
        return InputError(key, problem=f"unknown key (value {shown(value)})", hint=suggestion(key, words))
    takers: dict[str, list[str]] = {}
    for it in known[key]:
        takers.setdefault(it.kind, []).append(it.part.name)
    users = " or ".join(f"{kind} {' or '.join(parts)}" for kind, parts in takers.items())
    if set(takers) <= set(KINDS):
        chosen = f"strategy {fields['strategy']} has " + " and ".join(f"{kind} {fields[kind]}" for kind in takers)
    else:
        chosen = " and ".join(f"{kind} is {fields[kind]}" for kind in takers)
    return InputError(key, value, f"it is only used with {users}, and {chosen}")


def data_parameters(parameters: Mapping[str, Any], readable: Mapping[str, str]) -> Settings:
    """Those of the data set and the partition, where `readable` are the parts that may be asked for theirs, by kind.

    If one of these two may not, whatever no other part is known to take may be theirs.
    """
    takers, hidden = parameters_of(readable), not readable.keys() >= DATA_KINDS.keys()
    mine = {key: takers[key].kind in DATA_KINDS if key in takers else hidden for key in parameters}
    return {key: value for key, value in parameters.items() if mine[key]}


def plain_steps(optimizer: str) -> Settings:
    """The parameters of the default optimiser with their defaults: plain steps, options that are off."""
    if optimizer != OFF["optimizer"]:
        return {}
    takers = parameters_of({"optimizer": optimizer})
    return {key: it.part.model_fields[it.field].default for key, it in takers.items()}


def is_idle(key: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is not used with the choices made."""
    if key in SIZES:
        return _has_sizes(fields)
    if key == "label_noise":
        return not fields["noisy_nodes"]
    choice, values = USED_BY.get(key, ("", ()))
    return bool(choice) and fields[choice] not in values


def _has_sizes(fields: Mapping[str, Any]) -> bool:
    """Whether nodes have sizes of their own: those of a file, or of the owners of a built-in data set."""
    dataset, partition = (PARTS[kind].get(fields[kind]) for kind in DATA_KINDS)
    owned = dataset is not None and not issubclass(dataset, GeneratedDataset)
    return bool(getattr(partition, "sized", False) or (owned and getattr(partition, "natural", False)))


def refuse_combinations(fields: Mapping[str, Any], given: Collection[str], parts: Mapping[str, Any]) -> None:
    """Raise an InputError for fields that are valid one by one but not together.

    `given` are those the user named; `parts` are the parts that the fields name, by kind.
    """
    for key in USED_BY:
        if key in given and is_idle(key, fields):
            choice, values = USED_BY[key]
            allowed = f"it is only used with {choice} {' or '.join(values)}, and {choice} is {fields[choice]}"
            raise InputError(key, fields[key], allowed)
    for key in SIZES:
        if key in given and is_idle(key, fields):
            allowed = f"with partition {fields['partition']} nodes have sizes of their own"
            raise InputError(key, fields[key], allowed, "leave it out")
    if "label_noise" in given and is_idle("label_noise", fields):
        raise InputError("label_noise", fields["label_noise"], "it is only used with noisy_nodes above 0")
    nodes = fields["nodes"]
    _refuse_misfits(fields, parts["dataset"], parts["partition"])
    _refuse_other_steps(fields, parts["objective"])
    _refuse_compressed_air(fields, parts["aggregation"])
    if fields["devices"] == "file" and not fields["device_file"]:
        needed = "devices file needs a CSV file with the columns node,speed,uplink"
        raise InputError("device_file", allowed=needed, problem="is missing")
    if fields["model"] not in MODELS and ":" not in fields["model"]:
        raise unknown_name("model", fields["model"], MODELS, "package.module:Factory")
    if fields["loss"] and ":" not in fields["loss"]:
        raise InputError("loss", fields["loss"], "it must be package.module:function, or be left out")
    for name in listed(fields["metrics"]):
        if ":" not in name:
            find_metric(name)
    if round(fields["fraction"] * nodes) < 1:
        allowed = f"it must be above {0.5 / nodes:.2g}"
        raise InputError("fraction", fields["fraction"], allowed, problem=f"draws 0 of {nodes} nodes")


def _refuse_misfits(fields: Mapping[str, Any], dataset: Dataset, partition: Partition) -> None:
    """A data set and a partition that do not go together."""
    every: Mapping[str, Any] = PARTS["partition"]
    allowed = dataset.partitions or [name for name, part in every.items() if dataset.owners or not part.natural]
    unnatural = partition.natural and not dataset.owners
    if fields["partition"] not in allowed and (dataset.partitions or unnatural):
        listed = f"{', '.join(allowed[:-1])} or {allowed[-1]}" if len(allowed) > 1 else allowed[0]
        raise InputError("partition", fields["partition"], f"for dataset {fields['dataset']} it must be {listed}")
    if isinstance(dataset, GeneratedDataset):
        for key, value in partition:
            if value != type(partition).model_fields[key].default:
                raise InputError(key, value, f"dataset {fields['dataset']} makes its own nodes")
    if outline := dataset.outline():
        partition.check(outline.classes, fields["samples_per_node"])


def _refuse_other_steps(fields: Mapping[str, Any], objective: Objective) -> None:
    """An objective that reads gradients from updates, and steps from which they cannot be read."""
    if not objective.needs_plain_steps:
        return
    allowed = f"objective {fields['objective']} needs optimizer sgd without momentum"
    if fields["optimizer"] != OFF["optimizer"]:
        raise InputError("optimizer", fields["optimizer"], allowed)
    if momentum := fields["parameters"].get("momentum"):
        raise InputError("momentum", momentum, allowed)


def _refuse_compressed_air(fields: Mapping[str, Any], aggregation: Aggregation) -> None:
    """A compression of messages, where nodes send none."""
    if aggregation.over_the_air and fields["compression"] != OFF["compression"]:
        allowed = f"with aggregation {fields['aggregation']} nodes send no messages; it must be none"
        raise InputError("compression", fields["compression"], allowed)


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any], importing: bool = True) -> Settings:
    """Settings with changes; where the changes make another choice, settings that it does not use are dropped.

    `importing` as in `drop_idle`.
    """
    merged = {**settings, **changes}
    if "strategy" in changes:  # another strategy brings its own parts
        merged = {key: value for key, value in merged.items() if key not in KINDS or key in changes}
    if not set(changes) & CHOICES:
        return merged
    used = drop_idle(merged, importing)
    return {key: value for key, value in merged.items() if key in used or key in changes}


def drop_idle(settings: Mapping[str, Any], importing: bool = True) -> Settings:
    """Settings without those that this strategy, data set, partition or device model does not use.

    For grids over several strategies, where only one of them has an alpha. Unknown keys stay, to be refused later.
    Unless `importing`, user-defined parts are not asked for their parameters: all parameters stay.
    """
    choices, _ = completed({key: value for key, value in settings.items() if key in CHOICES}, importing)
    choices = Settings({"devices": "off", "noisy_nodes": 0}) | choices
    foreign: set[str] = set()
    if importing or not names_user_code(choices):
        foreign = set(known_parameters()) - set(parameters_of(choices))
    return {key: value for key, value in settings.items() if key not in foreign and not is_idle(key, choices)}
