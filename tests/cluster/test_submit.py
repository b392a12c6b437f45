"""What is refused before anything is sent, and what comes home."""

import io
import zipfile

import pytest

from fedpns_ray.records.storage import Storage
from fedpns_ray.study.submission import pack
from fedpns_ray.terminal.command_line import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "out: nothing is not allowed beside --submit; it must be a URI"),
        (["--out", "runs/s"], "out: runs/s is not allowed beside --submit"),
        (["--out", "/shared/s", "--address", "auto"], "address: auto is not allowed beside --submit"),
        (["--out", "/shared/s", "--json"], "json: True is not allowed beside --submit"),
        (["--out", "/shared/s", "--only", "sigma=7"], "only: no trial has sigma 7"),
        (["--out", "/shared/s"], "submit: no cluster takes jobs at http://127.0.0.1:9"),
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


def test_a_study_of_this_machine_is_not_written_over(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("base: {rounds: 2}\n")
    (tmp_path / "runs" / "s" / "trials").mkdir(parents=True)
    assert main(["study", "s.yaml", "--submit", "http://127.0.0.1:9", "--out", "/shared/s"]) == 2
    assert "runs/s holds a study of this machine" in capsys.readouterr().err


def test_only_the_files_at_the_top_come_home(tmp_path):
    storage = Storage(tmp_path)
    for name in ("study.yaml", "study.csv", "curves.png", ".hidden", "trials/t/summary.json"):
        storage.write(name, name.encode())
    with zipfile.ZipFile(io.BytesIO(pack(storage))) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            name: name for name in ("study.yaml", "study.csv", "curves.png")
        }
