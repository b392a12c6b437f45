"""Experiment: one typed description of one run, validated once, at the door.

Flat on purpose: the paper's letters are the keys of the YAML file, the flags of the command line, the axes of a study
and the arguments of `Experiment(...)`. Parameters of a strategy's parts (alpha, beta, v, …) live beside the fields; the
registry in `fedpns_ray.strategies` knows which part takes them.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    ValidationError,
)

from fedpns_ray.core.devices import Devices, from_file, log_normal
from fedpns_ray.core.user_code import path_of
from fedpns_ray.errors import InputError
from fedpns_ray.strategies import (
    KINDS,
    Part,
    Preset,
    Strategy,
    assemble,
    find_preset,
    known_parameters,
    parameters_of,
    registered_name,
)
from fedpns_ray.yaml_file import read_yaml

MODELS = ("mlr", "cnn-m", "cnn-c")
"""Built in; a model of your own is `package.module:Factory`."""

DATASETS: dict[str, dict[str, Any]] = {
    "synthetic": {"model": "mlr", "partition": "natural", "samples_per_node": 1000, "epochs": 20},
    "mnist": {"model": "cnn-m"},
    "fashion-mnist": {"model": "cnn-m"},
    "cifar10": {"model": "cnn-c", "epochs": 5},
}
"""The data sets, with the defaults of Section V that hang on them."""

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
"""Fields that mean something for some choices only: field → (the choice, its values)."""

CHOICES = {"strategy", *KINDS, "dataset", "partition", "devices"}
"""Settings on which hangs which others are used."""


class Experiment(BaseModel):
    """One federated run: what the nodes hold, what they train, who is selected, for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    strategy: str = "fedpns"
    """A named method: see `fedpns strategies`."""
    selection: str = ""
    """Who trains; by default the strategy's own."""
    objective: str = ""
    """What a node minimises; by default the strategy's own."""
    aggregation: str = ""
    """How updates become a model; by default the strategy's own."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the three parts; written beside the other keys (alpha: 2)."""

    dataset: Literal["synthetic", "mnist", "fashion-mnist", "cifar10"] = "synthetic"
    """What is learned."""
    partition: Literal["sigma-rho", "dirichlet", "shards", "iid", "natural"] = "sigma-rho"
    """Who holds what: the paper's, Dirichlet, shards of sorted labels, all alike; natural is synthetic data's own."""
    nodes: int = Field(50, ge=1, le=10_000_000)
    """|K|, the number of nodes."""
    sigma: float = Field(0.2, ge=0, le=1)
    """Fraction of nodes with i.i.d. data."""
    rho: int = Field(1, ge=1, le=10)
    """Labels on each other node."""
    varrho: NonNegativeFloat = 1.0
    """Synthetic data: variance of the means of the non-i.i.d. nodes' features."""
    labeller: Literal["shared", "own"] = "shared"
    """Synthetic data: one labeller for all nodes, or one for each non-i.i.d. node (the released code)."""
    test_nodes: Literal["iid", "all"] = "iid"
    """Synthetic data: whose 20 % make the test set."""
    concentration: PositiveFloat = 0.5
    """Dirichlet: small is skewed, large is even."""
    shards_per_node: PositiveInt = 2
    """Shards: pieces of the label-sorted data set on each node."""
    samples_per_node: PositiveInt = 200
    """D_i, samples on each node."""
    size_spread: float = Field(0.0, ge=0, le=3)
    """Unequal nodes: D_i is log-normal with this deviation of log D_i; 0 makes all equal."""

    model: str = "cnn-m"
    """mlr, cnn-m, cnn-c, or package.module:Factory of an nn.Module."""
    vectorize: Literal["auto", "on", "off"] = "auto"
    """Train nodes together: auto where it is exact (mlr), on for speed on a GPU, off never."""

    fraction: float = Field(0.2, gt=0, le=1)
    """c, the fraction of nodes drawn each round."""
    rounds: PositiveInt = 200
    """T."""
    epochs: PositiveInt = 1
    """E, local epochs."""
    batch_size: PositiveInt = 20
    """B."""
    lr: PositiveFloat = 0.01
    """eta, the learning rate of round 1."""
    lr_decay: float = Field(0.995, gt=0, le=1)
    """What the learning rate is multiplied with after each round."""
    lr_floor: float = Field(0.01, ge=0, le=1)
    """The learning rate never falls below this part of lr."""
    drop_probability: float = Field(0.0, ge=0, le=1)
    """Simulated: a drawn node fails to return its update with this probability."""
    slow_fraction: float = Field(0.0, ge=0, le=1)
    """Simulated: this fraction of the nodes, drawn once, is slow."""
    slow_seconds: NonNegativeFloat = 1.0
    """Simulated: how much longer a slow node takes to train."""
    devices: Literal["off", "log-normal", "file"] = "off"
    """Simulated: how fast nodes compute and send; gives rounds a simulated duration."""
    device_speed: PositiveFloat = 1000.0
    """Device model: samples that the median node trains a second."""
    device_uplink: PositiveFloat = 125_000.0
    """Device model: bytes that the median node sends a second."""
    device_spread: float = Field(1.0, ge=0, le=5)
    """Device model: the deviation of log speed and of log uplink; 0 makes all nodes equal."""
    device_file: str = ""
    """Device model: a CSV file with the columns node, speed and uplink."""
    device_fading: Literal["rayleigh", "none"] = "rayleigh"
    """Device model: whether channels fade from round to round."""
    centralised: bool = False
    """Also follow the centralised sequence v of (9) and record ||w_t - v_t||; tau passes over all samples a round."""
    evaluate_every: PositiveInt = 1
    """Rounds between two tests on the whole test set; the last round is always tested."""
    seed: int = Field(1, ge=0)
    """Names every random stream."""

    _own: dict[str, str] = PrivateAttr(default_factory=dict)
    """The strategy's own parts, by kind; an empty name where the strategy is the user's and was not imported."""
    _imported: bool = PrivateAttr(True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settled(settings))
        self._own = find_preset(self.strategy).parts

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Experiment:
        """An experiment as a run folder or a study file describes it. Reading never runs code: parts of the user's own
        stay the names they are, and their parameters stay as they were written.
        """
        if not names_user_code(settings):
            return cls(**settings)
        fields, parameters = _split(settings)
        fields = DATASETS.get(str(fields.get("dataset", "synthetic")), {}) | fields
        strategy = str(fields.get("strategy", "fedpns"))
        own = dict.fromkeys(KINDS, "") if ":" in strategy else find_preset(strategy).parts
        fields |= {kind: fields.get(kind) or own[kind] for kind in KINDS}
        checked = _valid(_Fields, fields).model_dump()
        experiment = cls.__new__(cls)
        BaseModel.__init__(experiment, **checked | {"parameters": parameters})
        experiment._own, experiment._imported = own, False
        return experiment

    @property
    def imported(self) -> bool:
        """Whether parts of the user's own were looked up; False for one that was read with such parts."""
        return self._imported

    def agrees_with(self, other: Experiment) -> bool:
        """Whether the two differ in no setting that both have, but for their length."""
        mine, theirs = self.settings(), other.settings()
        return all(theirs[key] == value for key, value in mine.items() if key in theirs and key != "rounds")

    @property
    def user_packages(self) -> set[str]:
        """The top-level packages of parts and models that the user brings."""
        paths = [path for path in (*self.parts.values(), self.model, self.strategy) if ":" in path]
        return {path.partition(":")[0].partition(".")[0] for path in paths} - {"fedpns_ray"}

    @property
    def per_round(self) -> int:
        """|S_t| = c |K|."""
        return round(self.fraction * self.nodes)

    @property
    def parts(self) -> dict[str, str]:
        return {kind: getattr(self, kind) for kind in KINDS}

    @property
    def label(self) -> str:
        """The strategy's name, or its parts' names where they are not the strategy's own."""
        changed = [name for kind, name in self.parts.items() if name != self._own[kind]]
        return "+".join([self.strategy, *changed])

    def lr_at(self, round: int) -> float:
        """eta of a round: eta_0 in round 1, then times 0.995 a round, never below 0.01 eta_0."""
        return max(self.lr * self.lr_decay ** (round - 1), self.lr * self.lr_floor)

    def build_strategy(self) -> Strategy:
        described = self if self.imported else Experiment(**self.settings())
        return assemble(described.parts, described.parameters)

    def build_devices(self, sizes: NDArray[np.int64], payload: int) -> Devices | None:
        """The device model for nodes that hold so many samples and send so many bytes; None if it is off."""
        if self.devices == "off":
            return None
        if self.devices == "file":
            speed, uplink = from_file(Path(self.device_file), self.nodes)
        else:
            speed, uplink = log_normal(self.seed, self.nodes, self.device_speed, self.device_uplink, self.device_spread)
        fading = self.device_fading == "rayleigh"
        return Devices(speed, uplink, sizes.astype(np.float64) * self.epochs, payload, self.seed, fading)

    def settings(self) -> dict[str, Any]:
        """Everything that matters to this experiment, flat: what config.yaml holds and `Experiment(**…)` takes."""
        fields = self.model_dump(exclude={"parameters"})
        own = {kind for kind in KINDS if fields[kind] == self._own[kind]}  # the strategy's name says them
        own |= {key for key, off in (("devices", "off"), ("centralised", False)) if fields[key] == off}  # as before
        used = {key: value for key, value in fields.items() if key not in own and not _idle(key, fields)}
        return used | self.parameters

    def but(self, **changes: Any) -> Experiment:
        """The same experiment with other settings; what another strategy or data set does not use is left behind."""
        if not self.imported and not set(changes) & CHOICES:
            return Experiment.recorded(self.settings() | changes)
        return Experiment(**overridden(self.settings(), changes))

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.settings(), sort_keys=False)

    @classmethod
    def from_yaml(cls, path: Path | str) -> Experiment:
        return cls(**read_yaml(Path(path)))


def names_user_code(settings: Mapping[str, Any]) -> bool:
    """Whether settings name a strategy or part by its import path: to know more of it, it would have to be run."""
    return any(":" in str(settings.get(key) or "") for key in ("strategy", *KINDS))


def _split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of Experiment, and parameters of parts."""
    fields = {key: value for key, value in settings.items() if key in Experiment.model_fields and key != "parameters"}
    given = {key: value for key, value in settings.items() if key not in fields and key != "parameters"}
    more = settings.get("parameters", {})
    if not isinstance(more, Mapping):
        raise InputError(f"parameters: {more!r} is not allowed; it must be keys and values, such as alpha: 2")
    return fields, given | dict(more)


def settled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with every default filled in, or an InputError in one line."""
    fields, given = _split(settings)
    for key in ("strategy", *KINDS, "model"):  # objects are accepted where names are
        if isinstance(fields.get(key), (Preset, type)) or callable(fields.get(key)):
            fields[key] = registered_name(fields[key]) or path_of(fields[key], key)
    for key in ("strategy", *KINDS, "dataset", "partition", "model"):
        if not isinstance(fields.get(key, ""), str):
            raise InputError(f"{key}: {fields[key]!r} is not allowed; it must be a name")
    if isinstance(fields.get("vectorize"), bool):  # YAML reads on and off so
        fields["vectorize"] = "on" if fields["vectorize"] else "off"
    if fields.get("devices") is False:
        fields["devices"] = "off"

    dataset = fields.get("dataset", "synthetic")
    if dataset in DATASETS:
        fields = DATASETS[dataset] | fields
    preset = find_preset(str(fields.setdefault("strategy", "fedpns")))
    for kind in KINDS:
        fields[kind] = fields.get(kind) or preset.parts[kind]
    takers = parameters_of(fields)
    _refuse_unknown(given, takers, fields)

    parameters: dict[str, Any] = {}
    for part in dict.fromkeys(takers.values()):
        mine = {key: value for key, value in given.items() if takers[key] is part}
        parameters |= _valid(part, mine).model_dump()
    checked = _valid(_Fields, fields).model_dump()
    if checked["device_file"]:  # a trial of a study runs in a folder of its own
        checked["device_file"] = str(Path(checked["device_file"]).absolute())
    _refuse_combinations(checked, set(settings))
    return checked | {"parameters": parameters}


class _Fields(Experiment):
    """Experiment's fields without its constructor: what pydantic checks one by one."""

    def __init__(self, **fields: Any) -> None:
        BaseModel.__init__(self, **fields)


def _valid(kind: type[BaseModel], values: dict[str, Any]) -> Any:
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else kind.__name__
        if first["type"] == "missing":
            raise InputError(f"{field}: is missing; {kind.__name__} has no default for it") from None
        raise InputError(f"{field}: {first['input']!r} is not allowed; {_wanted(first)}") from None


def _wanted(error: Any) -> str:
    message = str(error["msg"])
    return message.replace("Input should be", "it must be").replace("Value error, ", "").rstrip(".")


def _refuse_unknown(given: Mapping[str, Any], takers: Mapping[str, type[Part]], fields: Mapping[str, Any]) -> None:
    known = known_parameters()
    for key, value in given.items():
        if key in takers:
            continue
        if key in known:
            owners = " or ".join(part.name for part in known[key])
            raise InputError(
                f"{key}: {value!r} is not allowed; {key} is a parameter of {owners}, and strategy {fields['strategy']} "
                f"is {', '.join(f'{kind} {fields[kind]}' for kind in KINDS)}"
            )
        names = [name for name in (*Experiment.model_fields, *known) if name != "parameters"]
        near = difflib.get_close_matches(key, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise InputError(f"{key}: unknown key (value {value!r}); {hint}")


def _idle(key: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field means nothing for the choices made."""
    choice, values = USED_BY.get(key, ("", ()))
    return bool(choice) and fields[choice] not in values


def _refuse_combinations(fields: Mapping[str, Any], given: set[str]) -> None:
    for key in given & set(USED_BY):
        if _idle(key, fields):
            choice, values = USED_BY[key]
            raise InputError(
                f"{key}: {fields[key]!r} is not allowed; it means something for {choice} {' or '.join(values)} only, "
                f"and {choice} is {fields[choice]}"
            )
    if (fields["dataset"] == "synthetic") != (fields["partition"] == "natural"):
        allowed = "natural" if fields["dataset"] == "synthetic" else "sigma-rho, dirichlet, shards or iid"
        raise InputError(
            f"partition: {fields['partition']!r} is not allowed; for dataset {fields['dataset']} it must be {allowed}"
        )
    if fields["devices"] == "file" and not fields["device_file"]:
        raise InputError("device_file: is missing; devices file needs a CSV file with the columns node,speed,uplink")
    if fields["model"] not in MODELS and ":" not in fields["model"]:
        raise InputError(
            f"model: {fields['model']!r} is unknown; there are {', '.join(MODELS)}, or package.module:Factory"
        )
    if round(fields["fraction"] * fields["nodes"]) < 1:
        least = 0.5 / fields["nodes"]
        raise InputError(
            f"fraction: {fields['fraction']} draws 0 of {fields['nodes']} nodes; it must be above {least:.2g}"
        )
    if fields["rho"] > fields["samples_per_node"] and not _idle("rho", fields):
        raise InputError(
            f"rho: {fields['rho']} is not allowed; a node has {fields['samples_per_node']} samples (samples_per_node)"
        )


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes; where the changes make another choice, settings that it does not use fall away."""
    merged = {**settings, **changes}
    if "strategy" in changes:  # another strategy brings its own parts
        merged = {key: value for key, value in merged.items() if key not in KINDS or key in changes}
    if not set(changes) & CHOICES:
        return merged
    used = drop_idle(merged)
    return {key: value for key, value in merged.items() if key in used or key in changes}


def drop_idle(settings: Mapping[str, Any], importing: bool = True) -> dict[str, Any]:
    """Settings without what this strategy, data set, partition or device model does not use.

    For grids over several strategies, where alpha means something to one of them only. Unknown keys stay, to be refused.
    Unless `importing`, nobody asks a part of the user's own what it takes: all parameters stay.
    """
    foreign: set[str] = set()
    if importing or not names_user_code(settings):
        preset = find_preset(str(settings.get("strategy", "fedpns")))
        takers = parameters_of({kind: settings.get(kind) or preset.parts[kind] for kind in KINDS})
        foreign = set(known_parameters()) - set(takers)
    choices = {"dataset": settings.get("dataset", "synthetic")}
    defaults = DATASETS.get(str(choices["dataset"]), {})
    choices["partition"] = settings.get("partition", defaults.get("partition", "sigma-rho"))
    choices["devices"] = settings.get("devices", "off")
    return {
        key: value
        for key, value in settings.items()
        if key not in foreign and not (key in USED_BY and _idle(key, choices))
    }


def folder_name(*experiments: Experiment) -> str:
    """A folder name that others share only if they are the same experiments (but for their length)."""
    digest = hashlib.sha256("".join(e.but(rounds=1).to_yaml() for e in experiments).encode()).hexdigest()[:8]
    first = experiments[0]
    what = f"{first.label}-seed{first.seed}" if len(experiments) == 1 else f"{len(experiments)}-runs"
    return f"{first.dataset}-{as_folder(what)}-{digest}"


def setting_name(experiment: Experiment) -> str:
    """The same for all seeds and lengths of an experiment."""
    return folder_name(experiment.but(seed=1))


def as_folder(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_+-]", "-", text)
