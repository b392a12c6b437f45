"""`fedpns new` writes parts that work, and packages offer parts by entry points."""

import subprocess
import sys

import pytest

from fedpns_ray import Experiment, InputError
from fedpns_ray.terminal.command_line import main
from fedpns_ray.third_party import offers

FLAGS = ["--nodes", "10", "--rounds", "2", "--epochs", "1", "--samples-per-node", "40", "--in-process", "--out", "r"]


@pytest.mark.parametrize(
    ("kind", "flags"), [("strategy", ["--stride", "3"]), ("dataset", ["--distance=1.5"]), ("model", [])]
)
def test_what_is_written_works(kind, flags, tmp_path):
    def do(*words):
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    fedpns = [sys.executable, "-m", "fedpns_ray"]
    made = do(*fedpns, "new", kind, "night-shift")
    assert made.returncode == 0 and "night_shift.py, test_night_shift.py" in made.stdout, made
    ran = do(*fedpns, "run", f"--{kind}", "night_shift:NightShift", *flags, *FLAGS)
    assert ran.returncode == 0, ran.stderr
    settings = (tmp_path / "r" / "config.yaml").read_text()
    assert all(flag.lstrip("-").replace("=", " ").split()[0] in settings for flag in flags[:1])
    tested = do(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_night_shift.py")
    assert tested.returncode == 0 and "1 passed" in tested.stdout, tested.stdout
    again = do(*fedpns, "new", kind, "night-shift")
    assert again.returncode == 2 and "night_shift.py exists" in again.stderr


@pytest.mark.parametrize("name", ["2nd", "for", "a b", "torch", "../x", "json", "é"])
def test_names_that_cannot_work(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "model", name]) == 2 and not list(tmp_path.iterdir())
    assert capsys.readouterr().err.count("\\n") <= 1


@pytest.fixture
def tides(tmp_path, monkeypatch):
    """An installed package that offers a part of several kinds, and another one for a name that is taken."""
    (tmp_path / "tides.py").write_text(
        "from fedpns_ray.strategies.fedavg import RandomSelection\nimport torch\n"
        "class Tidal(RandomSelection):\n    name = 'tidal'\n    moon: int = 1\n"
        "def net(shape, classes):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, classes))\n"
    )
    info = tmp_path / "tides-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tides\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[fedpns_ray.parts]\nselection.tidal = tides:Tidal\nselection.random = tides:Tidal\n"
        "strategy.tidal = tides:Tidal\nmodel.tidal-net = tides:net\n"
        "dataset.shores = tides:Shores\nmetric.ebb = tides:Ebb\nmetric.macro-f1 = tides:Ebb\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    offers.cache_clear()
    yield
    offers.cache_clear()
    sys.modules.pop("tides", None)


def test_an_installed_package_offers_parts(tides, capsys):
    assert main(["strategies"]) == 0 and "tides" not in sys.modules
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("from installed packages", "tides 1.2", "tidal-net", "ebb"))
    assert "adamw" in printed and "node-fairness" in printed and "shores" not in printed
    assert main(["data"]) == 0 and "tides" not in sys.modules
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("shores", "tides 1.2", "tides:Shores")) and "tidal" not in printed
    e = Experiment(selection="tidal", model="tidal-net", moon=3)
    assert (e.selection, e.model, e.moon) == ("tides:Tidal", "tides:net", 3)
    assert Experiment(strategy="tidal").strategy == "tides:Tidal"
    assert Experiment(**e.settings()) == e
    assert Experiment(selection="random").selection == "random"  # built in: not to be replaced
    assert Experiment(metrics="macro-f1, ebb").metrics == "macro-f1,tides:Ebb"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "tides:Tidal", "--mon", "3"], "mon: unknown key (value '3'); did you mean moon?"),
        (["--selection=tidal", "--moon", "x"], "moon: 'x' is not allowed; it must be a whole number"),
        (["--selection", "tidal", "--moon=-1x"], "moon: '-1x' is not allowed"),
        (["--selection", "tidal", "--moon"], "unrecognized arguments: --moon"),
        (["--strategy", "fedpns", "--moon", "3"], "unrecognized arguments: --moon"),
    ],
)
def test_parameters_of_ones_own_parts_are_flags(tides, words, said, capsys):
    assert main(["run", "--in-process", *words]) == 2
    assert capsys.readouterr().err.startswith(f"fedpns: {said}")


def test_nobody_offers_it():
    with pytest.raises(InputError, match="selection: 'tidal' is unknown"):
        Experiment(selection="tidal")
