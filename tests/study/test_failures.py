"""Which failures count: a trial's own, and not the loss of machines, until there are too many."""

from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from fedpns_ray.study import failures
from fedpns_ray.study.failures import MOST_LOSSES, Failures

TRIAL = SimpleNamespace(trial_id="t")


@pytest.fixture
def dead(monkeypatch):
    """Machines that Ray has given up; every actor here is on a machine of the same name."""
    lost = set()
    monkeypatch.setattr(failures, "machine_of", lambda actor: actor)
    monkeypatch.setattr(failures, "_lost_machines", lambda: lost)
    return lost


def died(machine):
    error = ActorDiedError()
    error.actor_id = machine
    return error


def test_errors_and_crashes_count_and_lost_machines_do_not(dead):
    count = Failures()
    dead |= {"a", "b"}
    assert [count.count(TRIAL, "t", error) for error in (died("a"), ValueError(), died("b"), died("c"))] == [0, 1, 1, 2]
    assert count.count(SimpleNamespace(trial_id="other"), "o", ValueError()) == 1
    dead.add("c")  # it was not yet known
    assert count.count(TRIAL, "t", ValueError()) == 2


def test_a_worker_that_cannot_be_reached_is_judged_later(dead):
    count = Failures()
    assert count.count(TRIAL, "t", ActorUnavailableError("a", b"\1" * 16)) == 0
    assert count.count(TRIAL, "t", ActorUnavailableError("b", b"\2" * 16)) == 1  # the first one's machine is there
    dead |= {(b"\1" * 16).hex(), (b"\2" * 16).hex()}
    assert count.count(TRIAL, "t", ValueError()) == 1


def test_too_many_losses_count(dead):
    count = Failures()
    dead |= {str(k) for k in range(100)}
    counted = [count.count(TRIAL, "t", died(str(k))) for k in range(MOST_LOSSES + 2)]
    assert counted == [0] * MOST_LOSSES + [1, 2]
