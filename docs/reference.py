"""The reference pages, made from the code whenever the site is built: python docs/reference.py [FOLDER]"""

import argparse
import dataclasses
import inspect
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
os.environ["COLUMNS"] = "82"  # the width of what `--help` prints

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import fedpns_ray  # noqa: E402
from fedpns_ray.core.field_docs import field_doc  # noqa: E402
from fedpns_ray.core.interfaces import Part  # noqa: E402
from fedpns_ray.core.metrics import METRICS, NODES  # noqa: E402
from fedpns_ray.experiment import Experiment  # noqa: E402
from fedpns_ray.registry import PART_KINDS, PARTS, PRESETS, describe_default, parameters_of  # noqa: E402
from fedpns_ray.terminal.command_line import COMMANDS, build_parser  # noqa: E402


def write_reference(folder: Path) -> None:
    """Pages of the command line, the Python API, the settings and the parts; a page that is current is left alone."""
    folder.mkdir(exist_ok=True)
    pages = {"command_line": command_line(), "python": python(), "settings": settings(), "parts": parts()}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


def command_line() -> str:
    parser = build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    page = ["# Command line", "`fedpns COMMAND --help` prints the same in a terminal.", ""]
    page += ["| command | |", "| --- | --- |"]
    page += [f"| [`{name}`](#fedpns-{name}) | {cell(module.WHAT)} |" for name, module in COMMANDS.items()]
    for name, command in commands.choices.items():
        page += ["", f"## fedpns {name}", "", "```text", command.format_help().rstrip(), "```"]
    return "\n".join(page) + "\n"


def python() -> str:
    page = ["# Python", "Everything public is imported from `fedpns_ray`; parts of your own derive from the classes of"]
    page += [
        "`fedpns_ray.strategies`, `fedpns_ray.data` and `fedpns_ray.core` that [parts](../parts/index.md) names.",
        "",
    ]
    for name in fedpns_ray.__all__:
        thing = getattr(fedpns_ray, name)
        page += ["", f"## {name}", "", *described(name, thing)]
        if dataclasses.is_dataclass(thing):
            page += ["", "| field | default | |", "| --- | --- | --- |"]
            page += [
                f"| `{field.name}` | {default(field)} | {cell(field_doc(thing, field.name))} |"
                for field in fields(thing)
            ]
        members = vars(thing).items() if isinstance(thing, type) and not issubclass(thing, Experiment) else ()
        for member, value in members:
            value = getattr(value, "func", value)  # a cached property
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(function) and function.__doc__:
                page += ["", f"### {name}.{member}", "", *described(member, function)]
    return "\n".join(page) + "\n"


def fields(owner: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(owner) if not field.name.startswith("_")]


def default(field: dataclasses.Field) -> str:
    return "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"


def described(name: str, thing: object) -> list[str]:
    """Its signature and its docstring, as written."""
    try:
        signature = str(inspect.signature(thing)).replace("fedpns_ray.", "")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = ""
    too_long = len(signature) > 600  # an experiment: its settings have a page of their own
    shown = [] if too_long or isinstance(thing, type) else ["```python", f"{name}{signature}", "```", ""]
    return [*shown, inspect.getdoc(thing) or ""]


def settings() -> str:
    page = [
        "# Settings of an experiment",
        "Keys of `Experiment(…)`, of YAML files and of studies; flags with `-` for `_`.",
    ]
    page += ["Parameters of [parts](parts.md) are written in the same place.", ""]
    page += ["| setting | default | |", "| --- | --- | --- |"]
    for name in (name for name in Experiment.model_fields if name != "parameters"):
        page.append(f"| `{name}` | {cell(describe_default(Experiment, name))} | {cell(field_doc(Experiment, name))} |")
    return "\n".join(page) + "\n"


def parts() -> str:
    page = [
        "# Parts",
        "Every part that is built in, with its parameters and their defaults. Yours is named by its import path.",
    ]
    page += ["", "## strategy", "", "| name | | parts |", "| --- | --- | --- |"]
    for name, preset in PRESETS.items():
        page.append(
            f"| [`{name}`](../strategies/{name}.md) | {cell(preset.what)} | {', '.join(preset.parts.values())} |"
        )
    for kind in PART_KINDS:
        page += ["", f"## {kind}", "", "| name | | parameters |", "| --- | --- | --- |"]
        for name, part in PARTS[kind].items():
            page.append(f"| `{name}` | {cell(first_line(part))} | {parameters(kind, name, part)} |")
    page += ["", "## metrics", "", "| name | | measured on |", "| --- | --- | --- |"]
    for name, metric in METRICS.items():
        page.append(
            f"| `{name}` | {cell(first_line(metric))} | {'the data of nodes' if metric.of == NODES else metric.of} |"
        )
    return "\n".join(page) + "\n"


def parameters(kind: str, name: str, part: type[Part]) -> str:
    takers = parameters_of({kind: name}).items()
    return "<br>".join(
        f"`{key}` = {cell(describe_default(part, it.field))}: {cell(it.description)}" for key, it in takers
    )


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "reference")
