"""YAML files that can say in which line a key stands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedpns_ray.errors import InputError

Key = str | int
Lines = dict[tuple[Key, ...], int]


class YamlFile:
    """A mapping read from a file, or given as one; `error` speaks of a key in it, with its line if there are lines."""

    def __init__(self, source: Path | Mapping[str, Any]) -> None:
        self.path = source if isinstance(source, Path) else None
        self.content: dict[str, Any] = {}
        self._lines: Lines = {}
        if isinstance(source, Path):
            self.content, self._lines = _read(source)
        else:
            self.content = dict(source)

    def line(self, *keys: Key) -> int | None:
        return self._lines.get(keys)

    def error(self, message: str, *keys: Key) -> InputError:
        """An InputError with the line of the key, or of the nearest one around it."""
        for end in range(len(keys), 0, -1):
            if line := self.line(*keys[:end]):
                return InputError(f"{self.path}: line {line}: {message}")
        return InputError(f"{self.path}: {message}" if self.path else message)


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping from a YAML file, or an InputError that names the file and the line."""
    return YamlFile(path).content


def _read(path: Path) -> tuple[dict[str, Any], Lines]:
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, yaml.SafeLoader)
        content = yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a YAML file (not UTF-8)") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{path}: not a YAML file{where} ({reason})") from None
    except ValueError as error:  # a date of the 99th month, a number of thousands of digits
        raise InputError(f"{path}: holds a value that cannot be read ({error})") from None
    if content is None:
        return {}, {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: must hold keys and values, such as sigma: 0.2")
    lines: Lines = {}
    _note_lines(node, (), lines, path)
    return content, lines


def _note_lines(node: yaml.Node | None, keys: tuple[Key, ...], lines: Lines, path: Path) -> None:
    """The line of every key and list item; a key that stands twice is a mistake that YAML would hide."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            own = (*keys, str(key_node.value))
            if own in lines:
                raise InputError(f"{path}: line {key_node.start_mark.line + 1}: {key_node.value} stands here twice")
            lines[own] = key_node.start_mark.line + 1
            _note_lines(value, own, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for k, item in enumerate(node.value):
            lines[(*keys, k)] = item.start_mark.line + 1
            _note_lines(item, (*keys, k), lines, path)
