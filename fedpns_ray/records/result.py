"""What a run returns, and how it is loaded from its folder."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedpns_ray.core.interfaces import Vector
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.file_names import CONFIG
from fedpns_ray.records.record import Record
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import Summary

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Result:
    """A finished run."""

    experiment: Experiment
    records: list[Record]
    summary: Summary
    weights: Vector
    out: Path | None = None

    @property
    def diverged(self) -> str | None:
        """`diverged in round 7 (no update is finite)`; None for a run that did not."""
        found = self.summary.diverged
        return f"diverged in round {found['round']} ({found['reason']})" if found else None

    def module(self) -> nn.Module:
        """The final model as a torch module; for a run that diverged, the last finite one."""
        import torch

        from fedpns_ray.core.models import flat_model_for, for_testing
        from fedpns_ray.data import build_population

        samples = build_population(self.experiment).samples
        flat = flat_model_for(self.experiment, samples)
        flat.load(torch.from_numpy(self.weights))
        return for_testing(flat.module, self.experiment.buffers)

    def __repr__(self) -> str:
        final, rounds = self.summary.final_accuracy, len(self.records)
        found = self.diverged or ("" if final is None else f"final accuracy {final:.2%}")
        return f"<Result of {self.experiment.label}, seed {self.experiment.seed}, {rounds} rounds: {found}>"

    def _repr_html_(self) -> str:
        final = self.summary.final_accuracy
        found = self.diverged or ("" if final is None else f"final accuracy {final:.2%}")
        return (
            f"<p>{html.escape(self.experiment.label)}, seed {self.experiment.seed}: {found}</p>{self.rounds.to_html()}"
        )

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round."""
        return pd.DataFrame(self.records).set_index(Record.round, drop=False)


def load(out: Path | str) -> Result:
    """Load the finished run in a folder."""
    folder = RunFolder(Path(out))
    experiment, summary = folder.experiment, folder.summary()
    if experiment is None:
        raise InputError(str(folder.path), problem=f"holds no experiment (no {CONFIG})")
    if summary is None:
        raise InputError(str(folder.path), problem="is not finished", hint="the command that started it resumes it")
    lines = folder.lines()
    if damage := folder.damage(lines):
        hint = "`fedpns run` with the same settings repairs it"
        raise InputError(str(folder.path), problem=f"is damaged ({damage})", hint=hint)
    return Result(experiment, lines.records, summary, folder.weights(), folder.path)
