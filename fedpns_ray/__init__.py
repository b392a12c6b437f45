"""FedPNS-Ray: which nodes should train? Federated node selection, in parallel, to the last bit."""

from typing import TYPE_CHECKING, Any

from fedpns_ray.errors import DivergedError, InputError

if TYPE_CHECKING:
    from fedpns_ray.api import Interrupted, run
    from fedpns_ray.experiment import Experiment
    from fedpns_ray.records.result import Result, load
    from fedpns_ray.runtime.layout import Layout

__all__ = ["DivergedError", "Experiment", "InputError", "Interrupted", "Layout", "Result", "load", "run"]
__version__ = "0.1.0"

_HOME = {
    "Experiment": "experiment",
    "Interrupted": "api",
    "Layout": "runtime.layout",
    "Result": "records.result",
    "load": "records.result",
    "run": "api",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for, so that `fedpns --help` does not wait for pandas and torch."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'fedpns_ray' has no attribute {name!r}")
    return getattr(import_module(f"fedpns_ray.{_HOME[name]}"), name)
