"""CIFAR-10 and CIFAR-100: torchvision's python version, and CIFAR-10's binary version, both known by their content."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.atomic_file import read_whole, write_whole
from fedpns_ray.data.official.source import Official, download, md5_of, torchvision_class, verified_content
from fedpns_ray.data.packing import AGAIN
from fedpns_ray.errors import InputError, one_line

CIFAR10_BINARY = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256 of the files of CIFAR-10's binary version, which may also be stored packed, as .bin.xz for example."""


@dataclass(frozen=True)
class CifarSource:
    """The files of one of the two."""

    kind: str
    """torchvision's class."""
    stem: str
    """What the archive of the python version is called, without its ending."""
    folder: str
    binary: str = ""
    mean: float = 0.5
    deviation: float = 0.5
    classes: int = 10

    def there(self, root: Path) -> bool:
        folders = [root / name for name in (self.folder, self.binary) if name]
        return any(folder.is_dir() for folder in folders) or bool(self._archives(root))

    def read(self, root: Path, download: bool) -> Official:
        if self.binary and (root / self.binary).is_dir():
            return _binary(root / self.binary)
        return self._python(root, fetching=download)

    def _python(self, root: Path, fetching: bool) -> Official:
        """Batches with torchvision's MD5 sums, which are those of the unpacked files."""
        kind = torchvision_class(self.kind)
        batches = dict([*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])])
        if not (root / self.folder).is_dir():
            for archive in self._archives(root)[:1]:
                _unpack(archive, root / self.folder, batches)
        for name, md5 in batches.items():
            data = read_whole(root / self.folder / name)
            if data is not None and md5_of(data) != md5:
                problem = "does not have its official checksum"
                raise InputError("dataset", root / self.folder / name, hint=AGAIN, problem=problem)
        if fetching and not all((root / self.folder / name).exists() for name in batches):
            download(kind, root, train=True)

        def half(train: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
            found = kind(root, train=train)
            return np.ascontiguousarray(found.data.transpose(0, 3, 1, 2)), np.asarray(found.targets, dtype=np.int64)

        return Official(*half(train=True), *half(train=False))

    def _archives(self, root: Path) -> list[Path]:
        return sorted(path for path in root.glob(f"{self.stem}.t*") if path.is_file())


def _unpack(archive: Path, folder: Path, batches: dict[str, str]) -> None:
    """The batches of an archive, however it is compressed; nothing is written unless all are as published."""
    try:
        with tarfile.open(archive) as tar:
            members: dict[str, Any] = {name: tar.extractfile(f"{folder.name}/{name}") for name in batches}
            found = {name: member.read() if member else b"" for name, member in members.items()}
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        problem = f"is not the archive that was published ({one_line(error)})"
        raise InputError("dataset", archive, hint=AGAIN, problem=problem) from None
    for name, data in found.items():
        if md5_of(data) != batches[name]:
            problem = f"holds a {name} that does not have its official checksum"
            raise InputError("dataset", archive, hint=AGAIN, problem=problem)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in found.items():
        write_whole(folder / name, data)


def _binary(folder: Path) -> Official:
    """Records of one label byte and 3,072 pixel bytes, RGB planes, 10,000 per file."""

    def read(name: str) -> NDArray[np.uint8]:
        data = verified_content(folder / name, CIFAR10_BINARY[name])
        if data is None:
            raise FileNotFoundError(f"{folder / name} is missing")
        return np.frombuffer(data, dtype=np.uint8).reshape(10_000, 3_073)

    def split(records: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)

    *batches, test = (read(name) for name in CIFAR10_BINARY)
    return Official(*split(np.concatenate(batches)), *split(test))


CIFAR10 = CifarSource("CIFAR10", "cifar-10-python", "cifar-10-batches-py", "cifar-10-batches-bin")
CIFAR100 = CifarSource("CIFAR100", "cifar-100-python", "cifar-100-python", classes=100)
