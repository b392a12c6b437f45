"""Starts on-demand machines when no spot machine is to be had: see "Spot machines" in cluster/README.md.

Ray's autoscaler asks for spot machines again and again when the cloud has none; it does not turn to another kind of
machine. This asks it for on-demand machines by their label and waits until they have joined; waiting trials then run
there. The request is withdrawn in any case: a standing one would keep idle machines running, and billed.
"""

from __future__ import annotations

import argparse
import sys
import time

import ray
from ray.autoscaler.sdk import request_resources

MARKET, ON_DEMAND = "ray.io/market-type", "on-demand"


def joined() -> int:
    """On-demand machines that are part of the cluster now."""
    return sum(node["Alive"] and node["Labels"].get(MARKET) == ON_DEMAND for node in ray.nodes())


def ask_and_wait(machines: int, minutes: float) -> bool:
    """Whether this many on-demand machines have joined within the time."""
    deadline = time.monotonic() + 60 * minutes
    try:
        request_resources(bundles=[{"GPU": 1}] * machines, bundle_label_selectors=[{MARKET: ON_DEMAND}] * machines)
        while (there := joined()) < machines:
            if time.monotonic() > deadline:
                return False
            print(f"on-demand machines: {there} of {machines} have joined", flush=True)
            time.sleep(min(5, max(1, deadline - time.monotonic())))
        return True
    finally:
        request_resources(bundles=[])


def main() -> int:
    parser = argparse.ArgumentParser(description="start on-demand GPU machines for trials that wait for spot machines")
    parser.add_argument("machines", type=int, choices=range(1, 5), help="how many; the cluster files allow 4")
    parser.add_argument("--minutes", type=float, default=30, help="how long to wait for them (default: 30)")
    arguments = parser.parse_args()
    ray.init(address="auto", log_to_driver=False)
    if ask_and_wait(arguments.machines, arguments.minutes):
        print(f"on-demand machines: all {arguments.machines} have joined")
        return 0
    print(
        f"on-demand machines: only {joined()} of {arguments.machines} joined within {arguments.minutes:g} minutes; "
        "monitor.log on the head names the reason (quota, capacity): see cluster/README.md",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
