"""The registry: every part of every kind, and every named strategy, with its parameters.

The command line, experiments, studies and the documentation read from here. A new built-in part is one file, one class
and one line in `PARTS`. A user-defined part needs no line: it is named by its import path (`mypkg.mod:MyPart`).

A parameter is written by its name alone (`alpha: 2`). Where that is taken, by a setting of every experiment or by
another part, it is written with the kind of its part (`server.lr: 0.1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

from fedpns_ray.core.availability import Always, Availability, Diurnal, Markov, Trace
from fedpns_ray.core.compression import Compression, NoCompression
from fedpns_ray.core.compression.one_bit import OneBitCompression
from fedpns_ray.core.compression.top_k import TopKCompression
from fedpns_ray.core.field_docs import field_doc
from fedpns_ray.core.interfaces import Part, Strategy
from fedpns_ray.core.metrics import METRICS, Metric
from fedpns_ray.core.optimizers import Optimizer
from fedpns_ray.core.optimizers.adam import Adam, AdamW
from fedpns_ray.core.optimizers.sgd import SGD
from fedpns_ray.core.user_code import import_path
from fedpns_ray.data.datasets.femnist import FemnistDataset
from fedpns_ray.data.datasets.file import FileDataset
from fedpns_ray.data.datasets.images import (
    Cifar10Dataset,
    Cifar100Dataset,
    EmnistDataset,
    FashionMnistDataset,
    KmnistDataset,
    MnistDataset,
    SvhnDataset,
)
from fedpns_ray.data.datasets.shakespeare import ShakespeareDataset
from fedpns_ray.data.datasets.synthetic import SyntheticDataset
from fedpns_ray.data.interfaces import Dataset, Partition
from fedpns_ray.data.official.dataset import OfficialDataset
from fedpns_ray.data.partitions.dirichlet import DirichletPartition
from fedpns_ray.data.partitions.file import FilePartition
from fedpns_ray.data.partitions.iid import IidPartition
from fedpns_ray.data.partitions.mixture import MixturePartition
from fedpns_ray.data.partitions.natural import NaturalPartition
from fedpns_ray.data.partitions.shards import ShardsPartition
from fedpns_ray.data.partitions.sigma_rho import SigmaRhoPartition
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.strategies.afl import ActiveSelection
from fedpns_ray.strategies.analog import AnalogAggregation
from fedpns_ray.strategies.bn2 import BestChannelLargestNormSelection, BestChannelSelection, LargestNormSelection
from fedpns_ray.strategies.clustered import ClusteredBySimilaritySelection, ClusteredBySizeSelection
from fedpns_ray.strategies.cmfl import RelevantSelection
from fedpns_ray.strategies.divfl import DiverseSelection
from fedpns_ray.strategies.fedadp import AdaptiveAggregation
from fedpns_ray.strategies.fedavg import HalfSelection, MeanAggregation, NoServer, PlainObjective, RandomSelection
from fedpns_ray.strategies.fedavg_full import AllNodesAggregation
from fedpns_ray.strategies.fedavgm import MomentumServer
from fedpns_ray.strategies.fedcor import CorrelatedSelection
from fedpns_ray.strategies.fedcs import DeadlineSelection
from fedpns_ray.strategies.fedopt import AdagradServer, AdamServer, YogiServer
from fedpns_ray.strategies.fedprox import ProximalObjective
from fedpns_ray.strategies.gpfl import ProjectionSelection
from fedpns_ray.strategies.hics import HeterogeneityGuidedSelection
from fedpns_ray.strategies.importance_latency import ImportanceLatencySelection
from fedpns_ray.strategies.importance_sampling import ImportanceSampledObjective
from fedpns_ray.strategies.norm_sampling import NormSamplingSelection
from fedpns_ray.strategies.oort import OortSelection
from fedpns_ray.strategies.optimal_aggregation import OptimalAggregation
from fedpns_ray.strategies.optimal_sampling import OptimalSamplingSelection
from fedpns_ray.strategies.pns import ProbabilisticSelection
from fedpns_ray.strategies.power_of_choice import PowerOfChoiceSelection
from fedpns_ray.strategies.predicted_updates import AnchoredSelection, PredictedAggregation
from fedpns_ray.strategies.preset import KINDS, Preset
from fedpns_ray.strategies.scaffold import ControlVariateObjective
from fedpns_ray.strategies.shapley import ShapleySelection
from fedpns_ray.strategies.tifl import TierSelection
from fedpns_ray.validation import unknown_name

__all__ = [
    "DATA_KINDS", "KINDS", "PARTS", "PART_KINDS", "PRESETS", "Parameter", "assemble", "build", "describe_default",
    "find_metric", "find_part", "find_preset", "known_parameters", "official_datasets", "parameters_of",
    "registered_name",
]  # fmt: skip

P = TypeVar("P", bound=Part)

DATA_KINDS: dict[str, type[Part]] = {"dataset": Dataset, "partition": Partition}
"""The parts that decide what nodes hold."""
PART_KINDS: dict[str, type[Part]] = {
    **KINDS, **DATA_KINDS, "optimizer": Optimizer, "compression": Compression, "availability": Availability,
}  # fmt: skip
"""Every kind of part, with its base class."""
RESERVED = frozenset(
    {
        "strategy", "parameters", *PART_KINDS, "nodes", "samples_per_node", "size_spread", "model", "vectorize", "loss",
        "buffers", "metrics", "fast_math",
        "fraction", "rounds", "epochs", "batch_size", "lr", "lr_decay", "lr_floor", "clip_updates", "drop_probability",
        "slow_fraction", "slow_seconds", "devices", "device_speed", "device_uplink", "device_spread", "device_file",
        "device_fading", "centralised", "evaluate_every", "seed", "max_steps", "noisy_nodes", "label_noise",
    }
)  # fmt: skip
"""The settings of every experiment: a parameter of the same name is written with the kind of its part."""

PARTS: dict[str, dict[str, type[Part]]] = {
    "selection": {
        part.name: part
        for part in (
            RandomSelection,
            HalfSelection,
            ProbabilisticSelection,
            LargestNormSelection,
            BestChannelSelection,
            BestChannelLargestNormSelection,
            RelevantSelection,
            PowerOfChoiceSelection,
            NormSamplingSelection,
            AnchoredSelection,
            OptimalSamplingSelection,
            ImportanceLatencySelection,
            DeadlineSelection,
            OortSelection,
            DiverseSelection,
            CorrelatedSelection,
            ActiveSelection,
            ClusteredBySizeSelection,
            ClusteredBySimilaritySelection,
            HeterogeneityGuidedSelection,
            TierSelection,
            ProjectionSelection,
            ShapleySelection,
        )
    },
    "objective": {
        part.name: part
        for part in (PlainObjective, ProximalObjective, ControlVariateObjective, ImportanceSampledObjective)
    },
    "aggregation": {
        part.name: part
        for part in (
            MeanAggregation,
            OptimalAggregation,
            AllNodesAggregation,
            AdaptiveAggregation,
            AnalogAggregation,
            PredictedAggregation,
        )
    },
    "server": {part.name: part for part in (NoServer, MomentumServer, AdamServer, YogiServer, AdagradServer)},
    "dataset": {
        part.name: part
        for part in (
            SyntheticDataset,
            MnistDataset,
            FashionMnistDataset,
            Cifar10Dataset,
            Cifar100Dataset,
            KmnistDataset,
            EmnistDataset,
            SvhnDataset,
            FemnistDataset,
            ShakespeareDataset,
            FileDataset,
        )
    },
    "partition": {
        part.name: part
        for part in (
            SigmaRhoPartition,
            DirichletPartition,
            ShardsPartition,
            IidPartition,
            NaturalPartition,
            MixturePartition,
            FilePartition,
        )
    },
    "optimizer": {part.name: part for part in (SGD, Adam, AdamW)},
    "availability": {part.name: part for part in (Always, Markov, Diurnal, Trace)},
    "compression": {part.name: part for part in (NoCompression, TopKCompression, OneBitCompression)},
}


PRESETS: dict[str, Preset] = {
    "fedavg": Preset("random draw, mean over the drawn nodes (III-B)"),
    "fedavg-full": Preset("all nodes count, by data size (McMahan 2017, footnote to (5))", aggregation="all-nodes"),
    "optimal-aggregation": Preset("random draw, adverse updates excluded (Algorithm 1)", aggregation="optimal"),
    "fedpns": Preset("labelled nodes are drawn less often (Algorithm 2)", selection="pns", aggregation="optimal"),
    "fedprox": Preset("a proximal term in local training, fewer epochs on slow nodes (Li 2018)", objective="proximal"),
    "scaffold": Preset(
        "control variates against the drift of local steps (Karimireddy 2020)", objective="control-variates"
    ),
    "fedadp": Preset("weights from the angle to the global gradient (Wu and Wang 2021)", aggregation="adaptive"),
    "cmfl": Preset("updates against the last global update are withheld (Wang 2019)", selection="relevant"),
    "power-of-choice": Preset("of d candidates, the highest losses train (Cho 2020)", selection="power-of-choice"),
    "norm-sampling": Preset("probability by update norm (Chen 2021, its norm term)", selection="norm-sampling"),
    "optimal-sampling": Preset("unbiased sampling of least variance (Chen 2020)", selection="optimal-sampling"),
    "importance-latency": Preset(
        "probability by update norm and upload time (Ren 2020)", selection="importance-latency"
    ),
    "fedcs": Preset("the most nodes that meet a deadline (Nishio and Yonetani 2019)", selection="deadline"),
    "bn2": Preset("many train, the largest updates are aggregated (V-D)", selection="largest-norm"),
    "bc": Preset("the best channels train and send (Amiri 2021)", selection="best-channel"),
    "bc-bn2": Preset("of the best channels, the largest updates (Amiri 2021)", selection="best-channel-largest-norm"),
    "oort": Preset("utility from loss and speed, with exploration (Lai 2021)", selection="oort"),
    "divfl": Preset("the updates that best represent all others (Balakrishnan 2022)", selection="divfl"),
    "fedcor": Preset("a Gaussian process over loss changes (Tang 2022)", selection="fedcor"),
    "afl": Preset("a softmax of loss and data size (Goetz 2019)", selection="afl"),
    "clustered-size": Preset("unbiased, one node per cluster by size (Fraboni 2021)", selection="clustered-size"),
    "clustered-similarity": Preset(
        "unbiased, one node per cluster of similar updates (Fraboni 2021)", selection="clustered-similarity"
    ),
    "hics": Preset("clusters that seem balanced come first (Chen and Vikalo 2024)", selection="hics"),
    "tifl": Preset("one tier of equally fast nodes per round (Chai 2020)", selection="tifl"),
    "gpfl": Preset("a bandit over projections onto the global update (Na 2024)", selection="gpfl"),
    "shapley": Preset("the highest Shapley values (Singhal 2024, Nagalapatti 2021)", selection="shapley"),
    "predicted-updates": Preset(
        "a network predicts the updates of nodes without bandwidth (Chen 2020)",
        selection="anchored-norm-sampling",
        aggregation="predicted",
    ),
    "fedavgm": Preset("momentum at the server (Hsu 2019)", server="momentum"),
    "fedadam": Preset("Adam at the server (Reddi 2021)", server="adam"),
    "fedyogi": Preset("Yogi at the server (Reddi 2021)", server="yogi"),
    "fedadagrad": Preset("Adagrad at the server (Reddi 2021)", server="adagrad"),
}


def registered_name(thing: Any) -> str:
    """The name of a registered preset or part class; empty for anything else."""
    known = [*PRESETS.items(), *(pair for parts in PARTS.values() for pair in parts.items())]
    return next((name for name, one in known if one is thing), "")


def find_preset(name: str) -> Preset:
    """The preset of this name or import path. The import path of a part replaces that part of FedAvg."""
    if name in PRESETS:
        return PRESETS[name]
    if ":" not in name:
        raise unknown_name("strategy", name, PRESETS, "package.module:MyStrategy")
    found = import_path(name, "strategy")
    if isinstance(found, Preset):
        return found
    for kind, base in KINDS.items():
        if isinstance(found, type) and issubclass(found, base):
            return replace(PRESETS["fedavg"], what=(found.__doc__ or name).strip().splitlines()[0], **{kind: name})
    problem = "is neither a fedpns_ray.strategies.Preset nor the class of a part"
    raise InputError("strategy", Shown(name), problem=problem)


def find_part(kind: str, name: str) -> type[Part]:
    if name in PARTS[kind]:
        return PARTS[kind][name]
    if ":" not in name:
        raise unknown_name(kind, name, PARTS[kind], "package.module:Class")
    part, base = import_path(name, kind), PART_KINDS[kind]
    if isinstance(part, type) and issubclass(part, base):
        return _whole(part, kind, name)
    room = Preset.__module__ if kind in KINDS else base.__module__
    problem = f"is not a subclass of {room.rpartition('.')[0]}.{base.__name__}"
    raise InputError(kind, Shown(name), problem=problem)


def _whole(part: type[P], kind: str, name: str) -> type[P]:
    """The part; refused if it lacks a method that every part of its kind has."""
    if method := part.missing():
        raise InputError(kind, Shown(name), problem=f"has no method {method}")
    return part


def official_datasets() -> dict[str, OfficialDataset]:
    """The data sets with official files, which `fedpns data` fetches and verifies."""
    return {name: part() for name, part in PARTS["dataset"].items() if issubclass(part, OfficialDataset)}


def find_metric(name: str) -> type[Metric]:
    """The metric of this name or import path."""
    if ":" not in name:
        if name not in METRICS:
            raise unknown_name("metrics", name, METRICS, "package.module:MyMetric")
        return METRICS[name]
    found = import_path(name, "metrics")
    if not (isinstance(found, type) and issubclass(found, Metric)):
        raise InputError("metrics", Shown(name), problem="is not a subclass of fedpns_ray.core.metrics.Metric")
    return _whole(found, "metrics", name)


class Parameter(NamedTuple):
    """A parameter of a part: where it belongs, and what it is called there."""

    kind: str
    part: type[Part]
    field: str

    @property
    def description(self) -> str:
        return self.part.model_fields[self.field].description or field_doc(self.part, self.field)


def parameters_of(parts: Mapping[str, str]) -> dict[str, Parameter]:
    """Every parameter of a choice of parts (kind → name), by the key that it is written under."""
    found: dict[str, Parameter] = {}
    for kind in PART_KINDS:
        if kind in parts:
            part = find_part(kind, parts[kind])
            for field in part.model_fields:
                key = f"{kind}.{field}" if field in found else _key(kind, part, field)
                found[key] = Parameter(kind, part, field)
    return found


@cache
def known_parameters(kinds: tuple[str, ...] = tuple(PARTS)) -> dict[str, list[Parameter]]:
    """Every parameter of every registered part of these kinds, by key, with the parts that take it."""
    known: dict[str, list[Parameter]] = {}
    for kind in kinds:
        for part in PARTS[kind].values():
            for field in part.model_fields:
                known.setdefault(_key(kind, part, field), []).append(Parameter(kind, part, field))
    return known


def _key(kind: str, part: type[Part], field: str) -> str:
    return f"{kind}.{field}" if part.qualified or field in RESERVED else field


def describe_default(part: type[Part], parameter: str) -> str:
    """`2.0`, or `mean (mean|sum)` where there is a choice."""
    field = part.model_fields[parameter]
    choices = get_args(field.annotation)
    allowed = f" ({'|'.join(map(str, choices))})" if choices and isinstance(choices[0], str) else ""
    return f"{field.default}{allowed}"


def build(kind: str, name: str, parameters: Mapping[str, Any]) -> Any:
    """A part, with its parameters among those of all parts."""
    part = find_part(kind, name)
    keys = {field: (f"{kind}.{field}", _key(kind, part, field)) for field in part.model_fields}
    found = {field: next((key for key in own if key in parameters), None) for field, own in keys.items()}
    return part(**{field: parameters[key] for field, key in found.items() if key})


def assemble(parts: Mapping[str, str], parameters: Mapping[str, Any]) -> Strategy:
    """The strategy that these parts and parameters describe, before its first round."""
    return Strategy(*(build(kind, parts[kind], parameters) for kind in KINDS))
