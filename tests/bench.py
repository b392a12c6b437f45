"""A command under test: started, watched, stopped, killed, and what it leaves behind."""

import os
import pty
import select
import subprocess
import sys
import time
import uuid

import psutil


class Bench:
    """A folder, a command, and a mark that every process of the command inherits."""

    def __init__(self, folder, *arguments):
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.command = [sys.executable, "-m", "fedpns_ray", *arguments]
        self.environment = {**os.environ, "FEDPNS_TEST_MARK": self.mark}
        self.environment.pop("RAY_ADDRESS", None)

    def start(self, *more):
        return subprocess.Popen(
            [*self.command, *more],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run_in_terminal(self, patience=600):
        """Run to the end in a pseudo-terminal: what was on the screen, and the exit code."""
        parent, child = pty.openpty()
        environment = {**self.environment, "TERM": "xterm", "COLUMNS": "120"}
        process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=environment,
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        screen, deadline = b"", time.monotonic() + patience
        while time.monotonic() < deadline:
            if select.select([parent], [], [], 0.2)[0]:
                try:
                    screen += os.read(parent, 65536)
                except OSError:
                    break
        os.close(parent)
        return screen.decode(errors="replace"), process.wait(timeout=60)

    def lines(self):
        """Rounds recorded in any run folder."""
        return sum(len(path.read_bytes().splitlines()) for path in self.folder.rglob("rounds.jsonl"))

    def wait_for_lines(self, process, count, within=240):
        deadline = time.monotonic() + within
        while self.lines() < count:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"{self.lines()} of {count} rounds within {within} s"
            time.sleep(0.02)

    def left_behind(self, within=120, agents=True):
        """Processes that still carry our mark after they have had time to end.

        Without a control store Ray's own two agents take a minute to go: they first try to tell it, though it is gone,
        too. So they may be left out.
        """
        deadline = time.monotonic() + within
        while True:
            left = [p for p in psutil.process_iter() if self._is_ours(p, agents)]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)

    def _is_ours(self, process, agents):
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.environ().get("FEDPNS_TEST_MARK") != self.mark:
                return False
            return agents or not process.name().endswith("Agent")
        except psutil.Error:
            return False
