"""No key or password is ever shown or stored, and nothing that is not ours is ever replaced."""

import os
from pathlib import Path

import pytest

from fedpns_ray import Experiment, InputError, load, run
from fedpns_ray.addresses import redacted
from fedpns_ray.records.storage import Storage
from fedpns_ray.terminal.command_line import main
from fedpns_ray.terminal.words import noted_command

TINY = {"nodes": 4, "fraction": 0.5, "samples_per_node": 20, "epochs": 1, "rounds": 1}
FLAGS = [word for key, value in TINY.items() for word in (f"--{key.replace('_', '-')}", str(value))]
SHOWN = ["--nodes", "4", "--samples-per-node", "20"]
SECRET = "wJalrXUt/nFEMI+K7MDENG"
ADDRESSES = {
    f"s3://AKIAKEY:{SECRET}@bucket/x": "s3://…",
    "s3://AKIAKEY:wJalrXUt+nFEMI@bucket/x": "s3://bucket/x",
    "s3://AKIAKEY:wJalrXUt%2FnFEMI@bucket/x?region=eu&secret_key=wJalrXUt": "s3://bucket/x?region=eu",
    "nonsense://AKIAKEY:wJalrXUt@host/x": "nonsense://host/x",
    "nonsense://host/x?token=wJalrXUt": "nonsense://host/x",
    "postgresql://me:wJalrXUt@host/db": "postgresql://host/db",
    "mlflow-thing://me:wJalrXUt?@host": "mlflow-thing://…",
}


def hidden(text):
    return not any(part in text for part in ("AKIAKEY", "wJalrXUt", "nFEMI", "K7MDENG"))


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_are_shown_without_what_they_hide(address):
    assert redacted(address) == str(Storage(address)) == ADDRESSES[address]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("flag", ["--out", "--mlflow", "--set", "--wandb", "--only"])
def test_no_command_is_noted_with_a_secret(address, flag):
    for words in ([flag, address], [f"{flag}={address}"], [flag, f"title={address}"], [address]):
        assert hidden(noted_command(["study", "s.yaml", *words]))


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_refusal_shows_a_secret(address, tmp_path, monkeypatch, capsys):
    (tmp_path / "s.yaml").write_text("base: {nodes: 4, samples_per_node: 20}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for words in (
        ["run", "--in-process", "--out", address, *FLAGS],
        ["run", "--outt", address],
        ["run", "--sigma", address],
        ["run", "--strategy", address],
        ["run", "--address", address, "--in-process"],
        ["study", "s.yaml", "--resume", "--out", f"{address}&endpoint_override=127.0.0.1:1&scheme=http"],
        ["study", "s.yaml", "--submit", "http://127.0.0.1:1", "--out", address],
        ["study", "s.yaml", "--submit", address, "--out", "/x"],
        ["study", address],
        ["data", "show", "--out", address],
    ):
        if "--resume" in words and address.startswith("s3"):
            continue  # asks a server, which takes its time to be missing; tests/study/test_storage.py does
        assert main(words) == 2, words
        said = capsys.readouterr()
        assert hidden(said.err + said.out) and said.err.count("\n") == 1, (words, said.err)
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_a_run_is_not_written_to_a_bucket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for go in (lambda place: run(Experiment(**TINY), place), load):
        with pytest.raises(InputError, match=r"^out: s3://b/x is not a folder; a run is written to a folder; a study"):
            go("s3://k:s@b/x")
    assert not list(tmp_path.iterdir())


def test_credentials_are_refused_beside_submit(tmp_path, monkeypatch, capsys):
    (tmp_path / "s.yaml").write_text("base: {nodes: 4, samples_per_node: 20}\n")
    monkeypatch.chdir(tmp_path)
    assert main(["study", "s.yaml", "--submit", "http://127.0.0.1:1", "--out", "s3://k:verysecret@b/x"]) == 2
    assert capsys.readouterr().err == (
        "fedpns: out: s3://b/x carries credentials, which are not allowed beside --submit; everyone who can list the "
        "jobs of a cluster sees their commands; give the machines of the cluster a role, or environment variables such "
        "as AWS_ACCESS_KEY_ID\n"
    )


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(Experiment(**TINY), tmp_path_factory.mktemp("targets") / "r").out


def in_the_way(path: Path, what: str) -> None:
    if what == "device":
        os.mknod(path, 0o20666, os.makedev(1, 3))
    elif what == "link":
        (path.parent / "elsewhere").write_text("years of work")
        path.symlink_to("elsewhere")
    elif what == "FIFO":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.write_text("years of work")


def unread(path):
    """What a look at a file leaves as it is."""
    found = os.lstat(path)
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns


@pytest.mark.parametrize("what", ["device", "link", "FIFO", "folder", "foreign"])
@pytest.mark.parametrize("command", ["report", "watch", "picture", "figures"])
def test_nothing_of_others_is_replaced(finished, tmp_path, capsys, command, what):
    if what == "device" and os.geteuid():
        pytest.skip("only root makes devices")
    target = tmp_path / {"picture": "p.png", "figures": "population.png"}.get(command, "p.html")
    if command == "figures":
        assert main(["report", str(finished), "--out", str(tmp_path / "p.html"), "--figures", str(tmp_path / "f")]) == 0
        target = sorted((tmp_path / "f").iterdir())[0]
        target.unlink()
    in_the_way(target, what)
    before = unread(target)
    words = {
        "report": ["report", str(finished), "--out", str(target)],
        "watch": ["watch", str(finished), "--once", "--html", str(target)],
        "picture": ["data", "show", "--out", str(target), *SHOWN],
        "figures": ["report", str(finished), "--out", str(tmp_path / "p.html"), "--figures", str(tmp_path / "f")],
    }[command]
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(target) in said
    assert unread(target) == before and not list(tmp_path.rglob("*partial*"))
    if what in ("link", "foreign"):
        assert target.read_text() == "years of work"


def test_what_is_ours_is_replaced(finished, tmp_path):
    page, picture = tmp_path / "p.html", tmp_path / "p.svg"
    for _ in range(2):
        assert main(["report", str(finished), "--out", str(page), "--figures", str(tmp_path / "f")]) == 0
        assert main(["data", "show", "--out", str(picture), *SHOWN]) == 0
    page.write_bytes(b"")
    assert main(["report", str(finished), "--out", str(page)]) == 0 and page.stat().st_size > 1000


def test_a_foreign_picture_is_not_replaced(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from matplotlib.figure import Figure

    for ending in ("png", "pdf", "svg"):
        photo = tmp_path / f"photo.{ending}"
        Figure().savefig(photo)
        before, show = photo.read_bytes(), ["data", "show", *SHOWN]
        assert main([*show, "--out", photo.name]) == 2 and photo.read_bytes() == before
        assert "was not written by fedpns" in capsys.readouterr().err
        for _ in range(2):  # and one of ours is
            assert main([*show, "--out", f"ours.{ending}"]) == 0


def test_an_address_is_refused_without_its_password(tmp_path):
    from fedpns_ray import run_study

    with pytest.raises(InputError) as refused:
        run_study({"base": TINY, "seeds": 1}, tmp_path / "s", address="http://me:wJalrXUt@host:1", progress=False)
    assert hidden(str(refused.value))


def test_an_endpoint_is_no_secret():
    for place in ("s3://b/x?endpoint_override=127.0.0.1:9&region=us", "s3://b/x?endpoint_override=127.0.0.1%3A9"):
        assert redacted(place) == place
