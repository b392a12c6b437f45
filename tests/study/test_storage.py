"""Where a study may lie: a folder, a bucket, what fsspec knows."""

import pickle
import socket
import time

import pytest

from fedpns_ray import InputError
from fedpns_ray.records import storage as storage_module
from fedpns_ray.records.storage import Storage
from fedpns_ray.study import scratch as scratch_module
from fedpns_ray.study.scratch import Scratch
from fedpns_ray.terminal.command_line import main
from tests.bucket import Doorway, bucket_server, bucket_uri


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


def test_a_silent_bucket_is_given_up(monkeypatch, capsys):
    """It accepts connections and never answers."""
    monkeypatch.setattr(storage_module, "ANSWERED_WITHIN", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = bucket_uri(silent.getsockname()[1]) % "study"
        for ask in (Storage.names, lambda s: s.read("x"), lambda s: s.write("x", b""), lambda s: s.delete("x")):
            with pytest.raises(InputError, match=r"did not answer within 0 s|did not answer within 1 s"):
                ask(Storage(place))
        began = time.monotonic()
        assert main(["report", place]) == 2 and time.monotonic() - began < 60
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and "did not answer" in err and "k:s@" not in err


@pytest.mark.parametrize("place", ["abfs://KEY:SECRET@b/x", "github://x:SECRET@/z", "nothing://x"])
def test_a_scheme_that_cannot_be_used_is_one_line(place, capsys):
    assert main(["report", place]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Traceback" not in err and "SECRET" not in err


def test_what_cannot_be_copied_now_is_copied_later(monkeypatch, caplog):
    monkeypatch.setattr(scratch_module, "PUSH_EVERY", 0.0)
    monkeypatch.setattr(scratch_module, "RETRY_EVERY", 0.2)
    with bucket_server() as port:
        doorway = Doorway(port)
        storage = Storage(bucket_uri(doorway.port) % "study")
        scratch = Scratch(storage, "trials/t")
        (scratch.path / "rounds.jsonl").write_text("one")
        doorway.shut()
        scratch.push_if_due()  # no error
        assert "the trial continues" in caplog.text
        doorway.open()
        scratch.close()
        assert storage.read("trials/t/rounds.jsonl") == b"one" and not scratch.path.exists()
        monkeypatch.setattr(scratch_module, "RETRIED_FOR", 0.5)
        doorway.shut()
        with pytest.raises(InputError, match="cannot be used"):
            Scratch(storage, "trials/t")


def test_a_buckets_own_time_out_is_told_in_its_own_words():
    """It is not our limit, after which a bucket that says nothing is given up."""

    def refuse():
        raise TimeoutError(110, "Connection timed out")

    with pytest.raises(InputError, match=r"out: .* cannot be used \(Connection timed out\)"):
        Storage("s3://bucket/study")._answer(refuse)
