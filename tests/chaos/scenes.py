"""What is disturbed: a run on actors or a study on workers, as a user starts them, and the bits they must end with."""

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import psutil

from fedpns_ray import Experiment, run
from fedpns_ray.records.storage import Storage
from tests.bench import Bench
from tests.bucket import Doorway, bucket_uri
from tests.heads import ray_head

E = Experiment(strategy="fedpns", nodes=8, fraction=0.5, samples_per_node=400, epochs=2, rounds=200)
STUDY = "base: {nodes: 8, fraction: 0.5, samples_per_node: 400, epochs: 2, rounds: 200}\nseeds: 1-2\n"
SEEDS = {"run": (1,), "study": (1, 2)}
PATIENCE = 5
"""Seconds of silence after which a process counts as hung."""
DISK = "64m"
RESTARTS = 4
ENDED_WITHIN = 600.0


@cache
def undisturbed(kind):
    """The digests of the weights that a scene must end with, by seed."""
    return {seed: run(E.but(seed=seed), progress=False).summary.weights_sha256 for seed in SEEDS[kind]}


class Scene:
    """One command under way, on a small disk of its own, and on a Ray of its own or a cluster of two raylets.

    With `bucket`, the port of a server, a study is stored there, and reached through a doorway.
    """

    def __init__(self, folder, kind, machines=1, environment=None, bucket=None):
        self.folder, self.kind, self.held = folder, kind, ExitStack()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "e.yaml").write_text(E.to_yaml())
        (folder / "s.yaml").write_text(STUDY)
        self._mount(folder / "disk")
        words = ["run", "e.yaml", "--actors", "2"] if kind == "run" else ["study", "s.yaml"]
        self.doorway = Doorway(bucket) if bucket else None
        self.place = bucket_uri(self.doorway.port) % folder.name if bucket else str(folder / "disk" / "out")
        self.bench = Bench(folder, *words, "--out", self.place, "--patience", str(PATIENCE))
        self.bench.environment |= {"RAY_AUTH_MODE": "token", "TMPDIR": str(folder / "disk"), **(environment or {})}
        self.head = self.second = None
        if machines == 2:
            self.bench.command += ["--address", ""]
            self.start_cluster()
        self.ended = []
        """Exit codes and messages of the command so far."""
        self.process = self.bench.start()

    def _mount(self, disk):
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)], check=True)
        self.held.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)

    def start_cluster(self):
        """A head and a second machine; or the cluster again, as its owner would, after the head was lost."""
        self.head, self.port = self.held.enter_context(ray_head(self.bench.environment))
        self.bench.command[-1] = f"127.0.0.1:{self.port}"
        self.start_second()

    def start_second(self):
        """The second machine of the cluster, or that machine again."""
        ray = str(Path(sys.executable).with_name("ray"))
        command = [ray, "start", f"--address=127.0.0.1:{self.port}", "--num-cpus=2", "--block", "--disable-usage-stats"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.second = subprocess.Popen(command, env=self.bench.environment, **quiet)

    @property
    def out(self):
        return self.folder / "disk" / "out"

    @property
    def total(self):
        return E.rounds * len(SEEDS[self.kind])

    def rounds(self):
        while True:
            with suppress(FileNotFoundError):  # a folder went away while it was looked through
                return self.bench.lines()

    def wait(self, rounds, within=600):
        """Until so many rounds are recorded, or the command has ended."""
        deadline = time.monotonic() + within
        while self.rounds() < rounds and self.process.poll() is None:
            assert time.monotonic() < deadline, f"{self.rounds()} rounds within {within} s"
            time.sleep(0.02)

    def processes(self, *words):
        """Processes of the command and of its cluster whose title has one of these words."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("FEDPNS_TEST_MARK") == self.bench.mark
                if marked and any(word in " ".join(process.cmdline()) for word in words):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end(self, *words):
        """Kill these processes until none is left; some end by themselves meanwhile."""
        deadline = time.monotonic() + 60
        while (found := self.processes(*words)) and time.monotonic() < deadline:
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.05)

    def finish(self):
        """Bring the command to its end, started again where it must be: how often, and the longest stall."""
        longest = 0.0
        while True:
            last, since, began = self.rounds(), time.monotonic(), time.monotonic()
            while self.process.poll() is None:
                now = self.rounds()
                if now != last:
                    last, since = now, time.monotonic()
                longest = max(longest, time.monotonic() - since)
                if time.monotonic() - began > ENDED_WITHIN:
                    self.process.send_signal(signal.SIGKILL)
                time.sleep(0.1)
            self.ended.append((self.process.returncode, self.process.communicate()[1]))
            if self.process.returncode == 0 or len(self.ended) > RESTARTS:
                return len(self.ended) - 1, longest
            if self.head and self.head.poll() is not None:
                self.start_cluster()
            self.process = self.bench.start()

    def digests(self):
        """Of the weights, by seed."""
        if self.doorway:
            place = Storage(self.place)
            found = place.read_all(f"trials/{name}/summary.json" for name in place.names("trials"))
        else:
            found = [path.read_bytes() for path in self.out.rglob("summary.json")]
        summaries = [json.loads(content) for content in found]
        return {summary["seed"]: summary["weights_sha256"] for summary in summaries}

    def close(self):
        self.held.close()
        self.end("")
        shutil.rmtree(self.folder, ignore_errors=True)
