"""Shakespeare: the next character of a speaking role's lines (McMahan et al. 2017; Caldas et al. 2018, LEAF)."""

from __future__ import annotations

import hashlib
import re
import urllib.request
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.atomic_file import write_whole
from fedpns_ray.data.interfaces import Outline, Samples
from fedpns_ray.data.official.dataset import OfficialDataset
from fedpns_ray.data.packing import AGAIN, content, copies
from fedpns_ray.data.sources import data_root
from fedpns_ray.errors import InputError, Shown, one_line

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
"""Of the text: plays, the selection that character models are often shown with."""
CHARACTERS, VOCABULARY = 1_115_394, 65
"""How long that text is, and how many different characters it has."""
TRAIN_SHARE = 0.8
FEWEST = 5
"""Roles with fewer training samples than this are left out."""
TIMEOUT = 60.0


class ShakespeareDataset(OfficialDataset):
    """The next character of what a role in Shakespeare's plays says; every role is an owner (LEAF's task)."""

    name = "shakespeare"
    defaults: ClassVar[dict[str, Any]] = {"model": "char-lstm", "partition": "natural"}
    owners = True
    context: int = Field(80, ge=1, le=10_000)
    """Characters that the model sees of the text before the one to predict."""
    window_stride: int = Field(10, ge=1, le=10_000)
    """Characters from the start of one sample to the start of the next one of the same role."""
    test_samples: int = Field(10_000, ge=1, le=10_000_000)
    """The most samples of the test set, evenly spaced over the last 20 % of every role's text."""

    def outline(self) -> Outline:
        """The number of samples is an upper bound: none reaches from one role to the next."""
        samples = CHARACTERS // self.window_stride
        return Outline((self.context,), samples, VOCABULARY, tokens=VOCABULARY - 1, task="next-token")

    def bytes_held(self) -> int:
        """While they are made, samples of int64 exist twice: as windows of the text, and cut into what is seen."""
        return 2 * 8 * (self.context + 1) * self.outline().samples

    def load(self) -> Samples:
        root = data_root()
        if not list(copies(_path(root))):
            self.fetch(root)
        text = _read(root)
        vocabulary = sorted(set(text))
        owned = [_windows(_tokens(said, vocabulary), self.context, self.window_stride) for said in roles(text).values()]
        owned = [halves for halves in owned if len(halves[0]) >= FEWEST]
        if not owned or not sum(len(test) for _, test in owned):
            allowed = "no role says enough for a test sample of this length"
            raise InputError("context", self.context, allowed, "lower it")
        train, test = (np.concatenate(half) for half in zip(*owned, strict=True))
        test = test[np.linspace(0, len(test) - 1, min(len(test), self.test_samples)).round().astype(np.int64)]
        owner = np.repeat(np.arange(len(owned)), [len(half) for half, _ in owned])
        (train_x, train_y), (test_x, test_y) = _pairs(train), _pairs(test)
        return Samples(train_x, train_y, test_x, test_y, classes=len(vocabulary), train_node=owner, task="next-token")

    def standing(self, root: Path) -> str:
        return "ready" if list(copies(_path(root))) else ""

    def fetch(self, root: Path) -> Path:
        path = _path(root)
        if list(copies(path)):
            _read(root)
            return path
        try:
            with urllib.request.urlopen(URL, timeout=TIMEOUT) as answer:
                fetched = answer.read()
            path.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            problem = f"is not in {root} and could not be fetched ({one_line(error)})"
            hint = "with a network: `fedpns data fetch shakespeare`, or point FEDPNS_DATA at a folder that holds it"
            raise InputError("dataset", Shown(self.name), hint=hint, problem=problem) from None
        _refuse_other(fetched, Path(URL))
        write_whole(path, fetched)
        return path

    def verify(self, root: Path) -> str:
        if not list(copies(_path(root))):
            hint = f"`fedpns data fetch {self.name}`"
            raise InputError("dataset", Shown(self.name), hint=hint, problem=f"is not in {root}")
        _read(root)
        return "as published: its SHA-256 is the text's"


def roles(text: str) -> dict[str, str]:
    """What every role says: its speeches, one after another. A speech is a line "ROLE:" and those up to an empty one.

    Roles of the same name in several plays are one: the text does not say where a play begins.
    """
    said: dict[str, list[str]] = {}
    for speech in re.split(r"\n{2,}", text):
        head, _, lines = speech.partition("\n")
        if head.endswith(":") and lines:
            said.setdefault(head[:-1], []).append(lines)
    return {role: "\n".join(speeches) for role, speeches in said.items()}


def _windows(tokens: NDArray[np.int64], context: int, stride: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Samples of `context` characters and the next one, of the first 80 % of a role's text and of the rest."""
    cut = int(TRAIN_SHARE * len(tokens))
    halves = (tokens[:cut], tokens[cut:])
    empty = np.empty((0, context + 1), dtype=np.int64)
    train, test = (sliding_window_view(h, context + 1)[::stride] if len(h) > context else empty for h in halves)
    return train, test


def _pairs(windows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, -1])


def _tokens(text: str, vocabulary: list[str]) -> NDArray[np.int64]:
    """The place of every character in the sorted vocabulary."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    return np.searchsorted(np.array([ord(c) for c in vocabulary], dtype=np.uint32), codes).astype(np.int64)


def _path(root: Path) -> Path:
    return root / "shakespeare" / "input.txt"


def _read(root: Path) -> str:
    """The text, from whatever copy of it is there; every copy must be the text."""
    text = b""
    for copy in copies(_path(root)):
        text = content(copy)
        _refuse_other(text, copy)
    return text.decode()


def _refuse_other(text: bytes, where: Path) -> None:
    if hashlib.sha256(text).hexdigest() != SHA256:
        raise InputError("dataset", where, hint=AGAIN, problem="does not hold the text that was published")
