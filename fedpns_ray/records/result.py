"""What a run gives back, and how a run's folder is read again."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.run import Record
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Result:
    """A finished run."""

    experiment: Experiment
    records: list[Record]
    summary: dict[str, Any]
    weights: Vector
    out: Path | None = None

    @property
    def diverged(self) -> str | None:
        """`diverged in round 7 (no update is finite)`; None for a run that did not."""
        found = self.summary.get("diverged")
        return f"diverged in round {found['round']} ({found['reason']})" if found else None

    def module(self) -> nn.Module:
        """The final model as a torch module; of a run that diverged, the last finite one."""
        import torch

        from fedpns_ray.core.models import FlatModel, build_model
        from fedpns_ray.data import build_population

        samples = build_population(self.experiment).samples
        flat = FlatModel(build_model(self.experiment.model, samples.shape, samples.classes, self.experiment.seed))
        flat.load(torch.from_numpy(self.weights))
        return flat.module.eval()

    def _repr_html_(self) -> str:
        final = self.summary["final_accuracy"]
        found = self.diverged or ("" if final is None else f"final accuracy {final:.2%}")
        return (
            f"<p>{html.escape(self.experiment.label)}, seed {self.experiment.seed}: {found}</p>{self.rounds.to_html()}"
        )

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round."""
        return pd.DataFrame(self.records).set_index("round", drop=False)


def load(out: Path | str) -> Result:
    """The finished run in a folder."""
    folder = RunFolder(Path(out))
    experiment, summary = folder.experiment, folder.summary()
    if experiment is None:
        raise InputError(f"{folder.path}: holds no experiment (no config.yaml)")
    if summary is None:
        raise InputError(f"{folder.path}: is not finished; the command that started it resumes it")
    if damage := folder.damage():
        raise InputError(f"{folder.path}: is damaged ({damage}); `fedpns run` with the same settings repairs it")
    return Result(experiment, folder.records(), summary, folder.weights(), folder.path)
