"""Experiment: one typed description of one run, validated once, when it is created.

Flat on purpose: the paper's letters are the keys of the YAML file, the flags of the command line, the axes of a study
and the arguments of `Experiment(...)`. Parameters of a strategy's parts (alpha, beta, v, …) live alongside the fields;
the registry knows which part takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from fedpns_ray.core.availability import Availability
from fedpns_ray.core.compression import Compression
from fedpns_ray.core.metrics import Metric
from fedpns_ray.core.optimizers import Optimizer
from fedpns_ray.data.interfaces import Dataset, Partition
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.registry import DATA_KINDS, KINDS, PART_KINDS, assemble, build, find_metric, known_parameters
from fedpns_ray.settings import (
    CHOICES,
    DATA_FIELDS,
    OFF,
    Settings,
    checked_parameters,
    completed,
    data_parameters,
    is_idle,
    listed,
    names_user_code,
    overridden,
    plain_steps,
    refuse_combinations,
    split,
)
from fedpns_ray.strategies import Strategy
from fedpns_ray.validation import refusal
from fedpns_ray.yaml_file import read_yaml


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
    server: str = ""
    """How the aggregated step moves the model; by default the strategy's own."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters of all parts; written alongside the other keys (alpha: 2)."""

    dataset: str = "synthetic"
    """The data set to learn: see `fedpns data`."""
    partition: str = "sigma-rho"
    """Who holds what: see `fedpns data`."""
    nodes: int = Field(50, ge=1, le=10_000_000)
    """|K|, the number of nodes."""
    samples_per_node: int = Field(200, gt=0, le=10_000_000)
    """D_i, samples on each node."""
    size_spread: float = Field(0.0, ge=0, le=3)
    """Unequal nodes: D_i is log-normal with this standard deviation of log D_i; 0 makes all equal."""
    noisy_nodes: float = Field(0.0, ge=0, le=1)
    """The fraction of nodes with label noise; 0: none."""
    label_noise: float = Field(0.5, ge=0, le=1)
    """The fraction of a noisy node's labels that is replaced by another label, uniformly."""

    model: str = "cnn-m"
    """mlr, cnn-m, cnn-c, resnet18-gn, char-lstm, or package.module:Factory of an nn.Module."""
    vectorize: Literal["auto", "on", "off"] = "auto"
    """Train nodes together: auto on a GPU, and on a CPU where it is exact (mlr); on wherever possible; off never."""
    fast_math: bool = False
    """On CUDA: TF32 and whatever algorithm is fastest, at the price of bits that may differ from run to run."""

    buffers: Literal["refuse", "local", "average"] = "refuse"
    """Running statistics of batch normalisation: refused, kept by no one, or sent and averaged as parameters are."""
    loss: str = ""
    """What is minimised: the loss of the data set's task, or package.module:function of (outputs, targets)."""

    fraction: float = Field(0.2, gt=0, le=1)
    """c, the fraction of nodes drawn each round."""
    rounds: int = Field(200, gt=0, le=100_000_000)
    """T, the number of rounds."""
    epochs: int = Field(1, gt=0, le=1_000_000)
    """E, local epochs."""
    batch_size: int = Field(20, gt=0, le=1_000_000_000)
    """B, samples per local step."""
    optimizer: str = "sgd"
    """How a node steps."""
    compression: str = "none"
    """What a node sends of its update, whatever the strategy."""
    max_steps: int = Field(0, ge=0, le=1_000_000_000)
    """The most local steps of a node in a round, however many epochs remain; 0: no limit."""
    lr: float = Field(0.01, gt=0, le=1e38)
    """eta, the learning rate of round 1."""
    lr_decay: float = Field(0.995, gt=0, le=1)
    """The learning rate is multiplied by this after each round."""
    lr_floor: float = Field(0.01, ge=0, le=1)
    """The learning rate never falls below this fraction of lr."""
    clip_updates: float = Field(0.0, ge=0, le=1e9)
    """The largest norm of an update, in medians of the round's norms: larger updates are scaled down; 0: no limit."""
    availability: str = "always"
    """Simulated: when nodes can be drawn: always, markov, diurnal or trace."""
    drop_probability: float = Field(0.0, ge=0, le=1)
    """Simulated: a drawn node fails to return its update with this probability."""
    slow_fraction: float = Field(0.0, ge=0, le=1)
    """Simulated: this fraction of the nodes, drawn once, is slow."""
    slow_seconds: float = Field(1.0, ge=0, le=86_400)
    """Simulated: how many seconds longer a slow node takes to train."""
    devices: Literal["off", "log-normal", "file"] = "off"
    """Simulated: how fast nodes compute and send; gives rounds a simulated duration."""
    device_speed: float = Field(1000.0, ge=1e-6, le=1e15)
    """Device model: samples per second that the median node trains."""
    device_uplink: float = Field(125_000.0, ge=1e-6, le=1e15)
    """Device model: bytes per second that the median node sends."""
    device_spread: float = Field(1.0, ge=0, le=5)
    """Device model: the standard deviation of log speed and of log uplink; 0 makes all nodes equal."""
    device_file: str = ""
    """Device model: a CSV file with the columns node, speed and uplink."""
    device_fading: Literal["rayleigh", "none"] = "rayleigh"
    """Device model: whether channels fade from round to round."""
    centralised: bool = False
    """Also follow the centralised sequence v of (9) and record ||w_t - v_t||; tau passes over all samples per round."""
    evaluate_every: int = Field(1, gt=0, le=1_000_000_000)
    """Rounds between two tests on the whole test set; the last round is always tested."""
    metrics: str = ""
    """Measured in every test, by commas: macro-f1, balanced-accuracy, label-accuracy, node-fairness, or your own."""
    seed: int = Field(1, ge=0, le=2**63 - 1)
    """Names every random stream."""

    _own: dict[str, str] = PrivateAttr(default_factory=dict)
    """The strategy's own parts, by kind; empty names if the strategy is user-defined and was not imported."""
    _imported: bool = PrivateAttr(True)

    @field_validator("device_file")
    @classmethod
    def _whole_path(cls, path: str) -> str:
        """The absolute path, since each trial of a study runs in its own folder."""
        return path and str(Path(path).absolute())

    def __init__(self, **settings: Any) -> None:
        names = Experiment.model_fields
        fields, given = split(settings, names)
        fields, own = completed(fields)
        parameters, parts = checked_parameters(given, fields, names)
        self._fill(fields, parameters, own)
        self._made.update({kind: parts[kind] for kind in DATA_KINDS})
        refuse_combinations(dict(self), settings, parts)

    def _fill(self, fields: Settings, parameters: Settings, own: dict[str, str]) -> None:
        try:
            BaseModel.__init__(self, **fields, parameters=parameters)
        except ValidationError as error:
            raise refusal(error) from None
        self._own = own

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Experiment:
        """An experiment as a run folder or a study file describes it. Reading never runs code: user-defined parts
        stay import paths, and their parameters stay as they were written.
        """
        if not names_user_code(settings):
            return cls(**settings)
        fields, parameters = split(settings, cls.model_fields)
        fields, own = completed(fields, importing=False)
        experiment = cls.__new__(cls)
        experiment._fill(fields, parameters, own)
        experiment._imported = False
        return experiment

    @cached_property
    def _made(self) -> dict[str, Any]:
        """The data set and the partition, once they are made: they hold no state of a run."""
        return {}

    def __getstate__(self) -> dict[Any, Any]:
        """What travels to other processes are settings, which name user-defined parts, not these parts."""
        state = super().__getstate__()
        return state | {"__dict__": {key: value for key, value in state["__dict__"].items() if key != "_made"}}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Parameters of parts are attributes, as settings are: `experiment.sigma`."""
            parameters = self.__dict__.get("parameters", {})
            return parameters[name] if name in parameters else super().__getattr__(name)

    @property
    def imported(self) -> bool:
        """Whether user-defined parts were imported; False for one that was read from a file and names such parts."""
        return self._imported

    def agrees_with(self, other: Experiment, named: Collection[str]) -> bool:
        """Whether both have equal values of the settings that a study names, except the number of rounds.

        For experiments that were not imported: what they do not name may be a default of a user-defined part.
        """
        mine, theirs = self._implied | self.settings(), other._implied | other.settings()
        unknown = {"rounds", *(kind for kind in KINDS if not mine[kind] or not theirs[kind])}
        return all(theirs[key] == mine[key] for key in named if key in mine and key in theirs and key not in unknown)

    @property
    def user_packages(self) -> set[str]:
        """The top-level packages of user-defined parts and models."""
        names = (*self.all_parts.values(), self.model, self.loss, self.strategy, *listed(self.metrics))
        return {name.partition(":")[0].partition(".")[0] for name in names if ":" in name} - {"fedpns_ray"}

    @property
    def per_round(self) -> int:
        """|S_t| = c |K|."""
        return round(self.fraction * self.nodes)

    @property
    def trained_per_round(self) -> int:
        """The most nodes that train in a round: |S_t|, or as many as the selection says."""
        return min(self.nodes, self.build_strategy().selection.trains(self.per_round))

    @property
    def parts(self) -> dict[str, str]:
        """The parts of the strategy, by kind."""
        return {kind: getattr(self, kind) for kind in KINDS}

    @property
    def all_parts(self) -> dict[str, str]:
        return {kind: getattr(self, kind) for kind in PART_KINDS}

    @property
    def label(self) -> str:
        """The strategy's name, and the names of the parts that replace its own."""
        changed = [name for kind, name in self.parts.items() if name != self._own[kind]]
        return "+".join([self.strategy, *changed])

    def lr_at(self, round: int) -> float:
        """eta of a round: lr in round 1, times lr_decay after each round, never below lr_floor lr."""
        return max(self.lr * self.lr_decay ** (round - 1), self.lr * self.lr_floor)

    @property
    def _complete(self) -> Experiment:
        """This experiment, with user-defined parts imported."""
        return self if self.imported else Experiment(**self.settings())

    def build_strategy(self) -> Strategy:
        e = self._complete
        return assemble(e.parts, e.parameters)

    def build_optimizer(self) -> Optimizer:
        return self._part("optimizer")

    def build_compression(self) -> Compression:
        return self._part("compression")

    def _part(self, kind: str) -> Any:
        e = self._complete
        return build(kind, getattr(e, kind), e.parameters)

    def build_dataset(self) -> Dataset:
        return self._data_part("dataset")

    def build_partition(self) -> Partition:
        return self._data_part("partition")

    def _data_part(self, kind: str) -> Any:
        """Readers of an experiment may want its data, but never import code for it."""
        name = getattr(self, kind)
        if not self.imported and ":" in name:
            raise InputError(kind, Shown(name), problem="is user-defined, and reading imports nothing")
        if kind not in self._made:
            self._made[kind] = build(kind, name, self.parameters)
        return self._made[kind]

    def build_metrics(self) -> list[Metric]:
        return [find_metric(name)() for name in listed(self.metrics)]

    def build_availability(self) -> Availability:
        return self._part("availability")

    def data_settings(self) -> Settings:
        """The settings that decide the population: experiments that agree on them have the same one."""
        named = {kind: name for kind, name in self.all_parts.items() if name}
        readable = {kind: name for kind, name in named.items() if self.imported or ":" not in name}
        mine = data_parameters(self.parameters, readable)
        return {key: getattr(self, key) for key in DATA_FIELDS} | mine | {"seed": self.seed}

    @property
    def data_name(self) -> str:
        """What its samples are known by: the data set with its own parameters, whatever the partition."""
        readable = self.imported or ":" not in self.dataset
        return f"{self.dataset} {self.build_dataset().model_dump() if readable else self.parameters}"

    def settings(self) -> Settings:
        """Everything that matters to this experiment, flat: what config.yaml holds and `Experiment(**…)` takes."""
        implied = self._implied
        return {key: value for key, value in self.all_settings().items() if key not in implied or implied[key] != value}

    @property
    def _implied(self) -> Settings:
        """What need not be written: the strategy's own parts, and options that are off."""
        return self._own | OFF | plain_steps(self.optimizer)

    def all_settings(self) -> Settings:
        """Every setting that is used, flat, with those that `settings` leaves out because others imply them."""
        fields = self.model_dump(exclude={"parameters"})
        data = set(known_parameters(tuple(DATA_KINDS)))
        found: Settings = {}
        for key, value in fields.items():
            if not is_idle(key, fields):
                found[key] = value
            if key == "nodes":  # names of folders depend on the order
                found |= {name: value for name, value in self.parameters.items() if name in data}
        return found | {name: value for name, value in self.parameters.items() if name not in data}

    def but(self, **changes: Any) -> Experiment:
        """The same experiment with other settings; what another strategy or data set does not use is dropped."""
        if not self.imported and not set(changes) & CHOICES:
            return Experiment.recorded(self.settings() | changes)
        return Experiment(**overridden(self.settings(), changes))

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.settings(), sort_keys=False)

    @classmethod
    def from_yaml(cls, path: Path | str) -> Experiment:
        return cls(**read_yaml(Path(path)))
