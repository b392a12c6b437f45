"""Mutants are noticed: three of every rule here, all of them by `python -m tests.conformance.mutation`."""

import ast
import json

import pytest

from tests.conformance import mutation
from tests.conformance.equivalent import EQUIVALENT
from tests.conformance.mutants import mutants

RULE = """
def rule(norms, size):
    best = np.sqrt(norms) + 1
    if size < 3:
        return np.argmin(best[:size])
    return -best
"""


def test_kinds_of_mutants():
    found = {(mutant.line, mutant.before, mutant.after) for mutant in mutants(RULE)}
    assert {
        (3, "np.sqrt(norms)", "norms"),  # a missing root
        (3, "np.sqrt(norms) + 1", "np.sqrt(norms) - 1"),  # a flipped sign
        (3, "np.sqrt(norms) + 1", "np.sqrt(norms)"),  # a dropped term
        (3, "1", "2"),  # a changed constant
        (4, "size < 3", "size <= 3"),  # off by one
        (4, "size < 3", "size > 3"),
        (5, "np.argmin(best[:size])", "np.argmax(best[:size])"),
        (5, ":size", ":size + 1"),
        (6, "-best", "best"),
    } <= found


@pytest.mark.parametrize("file", mutation.files())
def test_three_of_every_rule_are_killed(file):
    chosen = mutation.chosen(file)
    assert len(chosen) == 3
    assert [str(mutant) for mutant in chosen if not mutation.killed(file, mutant)] == []


def test_a_mutant_that_nothing_checks_survives():
    """Only the record of a round differs, in a digit that no test looks at: the engine must not call that killed."""
    tree = ast.parse(mutation.source_of("pns").replace(".9g", ".8g"))
    assert mutation.killed("pns", mutants("1 + 1")[0]._replace(make=lambda: tree)) == ""


def test_known_equivalents_still_exist():
    for file, known in EQUIVALENT.items():
        assert set(known) <= {mutant.words for mutant in mutants(mutation.source_of(file))}, file


def test_the_scores_in_the_documentation_are_of_this_code():
    scores = json.loads(mutation.SCORES.read_text())
    old = [file for file in mutation.files() if scores.get(file, {}).get("fingerprint") != mutation.fingerprint(file)]
    assert not old, f"python -m tests.conformance.mutation {' '.join(old)}"
