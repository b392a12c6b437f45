"""`fedpns new`: a small working part of your own, with its test, to start from."""

from __future__ import annotations

import argparse
import keyword
import sys
from importlib.resources import files
from pathlib import Path

from fedpns_ray.atomic_file import write_whole
from fedpns_ray.errors import InputError
from fedpns_ray.terminal.screen import console

WHAT = "Write a strategy, data set or model of your own to start from, with its test."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns new strategy tides          writes tides.py and test_tides.py
  fedpns run --strategy tides:Tides
"""
KINDS = ("strategy", "dataset", "model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, help="what to write")
    parser.add_argument("name", metavar="NAME", help="its name, such as tides or night-shift")


def command(options: argparse.Namespace) -> int:
    module = options.name.replace("-", "_").lower()
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module):
        raise InputError("name", options.name, "it must be a word of letters, digits and hyphens, such as night-shift")
    if module in sys.stdlib_module_names or module in ("fedpns_ray", "torch", "numpy", "ray"):
        raise InputError("name", options.name, f"there is a module {module} already; choose another name")
    words = {
        "CLASS": "".join(part.capitalize() for part in module.split("_")),
        "MODULE": module,
        "NAME": module.replace("_", "-"),
        "KIND": options.kind,
    }
    targets = {Path(f"{module}.py"): options.kind, Path(f"test_{module}.py"): "test"}
    for path in targets:
        if path.exists():
            raise InputError(
                "name", options.name, problem=f"{path} exists", hint="choose another name, or move it away"
            )
    for path, template in targets.items():
        text = (files("fedpns_ray.terminal") / "templates" / f"{template}.py.txt").read_text()
        for word, value in words.items():
            text = text.replace(word, value)
        write_whole(path, text.encode())
    console.print(f"written: {', '.join(map(str, targets))}")
    console.print(f"try: fedpns run --{options.kind} {module}:{words['CLASS']} --rounds 5", soft_wrap=True)
    return 0
