"""The mutants of a Python file: its syntax tree with one small change each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    line: int
    before: str
    after: str
    make: Callable[[], ast.Module]
    column: int = 0
    code: str = ""
    number: int = 1
    """Of several equal changes of one line, in the order of their places."""
    """The line as it is written."""

    @property
    def words(self) -> str:
        """What is changed and where, whatever the number of the line."""
        return f"{self.code} | {self._change}"

    def __str__(self) -> str:
        return f"line {self.line}: {self._change}"

    @property
    def _change(self) -> str:
        again = f" (no. {self.number})" if self.number > 1 else ""
        return f"{self.before} → {self.after}{again}"


SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OPPOSITES = {
    "min": "max", "argmin": "argmax", "minimum": "maximum", "floor": "ceil", "argsort": "argmax", "any": "all",
    "cumsum": "cumprod",
}  # fmt: skip
OPPOSITES |= {there: here for here, there in OPPOSITES.items() if here not in ("argsort", "cumsum")}
DROPPED = ("sqrt", "exp", "log", "square", "sign", "abs", "arccos", "nan_to_num", "sorted", "permutation")
"""Functions of one argument that a mutant leaves out."""


QUANTITIES = {
    "sizes": "steps", "steps": "sizes", "losses": "sizes", "train": "upload", "upload": "train", "gain": "upload",
    "speed": "uplink", "uplink": "speed",
}  # fmt: skip
"""What a node reports: a mutant takes another of its numbers."""
SIZES = ("per_round", "candidates", "choices", "count")


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.BinOp):
        if type(node.op) in SIGNS:
            yield ast.BinOp(node.left, SIGNS[type(node.op)](), node.right)
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)):
            yield node.left
    elif isinstance(node, ast.AugAssign) and type(node.op) in SIGNS:
        yield ast.AugAssign(node.target, SIGNS[type(node.op)](), node.value)
        yield ast.Pass()
    elif isinstance(node, ast.Compare):
        for k, op in enumerate(node.ops):
            for other in COMPARISONS.get(type(op), ()):
                yield ast.Compare(node.left, [*node.ops[:k], other(), *node.ops[k + 1 :]], node.comparators)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        if node.attr in QUANTITIES:
            yield ast.Attribute(node.value, QUANTITIES[node.attr], node.ctx)
        elif node.attr in SIZES:
            yield ast.BinOp(node, ast.Add(), ast.Constant(1))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.Call):
        yield from _called(node)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else 2 * node.value + (node.value == 0))
    elif isinstance(node, ast.Slice) and node.upper is not None:
        yield ast.Slice(node.lower, ast.BinOp(node.upper, ast.Add(), ast.Constant(1)), node.step)


def _called(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in DROPPED and node.args:
        yield node.args[0]
    if name == "norms" and isinstance(node.func, ast.Attribute):
        yield ast.Attribute(node.func.value, "losses", ast.Load())
    if name == "size":
        yield ast.BinOp(node, ast.Add(), ast.Constant(1))
    if name in OPPOSITES:
        func = copy.copy(node.func)
        setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", OPPOSITES[name])
        yield ast.Call(func, node.args, node.keywords)


Place = tuple[ast.AST, str, int | None]
"""Parent, field, and index where the field is a list."""


def _places(node: ast.AST) -> Iterator[Place]:
    """Every place in a tree where a rule may stand.

    Errors and their words, annotations, docstrings, bounds of parameters and what a record says are no rule.
    """
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.JoinedStr, ast.Import)):
                continue
            if isinstance(child, ast.keyword) and child.arg in ("ge", "gt", "le", "lt", "notes", "key"):
                continue
            yield node, name, index
            yield from _places(child)


def mutants(source: str) -> list[Mutant]:
    """All of them, in the order of lines."""
    tree, lines = ast.parse(source), source.splitlines()
    found = []
    for parent, name, index in list(_places(tree)):
        held = getattr(parent, name)
        node = held if index is None else held[index]
        for variant in _variants(node):
            line = getattr(node, "lineno", 0) or parent.lineno
            make = _making(tree, (parent, name, index), node, variant)
            found.append(
                Mutant(line, *_words(node, variant), make, getattr(node, "col_offset", 0), lines[line - 1].strip())
            )
    return sorted(_distinct(found), key=lambda mutant: mutant.line)


def _making(tree: ast.Module, place: Place, node: ast.AST, variant: ast.AST) -> Callable[[], ast.Module]:
    """The tree with the variant in that place, made when it is asked for; the tree itself stays as it is."""
    parent, name, index = place

    def put(one: ast.AST) -> None:
        if index is None:
            setattr(parent, name, one)
        else:
            getattr(parent, name)[index] = one

    def make() -> ast.Module:
        put(ast.copy_location(variant, node))
        changed = ast.fix_missing_locations(copy.deepcopy(tree))
        put(node)
        return changed

    return make


def _words(node: ast.AST, variant: ast.AST) -> tuple[str, str]:
    return tuple(ast.unparse(one) for one in (node, variant))


def _distinct(found: list[Mutant]) -> list[Mutant]:
    """Each change of each place once, numbered where one line has several equal ones."""
    places: dict[str, dict[int, Mutant]] = {}
    for mutant in found:
        places.setdefault(str(mutant), {}).setdefault(mutant.column, mutant)
    return [one._replace(number=k) for same in places.values() for k, one in enumerate(same.values(), start=1)]
