"""Flags for the settings of an experiment, made from its fields and from the registry, and their help.

Every parameter of every part is a flag; the help lists those of the chosen strategy, data set and other parts.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from fedpns_ray.experiment import Experiment
from fedpns_ray.registry import PARTS, Parameter, known_parameters, parameters_of
from fedpns_ray.settings import CHOICES, Settings, completed, defaults_of, listed, overridden
from fedpns_ray.terminal.flags import pairs
from fedpns_ray.terminal.parser import Parser
from fedpns_ray.third_party import offers
from fedpns_ray.yaml_file import read_yaml

SECTIONS = {
    "strategy": ("strategy", "selection", "objective", "aggregation", "server"),
    "data": ("dataset", "partition", "nodes", "samples_per_node", "size_spread", "noisy_nodes", "label_noise", "seed"),
    "model and training": (
        "model", "vectorize", "fast_math", "buffers", "loss", "fraction", "rounds", "epochs", "batch_size", "optimizer",
        "compression", "max_steps", "lr", "lr_decay", "lr_floor", "clip_updates", "evaluate_every", "metrics",
        "centralised",
    ),
    "simulated behaviour of nodes": ("availability", "drop_probability", "slow_fraction", "slow_seconds"),
    "device model (simulated time)": (
        "devices", "device_speed", "device_uplink", "device_spread", "device_file", "device_fading",
    ),
}  # fmt: skip
KINDS = {
    "strategy": ("selection", "objective", "aggregation", "server"),
    "data": ("dataset", "partition"),
    "model and training": ("optimizer", "compression"),
    "simulated behaviour of nodes": ("availability",),
}
"""The kinds of parts of a section, whose parameters have a section of their own after it."""
NAMED = ("strategy", *PARTS, "model")
"""Settings that are names."""
METAVARS = {"loss": "FUNCTION", "metrics": "NAME,NAME"}
KINDS_OF_VALUES: dict[Any, str] = {bool: "{true,false}", int: "N", float: "NUMBER", str: "TEXT"}
NOTE = """
Parameters are listed for the chosen parts only; name others to see theirs:
  {prog} {others} --help
"""
OTHERS = {"strategies": "--strategies oort,afl", "strategy": "--strategy oort", "dataset": "--dataset shakespeare"}
"""By the first of these settings that a command has: another choice."""

Actions = dict[str, argparse.Action]


@dataclass
class SettingFlags:
    """The flags of a parser that are settings; their help is written when it is asked for."""

    parser: Parser
    examples: str
    fields: Actions = field(default_factory=dict)
    """By field of Experiment."""
    parameters: dict[str, tuple[argparse._ArgumentGroup, Actions]] = field(default_factory=dict)
    """By section: the group of its parameters, and their flags by key."""

    def add(self, section: str, without: Sequence[str]) -> None:
        group = self.parser.add_argument_group(section)
        for name in SECTIONS[section]:
            if name not in without:
                self.fields[name] = _add(group, name, metavar(name, Experiment.model_fields[name]))
        if section in KINDS:
            group, actions = self.parser.add_argument_group(), {}
            for key, (first, *_) in known_parameters(KINDS[section]).items():
                actions[key] = _add(group, key, metavar(first.field, first.part.model_fields[first.field]))
            self.parameters[section] = group, actions

    def adopt(self, words: Sequence[str]) -> list[str]:
        """`--stride 3` as `--set stride=3` where a part is named that nobody here knows the parameters of.

        A part of the user's own is not imported to parse a command; a key that it does not have is refused later.
        """
        if not any(_is_foreign(name) for word in words for name in listed(word.rpartition("=")[2])):
            return list(words)
        found: list[str] = []
        rest, known = list(words), self.parser._option_string_actions
        while rest:
            word = rest.pop(0)
            if word == "--":
                return [*found, word, *rest]
            flag, equals, value = word.partition("=")
            if flag[:2] == "--" and flag not in known and flag[2:].replace("-", "_") not in Experiment.model_fields:
                if not equals and rest and not rest[0].startswith("--"):
                    equals, value = "=", rest.pop(0)
                if equals:
                    found += ["--set", f"{flag[2:]}={value}"]
                    continue
            found.append(word)
        return found

    def explain(self, options: argparse.Namespace) -> None:
        """Write the help of every flag, for the parts that the flags and the file choose."""
        given = settings(options, importing=False)
        named = listed(getattr(options, "strategies", "")) or [given.get("strategy", "fedpns")]
        known: dict[str, Parameter] = {}
        for strategy in named:
            known = parameters_of(_built_in(given | {"strategy": strategy})) | known
        defaults = defaults_of(given.get("dataset", "synthetic"), importing=False)
        for name, action in self.fields.items():
            action.help = _field_help(name, defaults)
        for section, (group, actions) in self.parameters.items():
            taken = {key: known[key] for key in actions if key in known}
            for key, action in actions.items():
                action.help = _parameter_help(known[key]) if key in taken else argparse.SUPPRESS
            parts = dict.fromkeys(f"{it.kind} {it.part.name}" for it in taken.values())
            strategies = f"strategy {', '.join(named)}: " if section == "strategy" else ""
            group.title = f"parameters of {strategies}{', '.join(parts)}"
        others = next(words for name, words in OTHERS.items() if name in options or name in self.fields)
        self.parser.epilog = f"{self.examples}{NOTE.format(prog=self.parser.prog, others=others)}"


def add_settings(
    parser: argparse.ArgumentParser, sections: Sequence[str] = tuple(SECTIONS), without: Sequence[str] = ()
) -> None:
    """Add a flag for every field of Experiment in these sections, and for every parameter of every part of theirs."""
    assert isinstance(parser, Parser)
    parser.usage = f"{parser.prog} [FILE] [--FLAG VALUE …]"
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="YAML with settings; flags override it")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, such as a parameter of a user-defined part; may be given several times",
    )
    flags = SettingFlags(parser, parser.epilog or "")
    for section in sections:
        flags.add(section, without)
    parser.explain, parser.adopt = flags.explain, flags.adopt


def settings(options: argparse.Namespace, importing: bool = True) -> Settings:
    """The file's settings, overridden by flags. Unless `importing`, user-defined parts stay names."""
    flags = {key.removeprefix("set."): value for key, value in vars(options).items() if key.startswith("set.")}
    given = {key: value for key, value in flags.items() if value is not None}
    given |= pairs(options.set, "set")
    return overridden(read_yaml(options.config) if options.config else {}, given, importing)


def _is_foreign(name: str) -> bool:
    """Whether this is an import path, or what an installed package offers."""
    return bool(re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name)) or any(name == offer.name for offer in offers())


def metavar(name: str, info: FieldInfo) -> str:
    """What stands for a value: its choices, what it names, its range if that is 0 to 1, or its kind."""
    kind, *_ = kinds = get_args(info.annotation) or (info.annotation,)
    if isinstance(kind, str):
        return "{" + ",".join(kinds) + "}"
    if name in NAMED or name in METAVARS:
        return METAVARS.get(name, "NAME")
    if name.endswith("file"):
        return "FILE"
    bounds = {getattr(one, key, None) for one in info.metadata for key in ("ge", "gt", "le", "lt")} - {None}
    return "0..1" if kind is float and bounds == {0, 1} else KINDS_OF_VALUES.get(kind, "VALUE")


def _add(group: argparse._ArgumentGroup, name: str, metavar: str) -> argparse.Action:
    return group.add_argument(f"--{name.replace('_', '-')}", dest=f"set.{name}", metavar=metavar)


def _built_in(given: Mapping[str, Any]) -> dict[str, str]:
    """The chosen parts, by kind; a user-defined one is not imported for its parameters, and left out."""
    chosen, _ = completed({key: value for key, value in given.items() if key in CHOICES}, importing=False)
    return {kind: chosen[kind] for kind in PARTS if ":" not in chosen[kind] and chosen[kind]}


def _field_help(name: str, defaults: Mapping[str, Any]) -> str:
    info = Experiment.model_fields[name]
    default = defaults.get(name, info.default)
    return _text(info.description or "", "" if default in ("", None) else str(default))


def _parameter_help(it: Parameter) -> str:
    return _text(it.description, str(it.part.model_fields[it.field].default))


def _text(what: str, default: str) -> str:
    """For argparse, which reads % as the beginning of a name."""
    spelled = {"True": "true", "False": "false"}.get(default, default)
    return f"{what}{f' Default: {spelled}.' * bool(spelled)}".replace("%", "%%")
