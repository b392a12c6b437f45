"""The parser of the command line: errors in one line, with the nearest word that is known; help written on demand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fedpns_ray.errors import InputError
from fedpns_ray.validation import nearest

HELP = ("-h", "--help")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Commands stand beside what they do: argparse forgets that they are indented."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        for one in self._iter_indented_subactions(action):
            width = len(self._format_action_invocation(one)) + self._current_indent
            self._action_max_length = max(self._action_max_length, width)


class Parser(argparse.ArgumentParser):
    """A parser of a command or of one of its actions. It does not accept abbreviated flags."""

    explain: Callable[[argparse.Namespace], None] | None = None
    """Writes the help of flags that depend on each other; called with all flags when help is requested."""

    adopt: Callable[[Sequence[str]], list[str]] | None = None
    """Rewrites the words before they are parsed, where flags are not known from the beginning."""

    _words: Sequence[str] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        style: dict[str, Any] = {"formatter_class": HelpFormatter, "allow_abbrev": False}
        super().__init__(*arguments, **style | options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """All arguments, or an error of this very parser: argparse would leave it to the one at the top."""
        words = list(sys.argv[1:] if args is None else args)
        words = self.adopt(words) if self.adopt else words
        self._words = [word for word in words if word not in HELP]
        options, unknown = super().parse_known_args(words, namespace)
        if unknown:
            wrong = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", nearest(wrong, self._option_string_actions))
        return options, unknown

    def format_help(self) -> str:
        if self.explain:
            self.explain(super().parse_known_args(self._words)[0])
        return super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """In the same words for every version of Python."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            name = "/".join(action.option_strings) or action.metavar or action.dest
            message = f"argument {name}: invalid choice: {value!r} (choose from {', '.join(known)})"
            self._refuse(message, nearest(str(value), known))

    def error(self, message: str) -> NoReturn:
        self._refuse(message)

    def _refuse(self, message: str, hint: str = "") -> NoReturn:
        where = f"see {self.prog} --help"
        raise InputError("", problem=message, hint="; ".join(filter(None, [hint, where])))
