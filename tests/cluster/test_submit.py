"""What is refused before anything is sent, and what is fetched."""

import io
import zipfile

import pytest

from fedpns_ray import InputError
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.submission import pack
from fedpns_ray.terminal import study
from fedpns_ray.terminal.command_line import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "out: nothing is not allowed together with --submit; it must be a URI"),
        (["--out", "runs/s"], "out: runs/s is not allowed together with --submit"),
        (["--out", "/shared/s", "--address", "auto"], "address: auto is not allowed together with --submit"),
        (["--out", "/shared/s", "--json"], "json: True is not allowed together with --submit"),
        (["--out", "/shared/s", "--only", "sigma=7"], "only: no trial has sigma 7"),
        (["--out", "/shared/s"], "submit: http://127.0.0.1:9 does not accept jobs ("),
        (["--out", "/shared/s", "--submit", "127.0.0.1:9"], "submit: 127.0.0.1:9 is not allowed; it must be like http"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("base: {rounds: 2}\n")
    assert main(["study", "s.yaml", "--submit", "http://127.0.0.1:9", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"fedpns: {message}") and said.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize("submit", [["--submit", "http://127.0.0.1:9"], ["--submit=http://127.0.0.1:9"]])
def test_the_words_that_were_typed_travel(tmp_path, monkeypatch, submit):
    """A flag that is added later travels, too."""
    sent = []

    class Recorder:
        def __init__(self, address, words, study, out):
            sent.append((address, words, str(study), out))
            raise InputError("submit", problem="is only tried here")

    def more(parser, add_arguments=study.add_arguments):
        add_arguments(parser)
        parser.add_argument("--brand-new")

    monkeypatch.setattr(study, "add_arguments", more)
    monkeypatch.setattr("fedpns_ray.study.submission.Submission", Recorder)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("base: {rounds: 2}\n")
    typed = ["s.yaml", "--out=/shared/s", "--brand-new", "7", "--seeds", "1-2", "--set", "sigma=0.5", "--verbose"]
    assert main(["study", *typed[:2], *submit, *typed[2:]]) == 2
    assert sent == [("http://127.0.0.1:9", ["study", *typed], "s.yaml", "/shared/s")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "out: nothing is not allowed together with --submit; it must be the absolute path of a folder on the"),
        (["--out", "s3://k:secret@b/r"], "out: s3://b/r is not allowed together with --submit"),
        (["--out", "/r", "--in-process"], "in_process: True is not allowed together with --submit"),
        (["--out", "/r", "--address", "auto"], "address: auto is not allowed together with --submit"),
        (
            ["--out", "/r", "--time-limit", "soon"],
            "time_limit: 'soon' is not allowed; it must be like 3600, 90m, 2h or",
        ),
        (["--out", "/r", "--sigma", "7"], "sigma: '7' is not allowed"),
        (["--out", "/r"], "submit: http://127.0.0.1:9 does not accept jobs ("),
    ],
)
def test_mistakes_in_a_run_are_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--submit", "http://127.0.0.1:9", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"fedpns: {message}") and said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_ends_at_its_time_limit_and_resumes(tmp_path, capsys):
    command = ["run", "--nodes", "5", "--samples-per-node", "20", "--in-process", "--out", str(tmp_path / "r")]
    assert main([*command, "--rounds", "1000000", "--time-limit", "1s"]) == 130
    assert "the time limit of 1 s is reached: stopping …" in capsys.readouterr().err
    done = len((tmp_path / "r" / "rounds.jsonl").read_bytes().splitlines())
    assert main([*command, "--rounds", str(done + 1)]) == 0


def test_a_study_of_this_machine_is_not_written_over(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("base: {rounds: 2}\n")
    (tmp_path / "runs" / "s" / "trials").mkdir(parents=True)
    assert main(["study", "s.yaml", "--submit", "http://127.0.0.1:9", "--out", "/shared/s"]) == 2
    assert "runs/s holds a study that ran on this machine" in capsys.readouterr().err


def test_only_the_files_at_the_top_level_are_fetched(tmp_path):
    storage = Storage(tmp_path)
    for name in ("study.yaml", "study.csv", "curves.png", ".hidden", "trials/t/summary.json"):
        storage.write(name, name.encode())
    with zipfile.ZipFile(io.BytesIO(pack(storage))) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            name: name for name in ("study.yaml", "study.csv", "curves.png")
        }
