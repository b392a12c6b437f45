"""YAML files that know the line of every key, checked before anything in them is expanded.

A study file may come from anywhere. It is refused if it is larger, deeper or richer in values than any real one; if an
anchor contains itself, or aliases multiply its values; if it holds a tag, or a key that is not text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml

from fedpns_ray.atomic_file import read_whole
from fedpns_ray.errors import InputError, one_line

Key = str | int
Lines = dict[tuple[Key, ...], int]

MOST_BYTES = 1_000_000
MOST_VALUES = 50_000
"""Keys, values, lists and mappings of a file, with its aliases written out."""
DEEPEST = 20
"""Lists and mappings within each other."""
LONGEST_VALUE = 10_000
"""Characters of one key or value: text in base 60 is a number to YAML, and slow to compute."""

MERGE = "tag:yaml.org,2002:merge"
TEXT = "tag:yaml.org,2002:str"
BOOLEAN = "tag:yaml.org,2002:bool"
DATE = "tag:yaml.org,2002:timestamp"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, to which a date is text: no setting is one."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != DATE]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class YamlFile:
    """A mapping read from a file, or given as one; `place` says where a key is written, for errors."""

    def __init__(self, source: Path | Mapping[str, Any]) -> None:
        self.path = source if isinstance(source, Path) else None
        self.text = b""
        self.content: dict[str, Any] = {}
        self._lines: Lines = {}
        if isinstance(source, Path):
            self.text = _read(source)
            self.content, self._lines = _parsed(self.text, str(source))
        else:
            self.content = dict(source)

    def place(self, *keys: Key) -> str:
        """`study.yaml: line 3`, the line of the key or of the nearest one around it; empty if there is no file."""
        lines = (self._lines.get(keys[:end]) for end in range(len(keys), 0, -1))
        line = next(filter(None, lines), None)
        return f"{self.path}: line {line}" if line else str(self.path or "")


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping from a YAML file, or an InputError that names the file and the line."""
    return YamlFile(path).content


def parse_yaml(content: bytes, place: str = "") -> dict[str, Any]:
    """The same from the content of a file."""
    return _parsed(content, place)[0]


def _read(path: Path) -> bytes:
    try:
        content = read_whole(path, MOST_BYTES)
    except OSError as error:
        raise _unreadable(str(path), f"cannot be read ({error.strerror})") from None
    if content is None:
        raise _unreadable(str(path), "cannot be read (No such file or directory)")
    return content


def _parsed(content: bytes, place: str) -> tuple[dict[str, Any], Lines]:
    if len(content) > MOST_BYTES:
        raise _unreadable(place, f"has {len(content):,} bytes; {MOST_BYTES:,} are allowed")
    try:
        text = content.decode()
        _check_events(text, place)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _Checked(place).count(node)
            lines: Lines = {}
            _note_lines(node, (), lines, place)  # before keys are merged
            found = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except UnicodeDecodeError:
        raise _unreadable(place, "not a YAML file (not UTF-8)") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = f"not a YAML file{where} ({one_line(getattr(error, 'problem', None) or error)})"
        raise _unreadable(place, problem) from None
    except InputError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise _unreadable(place, f"holds a value that cannot be read ({one_line(error)})") from None
    if found is None:
        return {}, {}
    if not isinstance(found, dict):
        raise _unreadable(place, "must hold keys and values, such as sigma: 0.2")
    return found, lines


def _unreadable(place: str, problem: str) -> InputError:
    """About a file as a whole, not about a field in it."""
    return InputError("", problem=problem, place=place)


def _refuse(problem: str, place: str, mark: Any) -> NoReturn:
    raise _unreadable(_at(place, mark.line + 1), problem)


def _at(place: str, line: int) -> str:
    return ": ".join(filter(None, [place, f"line {line}"]))


# --- before anything is expanded --------------------------------------------------------------------------------------


def _check_events(text: str, place: str) -> None:
    """What the parser sees, one thing after the other and in no memory: depth, number, length, tags."""
    depth = values = documents = 0
    for event in yaml.parse(text, _Loader):
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            _refuse("there is more than one document", place, event.start_mark)
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if not isinstance(event, yaml.NodeEvent):
            continue
        values += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > DEEPEST:
            _refuse(f"nested more than {DEEPEST} levels deep", place, event.start_mark)
        if values > MOST_VALUES:
            _refuse(f"there are more than {MOST_VALUES:,} values", place, event.start_mark)
        if getattr(event, "tag", None) is not None:
            _refuse("tags such as !!float are not allowed", place, event.start_mark)
        if len(getattr(event, "value", "")) > LONGEST_VALUE:
            _refuse(f"a value has more than {LONGEST_VALUE:,} characters", place, event.start_mark)


class _Checked:
    """Counts the values of a document with its aliases written out, without writing them out."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._counts: dict[int, int] = {}
        self._above: set[int] = set()

    def count(self, node: yaml.Node | None) -> int:
        if not isinstance(node, yaml.CollectionNode):
            return 1
        if id(node) in self._above:
            _refuse("an anchor contains itself", self._place, node.start_mark)
        if id(node) not in self._counts:
            self._above.add(id(node))
            self._counts[id(node)] = 1 + sum(map(self.count, self._parts(node)))
            self._above.remove(id(node))
        if self._counts[id(node)] > MOST_VALUES:
            _refuse(f"expands to more than {MOST_VALUES:,} values, aliases included", self._place, node.start_mark)
        return self._counts[id(node)]

    def _parts(self, node: yaml.CollectionNode) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == BOOLEAN:
                key.tag = TEXT  # a key named `on` or `no` is a name
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (TEXT, MERGE):
                name = one_line(key.value, 50) if isinstance(key, yaml.ScalarNode) and key.value else "one"
                _refuse(f"keys must be strings; {name} is not one", self._place, key.start_mark)
        return [part for pair in node.value for part in pair]


def _note_lines(node: yaml.Node | None, keys: tuple[Key, ...], lines: Lines, place: str) -> None:
    """The line of every key and list item. YAML would silently let the second of two equal keys win: refused."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            own = (*keys, str(key_node.value))
            line = key_node.start_mark.line + 1
            if own in lines:
                raise InputError(key_node.value, problem="is given twice", place=_at(place, line))
            lines[own] = line
            _note_lines(value, own, lines, place)
    elif isinstance(node, yaml.SequenceNode):
        for k, item in enumerate(node.value):
            lines[(*keys, k)] = item.start_mark.line + 1
            _note_lines(item, (*keys, k), lines, place)
