"""A partition that is kept in a file: node → positions of its samples in the training set."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedpns_ray.atomic_file import read_whole, replacing
from fedpns_ray.data.holdings import Holdings, Positions
from fedpns_ray.data.interfaces import Held, Partition, Samples
from fedpns_ray.errors import InputError, one_line

FORMATS = (".json", ".parquet")


class FilePartition(Partition):
    """Your own: a JSON or Parquet file of node → sample indices; sizes are those of the file."""

    name = "file"
    sized = True
    partition_file: str = ""
    """JSON ({"0": [3, 17], "1": …} or a list of lists), or Parquet with the columns node and sample."""
    iid_count: int = Field(0, ge=0, le=10_000_000)
    """How many nodes, the first ones, are counted as i.i.d."""

    @field_validator("partition_file")
    @classmethod
    def _whole_path(cls, path: str) -> str:
        """The absolute path, since each trial of a study runs in its own folder."""
        return path and str(Path(path).absolute())

    def check(self, classes: int, samples_per_node: int) -> None:
        path = Path(self.partition_file)
        if not self.partition_file:
            needed = "partition file needs a JSON or Parquet file of node → sample indices"
            raise InputError("partition_file", allowed=needed, problem="is missing")
        if path.suffix not in FORMATS:
            raise InputError("partition_file", path, f"it must end in {' or '.join(FORMATS)}")

    def iid_nodes(self, nodes: int) -> int:
        return min(self.iid_count, nodes)

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
        held = read(Path(self.partition_file))
        if len(held) != len(sizes):
            allowed = f"{self.partition_file} has {len(held)} nodes"
            raise InputError("nodes", len(sizes), allowed, f"use --nodes {len(held)}")
        return held


def read(path: Path) -> list[Positions]:
    """The samples of each node, as a file has them."""
    try:
        content = read_whole(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _from_parquet(io.BytesIO(content)) if path.suffix == ".parquet" else _from_json(json.loads(content))
    except InputError as error:
        raise error.at(str(path)) from None
    except Exception as error:  # whatever a damaged file does to its reader
        reason = one_line(getattr(error, "strerror", None) or error)
        raise InputError("partition_file", path, problem=f"cannot be read ({reason})") from None


def _from_json(found: Any) -> list[Positions]:
    if isinstance(found, dict):
        missing = next((k for k in range(len(found)) if str(k) not in found), None)
        if missing is not None:
            raise InputError("node", missing, "nodes are named 0, 1, 2, …", problem="is missing")
        found = [found[str(k)] for k in range(len(found))]
    if not isinstance(found, list):
        raise InputError("partition_file", allowed="it must be lists of sample indices, one per node")
    for node, own in enumerate(found):
        whole = isinstance(own, list) and all(type(index) is int for index in own)
        if not whole:
            raise InputError(f"node {node}", problem="its samples must be a list of whole numbers")
    return [np.array(own, dtype=np.int64) for own in found]


def _from_parquet(file: IO[bytes]) -> list[Positions]:
    import pyarrow.parquet as parquet

    table = parquet.read_table(file, columns=["node", "sample"])
    nodes, positions = (table.column(name).to_numpy() for name in ("node", "sample"))
    if nodes.dtype.kind not in "iu" or positions.dtype.kind not in "iu" or (len(nodes) and nodes.min() < 0):
        raise InputError("partition_file", allowed="the columns node and sample must be whole numbers from 0")
    counts = np.bincount(nodes.astype(np.int64), minlength=1) if not len(nodes) or nodes.max() < 10**7 else None
    if counts is None:
        raise InputError("node", int(nodes.max()), "nodes are named 0, 1, 2, …")
    order = np.argsort(nodes, kind="stable")
    return np.split(positions[order].astype(np.int64), np.cumsum(counts)[:-1])


def write(path: Path, held: Holdings) -> None:
    """The samples of each node, as `read` takes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        if path.suffix == ".json":
            lines = (f'"{node}": {json.dumps(own.tolist())}' for node, own in enumerate(held))
            Path(partial).write_text("{" + ",\n".join(lines) + "}\n")
            return
        import pyarrow as pa
        import pyarrow.parquet as parquet

        nodes = np.repeat(np.arange(len(held), dtype=np.int32), held.sizes)
        parquet.write_table(pa.table({"node": nodes, "sample": held.of(0, len(held))}), partial)
