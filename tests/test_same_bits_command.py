"""`make same-bits`: every kind of difference is found and named, and what is allowed passes."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.same_bits.__main__ import main
from benchmarks.same_bits.cases import LAYOUTS, list_cases
from fedpns_ray import InputError

ROOT = Path(__file__).parent.parent
RECORD = {"test_loss": 0.1, "drawn": [1, 4], "by_label": {"0": 0.5}, "seconds": 1.0, "seconds_by_phase": {"draw": 0.1}}
RESULT = {
    "case": "fedpns, mlr, two-actors",
    "weights_sha256": "ab" * 32,
    "population_sha256": "cd" * 32,
    "records": [{"round": t, **copy.deepcopy(RECORD)} for t in (1, 2, 3)],
    "took": 1.5,
}


def changed(change):
    result = copy.deepcopy(RESULT)
    change(result)
    return result


def compared(tmp_path, capsys, here, base=RESULT):
    """The exit code and the lines of the command, fed with two files."""
    for name, results in (("base", base), ("here", here)):
        lines = [{"versions": {"python": "3.11"}}, *(results if isinstance(results, list) else [results])]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code = main(["--compare", str(tmp_path / "base.jsonl"), str(tmp_path / "here.jsonl")])
    return code, capsys.readouterr().out.splitlines()


def test_equal_but_for_the_times(tmp_path, capsys):
    def later(result):
        result["took"] = 9.0
        result["records"][1] |= {"seconds": 7.0, "seconds_by_phase": {"draw": 0.2, "learn": 0.1}}

    code, lines = compared(tmp_path, capsys, changed(later))
    assert code == 0 and len(lines) == 1
    assert lines[0].endswith("1 of 1 cases equal, 0 differ, 3 rounds compared")


@pytest.mark.parametrize(
    "change, line",
    [
        (
            lambda r: r["records"][1].update(test_loss=0.1 + 2**-56),  # the next double
            "round 2, test_loss: base 0.1, here 0.10000000000000002",
        ),
        (lambda r: r["records"][0].update(drawn=[4, 1]), "round 1, drawn: base [1, 4], here [4, 1]"),
        (lambda r: r["records"][0]["by_label"].update({"0": None}), "round 1, by_label.0: base 0.5, here null"),
        (lambda r: r["records"][0]["by_label"].clear(), "round 1, by_label.0: missing here, base 0.5"),
        (lambda r: r["records"][2].pop("drawn"), "round 3, drawn: missing here, base [1, 4]"),
        (lambda r: r["records"][2].pop("seconds"), "round 3, seconds: missing here, recorded at base"),
        (lambda r: r["records"].pop(1), "round 2: missing here, recorded at base"),
        (lambda r: r["records"].append({"round": 4, **RECORD}), "round 4: missing at base, recorded here"),
        (lambda r: r.update(weights_sha256="ac" * 32), f"weights_sha256: base {'ab' * 32}, here {'ac' * 32}"),
        (lambda r: r.update(population_sha256="ef" * 32), f"population_sha256: base {'cd' * 32}, here {'ef' * 32}"),
        (lambda r: r.update(error="ValueError: no"), "did not run: base succeeded, here ValueError: no"),
    ],
)
def test_a_difference_is_named_with_both_values(tmp_path, capsys, change, line):
    code, lines = compared(tmp_path, capsys, changed(change))
    assert code == 1
    assert lines[0] == f"DIFFERS: {RESULT['case']}, {line}"
    assert len(lines) == 2 and "NOT the same bits" in lines[1] and "0 of 1 cases equal, 1 differ" in lines[1]


def test_a_key_may_be_new_here_but_not_missing(tmp_path, capsys):
    def more(result):
        for record in result["records"]:
            record["fairness"] = 0.5
            record["by_label"]["1"] = 0.25

    code, lines = compared(tmp_path, capsys, changed(more))
    assert code == 0 and lines[0] == "new here: by_label.1, fairness"
    code, lines = compared(tmp_path, capsys, RESULT, base=changed(more))
    assert code == 1 and lines[0] == f"DIFFERS: {RESULT['case']}, round 1, by_label.1: missing here, base 0.25"


def test_a_case_that_one_side_lacks(tmp_path, capsys):
    other = changed(lambda r: r.update(case="oort, mlr, two-actors"))
    code, lines = compared(tmp_path, capsys, RESULT, base=[RESULT, other])
    assert code == 1 and lines[0] == "DIFFERS: oort, mlr, two-actors, missing here"
    code, lines = compared(tmp_path, capsys, [], base=[])
    assert code == 1  # nothing compared is not equal


def test_the_cases_are_those_asked_for():
    known = {"fedavg": [], "oort": ["choices"], "fedpns": ["alpha"]}
    names = [case["name"] for case in list_cases(known, "fedpns,oort", "mlr")]
    assert names == [f"{s}, mlr, {layout}" for layout in LAYOUTS for s in ("oort", "fedpns")]
    for case in list_cases(known):
        settings = case["settings"]
        assert ("choices" in settings) == (settings["strategy"] == "oort")
        assert settings.get("choices", 0) <= settings["nodes"]
    with pytest.raises(InputError, match="--only: fedpsn is not allowed; choose from fedavg, oort, fedpns"):
        list_cases(known, "fedpsn")


@pytest.mark.parametrize(
    "base, reason",
    [
        ("no-such-commit", "BASE: no-such-commit is not a commit of this repository"),
        ("--help", "BASE: --help is not a commit of this repository"),
        ("", "BASE: is missing; name the commit to compare with, as in make same-bits BASE=7f877ab"),
    ],
)
def test_a_bad_base_is_one_line(base, reason):
    command = [sys.executable, "-m", "benchmarks.same_bits", f"--base={base}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"same-bits: {reason}\n")
