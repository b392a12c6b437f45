"""Every file of a run folder, damaged in every way, under every reader: repaired, refused or left out, and said so."""

import os
import shutil
import signal

import numpy as np
import pytest
from rich.console import Console

from fedpns_ray import Experiment, InputError, Interrupted, load, run
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.terminal.watch import view
from tests.test_run import untimed

E = Experiment(strategy="fedpns", nodes=8, fraction=0.5, samples_per_node=30, epochs=1, rounds=9)
EVERY, STOPPED = 2, 7
"""Rounds between two checkpoints, and rounds of the unfinished run: its checkpoints stand for 6 and 7."""
WITHIN = 180


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x04
    path.write_bytes(bytes(content))


def without_a_key(path):
    if path.suffix == ".npz":
        with np.load(path) as state:
            kept = {key: state[key] for key in state.files if key != "weights"}
        np.savez(path, **kept)
    else:
        path.write_bytes(b'{"round": 1}\n' if path.suffix == ".jsonl" else b"{}")


def of_another_kind(path):
    """An archive with weights as text; a number where there should be an object."""
    if path.suffix == ".npz":
        with np.load(path) as state:
            found = {key: state[key] for key in state.files}
        np.savez(path, **found | {"weights": found["weights"].astype(str)})
    else:
        path.write_bytes(b"5\n")


def replaced_by(make):
    def deed(path):
        path.unlink()
        make(path)

    return deed


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2]),
    "flipped": flipped,
    "garbage": lambda path: path.write_bytes(b"\xff\xfe\x00PK\x03\x04" * 40),
    "not UTF-8": lambda path: path.write_bytes(path.read_bytes() + b"\xff\xfe\n"),
    "without a key": without_a_key,
    "of another kind": of_another_kind,
    "endless": lambda path: os.truncate(path, 2**40),  # which takes no place on the disk, but would in memory
    "FIFO": replaced_by(os.mkfifo),
    "folder": replaced_by(lambda path: path.mkdir()),
    "loop": replaced_by(lambda path: path.symlink_to(path.name)),
    "device": replaced_by(lambda path: path.symlink_to("/dev/zero")),
}
FILES = {
    "finished": ("config.yaml", "schema.json", "rounds.jsonl", "summary.json", "weights.safetensors", "checkpoint.npz"),
    "unfinished": ("config.yaml", "schema.json", "rounds.jsonl", "checkpoint.npz", "checkpoint.previous.npz", ".lock"),
}
MATRIX = [(state, name, how) for state, names in FILES.items() for name in names for how in DAMAGES]
MATRIX = [(state, name, how) for state, name, how in MATRIX if not (name == ".lock" and how in ("flipped",))]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    root = tmp_path_factory.mktemp("originals")
    seen = []
    run(E, root / "finished", checkpoint_every=EVERY)
    with pytest.raises(Interrupted):
        run(E, root / "unfinished", checkpoint_every=EVERY, on_round=seen.append, stop=lambda: len(seen) >= STOPPED)
    run(E.but(seed=2), root / "fine")
    return root


@pytest.fixture
def damaged(originals, tmp_path):
    def make(state, name, how):
        for one in (state, "fine"):
            shutil.rmtree(tmp_path / one, ignore_errors=True)
            shutil.copytree(originals / one, tmp_path / one)
        DAMAGES[how](tmp_path / state / name)
        return tmp_path / state

    return make


@pytest.fixture(autouse=True)
def in_time():
    """A reader that opens a FIFO waits for ever."""

    def too_long(number, frame):
        raise AssertionError(f"it hangs: {frame}")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(WITHIN)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def matters(state, name, how):
    """Whether a run that resumes must say something: the rest is written again, or not read."""
    if name in ("schema.json", "checkpoint.previous.npz", ".lock") or (state == "finished" and "checkpoint" in name):
        return False
    if (name, how) == ("checkpoint.npz", "not UTF-8"):
        return False  # bytes after the end of an archive change nothing in it
    return not (state == "finished" and name == "summary.json" and how == "missing")  # then it is one unfinished


@pytest.mark.parametrize(("state", "name", "how"), MATRIX, ids=lambda value: str(value).replace(" ", "-"))
def test_run_repairs_it_to_the_same_bits_or_refuses_in_one_line(originals, damaged, state, name, how, caplog):
    folder, whole = damaged(state, name, how), load(originals / "finished")
    try:
        result = run(E, folder, progress=False)
    except InputError as refusal:
        assert "\n" not in str(refusal) and len(str(refusal)) < 700
        assert name == "config.yaml" or how in ("folder", "FIFO", "loop", "device"), str(refusal)
        return
    assert untimed(result.records) == untimed(whole.records)
    assert result.weights.tobytes() == whole.weights.tobytes() == load(folder).weights.tobytes()
    assert bool(caplog.records) or not matters(state, name, how)


@pytest.mark.parametrize(("state", "name", "how"), MATRIX, ids=lambda value: str(value).replace(" ", "-"))
def test_report_watch_and_load_leave_it_out_and_say_so(originals, damaged, state, name, how):
    folder = damaged(state, name, how)
    gathered = gather([folder.parent])
    console = Console(width=300, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(view(gathered))
    shown = {one.name: one for one in gathered.runs}
    assert "fine" in shown  # whatever became of the other
    left_out = [note for note in gathered.notes if note.startswith(f"{state} was left out: ")]
    assert [note for note in console.export_text().splitlines() if note.startswith(f"{state} was left out")] == left_out
    if state in shown:  # then what is shown is true
        whole = untimed(load(originals / "finished").records)
        assert untimed(shown[state].records) == whole[: len(shown[state].records)]
        assert not shown[state].over or len(shown[state].records) == E.rounds
    else:
        assert left_out or (name, how) == ("config.yaml", "missing")
    try:
        assert untimed(load(folder).records) == untimed(load(originals / "finished").records)
    except InputError as refusal:
        assert "\n" not in str(refusal)


@pytest.mark.parametrize("how", ["edited", "swapped", "dropped", "forged"])
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_lines_that_were_changed_are_noticed(originals, tmp_path, state, how, caplog):
    """Each is JSON with the right keys; in an unfinished run nothing but the chain tells."""
    folder = tmp_path / state
    shutil.copytree(originals / state, folder)
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if how == "edited":
        lines[2] = lines[2].replace('"test_accuracy": 0.', '"test_accuracy": 0.9')
    elif how == "swapped":
        lines[2], lines[3] = (
            lines[3].replace('"round": 4', '"round": 3'),
            lines[2].replace('"round": 3', '"round": 4'),
        )
    elif how == "dropped":
        del lines[2]
    else:
        lines[2] = lines[2].partition(', "chain"')[0] + "}\n"
    path.write_text("".join(lines))
    with pytest.raises(InputError, match=r"is damaged \(line 3 of rounds.jsonl is not as it was written\)"):
        gather([folder])
    result = run(E, folder, progress=False)
    (said,) = caplog.messages
    assert "line 3 of rounds.jsonl is not as it was written" in said
    assert untimed(result.records) == untimed(load(originals / "finished").records)


def test_a_checkpoint_of_other_records_is_not_used(originals, tmp_path, caplog):
    """Right in form, and from another run."""
    other, seen = tmp_path / "other", []
    with pytest.raises(Interrupted):
        run(E.but(seed=3), other, on_round=seen.append, stop=lambda: len(seen) >= STOPPED)
    shutil.copytree(originals / "unfinished", tmp_path / "r")
    shutil.copy(other / "checkpoint.npz", tmp_path / "r" / "checkpoint.npz")
    result = run(E, tmp_path / "r", progress=False)
    assert "checkpoint.npz belongs to other records; it resumes after round 6" in caplog.text
    assert result.weights.tobytes() == load(originals / "finished").weights.tobytes()


def test_all_files_of_a_run_have_the_same_permissions(originals):
    before = os.umask(0)
    os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (originals / "finished").iterdir()}
    assert set(modes.values()) == {0o666 & ~before}, modes
