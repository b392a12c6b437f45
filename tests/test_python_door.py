"""Everything the command line can do, from Python, with the same files left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedpns_ray
from fedpns_ray import Experiment, InputError, compare, run
from fedpns_ray.core.models import MLR
from fedpns_ray.strategies import PRESETS, Preset
from fedpns_ray.strategies.pns import ProbabilisticSelection
from tests import parts

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 3}
TEN_LINES = """
from fedpns_ray import run_study

study = {
    "base": {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 3},
    "axes": {"strategy": ["fedpns", "fedavg"], "sigma": [0.25, 0.5]},
    "seeds": "1-2",
}
result = run_study(study, "first")
print(result.verdict)
print(open("first/report.html").read(15))
"""
LEFT = {
    "curves.parquet", "curves.png", "report.html", "study.csv", "study.yaml", "table.md", "trials"
}  # fmt: skip


def test_ten_lines_in_an_empty_folder(tmp_path):
    done = subprocess.run([sys.executable, "-c", TEN_LINES], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr, done.stderr
    verdict, page = done.stdout.splitlines()
    assert verdict.endswith("(final accuracy, paired by seed).") and page.lower() == "<!doctype html>"
    assert {p.name for p in (tmp_path / "first").iterdir()} == LEFT
    assert len(list((tmp_path / "first" / "trials").iterdir())) == 8


def test_a_comparison_takes_objects_and_shows_itself(tmp_path):
    result = compare([parts.every_fifth, PRESETS["fedavg"]], seeds=[1, 2], out=tmp_path / "c", **SMALL)
    assert result.table["strategy"].tolist() == ["tests.parts:every_fifth", "fedavg"]
    assert result.verdict and result.verdict in result._repr_html_() and "<table" in result._repr_html_()
    assert {p.name for p in (tmp_path / "c").iterdir()} == LEFT


def test_objects_stand_where_names_do():
    by_name = Experiment(strategy="fedavg", selection="pns", model="tests.test_python_door:net", **SMALL)
    by_object = Experiment(strategy=PRESETS["fedavg"], selection=ProbabilisticSelection, model=net, **SMALL)
    assert by_object == by_name
    assert Experiment(strategy=parts.Stride).strategy == "tests.parts:Stride"
    assert Experiment(strategy=parts.every_fifth).strategy == "tests.parts:every_fifth"
    assert run(by_object).summary["weights_sha256"] == run(by_name).summary["weights_sha256"]


def net(shape, classes):
    return MLR(shape, classes)


@pytest.mark.parametrize("field", ["strategy", "selection", "model"])
def test_what_lives_only_in_a_notebook_is_refused_with_the_remedy(field):
    class Local(parts.Stride):
        name = "local"

    Local.__module__, Local.__qualname__ = "__main__", "Local"
    with pytest.raises(InputError, match=f"{field}: Local is not allowed; workers cannot import .* such as mine.py"):
        Experiment(**{field: Local})
    with pytest.raises(InputError, match="strategy: Preset is not allowed"):
        Experiment(strategy=Preset("made on the spot", selection=parts.Stride))


def test_the_public_names_and_nothing_else():
    assert dir(fedpns_ray) == sorted(fedpns_ray.__all__)
    for name in fedpns_ray.__all__:
        assert getattr(fedpns_ray, name).__name__ == name
    assert (Path(fedpns_ray.__file__).parent / "py.typed").exists()


def test_a_result_shows_itself():
    shown = run(Experiment(strategy="fedavg", **SMALL))._repr_html_()
    assert "fedavg, seed 1: final accuracy" in shown and "<table" in shown


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"bas": {}}, "bas: unknown key; did you mean base?"),
        ({"base": {"sigma": 7}}, "sigma: 7 is not allowed"),
        ({"axes": {"sigma": 3}}, "axes.sigma: 3 is not allowed"),
    ],
)
def test_a_mistake_in_a_study_is_one_line_without_a_file(study, message):
    with pytest.raises(InputError) as caught:
        fedpns_ray.run_study(study, "nowhere")
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
