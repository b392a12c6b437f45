"""A small cloud: it starts and ends hosts of this machine when Ray's autoscaler asks, or refuses in a cloud's words."""

import contextlib
import shutil
import threading
from multiprocessing.connection import Listener
from typing import Any, NamedTuple

from ray.autoscaler.tags import TAG_RAY_USER_NODE_TYPE

from tests.cluster.hosts import HERE, Hosts


class Ended(NamedTuple):
    machine: str
    kind: str
    by: str
    """The program that asked for it."""


class Cloud:
    def __init__(self, hosts: Hosts):
        self._hosts, self._lock = hosts, threading.Lock()
        self._number = 0
        self._refusals: dict[str, tuple[str, str]] = {}
        self.machines: dict[str, dict[str, str]] = {}
        """Machines that are on, by name: their tags."""
        self.started: list[tuple[str, str, Any]] = []
        """Name, kind and configuration of every machine that was started."""
        self.ended: list[Ended] = []
        self.refused = 0
        shutil.copy(HERE / "cloud_provider.py", hosts.shared)
        socket = hosts.shared / "cloud"
        self.provider = {"type": "external", "module": "cloud_provider.CloudProvider", "socket": str(socket)}
        self._listener = Listener(str(socket))
        threading.Thread(target=self._serve, daemon=True).start()

    def refuse_next(self, kind: str, code: str, words: str) -> None:
        self._refusals[kind] = code, words

    def kinds(self) -> dict[str, str]:
        """Machines that are on, by name: their kind."""
        return {name: tags[TAG_RAY_USER_NODE_TYPE] for name, tags in list(self.machines.items())}

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client = self._listener.accept()
                with contextlib.suppress(EOFError, OSError), client:
                    verb, *request = client.recv()
                    with self._lock:
                        client.send(getattr(self, f"_{verb}")(*request))

    def _machines(self) -> dict[str, dict[str, str]]:
        return self.machines

    def _address(self, name: str) -> str:
        return self._hosts.addresses[name]

    def _tag(self, name: str, tags: dict[str, str]) -> None:
        if name in self.machines:
            self.machines[name] |= tags

    def _create(self, config: Any, tags: dict[str, str], count: int) -> tuple[str, str] | None:
        kind = tags[TAG_RAY_USER_NODE_TYPE]
        if refusal := self._refusals.pop(kind, None):
            self.refused += 1
            return refusal
        for _ in range(count):
            self._number += 1
            name = f"m{self._number}"
            self._hosts.add(name)
            self.started.append((name, kind, config))
            self.machines[name] = dict(tags)
        return None

    def _terminate(self, name: str, by: str) -> None:
        if tags := self.machines.pop(name, None):
            self.ended.append(Ended(name, tags[TAG_RAY_USER_NODE_TYPE], by))
            threading.Thread(target=self._hosts.remove, args=(name,)).start()  # the head asks for its own end
