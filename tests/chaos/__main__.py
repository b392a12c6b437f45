"""`make chaos`: faults at random moments of runs and studies, and a table of what became of them.

python -m tests.chaos --faults 200 --seed 7 [--only freeze,kill]
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from tests.bucket import bucket_server
from tests.chaos.faults import KINDS, MEMORY_THRESHOLD, NotInjectedError
from tests.chaos.scenes import SEEDS, Scene, undisturbed

OUTCOMES = ("survived", "resumed", "refused", "lost", "wrong")
LONGEST_STALL = 90.0
QUIET_MEMORY = {
    "RAY_memory_usage_threshold": str(MEMORY_THRESHOLD),
    "RAY_memory_monitor_refresh_ms": "250",
}


def disturb(name, seed, folder, bucket):
    """One fault: its scene and moment, what was done, what became of it, the longest stall."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kind = rng.choice(("run", "study"))
    machines = 2 if name == "lost machine" else rng.choice((1, 1, 2))
    environment = QUIET_MEMORY if name == "memory" else {}
    scene = Scene(
        folder, kind, machines, environment, bucket if name == "failing storage" and kind == "study" else None
    )
    try:
        moment = int(scene.total * rng.uniform(0.1, 0.7))
        scene.wait(moment)
        try:
            did = KINDS[name](scene, rng)
        except psutil.NoSuchProcess:  # it ended between being chosen and being disturbed
            raise NotInjectedError from None
        restarts, stall = scene.finish()
        code, said = scene.ended[-1]
        if code == 0:
            same = scene.digests() == undisturbed(kind)
            outcome = ("resumed" if restarts else "survived") if same else "wrong"
        else:
            outcome = "refused" if code == 2 else "lost"
        place = f"{kind} on {machines} machine{'s' * (machines > 1)}, after {moment} rounds"
        if outcome == "resumed":
            said = scene.ended[0][1]
        return outcome, f"{place}: {did}", stall, "" if outcome == "survived" else said
    finally:
        scene.close()


def injected(name, seed, folder, bucket):
    """The same, with another moment where a fault came too late to be injected."""
    for attempt in range(5):
        try:
            return disturb(name, seed + 1000 * attempt, folder, bucket)
        except NotInjectedError:
            continue
    raise AssertionError(f"{name} could not be injected")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--numbers", default="", help="of the faults, only these, such as 29,85: to repeat some")
    parser.add_argument("--jobs", type=int, default=2, help="scenes at a time")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    options = parser.parse_args()
    names = options.only.split(",")
    table = {name: Counter() for name in names}
    longest = 0.0
    print(f"{options.faults} faults, seed {options.seed}", flush=True)
    for kind in SEEDS:
        undisturbed(kind)
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as own,
        bucket_server() as bucket,
        ThreadPoolExecutor(options.jobs) as pool,
    ):

        def one(k):
            began = time.monotonic()
            happened = injected(names[k % len(names)], options.seed * 100_000 + k, Path(own) / str(k), bucket)
            return k, time.monotonic() - began, happened

        chosen = [int(number) - 1 for number in options.numbers.split(",") if number] or range(options.faults)
        for k, took, (outcome, did, stall, said) in pool.map(one, chosen):
            table[names[k % len(names)]][outcome] += 1
            longest = max(longest, stall)
            print(f"[{k + 1}/{options.faults}] {outcome}: {did} ({took:.0f} s, stall {stall:.0f} s)", flush=True)
            if said:
                print("    " + " ".join(said.split())[-500:], flush=True)
    print(f"{'fault':16s}" + "".join(f"{outcome:>10s}" for outcome in OUTCOMES))
    for name, counts in table.items():
        print(f"{name:16s}" + "".join(f"{counts[outcome]:10d}" for outcome in OUTCOMES))
    bad = sum(counts[outcome] for counts in table.values() for outcome in ("refused", "lost", "wrong"))
    print(f"longest stall {longest:.0f} s; {bad} not survived; seed {options.seed}")
    return 1 if bad or longest > LONGEST_STALL else 0


if __name__ == "__main__":
    sys.exit(main())
