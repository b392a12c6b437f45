"""Experiment: one typed description of one run, validated once, when it is created.

Flat on purpose: the paper's letters are the keys of the YAML file, the flags of the command line, the axes of a study
and the arguments of `Experiment(...)`. Parameters of a strategy's parts (alpha, beta, v, …) live alongside the fields;
the registry knows which part takes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)

from fedpns_ray.core.devices import Devices, from_file, log_normal
from fedpns_ray.core.local_steps import local_samples
from fedpns_ray.core.metrics import Metric
from fedpns_ray.core.optimizers import Optimizer
from fedpns_ray.data.interfaces import Dataset, Partition
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.registry import (
    DATA_KINDS,
    KINDS,
    PART_KINDS,
    assemble,
    build,
    find_metric,
    known_parameters,
)
from fedpns_ray.settings import (
    CHOICES,
    DATA_FIELDS,
    OFF,
    Settings,
    checked_parameters,
    completed,
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
    """Train nodes together: auto where it is exact (mlr), on for speed on a GPU, off never."""

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
    """Also measured in every test: balanced-accuracy, macro-f1, label-accuracy, package.module:MyMetric; by commas."""
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
        self._fill(fields, checked_parameters(given, fields, names), own)
        refuse_combinations(dict(self), settings)

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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Parameters of parts are attributes, as settings are: `experiment.sigma`."""
            parameters = self.__dict__.get("parameters", {})
            return parameters[name] if name in parameters else super().__getattr__(name)

    @property
    def imported(self) -> bool:
        """Whether user-defined parts were imported; False for one that was read from a file and names such parts."""
        return self._imported

    def agrees_with(self, other: Experiment) -> bool:
        """Whether all settings that both have are equal, except the number of rounds; options not written are off."""
        mine, theirs = OFF | self.settings(), OFF | other.settings()
        return all(theirs[key] == value for key, value in mine.items() if key in theirs and key != "rounds")

    @property
    def user_packages(self) -> set[str]:
        """The top-level packages of user-defined parts and models."""
        paths = [
            path
            for path in (*self.all_parts.values(), self.model, self.loss, self.strategy, *listed(self.metrics))
            if ":" in path
        ]
        return {path.partition(":")[0].partition(".")[0] for path in paths} - {"fedpns_ray"}

    @property
    def per_round(self) -> int:
        """|S_t| = c |K|."""
        return round(self.fraction * self.nodes)

    @property
    def trained_per_round(self) -> int:
        """The most nodes that train in a round: |S_t|, or as many as the selection says."""
        return self.build_strategy().selection.trains(self.per_round)

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

    def build_strategy(self) -> Strategy:
        described = self if self.imported else Experiment(**self.settings())
        return assemble(described.parts, described.parameters)

    def build_optimizer(self) -> Optimizer:
        described = self if self.imported else Experiment(**self.settings())
        return build("optimizer", described.optimizer, described.parameters)

    def build_dataset(self) -> Dataset:
        return self._data_part("dataset")

    def build_partition(self) -> Partition:
        return self._data_part("partition")

    def _data_part(self, kind: str) -> Any:
        """Readers of an experiment may want its data, but never import code for it."""
        name = getattr(self, kind)
        if not self.imported and ":" in name:
            raise InputError(kind, Shown(name), problem="is user-defined, and reading imports nothing")
        return build(kind, name, self.parameters)

    def build_metrics(self) -> list[Metric]:
        return [find_metric(name)() for name in listed(self.metrics)]

    def data_settings(self) -> Settings:
        """The settings that decide the population: experiments that agree on them have the same one."""
        others = set(known_parameters(tuple(kind for kind in PART_KINDS if kind not in DATA_KINDS)))
        mine = {key: value for key, value in self.parameters.items() if key not in others}
        return {key: getattr(self, key) for key in DATA_FIELDS} | mine | {"seed": self.seed}

    @property
    def data_name(self) -> str:
        """What its samples are known by: the data set with its own parameters, whatever the partition."""
        readable = self.imported or ":" not in self.dataset
        return f"{self.dataset} {self.build_dataset().model_dump() if readable else self.parameters}"

    def build_devices(self, sizes: NDArray[np.int64], payload: int) -> Devices | None:
        """The device model for nodes of these sizes that send updates of `payload` bytes; None if it is off."""
        if self.devices == "off":
            return None
        if self.devices == "file":
            speed, uplink = from_file(Path(self.device_file), self.nodes)
        else:
            speed, uplink = log_normal(self.seed, self.nodes, self.device_speed, self.device_uplink, self.device_spread)
        fading = self.device_fading == "rayleigh"
        return Devices(speed, uplink, local_samples(self, sizes).astype(np.float64), payload, self.seed, fading)

    def settings(self) -> Settings:
        """Everything that matters to this experiment, flat: what config.yaml holds and `Experiment(**…)` takes."""
        implied = self._own | OFF | plain_steps(self.optimizer)  # the strategy implies its parts
        return {key: value for key, value in self.all_settings().items() if key not in implied or value != implied[key]}

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


def folder_name(*experiments: Experiment) -> str:
    """A folder name that only the same experiments share (whatever their number of rounds)."""
    digest = hashlib.sha256("".join(e.but(rounds=1).to_yaml() for e in experiments).encode()).hexdigest()[:8]
    first = experiments[0]
    what = f"{first.label}-seed{first.seed}" if len(experiments) == 1 else f"{len(experiments)}-runs"
    return f"{as_folder(first.dataset)}-{as_folder(what)}-{digest}"


def setting_name(experiment: Experiment) -> str:
    """A name that is the same for all seeds and numbers of rounds of an experiment."""
    return folder_name(experiment.but(seed=1))


def as_folder(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_+-]", "-", text)
