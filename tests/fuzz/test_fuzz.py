"""Thousands of commands that nobody would type: each works, or ends with exit code 2 (or 3) and one line, soon.

`make fuzz` runs them all with a new seed, which it prints; in CI a few hundred run, always the same.
"""

import contextlib
import io
import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fedpns_ray import Experiment, InputError, Interrupted, run
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.ownership import Ownership
from fedpns_ray.terminal.command_line import main
from tests.fuzz import cases

CASES = int(os.environ.get("FUZZ_CASES", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
WITHIN = int(os.environ.get("FUZZ_WITHIN", "120"))
"""Seconds for one case: 20 are promised (`make fuzz`), and more allowed where other tests share the machine."""
STRATEGIES = ["fedpns", "scaffold"]
"""One that keeps probabilities, one whose nodes keep states."""
TINY = [word for key, value in cases.TINY.items() for word in (f"--{key.replace('_', '-')}", str(value))]
DATA = [f"--{key}={cases.TINY[key.replace('-', '_')]}" for key in ("nodes", "samples-per-node")]
"""Of these, what `data show` knows."""
ENDS = {0: "worked", 1: "differed", 2: "refused", 3: "diverged"}
outcomes: Counter[str] = Counter()
begun: Counter[str] = Counter()


class Hang(BaseException):
    """Not an Exception, so that nothing under test handles it."""


def thorough(share):
    """A fraction of all cases."""

    def decorate(test):
        options = settings(
            max_examples=max(1, int(share * CASES)),
            deadline=None,
            database=None,
            derandomize=CASES < 1000,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink] if CASES < 1000 else [Phase.generate],
        )
        return options(seed(SEED)(test) if CASES >= 1000 else test)

    return decorate


@pytest.fixture(scope="module", autouse=True)
def counted():
    yield
    ends = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    broken = begun.total() - outcomes.total()
    print(
        f"\nfuzz: {begun.total()} cases, seed {SEED if CASES >= 1000 else 'fixed'}: {ends}; {broken} broke the promise"
    )


def held_to(words, kind, codes=(0, 2, 3)):
    """Run a command; returns its exit code once it has kept its promise."""

    def too_long(number, frame):
        raise Hang(f"{words} took more than {WITHIN} s")

    begun[kind] += 1
    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(WITHIN)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(words)
            except SystemExit as end:
                code = end.code
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    said = err.getvalue()
    assert code in codes, (words, code, said)
    assert "Traceback" not in said + out.getvalue(), (words, said)
    assert "verysecret" not in said + out.getvalue(), (words, said)
    if code == 2:
        last = said.rstrip("\n").splitlines()[-1]
        assert last.startswith("fedpns: ") and said.count("\nfedpns: ") + said.startswith("fedpns: ") == 1, (
            words,
            said,
        )
    outcomes[f"{kind} {ENDS[code]}"] += 1
    return code


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to work in, with tiny data sets of the right form, and finished and unfinished runs."""
    root = tmp_path_factory.mktemp("fuzz")
    rng = np.random.default_rng(1)
    (root / "data").mkdir()
    for name, shape in (("mnist", (1, 28, 28)), ("fashion-mnist", (1, 28, 28)), ("cifar10", (3, 32, 32))):
        x, y = rng.integers(0, 256, (600, *shape), dtype=np.uint8), np.arange(600) % 10
        np.savez(root / "data" / f"{name}.npz", train_x=x[:500], train_y=y[:500], test_x=x[500:], test_y=y[500:])
    for strategy in STRATEGIES:
        experiment = Experiment(**cases.TINY | {"rounds": 4, "strategy": strategy})
        run(experiment, root / f"{strategy} finished", checkpoint_every=1)
        seen = []
        with contextlib.suppress(Interrupted):
            out = root / f"{strategy} unfinished"
            run(experiment, out, checkpoint_every=1, on_round=seen.append, stop=lambda: len(seen) >= 3)  # noqa: B023
    before, here = os.environ.get("FEDPNS_DATA"), Path.cwd()
    os.environ["FEDPNS_DATA"] = str(root / "data")
    os.environ["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:1"  # where nothing answers
    os.chdir(root)
    yield root
    del os.environ["RAY_API_SERVER_ADDRESS"]
    os.chdir(here)
    if before is None:
        del os.environ["FEDPNS_DATA"]
    else:
        os.environ["FEDPNS_DATA"] = before


@pytest.fixture
def scratch(place):
    """Emptied before every case."""

    def make():
        shutil.rmtree(place / "scratch", ignore_errors=True)
        (place / "scratch").mkdir()
        os.chdir(place)
        return place / "scratch"

    return make


@thorough(0.2)
@given(words=cases.flags, command=st.sampled_from(["run", "run", "data show"]))
def test_flags(scratch, words, command):
    out = scratch() / "out"
    end = ["--in-process", "--out", str(out)] if command == "run" else ["--out", f"{out}.png"]
    held_to([*command.split(), *end, *(TINY if command == "run" else DATA), *words], "flags")


@thorough(0.15)
@given(text=cases.texts(cases.configurations))
def test_configurations(scratch, text):
    (scratch() / "c.yaml").write_bytes(text)
    held_to(["run", "scratch/c.yaml", "--in-process", "--out", "scratch/out", *TINY], "configurations")


@thorough(0.15)
@given(text=cases.texts(cases.studies), reader=st.sampled_from(["study", "study", "report"]))
def test_studies(place, scratch, text, reader):
    """Read and expanded, then refused: there is nothing to resume."""
    here = scratch()
    (here / "study.yaml").write_bytes(text)
    if reader == "report":
        shutil.copytree(place / "fedpns finished", here / "trials" / "one")
        held_to(["report", "scratch", "--out", "scratch/r.html"], "studies")
    else:
        held_to(["study", "scratch/study.yaml", "--resume", "--out", "scratch/none"], "studies")


@thorough(0.1)
@given(words=cases.later_commands)
def test_later_commands(place, scratch, words):
    """`same`, `verify` and `jobs`, with folders, numbers and addresses that make no sense."""
    shutil.copytree(place / "fedpns finished", scratch() / "fine")
    held_to(words, "commands", (0, 1, 2))


@thorough(0.1)
@given(content=cases.claims)
def test_claims(scratch, content):
    """Whatever `.owner` of a study holds: it belongs to somebody, or to nobody."""
    here = scratch()
    cases.damage(here / ".owner", *content) if isinstance(content, tuple) else (here / ".owner").write_bytes(content)
    os.chdir(here.parent)
    begun["claims"] += 1
    try:
        Ownership(Storage(here), stop=lambda: True).refuse_living()
        outcomes["claims worked"] += 1
    except InputError:
        outcomes["claims refused"] += 1


FILES = ["config.yaml", "schema.json", "rounds.jsonl", "summary.json", "weights.safetensors", "checkpoint.npz",
         "checkpoint.previous.npz", ".lock"]  # fmt: skip


@thorough(0.25)
@given(
    strategy=st.sampled_from(STRATEGIES),
    which=st.sampled_from(["finished", "unfinished"]),
    done=st.lists(st.tuples(st.sampled_from(FILES), cases.deeds), min_size=1, max_size=2),
    reader=st.sampled_from(["run", "run", "report", "watch", "same", "verify"]),
)
def test_folders(place, scratch, strategy, which, done, reader):
    here, whole = scratch(), place / f"{strategy} finished"
    shutil.copytree(place / f"{strategy} {which}", here / "r")
    shutil.copytree(whole, here / "fine")
    config = here / "fine" / "config.yaml"
    config.write_text(config.read_text().replace("seed: 1", "seed: 2"))
    for name, (how, at, junk) in done:
        if not (here / "r" / name).is_dir():
            cases.damage(here / "r" / name, how, at, junk)
    os.chdir(place)
    if reader == "run":
        words = ["run", "--in-process", "--strategy", strategy, "--out", "scratch/r", "--json", *TINY, "--rounds", "4"]
        if held_to(words, "folders") == 0:
            again = (here / "r" / "summary.json").read_text(), (whole / "summary.json").read_text()
            assert [text.partition('"weights_sha256": ')[2][:66] for text in again] == [SHA(again[1])] * 2
    elif reader == "report":
        assert held_to(["report", "scratch", "--out", "r.html"], "folders") == 0  # the other run is fine
    elif reader == "watch":
        assert held_to(["watch", "scratch", "--once"], "folders") == 0
    elif reader == "same":
        held_to(["same", "scratch/r", str(whole)], "folders", (0, 1, 2))
    else:
        held_to(["verify", "scratch/r", "--in-process"], "folders", (0, 1, 2))


def SHA(summary):  # noqa: N802
    return summary.partition('"weights_sha256": ')[2][:66]


@thorough(0.05)
@given(deed=cases.deeds, action=st.sampled_from(["run", "data show"]), what=st.sampled_from(["mnist", "devices"]))
def test_data_files(place, scratch, deed, action, what):
    here, (how, at, junk) = scratch(), deed
    if what == "mnist":
        shutil.copytree(place / "data", here / "data")
        file, words = here / "data" / "mnist.npz", ["--dataset", "mnist", "--set", "model=mlr"]
    else:
        file, words = here / "d.csv", ["--set", "devices=file", "--set", "device_file=scratch/d.csv"]
        file.write_text("node,speed,uplink\n" + "".join(f"{k},100,1000\n" for k in range(4)))
    if how == "gone":
        return
    cases.damage(file, how, at, junk)
    os.chdir(place)
    end = ["--in-process", "--out", "scratch/o"] if action == "run" else []
    os.environ["FEDPNS_DATA"] = str(here / "data" if what == "mnist" else place / "data")
    try:
        held_to([*action.split(), *end, *(TINY if action == "run" else DATA), *words], "data")
    finally:
        os.environ["FEDPNS_DATA"] = str(place / "data")
