"""The command line: parses, calls a command, exits. Every command has its own file."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fedpns_ray import __version__
from fedpns_ray.addresses import redacted_text
from fedpns_ray.errors import InputError, LostError, one_line
from fedpns_ray.runtime.leaving import leave_when_done
from fedpns_ray.terminal import (
    compare,
    conformance,
    data,
    doctor,
    jobs,
    new,
    report,
    run,
    same,
    strategies,
    study,
    verify,
    watch,
    what_if,
)
from fedpns_ray.terminal.parser import Parser

COMMANDS: dict[str, Any] = {
    "run": run, "compare": compare, "study": study, "report": report, "watch": watch, "same": same, "verify": verify,
    "what-if": what_if, "data": data, "strategies": strategies, "conformance": conformance, "doctor": doctor,
    "jobs": jobs, "new": new,
}  # fmt: skip
"""Each has WHAT it does, EXAMPLES, `add_arguments`, `command`, and RUNS_CODE: whether it runs user code."""


FIRST_STEPS = """examples:
  fedpns run --rounds 20 --out runs/first                        FedPNS on the paper's synthetic data, no download
  fedpns report runs/first                                       its page, report.html
  fedpns strategies                                              what else there is to choose from

fedpns COMMAND --help has the flags and examples of a command.
"""
RESUMING = ("run", "compare", "study")
"""Commands that leave a folder from which the same command resumes."""


def entry() -> NoReturn:
    """The command `fedpns`: runs and exits."""
    ended: list[int] = []
    leave_when_done(lambda: ended[0] if ended else None)
    ended.append(main())
    sys.exit(ended[0])


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file may have a name that is no text
    try:
        options = build_parser().parse_args(words)
        options.words = words
        if options.runs_code:  # for --model mynets:Net in this folder; commands that only read import nothing from it
            sys.path.insert(0, str(Path.cwd()))
        code: int = options.command(options)
        return code
    except InputError as error:
        _say(" ".join(str(error).splitlines()))
        return 2
    except LostError as error:
        _say(f"{one_line(error, longest=500)}; the same command resumes")
        return 1
    except BrokenPipeError:
        return 141
    except OSError as error:
        return _unusable(error, words[0] in RESUMING)
    except KeyboardInterrupt:
        if words and words[0] in RESUMING:
            _say("stopped; the same command resumes")
        return 130


def _unusable(error: OSError, resuming: bool) -> int:
    """An error of the file system or the network that no one has worded yet: one line here."""
    where = f"{one_line(error.filename)}: " if error.filename else ""
    problem = error.strerror or one_line(error)
    _say(f"{where}{problem}{'; the same command resumes' * resuming}")
    return 1 if resuming else 2


def _say(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads the messages any more
        print(f"fedpns: {redacted_text(message)}", file=sys.stderr)


def build_parser() -> Parser:
    parser = Parser(
        prog="fedpns", description="Federated node selection: which nodes should train?", epilog=FIRST_STEPS
    )
    parser.add_argument("--version", action="version", version=f"fedpns {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.WHAT, description=module.WHAT, epilog=module.EXAMPLES)
        command.set_defaults(command=module.command, runs_code=module.RUNS_CODE)
        module.add_arguments(command)
    return parser


if __name__ == "__main__":
    entry()
