"""A population's partition, written to a file that `partition: file` takes."""

from __future__ import annotations

from pathlib import Path

from fedpns_ray.data.interfaces import Dataset, GeneratedDataset
from fedpns_ray.data.label_noise import NoisyPopulation
from fedpns_ray.data.partitions.file import FORMATS, write
from fedpns_ray.data.population import HeldPopulation, Population
from fedpns_ray.errors import InputError


def refuse_export(path: Path, dataset: Dataset) -> None:
    """Raise an InputError for a file that could not be written, or be used, before the population is made."""
    if isinstance(dataset, GeneratedDataset):
        raise InputError(
            "export", path, problem=f"nodes of dataset {dataset.name} hold no samples of a common data set"
        )
    if path.suffix not in FORMATS:
        raise InputError("export", path, f"it must end in {' or '.join(FORMATS)}")
    if path.exists():
        raise InputError("export", path, "name a new file", problem="is there already")


def export(population: Population, path: Path) -> str:
    """Write who holds what; returns the flags that use it. Label noise is a setting of its own, and is not written."""
    clean = population.clean if isinstance(population, NoisyPopulation) else population
    assert isinstance(clean, HeldPopulation), "generated data are refused"
    write(path, clean.held)
    iid = int(clean.iid.sum())
    return f"--partition file --partition-file {path} --nodes {clean.count}" + (f" --iid-count {iid}" if iid else "")
