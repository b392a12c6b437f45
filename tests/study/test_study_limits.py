"""More seeds or trials than a machine can hold: refused in one line, counted and never listed."""

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
began = time.monotonic()
code = main(sys.argv[1:])
print(time.monotonic() - began)
sys.exit(code)
"""
"""The command in a gigabyte, which a hundred million seeds do not fit into."""

THIRTY_TWO = str([k / 32 for k in range(32)])
LONG_AXES = "".join(
    f"  {name}: {THIRTY_TWO}\n"
    for name in ("sigma", "rho", "alpha", "beta", "v", "drop_probability", "slow_fraction", "lr")
)
SEEDS = "seeds: '1-1000000000' is not allowed; these are 1,000,000,000 seeds, and 10,000 are the most"


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
            "s.yaml: line 1: axes: with all seeds these are 1,099,511,627,776 trials, and 100,000 are the most",
        ),
    ],
)
def test_refused_in_one_line_at_once_and_in_little_memory(tmp_path, text, arguments, message):
    (tmp_path / "s.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", TIMED, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (2, f"fedpns: {message}\n")
    assert float(done.stdout) < 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: {sigma: [0.2, 0.3]}\ngrids:\n  - {}\n  - axes: {rho: %s}\n    seeds: 1-10000\n", "line 4: axes: .* 640,002 "),
        ("axes: {sigma: %s}\nseeds: 1-10000\n", "line 1: axes: with all seeds these are 320,000 trials"),
        ("grids:\n" + 11 * "  - seeds: 1-10000\n", "line 12: seeds: with all seeds these are 110,000 trials"),
        ("seeds: " + 5000 * "9" + "\n", r"s.yaml: holds a value that cannot be read \(.*digits"),
        ("seeds: '" + 5000 * "9" + "'\n", "line 1: seeds: '9{58}… is not allowed; it must be like 1-5"),
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
    with pytest.raises(InputError, match="10,001 seeds"):
        parse_seeds(f"0-{MOST_SEEDS}")
    with pytest.raises(InputError, match=r"seeds: \['1-6000', '5001-11000'\] is not allowed; these are 12,000 seeds"):
        parse_seeds(["1-6000", "5001-11000"])
