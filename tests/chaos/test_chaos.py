"""A short selection of `make chaos`: one fault of most kinds, at moments that the seed decides."""

import os

import pytest

from tests.bucket import bucket_server
from tests.chaos.__main__ import LONGEST_STALL, injected
from tests.conftest import missing


@pytest.fixture(scope="module")
def bucket():
    if os.geteuid():
        missing("faults of disks are injected as root")
    with bucket_server() as port:
        yield port


@pytest.mark.parametrize(
    ("name", "seed"),
    [("kill", 0), ("full disk", 2), ("failing storage", 1), ("failing storage", 0), ("damage", 5), ("lost machine", 7)],
)
def test_a_fault_changes_no_bit(name, seed, bucket, tmp_path):
    outcome, did, stall, said = injected(name, seed, tmp_path / "scene", bucket)
    assert outcome in ("survived", "resumed"), f"{outcome}: {did}: {said}"
    assert stall < 3 * LONGEST_STALL  # beside other tests; `make chaos` has the machine to itself
