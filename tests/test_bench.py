"""The harness of `make bench`, with costs that are given: nothing is measured here."""

import json
import re

import pytest

from benchmarks import ratios
from benchmarks.__main__ import ENTRIES, main
from benchmarks.harness import Entry, Figure, Setting, Unavailable, in_turn, measured
from benchmarks.plot import draw

COSTS = [{"theirs": 12.0, "ours": 1.0}, {"theirs": 20.0, "ours": 2.0}, {"theirs": 33.0, "ours": 3.0}]


def entry(*figures, costs=COSTS):
    return Entry("e", "what it measures", figures, lambda setting: iter(costs))


def quiet(repeats=3):
    return Setting(repeats, say=lambda line: None)


def kept(goal, median, low, high, **more):
    figure = {"median": median, "low": low, "high": high, "over": 1, "under": 1, "repeats": 3, "goal": goal, **more}
    return {"e": {"what": "w", "setting": {"clock": "seconds"}, "figures": {"f": figure}}}


def test_a_figure_is_the_median_of_the_ratios_of_each_repeat():
    found = measured(entry(Figure("f", "theirs", "ours", at_least=12)), quiet())["f"]
    assert (found["median"], found["low"], found["high"]) == (11, 10, 12)
    assert (found["over"], found["under"], found["repeats"], found["goal"]) == (20, 2, 3, ">= 12")
    assert ratios.misses(found)
    assert not ratios.misses(measured(entry(Figure("f", "ours", "theirs", at_most=0.1)), quiet())["f"])


def test_a_figure_may_be_a_difference():
    found = measured(entry(Figure("f", "theirs", "ours", at_most=20, unit="MB")), quiet())["f"]
    assert (found["median"], found["unit"]) == (18, "MB")
    assert ratios.shown(found) == "18 MB (11 to 30, 3 x)"


def test_a_side_that_could_not_be_had_is_left_out():
    some = entry(Figure("f", "theirs", "ours"), Figure("g", "others", "ours"))
    assert list(measured(some, quiet())) == ["f"]
    with pytest.raises(Unavailable):
        measured(entry(Figure("g", "others", "ours")), quiet())


def test_sides_take_turns():
    order = []
    sides = {name: lambda name=name: order.append(name) or 1.0 for name in "abc"}
    assert [list(costs) for costs in in_turn(sides, 3)] == [["a", "b", "c"]] * 3
    assert "".join(order) == "abccbaabc"


@pytest.mark.parametrize(
    ("goal", "median", "spread", "now", "worse"),
    [
        (">= 2", 3.0, (2.9, 3.1), 2.8, False),  # within a tenth
        (">= 2", 3.0, (2.9, 3.1), 2.6, True),  # still above the goal, but it was better
        (">= 2", 3.0, (2.2, 3.1), 2.6, False),  # the kept repeats were further apart than that
        (">= 2", 3.0, (2.9, 3.1), 9.0, False),
        ("<= 1.1", 1.0, (1.0, 1.02), 1.05, False),
        ("<= 1.1", 1.0, (1.0, 1.02), 1.2, True),
        ("<= 1.1", 1.0, (1.0, 1.02), 0.5, False),
        ("", 1.0, (1.0, 1.02), 1.2, True),  # lower is better where no goal says otherwise
    ],
)
def test_what_got_worse(goal, median, spread, now, worse):
    found = list(ratios.worsened(kept(goal, median, *spread), kept(goal, now, now, now)))
    assert [bool(re.match("e, f: worse", line)) for line in found] == [True] * worse


def test_what_cannot_be_compared_is_said():
    now = kept("", 1, 1, 1)
    assert list(ratios.worsened({}, now)) == ["e: not compared (not in ratios.json)"]
    other = {"e": now["e"] | {"setting": {"clock": "cpu"}}}
    assert "measured with {'clock': 'cpu'}" in next(ratios.worsened(now, other))
    assert list(ratios.worsened(now, {"e": {"skipped": "no network"}})) == ["e: not compared (no network)"]


def test_entries_are_kept_one_by_one(tmp_path):
    path, first = tmp_path / "ratios.json", kept("", 1, 1, 1)
    ratios.keep(first, ["d", "e"], path)
    ratios.keep({"d": first["e"], "e": {"skipped": "a reason"}}, ["d", "e"], path)
    assert list(ratios.kept(path)) == ["d", "e"] and ratios.kept(path)["e"] == first["e"]


def test_the_command_names_its_entries_and_refuses_others(capsys):
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ENTRIES)
    assert main(["flour"]) == 2
    assert "bench: benchmark: flour is unknown; it must be one of flower, pfl" in capsys.readouterr().err


def test_the_check_fails_only_if_something_got_worse(monkeypatch, tmp_path, capsys):
    path = tmp_path / "ratios.json"
    monkeypatch.setattr(ratios, "KEPT", path)
    monkeypatch.setitem(ENTRIES, "e", entry(Figure("f", "theirs", "ours", at_least=1)))
    monkeypatch.setattr(ratios, "kept", lambda: json.loads(path.read_text()))
    for before, code in ((11, 0), (15, 1)):
        assert main(["e", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        found["e"]["figures"]["f"] |= {"median": before, "low": before, "high": before}
        path.write_text(json.dumps(found))
        assert main(["e", "--check"]) == code
        assert ("e, f: worse, 11 against 15" in capsys.readouterr().err) == bool(code)


def test_the_page_and_the_kept_ratios_agree():
    found, text = ratios.kept(), ratios.PAGE.read_text()
    assert len(ratios.BETWEEN.findall(text)) == 2
    assert ratios.page(text, found) == text
    assert set(found) <= set(ENTRIES)
    for name, kept_entry in found.items():
        assert set(kept_entry["figures"]) <= {figure.name for figure in ENTRIES[name].figures}


def test_the_picture_is_drawn(tmp_path):
    from matplotlib.image import imread

    point = kept("<= 1.3", 1.1, 1.0, 1.2, at=100_000)["e"]["figures"]["f"]
    draw({"nodes": {"figures": {"nodes, mnist 100,000": point}}}, tmp_path / "picture.png")
    one = imread(tmp_path / "picture.png")
    draw({entry: {"figures": {f"{entry}, mlr 100": point}} for entry in ("nodes", "drawn")}, tmp_path / "two.png")
    assert imread(tmp_path / "two.png").shape[1] == 2 * one.shape[1] and one.std() > 0.05  # no panel without a line
