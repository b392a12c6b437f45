"""One side of `make same-bits`: runs a list of cases with the code of one commit and writes the results.

    python side_script.py plan  TREE                         the strategies and their parameters, as one line of JSON
    python side_script.py cases TREE CASES.json OUT.jsonl    one line of JSON per case, as soon as it is done

fedpns_ray must be imported from the checkout TREE. The script is self-contained because it runs with the code of any
commit: it may only use the stable parts of fedpns_ray, which are `Experiment`, `Layout`, `run` and `PRESETS`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

VERSIONED = ("ray", "torch", "numpy")
OBJECT_STORE = 600 * 10**6
CPUS = 2
"""CPUs for Ray, whatever the machine has, so that layouts are the same everywhere."""
CODE_WITHIN = 300.0
"""Seconds within which the first Ray worker must report where its code comes from."""


def code_here() -> str:
    """Where this process imports fedpns_ray from."""
    import fedpns_ray

    return str(Path(str(fedpns_ray.__file__)).resolve())


def refuse_other_code(where: str, tree: Path) -> None:
    if not Path(where).is_relative_to(tree.resolve()):
        sys.exit(f"same-bits: fedpns_ray comes from {where}, not from {tree}")


def plan() -> dict[str, list[str]]:
    """Every strategy, with the names of its parameters."""
    from fedpns_ray import Experiment

    try:
        from fedpns_ray.registry import PRESETS
    except ImportError:  # a tree from before there was a registry module
        from fedpns_ray.strategies import PRESETS  # type: ignore[attr-defined,no-redef]

    return {name: sorted(Experiment(strategy=name).parameters) for name in PRESETS}


def start_ray(tree: Path) -> None:
    """One private Ray for all cases, without GPUs; its workers must import the same code."""
    import ray

    ray.init(
        address="local",
        num_cpus=CPUS,
        num_gpus=0,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        labels={"fedpns-private": str(os.getpid())},  # so that no `--address auto` joins it
    )
    refuse_other_code(ray.get(ray.remote(code_here).remote(), timeout=CODE_WITHIN), tree)


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """The result of a case: digests and records, or its error in one line."""
    from fedpns_ray import Experiment, Layout, run

    began = time.monotonic()
    try:
        layout = Layout(**case["layout"]) if case["layout"] else None
        result = run(Experiment(**case["settings"]), layout=layout)
        found = {
            "weights_sha256": result.summary["weights_sha256"],
            "population_sha256": result.summary["population"]["sha256"],
            "records": result.records,
        }
    except Exception as error:
        found = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}
    return {"case": case["name"], **found, "took": round(time.monotonic() - began, 2)}


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """One side at a time: the first run on a data set may download it to the folder that both sides read."""
    with file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the parent process sets the deadline
        yield


def to_json(value: Any) -> str:
    """One line; floats keep every bit, arrays become lists."""
    return json.dumps(value, default=lambda other: other.tolist()) + "\n"


def main(mode: str, tree: Path, cases: str = "", out: str = "") -> None:
    refuse_other_code(code_here(), tree)
    if mode == "plan":
        sys.stdout.write(to_json(plan()))
        return
    parent = os.getppid()
    listed = json.loads(Path(cases).read_text())
    with Path(out).open("w", encoding="utf-8", buffering=1) as file:
        versions = {"python": sys.version.split()[0], **{name: version(name) for name in VERSIONED}}
        file.write(to_json({"versions": versions}))
        started = False
        seen: set[str] = set()
        for case in listed:
            if os.getppid() != parent:
                sys.exit("same-bits: the parent process is gone")
            if case["layout"] and not started:
                start_ray(tree)
                started = True
            dataset = case["settings"]["dataset"]
            with nullcontext() if dataset in seen else in_turn(Path(cases)):
                found = outcome(case)
            seen.add(dataset)
            file.write(to_json(found))
    if started:
        import ray

        ray.shutdown()
    sys.stdout.flush()
    os._exit(0)  # a thread of Ray 2.60 may crash while native libraries are unloaded


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
