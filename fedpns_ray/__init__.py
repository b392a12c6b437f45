"""FedPNS-Ray: which nodes should train? Federated node selection, in parallel, to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpns_ray.errors import DivergedError, InputError

if TYPE_CHECKING:
    from fedpns_ray.api import Interrupted, compare, report, run, run_study
    from fedpns_ray.data.saving import save_data
    from fedpns_ray.experiment import Experiment
    from fedpns_ray.records.result import Result, load
    from fedpns_ray.runtime.layout import Layout
    from fedpns_ray.study.study_file import Study, read_study

__all__ = [
    "DivergedError", "Experiment", "InputError", "Interrupted", "Layout", "Result", "Study", "compare", "load",
    "read_study", "report", "run", "run_study", "save_data",
]  # fmt: skip
__version__ = "0.1.0"

_HOME = {
    "Experiment": "experiment",
    "Interrupted": "api",
    "Layout": "runtime.layout",
    "Result": "records.result",
    "Study": "study.study_file",
    "compare": "api",
    "load": "records.result",
    "read_study": "study.study_file",
    "report": "api",
    "run": "api",
    "run_study": "api",
    "save_data": "data.saving",
}


def __getattr__(name: str) -> object:
    """Imported on first use, so that `fedpns --help` does not wait for pandas and torch."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'fedpns_ray' has no attribute {name!r}")
    return getattr(import_module(f"fedpns_ray.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Only the public names."""
    return sorted(__all__)
