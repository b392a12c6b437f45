"""The paper's figures from kept data: `docs/reproduction/figN.csv` and `figN.parquet`.

python docs/reproduce.py keep 3 runs/fig3        a study's finished trials join the data that there are
python docs/reproduce.py draw 3 runs/fig3        the figure from the data, as PDF and PNG, in seconds
python docs/reproduce.py write                   docs/reproduction.md and its pictures, from all the data there are
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import matplotlib
import yaml

from fedpns_ray.errors import InputError
from fedpns_ray.reporting.canvas import STYLE
from fedpns_ray.reporting.kept_figures import keep, kept, kept_triples, study_of
from fedpns_ray.reporting.paper_figures import paper_figure
from fedpns_ray.reporting.published import figures, triples
from fedpns_ray.reporting.reproduction import (
    INCOMPLETE,
    NOT,
    ORDER,
    REPRODUCED,
    UNDECIDED,
    Compared,
    Difference,
    Value,
    compared,
)
from fedpns_ray.reporting.tables import Results
from fedpns_ray.reporting.targets import marked

DOCS = Path(__file__).parent
DATA, PAGE = DOCS / "reproduction", DOCS / "reproduction.md"
NUMBERS = range(1, 7)
HEAD = """# The paper's figures, reproduced

This page is written by `make reproduction` from the data in [reproduction/](reproduction/README.md); what is said in
words comes from [reproduction/reasons.yaml](reproduction/reasons.yaml). `make figures FIG=3` draws a figure again from
the data, in seconds; `make figures FIG=3 RERUN=1` runs its study, to the same bits (on one kind of CPU, with one set of
versions). Earlier tables, whose data were not kept, are in [reproduction/before.md](reproduction/before.md).

Accuracies are in %. Ours is the mean over seeds of the last 5 rounds ± half its 95 % interval (Student's t); the value
in brackets is the paper's, read off its published curve over the same rounds. Differences are taken seed by seed. In
the pictures, published curves are thin and dotted.

The rule, stated before anything was compared:

- A value is **reproduced** if the published one lies within 1 point of our mean, or within our 95 % interval if half of
  that is at most 1.5 points. For losses and gradient norms, which are not in points, a point is read as 5 % of the
  published value. A panel is reproduced if all its values are.
- **Order reproduced**: every difference has the published sign, and its interval excludes 0.
- **Undecided**: an interval is too wide to tell; more seeds would decide.
- **Not reproduced**: otherwise; the reason is given below the table.
- **Incomplete**: a curve of the panel has no data yet.
"""


def main(words: list[str]) -> int:
    match words:
        case ["keep", number, *folders] if folders:
            held = [stem(int(number))] if stem(int(number)).with_suffix(".csv").exists() else []
            keep(study(int(number)), [*map(Path, folders), *held], stem(int(number)))
            print(f"{stem(int(number))}.csv and .parquet written; `make reproduction` writes the page")
        case ["draw", number, folder]:
            draw(int(number), Path(folder))
        case ["write"]:
            for number in NUMBERS:
                if stem(number).with_suffix(".csv").exists():
                    picture(number, DATA / f"fig{number}.png", 150)
            PAGE.write_text(page(), encoding="utf-8")
        case _:
            print(__doc__)
            return 2
    return 0


def stem(number: int) -> Path:
    return DATA / f"fig{number}"


def study(number: int):
    return study_of(DOCS.parent / "tune" / f"fig{number}.yaml")


def held(number: int) -> Results | None:
    return kept(study(number), stem(number)) if stem(number).with_suffix(".csv").exists() else None


# --- pictures --------------------------------------------------------------------------------------------------------


def draw(number: int, folder: Path) -> None:
    results = held(number)
    if results is None:
        raise InputError(f"figure {number}", problem="has no data", hint=f"make figures FIG={number} RERUN=1 runs it")
    folder.mkdir(parents=True, exist_ok=True)
    for ending in ("pdf", "png"):
        picture(number, folder / f"figure{number}.{ending}", 300)
    done, of = len(results.done), len(results.trials)
    print(f"{folder}/figure{number}.pdf and .png written, from {done} of {of} trials")
    if done < of:
        print(f"the data are incomplete: make figures FIG={number} RERUN=1 runs the {of - done} missing trials")


def picture(number: int, path: Path, dpi: int) -> None:
    results = held(number)
    below = kept_triples(results, "optimal-aggregation") if number == 1 else None
    with matplotlib.rc_context(STYLE):
        figure = paper_figure(results, figures()[f"fig{number}"], below)
        figure.savefig(path, dpi=dpi, metadata=marked(path.suffix))


# --- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    reasons = yaml.safe_load((DATA / "reasons.yaml").read_text(encoding="utf-8"))
    found = {number: results for number in NUMBERS if (results := held(number)) is not None}
    panels = {number: compared(results, f"fig{number}") for number, results in found.items()}
    parts = [HEAD, overview(found, panels)]
    for number in NUMBERS:
        said = reasons.get(f"fig{number}") or {}
        parts.append(section(number, found.get(number), panels.get(number, []), said))
    return "\n".join(parts)


def overview(found: dict[int, Results], panels: dict[int, list[Compared]]) -> str:
    kinds = (REPRODUCED, ORDER, UNDECIDED, NOT, INCOMPLETE)
    lines = ["## All figures\n", row(["figure", "trials", "hours on one core", *kinds]), row(["---", *["---:"] * 7])]
    for number in NUMBERS:
        results = found.get(number)
        if results is None:
            lines.append(row([str(number), f"0 of {len(study(number).trials)}", "-", *["-"] * 5]))
            continue
        verdicts = Counter(panel.verdict for panel in panels[number])
        hours = f"{results.done['seconds'].sum() / 3600:.1f}"
        trials = f"{len(results.done)} of {len(results.trials)}"
        lines.append(row([str(number), trials, hours, *(str(verdicts[kind]) for kind in kinds)]))
    return "\n".join(lines) + "\n\nThe numbers on the right count panels.\n"


def section(number: int, results: Results | None, panels: list[Compared], said: dict) -> str:
    lines = [f"## {study(number).title}\n"]
    if results is None:
        lines.append(f"**No data are kept yet.** `make figures FIG={number} RERUN=1` runs the study.\n")
    else:
        done, of = len(results.done), len(results.trials)
        if done < of:
            lines.append(
                f"**The data are incomplete**: {done} of {of} trials are kept; verdicts are for what is there.\n"
            )
        lines += [*table(panels), ""]
        if number == 1:
            lines += [*node_table(results), ""]
        lines.append(f"![Figure {number}](reproduction/fig{number}.png)\n")
    lines += list(notes(panels, said))
    return "\n".join(lines)


def table(panels: list[Compared]) -> list[str]:
    """One row per curve; the verdict of a panel stands in its first row."""
    several = len({panel.quantity for panel in panels}) > 1
    against = {one.name.partition(" minus ")[2] for panel in panels for one in panel.differences}
    gap = f"minus {against.pop()}" if len(against) == 1 else "difference"
    header = [
        "panel",
        *["quantity"] * several,
        "curve",
        "seeds",
        "ours (published)",
        "",
        f"{gap} (published)",
        "verdict",
    ]
    lines = [row(header), row(["---", *["---"] * several, "---", "---:", "---:", "---", "---:", "---"])]
    for panel in panels:
        gaps = {one.name.partition(" minus ")[0]: one for one in panel.differences}
        for k, value in enumerate(panel.values):
            head = [panel.title, *[panel.quantity] * several] if k == 0 else ["", *[""] * several]
            cells = [spaced(value.curve), seeds(value), ours(value), MARKS.get(value.verdict, "")]
            found = gaps.get(value.curve)
            lines.append(row([*head, *cells, difference(found, value), f"**{panel.verdict}**" if k == 0 else ""]))
    return lines


MARKS = {NOT: "≠", UNDECIDED: "?"}


def seeds(value: Value) -> str:
    there = str(len(value.finals))
    return there if len(value.finals) == value.of else f"{there} of {value.of}"


def ours(value: Value) -> str:
    digits = digits_of(value)
    mine = shown(value.mean, value.half, digits) if len(value.finals) else "-"
    return f"{mine} ({value.published:.{digits}f})"


def difference(found: Difference | None, value: Value) -> str:
    if found is None or not len(found.points):
        return ""
    digits = digits_of(value)
    return f"{shown(found.mean, found.half, digits, '+')} ({found.published:+.{digits}f})"


def digits_of(value: Value) -> int:
    return 2 if value.in_points else 4


def shown(mean: float, half: float, digits: int, sign: str = "") -> str:
    return f"{mean:{sign}.{digits}f}" + (f" ± {half:.{digits}f}" if half == half else "")


def spaced(curve: str) -> str:
    return curve.replace("=", " = ").replace(",", ", ")


def node_table(results: Results) -> list[str]:
    """How often i.i.d. and other nodes were drawn, labelled and excluded by Optimal Aggregation, per run."""
    mine = results.done[results.done["strategy"] == "optimal-aggregation"]
    paper, iid = triples(), 25
    lines = [row(["per run (published, one run)", "i.i.d. nodes", "other nodes"]), row(["---", "---:", "---:"])]
    for fate in ("drawn", "labelled", "excluded"):
        there = paper[fate].iloc[:iid].sum(), paper[fate].iloc[iid:].sum()
        ours = [mine[f"{fate}_{kind}"].mean() for kind in ("iid", "other")]
        lines.append(row([fate, *(f"{mean:.1f} ({one:g})" for mean, one in zip(ours, there, strict=True))]))
    return lines


def notes(panels: list[Compared], said: dict):
    """Reasons for what is not reproduced, then what else there is to say."""
    if any(value.verdict in MARKS for panel in panels for value in panel.values):
        yield "≠: not the published value; ?: our interval is too wide to tell.\n"
    for panel in panels:
        if panel.verdict == NOT:
            reason = (said.get("panels") or {}).get(panel.title) or "the reason is not known yet."
            yield f"- {panel.title} ({panel.quantity}): {' '.join(reason.split())}"
    for text in said.get("notes") or ():
        yield f"- {' '.join(text.split())}"
    yield ""


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InputError as error:
        sys.exit(f"reproduce: {error}")
