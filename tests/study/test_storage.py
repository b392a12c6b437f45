"""Where a study may lie: a folder, a bucket, what fsspec knows."""

import pickle

import pytest

from fedpns_ray import InputError
from fedpns_ray.records.storage import Storage


@pytest.fixture(params=["path", "memory", "s3"])
def storage(request, tmp_path):
    if request.param == "path":
        return Storage(tmp_path / "a" / "study")
    if request.param == "memory":
        return Storage(f"memory://{tmp_path.name}")
    return Storage(request.getfixturevalue("s3") % tmp_path.name)


def test_files_and_folders(storage, tmp_path):
    storage.check()  # nothing there yet
    assert storage.read("study.yaml") is None and storage.names("trials") == []
    storage.write("study.yaml", b"one")
    storage.write("study.yaml", b"two")
    assert storage.read("study.yaml") == b"two" and storage.read_all(["nothing", "study.yaml"]) == [None, b"two"]
    run = tmp_path / "run"
    run.mkdir()
    for name in ("rounds.jsonl", "summary.json", "checkpoint.npz", ".lock"):
        (run / name).write_text(name)
    storage.push("trials/t1", run)
    assert storage.names("trials") == ["t1"]
    assert storage.names("trials/t1") == ["checkpoint.npz", "rounds.jsonl", "summary.json"]
    storage.pull("trials/t1", tmp_path / "back")
    assert (tmp_path / "back" / "rounds.jsonl").read_text() == "rounds.jsonl"
    storage.delete("study.yaml")
    with pytest.raises(InputError, match=r"is not empty and holds no study"):
        storage.check()


def test_travels_by_its_address(storage):
    copy = pickle.loads(pickle.dumps(storage))
    copy.write("x", b"1")
    assert storage.read("x") == b"1"


def test_bad_addresses(tmp_path):
    with pytest.raises(InputError, match=r"^out: nothing://x is not allowed"):
        Storage("nothing://x").names()
    with pytest.raises(InputError, match=r"^out: s3://no-such-bucket/x.* cannot be used"):
        Storage("s3://k:s@no-such-bucket/x?scheme=http&endpoint_override=127.0.0.1%3A1").write("x", b"")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"is a file; name a folder"):
        Storage(tmp_path / "file").check()
