"""One writer: a machine that was cut off, or a second command, does not overwrite what another one has written."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from fedpns_ray import Experiment, load, run
from fedpns_ray.records import claims
from fedpns_ray.records.claims import TakenError, new_claim, read_claim
from fedpns_ray.records.storage import Storage
from fedpns_ray.study import ownership, scratch
from fedpns_ray.study.ownership import Ownership
from fedpns_ray.study.scratch import Scratch
from fedpns_ray.terminal.command_line import main

E = Experiment(nodes=4, fraction=0.5, samples_per_node=40, epochs=1, rounds=8)


@pytest.fixture(params=["memory", "s3"])
def bucket(request, tmp_path):
    if request.param == "memory":
        return Storage(f"memory://owned-{tmp_path.name}")
    return Storage(request.getfixturevalue("s3") % f"owned-{tmp_path.name}")


@pytest.fixture(params=["path", "memory", "s3"])
def storage(request, tmp_path):
    if request.param == "path":
        return Storage(tmp_path / "study")
    return Storage(f"memory://{tmp_path.name}" if request.param == "memory" else request.getfixturevalue("s3") % "own")


@pytest.fixture
def quick(monkeypatch):
    for name, seconds in (("SIGN_EVERY", 0.1), ("LOOK_EVERY", 0.1), ("DEAD_AFTER", 3.0)):
        monkeypatch.setattr(ownership, name, seconds)


def half(path):
    """A run that ends after half of its rounds."""

    def on_round(record):
        if record["round"] == 5:
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        run(E, path, checkpoint_every=2, on_round=on_round, progress=False)


def test_a_trial_that_was_cut_off_does_not_overwrite_a_finished_one(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "PUSH_EVERY", 0.0)
    cut_off = Scratch(bucket, "trials/t")
    half(cut_off.path)
    elsewhere = Scratch(bucket, "trials/t")
    run(E, elsewhere.path, progress=False)
    elsewhere.close()
    names = bucket.names("trials/t")
    before = dict(zip(names, bucket.read_all(f"trials/t/{name}" for name in names), strict=True))
    assert "summary.json" in before
    for copy in (cut_off.push_if_due, cut_off.close):
        with pytest.raises(TakenError, match=r"/trials/t was taken over by process \d+ on .*, since 2.* UTC; this"):
            copy()
        assert before == dict(zip(names, bucket.read_all(f"trials/t/{name}" for name in names), strict=True))
    bucket.pull("trials/t", tmp_path / "t")
    assert load(tmp_path / "t").summary["weights_sha256"] == run(E, progress=False).summary["weights_sha256"]
    assert not cut_off.path.exists()


def test_it_is_looked_up_before_every_file(bucket, tmp_path):
    """The claim may change between two files."""
    first = Scratch(bucket, "trials/t")
    half(first.path)
    looks = []

    def take_over(storage, own, folder):
        looks.append(folder)
        if len(looks) == 3:
            Scratch(bucket, "trials/t").discard()
        claims.refuse_taken(storage, own, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "refuse_taken", take_over)
        with pytest.raises(TakenError):
            first.close()
    assert len(bucket.names("trials/t")) == 1 + 2  # the claim, and two files before it changed


def test_a_second_command_is_refused_while_the_first_lives(storage, quick):
    with Ownership(storage) as first:
        with pytest.raises(TakenError, match=rf"^out: .* is in use by process {os.getpid()} on .*; wait for it, stop"):
            Ownership(storage).refuse_living()
        first.check()
    storage.check()  # what is left is no reason to refuse the place
    with Ownership(storage) as second, pytest.raises(TakenError, match="was taken over"):
        second.check()
        first.check()  # it has ended, and must not come back


def test_an_owner_on_another_machine_lives_while_it_gives_signs(storage, quick, monkeypatch):
    cut_off, signing = threading.Event(), threading.Lock()
    first = Ownership(storage)
    give_sign = first._give_sign

    def sign_unless_cut_off(number):
        with signing:
            if not cut_off.is_set():
                give_sign(number)

    monkeypatch.setattr(first, "_give_sign", sign_unless_cut_off)
    with first:
        monkeypatch.setattr(claims, "this_machine", lambda: "another")
        monkeypatch.setattr(ownership, "_held", set())
        with pytest.raises(TakenError, match="is in use by"):
            Ownership(storage).refuse_living()
        with signing:  # no sign is on its way
            cut_off.set()
        with Ownership(storage) as second:
            deadline = time.monotonic() + 60
            while not first.lost and time.monotonic() < deadline:
                time.sleep(0.05)
            assert first.lost and not second.lost
            second.check()
            with pytest.raises(TakenError, match="was taken over"):
                first.check()
    assert read_claim(storage).id == second.id  # the first one's end has not overwritten it


HOLD = """
import sys, time
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.ownership import Ownership
with Ownership(Storage(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_an_owner_that_was_killed_on_this_machine_is_taken_over_at_once(tmp_path):
    place = Storage(tmp_path / "study")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "study")], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)  # alive, if frozen
        with pytest.raises(TakenError, match=f"is in use by process {holder.pid} on"):
            Ownership(place).refuse_living()
    finally:
        holder.kill()
        holder.wait()
    with Ownership(place) as here:
        here.check()
        assert [name for name in place.names() if name.startswith(".alive-")] == [f".alive-{here.id}"]
    assert place.names() == [".owner"]


def test_the_command_is_refused_in_one_line_before_ray_starts(tmp_path, quick, monkeypatch, capsys):
    (tmp_path / "s.yaml").write_text("base: {nodes: 4, samples_per_node: 40, rounds: 2}\n")
    monkeypatch.setenv("FEDPNS_JOB", "fedpns-s-1")
    with Ownership(Storage(tmp_path / "o")):
        assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fedpns: out: {tmp_path}/o is in use by job fedpns-s-1 (process {os.getpid()} on ")
    assert err.count("\n") == 1 and not (tmp_path / "o" / "study.yaml").exists()


@pytest.mark.parametrize("process", [-1, 2**31, 10**30])
def test_a_claim_of_an_impossible_process_is_none(tmp_path, process):
    claim = new_claim().model_copy(update={"process": process})
    (tmp_path / ".owner").write_text(claim.model_dump_json())
    assert read_claim(Storage(tmp_path)) is None and Ownership(Storage(tmp_path)).refuse_living() is None
