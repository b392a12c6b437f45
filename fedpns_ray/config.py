"""Experiment: one typed description of one run, validated once, at the door.

Flat on purpose: the paper's letters are the keys of the YAML file, the flags of the command line, the axes of a study
and the arguments of `Experiment(...)`. Parameters of a strategy's parts (alpha, beta, v, …) live beside the fields; the
registry in `fedpns_ray.strategies` knows which part takes them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError

from fedpns_ray.errors import InputError
from fedpns_ray.strategies import KINDS, Part, Strategy, assemble, find_preset, known_parameters, parameters_of

MODELS = {
    "mlr": "fedpns_ray.models:MLR",
    "cnn-m": "fedpns_ray.models:CNNM",
    "cnn-c": "fedpns_ray.models:CNNC",
}
"""Short names for import paths: a model of your own is `package.module:Factory`."""

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
}
"""Fields that mean something for some choices only: field → (the choice, its values)."""


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
    evaluate_every: PositiveInt = 1
    """Rounds between two tests on the whole test set; the last round is always tested."""
    seed: int = Field(1, ge=0)
    """Names every random stream."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settled(settings))

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
        preset = find_preset(self.strategy)
        changed = [name for kind, name in self.parts.items() if name != getattr(preset, kind)]
        return "+".join([self.strategy, *changed])

    def lr_at(self, round: int) -> float:
        """eta of a round: eta_0 in round 1, then times 0.995 a round, never below 0.01 eta_0."""
        return max(self.lr * self.lr_decay ** (round - 1), self.lr * self.lr_floor)

    def build_strategy(self) -> Strategy:
        return assemble(self.parts, self.parameters)

    def settings(self) -> dict[str, Any]:
        """Everything that matters to this experiment, flat: what config.yaml holds and `Experiment(**…)` takes."""
        fields = self.model_dump(exclude={"parameters"})
        preset = find_preset(self.strategy)
        own = {kind for kind in KINDS if fields[kind] == getattr(preset, kind)}  # the strategy's name says them
        used = {key: value for key, value in fields.items() if key not in own and not _idle(key, fields)}
        return used | self.parameters

    def but(self, **changes: Any) -> Experiment:
        """The same experiment with other settings; what another strategy or data set does not use is left behind."""
        return Experiment(**overridden(self.settings(), changes))

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.settings(), sort_keys=False)

    @classmethod
    def from_yaml(cls, path: Path | str) -> Experiment:
        return cls(**read_yaml(Path(path)))


def settled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with every default filled in, or an InputError in one line."""
    fields = {key: value for key, value in settings.items() if key in Experiment.model_fields and key != "parameters"}
    given = {key: value for key, value in settings.items() if key not in fields and key != "parameters"}
    more = settings.get("parameters", {})
    if not isinstance(more, Mapping):
        raise InputError(f"parameters: {more!r} is not allowed; it must be keys and values, such as alpha: 2")
    given |= more
    for key in ("strategy", *KINDS, "dataset", "partition", "model"):
        if not isinstance(fields.get(key, ""), str):
            raise InputError(f"{key}: {fields[key]!r} is not allowed; it must be a name")
    if isinstance(fields.get("vectorize"), bool):  # YAML reads on and off so
        fields["vectorize"] = "on" if fields["vectorize"] else "off"

    dataset = fields.get("dataset", "synthetic")
    if dataset in DATASETS:
        fields = DATASETS[dataset] | fields
    preset = find_preset(str(fields.setdefault("strategy", "fedpns")))
    for kind in KINDS:
        fields[kind] = fields.get(kind) or getattr(preset, kind)
    takers = parameters_of(fields)
    _refuse_unknown(given, takers, fields)

    parameters: dict[str, Any] = {}
    for part in dict.fromkeys(takers.values()):
        mine = {key: value for key, value in given.items() if takers[key] is part}
        parameters |= _valid(part, mine).model_dump()
    checked = _valid(_Fields, fields).model_dump()
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
    if not set(changes) & {"strategy", *KINDS, "dataset", "partition"}:
        return merged
    used = drop_idle(merged)
    return {key: value for key, value in merged.items() if key in used or key in changes}


def drop_idle(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without what this strategy, data set or partition does not use.

    For grids over several strategies, where alpha means something to one of them only. Unknown keys stay, to be refused.
    """
    preset = find_preset(str(settings.get("strategy", "fedpns")))
    takers = parameters_of({kind: settings.get(kind) or getattr(preset, kind) for kind in KINDS})
    choices = {"dataset": settings.get("dataset", "synthetic")}
    defaults = DATASETS.get(str(choices["dataset"]), {})
    choices["partition"] = settings.get("partition", defaults.get("partition", "sigma-rho"))
    foreign = set(known_parameters()) - set(takers)
    return {
        key: value
        for key, value in settings.items()
        if key not in foreign and not (key in USED_BY and _idle(key, choices))
    }


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping from a YAML file, or an InputError that names the file and the line."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a YAML file (not UTF-8)") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{path}: not a YAML file{where} ({reason})") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: must hold keys and values, such as sigma: 0.2")
    return content
