"""One side of `make same-bits`: runs a list of cases with the FedPNS-Ray of one commit and writes what they gave.

    python same_bits_side.py plan  TREE                    the strategies and their parameters, as one line of JSON
    python same_bits_side.py cases TREE CASES.json OUT.jsonl    one line of JSON for each case, as soon as it is done

TREE is the checkout whose code must be the one that is imported. Self-contained, since it runs with the code of any
commit: of fedpns_ray it may use what is stable only, which is `Experiment`, `Layout`, `run` and the names in `PRESETS`.
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
"""For Ray, whatever the machine has, so that layouts are planned alike everywhere."""
CODE_WITHIN = 300.0
"""Seconds in which the first worker of Ray must say which code it has."""


def code_here() -> str:
    """Where this process takes fedpns_ray from."""
    import fedpns_ray

    return str(Path(str(fedpns_ray.__file__)).resolve())


def refuse_other_code(where: str, tree: Path) -> None:
    if not Path(where).is_relative_to(tree.resolve()):
        sys.exit(f"same-bits: fedpns_ray comes from {where}, not from {tree}")


def plan() -> dict[str, list[str]]:
    """Every strategy, with the names of its parameters."""
    from fedpns_ray import Experiment
    from fedpns_ray.strategies import PRESETS

    return {name: sorted(Experiment(strategy=name).parameters) for name in PRESETS}


def start_ray(tree: Path) -> None:
    """One private Ray for all cases, without GPUs; its workers must have the same code."""
    import ray

    ray.init(
        address="local",
        num_cpus=CPUS,
        num_gpus=0,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        labels={"fedpns-private": str(os.getpid())},  # `--address auto` of others does not join it
    )
    refuse_other_code(ray.get(ray.remote(code_here).remote(), timeout=CODE_WITHIN), tree)


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """What a case gave: digests and records, or its error in one line."""
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
    """One side after the other: the first run on a data set may fetch and unpack it, where the other would look."""
    with file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # how long that may take is up to who started both
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
                sys.exit("same-bits: nobody waits for this any more")
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
    os._exit(0)  # a thread of Ray's may crash among the destructors of native libraries (Ray 2.60)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
