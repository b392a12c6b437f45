"""A finished run is believed only if its files are what its summary says."""

import json
from pathlib import Path

import pytest

from fedpns_ray import Experiment, InputError, load, run
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.terminal.command_line import main
from tests.test_run import untimed

E = Experiment(strategy="fedpns", nodes=12, fraction=0.5, samples_per_node=50, epochs=1, rounds=15)


def emptied(folder):
    (folder / "rounds.jsonl").write_bytes(b"")


def shortened(folder):
    lines = (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_bytes(b"".join(lines[:-3]))


def lengthened(folder):
    with (folder / "rounds.jsonl").open("a") as lines:
        lines.write('{"round": 16, "test_accuracy": 1.0}\n')


def garbled(folder):
    """Still JSON, still as many lines: another result."""
    text = (folder / "rounds.jsonl").read_text()
    first = json.loads(text.splitlines()[4])["test_accuracy"]
    (folder / "rounds.jsonl").write_text(text.replace(f'"test_accuracy": {first}', '"test_accuracy": 0.99'))


def torn(folder):
    text = (folder / "rounds.jsonl").read_text()
    (folder / "rounds.jsonl").write_text(text.replace('{"round": 7', '{"rou', 1))


def removed(folder):
    (folder / "rounds.jsonl").unlink()


def flipped(folder):
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-1000] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(content))


def cut(folder):
    content = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(content[: len(content) // 2])


def no_weights(folder):
    (folder / "weights.safetensors").unlink()


def half_a_summary(folder):
    content = (folder / "summary.json").read_bytes()
    (folder / "summary.json").write_bytes(content[: len(content) // 2])


def an_empty_summary(folder):
    (folder / "summary.json").write_bytes(b"")


RECORDS = (emptied, shortened, lengthened, garbled, torn, removed)
WEIGHTS = (flipped, cut, no_weights)
SUMMARY = (half_a_summary, an_empty_summary)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(E, tmp_path_factory.mktemp("whole") / "r")


@pytest.fixture
def damaged(whole, tmp_path):
    def make(deed):
        import shutil

        folder = tmp_path / "r"
        shutil.copytree(whole.out, folder)
        deed(folder)
        return folder

    return make


@pytest.mark.parametrize("deed", [*RECORDS, *WEIGHTS, *SUMMARY], ids=lambda deed: deed.__name__)
def test_running_it_again_mends_it(whole, damaged, deed, caplog):
    folder, again = damaged(deed), []
    result = run(E, folder, on_round=again.append)
    (said,) = caplog.records
    assert said.levelname == "WARNING" and f"{folder} is damaged: " in said.getMessage()
    # weights and summary come from the checkpoint; a line too many is dropped, as those before vouch for themselves
    assert bool(again) == (deed in RECORDS and deed is not lengthened)
    assert result.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert untimed(result.records) == untimed(whole.records) == untimed(load(folder).records)
    assert load(folder).weights.tobytes() == whole.weights.tobytes()
    assert run(E, folder).summary == result.summary and len(caplog.records) == 1


@pytest.mark.parametrize("deed", [*RECORDS, *WEIGHTS, *SUMMARY], ids=lambda deed: deed.__name__)
def test_reading_it_is_refused_by_name(damaged, deed):
    with pytest.raises(InputError, match=r"r(/summary.json)?: is damaged"):
        load(damaged(deed))


@pytest.mark.parametrize("deed", [*RECORDS, *SUMMARY], ids=lambda deed: deed.__name__)
def test_a_report_leaves_it_out_and_says_so(whole, damaged, deed, tmp_path, capsys):
    folder = damaged(deed)
    run(E.but(seed=2), tmp_path / "fine")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    said = capsys.readouterr().out
    assert "r was left out" in said and "damaged" in said and "1 runs" in said
    assert main(["report", str(folder), "--out", str(tmp_path / "r.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_runs_of_before_the_digest_are_checked_by_count(damaged):
    def older(folder: Path):
        summary = json.loads((folder / "summary.json").read_text())
        for key in ("records_sha256", "diverged", "non_finite_updates", "summary_sha256"):
            del summary[key]
        (folder / "summary.json").write_text(json.dumps(summary))

    folder = damaged(older)
    assert RunFolder(folder).damage() is None and load(folder).summary["rounds"] == E.rounds
    shortened(folder)
    assert RunFolder(folder).damage() == "rounds.jsonl holds 12 of 15 rounds"


def test_a_longer_run_does_not_build_on_damaged_records(whole, damaged):
    folder, again = damaged(garbled), []
    longer = run(E.but(rounds=20), folder, on_round=again.append)
    assert again[0]["round"] == 1 and untimed(longer.records[:15]) == untimed(whole.records)
