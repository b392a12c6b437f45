"""Reading never runs code: a folder may name a part of the user's own, and readers leave it a name."""

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedpns_ray import Experiment, load, run
from fedpns_ray.naming import folder_name, setting_name
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.study.study_file import read_study

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 4}
TRAP = """
import pathlib
pathlib.Path(__file__).with_name("sprung").touch()
from fedpns_ray.strategies import Preset
from tests.parts import Stride
own = Preset("every few nodes", selection=Stride)
"""
STUDY = """
title: "Mine against theirs"
base: {nodes: 12, fraction: 0.5, samples_per_node: 40, epochs: 1, rounds: 4}
axes:
  strategy: [tests.parts:every_fifth, fedavg, fedpns]
  alpha: [1, 2]
seeds: 1-2
targets: [0.1]
"""
FEDPNS = Path(sys.executable).with_name("fedpns")


@pytest.fixture
def folder(tmp_path):
    """A run and a study whose strategy lies beside them, in a file that notices when it is imported."""
    (tmp_path / "trap.py").write_text(TRAP)
    made = Experiment(strategy="tests.parts:every_fifth", stride=3, **SMALL)
    run(made, tmp_path / "run")
    trials = tmp_path / "study" / "trials"
    run(made, trials / "t")
    (tmp_path / "study" / "study.yaml").write_text("base: {strategy: trap:own}\naxes: {sigma: [0.2, 0.3]}\n")
    for config in (tmp_path / "run" / "config.yaml", trials / "t" / "config.yaml"):
        config.write_text(config.read_text().replace("tests.parts:every_fifth", "trap:own"))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "report run --out p.html",
        "report study --out p.html --figures figures",
        "report . --out p.html",
        "watch run --once",
        "watch study --once --html p.html",
        "same run study/trials/t",
    ],
)
def test_no_reader_imports_what_a_folder_names(folder, command):
    """The very command, started in the folder that holds the trap."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [FEDPNS, *command.split()], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "sprung").exists()


def test_the_trap_works(folder):
    """Else the test above could not fail: a command that runs experiments does import it."""
    command = [FEDPNS, "run", "run/config.yaml", "--in-process", "--out", "run"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # for what the trap imports
    done = subprocess.run(command, cwd=folder, env=environment)
    assert done.returncode == 0 and (folder / "sprung").exists()


def test_a_file_beside_the_folder_is_no_module_for_readers(folder):
    """A pandas.py in the folder that is read would be imported if that folder were on the path."""
    (folder / "pandas.py").write_text((folder / "trap.py").read_text())
    done = subprocess.run([FEDPNS, "report", ".", "--out", "p.html"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and not (folder / "sprung").exists(), done.stderr


def test_nor_for_the_command_that_shows_data(folder):
    """It imports from this folder only for a data set of the user's own, and then what is installed comes first."""
    (folder / "matplotlib.py").write_text((folder / "trap.py").read_text())
    command = [FEDPNS, "data", "show", "--nodes", "4", "--out", "p.png"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and not (folder / "sprung").exists(), done.stderr


def test_loading_imports_nothing(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    result = load(folder / "run")
    assert result.experiment.label == "trap:own" and result.experiment.settings()["stride"] == 3
    assert result.experiment.but(seed=2).settings()["seed"] == 2 and not (folder / "sprung").exists()
    sys.modules.pop("trap", None)


def test_what_was_read_is_what_was_run(tmp_path):
    for settings in (
        {"strategy": "tests.parts:every_fifth", "stride": 2},
        {"strategy": "tests.parts:Stride"},
        {"strategy": "fedpns", "selection": "tests.parts:Stride", "stride": 4},
        {"strategy": "fedavg", "objective": "tests.parts:Poison"},
    ):
        made = Experiment(**SMALL, **settings)
        read = Experiment.recorded(made.settings())
        assert not read.imported and made.imported
        assert read.settings() == made.settings() and read.label == made.label
        assert folder_name(read) == folder_name(made) and setting_name(read) == setting_name(made)
        again = run(read, tmp_path / folder_name(read))  # and it runs, then with an import
        assert again.summary["weights_sha256"] == run(made).summary["weights_sha256"]
        assert run(made, tmp_path / folder_name(read)).summary == again.summary


def test_a_study_with_a_part_of_the_users_own_is_reported_whole(tmp_path):
    """Its trials, pairs and what is missing are known without an import."""
    (tmp_path / "study.yaml").write_text(STUDY)
    for trial in read_study(tmp_path / "study.yaml").trials:
        run(trial.experiment, tmp_path / "trials" / trial.name)
    gathered = gather([tmp_path])
    assert gathered.expected == 8 and not gathered.notes and gathered.study.title == "Mine against theirs"
    from fedpns_ray.reporting.tables import table

    rows = table(gathered.results, gathered.trials)
    assert rows["seeds"].tolist() == [2] * 4 and rows["pairs"].tolist() == [2, 0, 2, 2]


# --- a trap in each kind of file -------------------------------------------------------------------------------------


class Trap:
    """An object that, unpickled, leaves a file."""

    def __init__(self, folder, name):
        self.command = f"touch {folder}/sprung-{name}"

    def __reduce__(self):
        return os.system, (self.command,)


def yaml_traps(folder, run_folder):
    """Tags that build objects or call functions."""
    for place, name in ((run_folder / "config.yaml", "config"), (folder / "study" / "study.yaml", "study")):
        text = place.read_text() if place.exists() else ""
        place.write_text(f'{text}\nlabeller: !!python/object/apply:os.system ["touch {folder}/sprung-{name}"]\n')


def file_traps(folder, run_folder):
    """Everything else that a run or a study holds."""
    name = run_folder.name
    trap = Trap(folder, f"checkpoint-{name}")
    np.savez(
        run_folder / "checkpoint.npz", round=np.array([trap], dtype=object), weights=np.array([trap], dtype=object)
    )
    with zipfile.ZipFile(run_folder / "checkpoint.npz", "a") as archive:
        archive.writestr("data.pkl", pickle.dumps(trap))  # as torch.save would
    (run_folder / "weights.safetensors").write_bytes(pickle.dumps(Trap(folder, f"weights-{name}")))
    summary = json.loads((run_folder / "summary.json").read_text())
    summary |= {"strategy": "trap:own", "code": {"__reduce__": "trap:own"}, "py/object": "trap.own"}
    (run_folder / "summary.json").write_text(json.dumps(summary))
    schema = json.loads((run_folder / "schema.json").read_text())
    schema["quantities"].append({"key": "trap:own", "title": f"$(touch {folder}/sprung-schema)", "per": "round"})
    (run_folder / "schema.json").write_text(json.dumps(schema))
    command = f"fedpns study $(touch {folder}/sprung-commands) `touch {folder}/sprung-commands` --only a=b; touch x"
    (folder / "study" / "commands.txt").write_text(command + "\n")


def module_traps(folder):
    """Files that would be imported if the current directory were on the path."""
    trap = f"import pathlib; pathlib.Path({str(folder)!r}, 'sprung-' + __name__).touch()\n"
    for name in ("sitecustomize", "usercustomize", "torch", "numpy", "pandas", "yaml", "ray", "json", "safetensors"):
        (folder / f"{name}.py").write_text(trap)


READERS = [
    "report run --out p.html --figures pictures",
    "report study --out p.html",
    "report . --out p.html",
    "watch run --once --html w.html",
    "watch study --once",
    "same run study/trials/t",
    "doctor",
]


@pytest.fixture(params=["yaml", "files"])
def trapped(folder, request):
    """The folder of above, with traps in every file; in the YAML files, readers stop there, so they stand apart."""
    plant = {"yaml": yaml_traps, "files": file_traps}[request.param]
    for run_folder in (folder / "run", folder / "study" / "trials" / "t"):
        plant(folder, run_folder)
    return folder


def sprung(folder):
    return sorted(path.name for path in folder.rglob("sprung*"))


def read_in(folder, *start, commands=READERS):
    module_traps(folder)
    (folder / "json.py").unlink()  # `python -m` itself would import it, before any line of this program
    for command in commands:
        done = subprocess.run([*start, *command.split()], cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, (command, done.stderr)
        assert sprung(folder) == [], command


def test_no_trap_is_sprung_by_a_reader(trapped):
    read_in(trapped, FEDPNS)


def test_nor_where_python_itself_looks_into_the_folder(folder):
    """`python -m` puts the current directory on the import path."""
    read_in(folder, sys.executable, "-m", "fedpns_ray", commands=["report . --out p.html", "doctor"])


def test_no_trap_is_sprung_by_load(trapped, monkeypatch):
    from fedpns_ray import InputError

    monkeypatch.chdir(trapped)
    for place in ("run", "study/trials/t"):
        with pytest.raises(InputError):  # damaged
            load(place)
    assert sprung(trapped) == []


def test_a_run_resumes_from_no_pickle(folder):
    """Running imports what a configuration names, but a checkpoint is only data."""
    made = Experiment(strategy="fedavg", **SMALL)
    expected = run(made, folder / "mine", progress=False)
    file_traps(folder, folder / "mine")
    (folder / "mine" / "summary.json").unlink()
    again = run(made, folder / "mine", progress=False)
    assert again.summary["weights_sha256"] == expected.summary["weights_sha256"] and sprung(folder) == []


def test_these_traps_work(folder):
    """Else the tests above could not fail."""
    module_traps(folder)
    file_traps(folder, folder / "run")
    yaml_traps(folder, folder / "run")
    import yaml

    with np.load(folder / "run" / "checkpoint.npz", allow_pickle=True) as state, pytest.raises(Exception):  # noqa: B017
        int(state["round"])
    pickle.loads((folder / "run" / "weights.safetensors").read_bytes())
    yaml.unsafe_load((folder / "run" / "config.yaml").read_text())
    yaml.unsafe_load((folder / "study" / "study.yaml").read_text())
    subprocess.run((folder / "study" / "commands.txt").read_text(), shell=True, capture_output=True, cwd=folder)
    subprocess.run([sys.executable, "-c", "import torch"], cwd=folder, check=True, capture_output=True)
    found = {name.removeprefix("sprung-") for name in sprung(folder)}
    assert found >= {"checkpoint-run", "weights-run", "config", "study", "commands", "torch"}
