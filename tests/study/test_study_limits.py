"""More seeds or trials than a machine can hold: refused in one line, counted and never listed."""

import itertools
import subprocess
import sys

import pytest

from fedpns_ray import InputError
from fedpns_ray.study.seeds import MOST_SEEDS, parse_seeds
from fedpns_ray.study.study_file import read_study

TIMED = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from fedpns_ray.terminal.command_line import main
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
code = main(sys.argv[1:])
print(time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
sys.exit(code)
"""
"""The command in a gigabyte, which a hundred million seeds do not fit into; and its time on a core."""

THIRTY_TWO = str([k / 32 for k in range(32)])
LONG_AXES = "".join(
    f"  {name}: {THIRTY_TWO}\n"
    for name in ("sigma", "rho", "alpha", "beta", "v", "drop_probability", "slow_fraction", "lr")
)
SEEDS = "seeds: '1-1000000000' is not allowed; at most 10,000 seeds are allowed; this is 1,000,000,000"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("base: {}\nseeds: 1-1000000000\n", ["study", "s.yaml"], f"s.yaml: line 2: {SEEDS}"),
        ("grids:\n  - base: {}\n    seeds: 1-1000000000\n", ["study", "s.yaml"], f"s.yaml: line 3: {SEEDS}"),
        ("base: {}\n", ["study", "s.yaml", "--seeds", "1-1000000000"], SEEDS),
        ("base: {}\n", ["compare", "--seeds", "1-1000000000"], SEEDS),
        (
            "base: {}\nseeds: 99999999999999999999999\n",
            ["study", "s.yaml"],
            "s.yaml: line 2: seeds: 99999999999999999999999 is not allowed; the largest seed is 9223372036854775807",
        ),
        (
            f"axes:\n{LONG_AXES}",
            ["study", "s.yaml"],
            "s.yaml: line 1: axes: with all seeds these are 1,099,511,627,776 trials; at most 100,000 are allowed",
        ),
    ],
)
def test_refused_in_one_line_at_once_and_in_little_memory(tmp_path, text, arguments, message):
    (tmp_path / "s.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", TIMED, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (2, f"fedpns: {message}\n")
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds < 5 and megabytes < 200
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


LETTERS = "abcdefghij"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(9 * [f'*{a}'])}]\n" for a, b in itertools.pairwise(LETTERS)
)
MERGE_BOMB = "a: &a {x: 1}\n" + "".join(
    f"{b}: &{b} {{<<: [{', '.join(9 * [f'*{a}'])}]}}\n" for a, b in itertools.pairwise(LETTERS)
)
HOSTILE = {
    "alias bomb": (BOMB, "line 5: expands to more than 50,000 values, aliases included"),
    "merge bomb": (MERGE_BOMB, "line 6: expands to more than 50,000 values, aliases included"),
    "deep lists": ("base: " + 400_000 * "[", "line 1: nested more than 20 levels deep"),
    "deep keys": ("base: " + 200_000 * "{a: ", "line 1: nested more than 20 levels deep"),
    "itself": ("base: &a {b: *a}\n", "line 1: an anchor contains itself"),
    "merged itself": ("base: &a {<<: *a}\n", "line 1: an anchor contains itself"),
    "many": ("seeds: [" + 450_000 * "1," + "1]", "line 1: there are more than 50,000 values"),
    "large": ("title: " + 2_000_000 * "x", "cannot be read (it has 2,000,007 bytes; 1,000,000 are allowed)"),
    "base 60": ("seeds: 1" + 300_000 * ":59", "line 1: a value has more than 10,000 characters"),
    "python": ("base: !!python/object/apply:os.system [ls]\n", "line 1: tags such as !!float are not allowed"),
    "float": ("base:\n  sigma: !!float abc\n", "line 2: tags such as !!float are not allowed"),
    "date": ("base:\n  sigma: 2020-13-45\n", "line 2: sigma: '2020-13-45' is not allowed; it must be a number"),
    "a key in an axis": ("axes: {sigma: [{1: 2}]}\n", "line 1: keys must be strings; 1 is not one"),
    "a key": ("base:\n  parameters: {1: 2}\n", "line 2: keys must be strings; 1 is not one"),
    "documents": (100_000 * "--- a\n", "line 2: there is more than one document"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused_before_they_are_expanded(tmp_path, what):
    text, message = HOSTILE[what]
    (tmp_path / "s.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", TIMED, "study", "s.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (2, f"fedpns: s.yaml: {message}\n")
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds < 5 and megabytes < 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "axes: {sigma: [0.2, 0.3]}\ngrids:\n  - {}\n  - axes: {rho: %s}\n    seeds: 1-10000\n",
            "line 4: axes: .* 640,002 ",
        ),
        ("axes: {sigma: %s}\nseeds: 1-10000\n", "line 1: axes: with all seeds these are 320,000 trials"),
        ("grids:\n" + 11 * "  - seeds: 1-10000\n", "line 12: seeds: with all seeds these are 110,000 trials"),
        ("seeds: " + 5000 * "9" + "\n", r"s.yaml: holds a value that cannot be read \(.*digits"),
        ("seeds: '" + 5000 * "9" + "'\n", "line 1: seeds: '9{198}… is not allowed; it must be like 1-5"),
        ("seeds: 0x" + 5000 * "f" + "\n", "line 1: seeds: such a number is not allowed; it must be like 1-5"),
    ],
)  # fmt: skip
def test_the_place_is_named(tmp_path, text, message):
    (tmp_path / "s.yaml").write_text(text.replace("%s", THIRTY_TWO))
    with pytest.raises(InputError, match=message) as caught:
        read_study(tmp_path / "s.yaml")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300 + len(str(tmp_path))


def test_as_many_as_are_allowed():
    assert parse_seeds(f"1-{MOST_SEEDS}") == list(range(1, MOST_SEEDS + 1)) and parse_seeds(2**63 - 1) == [2**63 - 1]
    with pytest.raises(InputError, match="at most 10,000 seeds are allowed; this is 10,001"):
        parse_seeds(f"0-{MOST_SEEDS}")
    with pytest.raises(
        InputError,
        match=r"seeds: \['1-6000', '5001-11000'\] is not allowed; "
        r"at most 10,000 seeds are allowed; this is 12,000",
    ):
        parse_seeds(["1-6000", "5001-11000"])
