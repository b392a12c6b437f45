"""Write what can be generated into docs/strategies.md and docs/strategies/*.md: python docs/strategies.py

Everything between <!-- generated --> and <!-- end --> is replaced: parameters, costs, conformance, differences, and the
strategy's rows in the tables of docs/zoo.md. The rest of a page is written by hand; a page that does not exist yet
begins as a template.
"""

import importlib
import json
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "strategies"
BEGIN, END = "<!-- generated -->", "<!-- end -->"
COMMON = "fedavg"
"""The file whose parts every strategy shares; it is named on the pages of its own strategy alone."""
CALLED = {"fedcor": "gaussian_process"}
"""Files of functions that hold a part of another file's rule."""
NODES, PER_ROUND, ROUNDS = 50, 10, 20
TEMPLATE = """# {name}

{what}. SOURCE

## The rule

In the paper's notation.

## What the released code does, and what we chose

What the difference costs.

## When it helps

{begin}
{end}
"""

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from docs import zoo  # noqa: E402
from fedpns_ray.conformance.findings import Finding, findings  # noqa: E402
from fedpns_ray.conformance.world import Game, World, begun  # noqa: E402
from fedpns_ray.core.interfaces import Part  # noqa: E402
from fedpns_ray.registry import PRESETS, describe_default, find_part, parameters_of  # noqa: E402


@cache
def found_of(name: str) -> list[Finding]:
    """What `fedpns conformance NAME` finds."""
    return list(findings(name))


def files_of(name: str) -> list[str]:
    """The files of a strategy's parts and of what they are derived from."""
    found = []
    for kind, part in PRESETS[name].parts.items():
        for base in find_part(kind, part).__mro__:
            if issubclass(base, Part) and base.__module__.startswith("fedpns_ray.strategies."):
                file = base.__module__.rpartition(".")[2]
                found += [file, CALLED[file]] if file in CALLED else [file]
    return [file for file in dict.fromkeys(found) if file != COMMON] or [COMMON]


def differences_of(name: str) -> list[str]:
    tests = (importlib.import_module(f"tests.conformance.test_{file}") for file in files_of(name))
    return [line for module in tests for line in module.DIFFERENCES]


def mutation_of(name: str) -> tuple[int, int]:
    scores = json.loads((PAGES / "mutation.json").read_text())
    own = [scores[file] for file in files_of(name)]
    return sum(score["killed"] for score in own), sum(score["of"] for score in own)


def parameters(name: str) -> list[str]:
    takers = parameters_of(PRESETS[name].parts)
    if not takers:
        return ["It has no parameters of its own."]
    rows = [
        f"| `{key}` | {describe_default(it.part, it.field).replace('|', ' or ')} | {' '.join(it.description.split())} |"
        for key, it in takers.items()
    ]
    return ["| parameter | default | meaning |", "| --- | --- | --- |", *rows]


def costs(name: str) -> list[str]:
    """Counted, not declared: the means of some rounds with made-up updates."""
    world = World(NODES, PER_ROUND, asked=2 * PER_ROUND)
    game = Game(begun(PRESETS[name].parts, world), world)
    rounds, (selection, objective, *_) = game.play(ROUNDS), game.strategy
    along = objective.sent_along
    counted = {
        "nodes that train": [len(one.drawn) for one in rounds],
        "vectors down": [
            (selection.downloads + along) * len(one.drawn) + len(one.probe.asked - set(one.drawn)) for one in rounds
        ],
        "vectors up": [(1 + along) * len(one.sent) for one in rounds],
        "numbers up": [one.probe.answers + selection.reports * len(one.updates) for one in rounds],
    }
    means = [f"{sum(values) / len(values):.3g}" for values in counted.values()]
    intro = (
        f"Per round, with {NODES} nodes, |S_t| = {PER_ROUND} and the defaults (a vector is as long as the model, a "
        "number takes 8 bytes):"
    )
    heads = f"| {' | '.join(counted)} |"
    return [intro, "", heads, "| ---: | ---: | ---: | ---: |", f"| {' | '.join(means)} |"]


def conformance(name: str) -> list[str]:
    found, (killed, of) = found_of(name), mutation_of(name)
    listed = {result: [one for one in found if one.result == result] for result in ("passed", "failed")}
    lines = [f"- {len(listed['passed'])} of {len(found)} invariants hold (`fedpns conformance {name}`)."]
    lines += [f"- FAILED: {one.invariant}: {one.detail}" for one in listed["failed"]]
    lines += [f"- Not applicable: {one.invariant} ({one.detail})." for one in found if one.result == "not applicable"]
    tests = ", ".join(f"`tests/conformance/test_{file}.py`" for file in files_of(name))
    command = f"python -m tests.conformance.mutation {' '.join(files_of(name))}"
    return [
        *lines,
        f"- Worked out by hand and by oracle in {tests}; {killed} of {of} mutants are killed (`{command}`).",
    ]


def block(name: str) -> str:
    parts = ", ".join(f"{kind} `{part}`" for kind, part in PRESETS[name].parts.items())
    differences = [f"- {line}" for line in differences_of(name)] or ["None."]
    sections = {
        "Parameters": [f"Parts: {parts}.", "", *parameters(name)],
        "Costs": costs(name),
        "Conformance": conformance(name),
        "Differences from the released code or the paper": differences,
    }
    if side_by_side := zoo.of_strategy(name):
        sections["Side by side"] = ["From [all strategies side by side](../zoo.md).", "", *side_by_side]
    return "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items())


def index() -> str:
    rows = [
        "| strategy | what it does | invariants | mutants killed | differences |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for name, preset in PRESETS.items():
        found, (killed, of) = found_of(name), mutation_of(name)
        held = sum(one.result == "passed" for one in found)
        asked = sum(one.result != "not applicable" for one in found)
        link = f"[{name}](strategies/{name}.md)"
        rows.append(f"| {link} | {preset.what} | {held} of {asked} | {killed} of {of} | {len(differences_of(name))} |")
    return "\n".join(rows)


def replaced(text: str, generated: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"there is no {BEGIN} … {END} to write into")
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def documents() -> dict[Path, str]:
    """Every page as it should be."""
    page = ROOT / "docs" / "strategies.md"
    found = {page: replaced(page.read_text(), index())}
    for name, preset in PRESETS.items():
        page = PAGES / f"{name}.md"
        text = page.read_text() if page.exists() else TEMPLATE.format(name=name, what=preset.what, begin=BEGIN, end=END)
        found[page] = replaced(text, block(name))
    return found


if __name__ == "__main__":
    for place, content in documents().items():
        place.write_text(content)
