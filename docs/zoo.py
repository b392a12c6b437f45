"""All strategies side by side, from kept data: `docs/zoo/NAME.csv` and `NAME.parquet`, NAME a study of `STUDIES`.

python docs/zoo.py keep oort runs/oort     a study's finished trials join the data that there are; then as `write`
python docs/zoo.py write                   docs/zoo.md and its pictures, from all the data there are

What the page says in words comes from `docs/zoo/words.yaml`. A number in it is written as `{oort: minus fedavg}` or, in
the sentence on a strategy, as `{minus fedavg}`, and taken from the tables; `found` says what the sentence takes for
granted (better, worse or undecided, against the baseline), and a sentence that the data contradict is not shown.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
import yaml

ROOT = Path(__file__).parent.parent
DATA, PAGE = ROOT / "docs" / "zoo", ROOT / "docs" / "zoo.md"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from fedpns_ray.errors import InputError  # noqa: E402
from fedpns_ray.records.record import COSTS  # noqa: E402
from fedpns_ray.reporting.canvas import STYLE  # noqa: E402
from fedpns_ray.reporting.curves import study_figure  # noqa: E402
from fedpns_ray.reporting.formatting import formatted  # noqa: E402
from fedpns_ray.reporting.judgement import judged  # noqa: E402
from fedpns_ray.reporting.kept_figures import keep, kept, study_of  # noqa: E402
from fedpns_ray.reporting.ranking import ranked  # noqa: E402
from fedpns_ray.reporting.report_card import COLUMNS, WHAT, report_card  # noqa: E402
from fedpns_ray.reporting.tables import Results, table  # noqa: E402
from fedpns_ray.reporting.targets import marked  # noqa: E402

STUDIES = ("zoo", "zoo-dirichlet", "oort")
ALSO = (*(cost.key for cost in COSTS), *(column.key for column in COLUMNS), "final_worst_nodes_accuracy")
"""What is kept of a trial besides accuracies: its costs and its report card."""
HEAD = """# Strategies side by side

This page is written by `python docs/zoo.py write` from the data in `docs/zoo/` (one row per trial, one per round); what
is said in words comes from `docs/zoo/words.yaml`, and every number in it from the tables. `python docs/zoo.py keep oort
runs/oort` keeps the trials of a study that has run.

Means over seeds ± half the 95 % interval (Student's t); accuracies in %, those of the last 5 tested rounds. `minus
fedavg` is taken seed by seed, so it says more than two overlapping intervals: a strategy is *better* or *worse* where
its interval excludes 0, and *undecided* otherwise. Of 30 strategies that are no different, one or two would be called
better or worse by chance. Simulated seconds differ from seed to seed because the devices do; they are comparable within
a seed.
"""


class Place(NamedTuple):
    """One setting of the data: its name, its results, its table and its report card by strategy."""

    name: str
    results: Results
    rows: pd.DataFrame
    header: list[str]
    cells: dict[str, list[str]]
    card_header: list[str]
    card: dict[str, list[str]]

    @property
    def found(self) -> dict[str, str]:
        """What the data say of every strategy, against the baseline; of the baseline nothing."""
        rows = self.rows.set_index("strategy")
        return {
            str(name): "better" if row.difference > half else "worse" if row.difference < -half else "undecided"
            for name, row in rows.iterrows()
            if (half := row.difference_interval) == half
        }

    def numbers(self, strategy: str) -> dict[str, str]:
        """Every number of a strategy, by the title of its column."""
        own = dict(zip(self.header[1:], self.cells[strategy][1:], strict=True))
        return own | dict(zip(self.card_header[1:], self.card[strategy][1:], strict=True))


def main(words: list[str]) -> int:
    match words:
        case ["keep", name, *folders] if folders and name in STUDIES:
            held = [DATA / name] if stored(name) else []
            keep(study(name), [*map(Path, folders), *held], DATA / name, ALSO)
        case ["write"]:
            pass
        case _:
            print(__doc__)
            return 2
    places.cache_clear()
    for name in filter(stored, STUDIES):
        picture(name)
        for problem in untrue(name):
            print(f"{name}: {problem}")
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} written; python docs/strategies.py writes the pages of the strategies")
    return 0


def stored(name: str) -> bool:
    return (DATA / f"{name}.csv").exists()


def study(name: str) -> Any:
    return study_of(ROOT / "tune" / f"{name}.yaml")


def words_of(name: str) -> dict[str, Any]:
    return (yaml.safe_load((DATA / "words.yaml").read_text(encoding="utf-8")) or {}).get(name) or {}


@cache
def places(name: str) -> list[Place]:
    """The places of a study, as `words.yaml` names them; a study that it names none of has one."""
    whole = kept(study(name), DATA / name)
    found = []
    for title, settings in (words_of(name).get("places") or {"": {}}).items():
        here = whole.trials
        for key, value in settings.items():
            here = here[here[key].isna() if value is None else here[key] == value]
        if here.empty:
            raise InputError(f"{DATA.name}/words.yaml", title, problem="is no setting of the study")
        found.append(place(title, replace(whole, trials=here)))
    return found


def place(title: str, results: Results) -> Place:
    names = set(results.trials["trial"])
    rows = ranked(table(results, [trial for trial in results.study.trials if trial.name in names]), results)
    shown = replace(results, study=replace(results.study, axes=["strategy"]))
    header, cells = formatted(rows, shown)
    card = report_card(results.trials, ["strategy"])
    by_name = {own[0]: own for own in card.rows}
    order = [row[0] for row in cells]
    return Place(
        title,
        results,
        rows,
        header,
        {row[0]: row for row in cells},
        card.header,
        {name: by_name[name] for name in order},
    )


def picture(name: str) -> None:
    with matplotlib.rc_context(STYLE):
        results = kept(study(name), DATA / name)
        study_figure(results).savefig(DATA / f"{name}.png", dpi=110, metadata=marked(".png"))


# --- words -----------------------------------------------------------------------------------------------------------


def filled(text: str, name: str, strategy: str = "") -> str:
    """The text with its numbers: `{minus fedavg}`, `{oort: minus fedavg}`, `{oort, with noise: minus fedavg}`."""

    def number(match: re.Match[str]) -> str:
        row, _, column = match[1].rpartition(": ")
        who, _, where = (row or strategy).partition(", ")
        there = [one for one in places(name) if one.name == where]
        if not there or who not in there[0].cells or column not in there[0].numbers(who):
            raise InputError(f"{DATA.name}/words.yaml", match[0], problem="is no number of the tables")
        return there[0].numbers(who)[column]

    return " ".join(re.sub(r"\{([^{}]+)\}", number, text).split())


def untrue(name: str) -> list[str]:
    """Sentences that the data contradict, and strategies about which nothing is said."""
    first, said = places(name)[0], words_of(name).get("strategies") or {}
    wrong = [
        f"{who} is {first.found.get(who)} ({first.numbers(who)['minus fedavg']}), not {own['found']}"
        for who, own in said.items()
        if who in first.found and own["found"] != first.found[who]
    ]
    spoken = said or len(places(name)) > 1  # a study of several places is spoken of as a whole
    return wrong + ([] if spoken else ["nothing is said about its strategies"])


def sentences(name: str) -> list[str]:
    """One on each strategy that something true is said about."""
    first, said = places(name)[0], words_of(name).get("strategies") or {}
    return [
        f"- **[{who}](strategies/{who}.md)**: {filled(own['says'], name, who)}"
        for who, own in said.items()
        if who in first.cells and own["found"] == first.found.get(who, own["found"])
    ]


def counted(place: Place) -> str:
    """Who is better, worse or undecided, in a sentence."""
    kinds = {
        kind: [who for who, found in place.found.items() if found == kind] for kind in ("better", "worse", "undecided")
    }
    return "; ".join(f"{kind}: {', '.join(names) or 'none'}" for kind, names in kinds.items()).capitalize() + "."


# --- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    return "\n".join([HEAD, *(line for name in STUDIES for line in section(name))])


def section(name: str) -> list[str]:
    own = study(name)
    lines = [f"## {own.title}", "", "```bash", f"fedpns study tune/{name}.yaml --out runs/{name}", "```", ""]
    if not stored(name):
        return [*lines, "**No data are kept yet.**", ""]
    results = kept(own, DATA / name)
    done, of = len(results.done), len(results.trials)
    lines += [f"**The data are incomplete**: {done} of {of} trials are kept.", ""] if done < of else []
    for text in words_of(name).get("before") or ():
        lines += [filled(text, name), ""]
    for one in places(name):
        lines += [f"### {one.name}", ""] if one.name else []
        lines += [*rows_of(one.header, one.cells), "", counted(one), ""]
    lines += [f"![{own.title}](zoo/{name}.png)", ""]
    for claim in judged(results):
        lines += [f"- The study's claim, {claim}."]
    lines += [""] * bool(results.study.claims)
    for text in words_of(name).get("after") or ():
        lines += [filled(text, name), ""]
    if told := sentences(name):
        lines += ["As the papers say, or not and why:", "", *told, ""]
    lines += ["### Selection report card", "", WHAT, ""]
    for one in places(name):
        lines += [f"**{one.name}**", ""] if one.name else []
        lines += [*rows_of(one.card_header, one.card), ""]
    return lines


def rows_of(header: list[str], rows: dict[str, list[str]]) -> list[str]:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows.values()]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def of_strategy(strategy: str) -> list[str]:
    """All numbers of one strategy, a column per place, for its own page; empty if no data of it are kept."""
    there = {
        f"{name}: {one.name}" if one.name else name: one.numbers(strategy)
        for name in filter(stored, STUDIES)
        for one in places(name)
        if strategy in one.cells
    }
    titles = dict.fromkeys(title for numbers in there.values() for title in numbers)
    rows = {title: [title, *(numbers.get(title, "-") for numbers in there.values())] for title in titles}
    return rows_of(["", *there], rows) if there else []


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InputError as error:
        sys.exit(f"zoo: {error}")
