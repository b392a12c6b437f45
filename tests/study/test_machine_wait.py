"""While no trial runs, a study says what it waits for, and gives up at a limit."""

import logging

import pytest

from fedpns_ray.errors import LostError
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.study import machine_wait
from fedpns_ray.study.machine_wait import FREED_WITHIN, MachineWait
from fedpns_ray.study.packing import pack
from fedpns_ray.study.study_file import read_study


@pytest.fixture
def clock(monkeypatch):
    """A machine that holds a trial, and a clock that moves when it is told to."""
    machine, now = Machine("m", 2, 0, 8e9), [0.0]
    monkeypatch.setattr(machine_wait, "machines", lambda whole: [machine])
    monkeypatch.setattr(machine_wait.time, "monotonic", lambda: now[0])
    packing = pack(read_study({"base": {"rounds": 2}, "seeds": 1}), [machine])
    return now, MachineWait(packing)


def test_machines_that_others_use_are_awaited_aloud_and_not_forever(clock, caplog):
    now, wait = clock
    with (
        caplog.at_level(logging.INFO, "fedpns_ray"),
        pytest.raises(LostError, match="no trial could start within 600 s"),
    ):
        for second in range(0, int(FREED_WITHIN) + 20, 2):
            now[0] = float(second)
            wait.check(running=False)
    assert now[0] == FREED_WITHIN + 2 <= 602
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "no trial runs yet: workers are starting, or others use the machines; 16 of 600 s"
    assert len(said) == 37


def test_a_trial_that_runs_ends_the_wait(clock):
    now, wait = clock
    for second in range(0, 5000, 2):
        now[0] = float(second)
        wait.check(running=second % 500 == 0)
