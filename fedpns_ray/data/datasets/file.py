"""Your own data, as arrays in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, field_validator

from fedpns_ray.atomic_file import refuse_irregular
from fedpns_ray.data.checking import checked_samples, count_classes
from fedpns_ray.data.interfaces import Dataset, Samples
from fedpns_ray.data.packing import bytes_of_arrays
from fedpns_ray.errors import InputError, one_line

NEEDED = ("train_x", "train_y", "test_x", "test_y")
OWNERS = "train_node"


class FileDataset(Dataset):
    """Your own: an .npz file with train_x, train_y, test_x, test_y and, if samples have owners, train_node."""

    name = "file"
    defaults: ClassVar[dict[str, Any]] = {"model": "mlr"}
    owners = True
    data_file: str = Field("", validate_default=True)
    """The .npz file, as numpy.savez or fedpns_ray.save_data writes it."""

    @field_validator("data_file", mode="before")
    @classmethod
    def _whole_path(cls, path: Any) -> Any:
        """The absolute path, since each trial of a study runs in its own folder."""
        if path == "":
            raise ValueError(f"dataset file needs the path of an .npz file with {', '.join(NEEDED)}")
        return str(Path(path).absolute()) if isinstance(path, (str, Path)) else path

    def bytes_held(self) -> int:
        return bytes_of_arrays(Path(self.data_file))

    def load(self) -> Samples:
        path = Path(self.data_file)
        arrays = read_arrays(path)
        for name in NEEDED:
            if name not in arrays:
                there = ", ".join(arrays) or "nothing"
                raise InputError("data_file", path, f"it holds {there}", problem=f"has no array {name}")
        classes = count_classes(arrays["train_y"], arrays["test_y"])
        return checked_samples(Samples(**arrays, classes=classes), "data_file", path)


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a data set in an .npz file; nothing in it is ever unpickled."""
    found: dict[str, Any] = {}
    reading = ""
    try:
        refuse_irregular(path.stat(), path)
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array; numpy.savez writes several")
            for name in (*NEEDED, OWNERS):
                if name in archive.files:
                    reading = f"{name}: "
                    found[name] = archive[name]
    except Exception as error:  # a damaged archive may raise anything, from zipfile's own errors to a MemoryError
        reason = one_line(getattr(error, "strerror", None) or error)
        raise InputError("data_file", path, problem=f"cannot be read ({reading}{reason})") from None
    return found
