"""What nodes keep: bounded memory, exact in a checkpoint, and nothing believed that is damaged."""

import numpy as np
import pytest

from fedpns_ray import Experiment, Interrupted, run
from fedpns_ray.core.node_states import NodeStates, damage_of
from fedpns_ray.errors import UserCodeError
from fedpns_ray.strategies import Objective
from tests.test_run import untimed

SMALL = {"nodes": 10, "fraction": 0.5, "samples_per_node": 20, "rounds": 8, "model": "mlr", "strategy": "scaffold"}


def rows(*firsts):
    return np.array([[first, first + 0.5, -first] for first in firsts], dtype=np.float32)


def small(most=24):
    """Two states of three numbers in memory, the rest on disk; a checkpoint holds two in one array."""
    return NodeStates(3, most_in_memory=most, piece=24)


def test_states_come_back_from_memory_and_disk():
    states = small()
    assert states.of([1, 2]) == {} and len(states) == 0 and list(states) == []
    states.keep([7, 3], rows(7, 3))
    states.keep([9, 5, 1], rows(9, 5, 1))
    states.keep([3, 9], rows(33, 99))  # one of them is in memory, the other on disk
    found = states.of([9, 4, 3, 1])
    assert sorted(found) == [1, 3, 9]
    assert all(np.array_equal(found[node], rows(first)[0]) for node, first in ((9, 99), (3, 33), (1, 1)))
    assert list(states) == ["state_nodes", "states_0", "states_1", "states_2"]
    assert states["state_nodes"].tolist() == [7, 3, 9, 5, 1]
    assert np.array_equal(states["states_1"], rows(99, 5)) and np.array_equal(states["states_2"], rows(1))


@pytest.mark.parametrize("most", [0, 24, 2**20])
def test_a_checkpoint_is_restored_whatever_fits_into_memory(most):
    states = small()
    states.keep(range(5), rows(*range(5)))
    again = small(most)
    again.restore(states)
    assert {key: value.tolist() for key, value in again.items()} == {k: v.tolist() for k, v in states.items()}
    again.keep([2], rows(22))
    assert states.of([2])[2][0] == 2  # one does not share memory with the other


@pytest.mark.parametrize(
    "change, words",
    [
        ({}, ""),
        ({"state_nodes": np.array([1, 1, 2])}, "impossible"),
        ({"state_nodes": np.array([1.0, 2.0, 3.0])}, "impossible"),
        ({"state_nodes": np.array([1, 2, 5])}, "do not exist"),
        ({"state_nodes": np.array([1, 2])}, "3 states of 2 nodes"),
        ({"states_1": np.array([[1, np.nan, 2]], dtype=np.float32)}, "another kind"),
        ({"states_1": np.array([[1, 2, 3]])}, "another kind"),
        ({"states_1": np.ones((1, 2), dtype=np.float32)}, "several lengths"),
    ],
)
def test_damage_is_named(change, words):
    states = small()
    states.keep([0, 3, 4], rows(0, 3, 4))
    found = damage_of({**dict(states), **change}, nodes=5)
    assert words in found and bool(found) == bool(words)


def test_a_run_whose_states_do_not_fit_into_memory(monkeypatch, tmp_path):
    e = Experiment(**SMALL)
    whole = run(e, progress=False)
    monkeypatch.setattr("fedpns_ray.core.run.NodeStates", lambda length: NodeStates(length, 8 * length, 12 * length))
    seen = []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 4, progress=False)
    with np.load(tmp_path / "r" / "checkpoint.npz") as state:
        assert [len(state[key]) for key in state.files if key.startswith("states_")][:2] == [3, 3]
    resumed = run(e, tmp_path / "r", progress=False)
    assert resumed.summary.weights_sha256 == whole.summary.weights_sha256
    assert untimed(resumed.records) == untimed(whole.records)


def test_damaged_states_are_not_resumed_from(tmp_path, caplog):
    e = Experiment(**SMALL)
    seen = []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 6, progress=False, checkpoint_every=2)
    path = tmp_path / "r" / "checkpoint.npz"
    with np.load(path) as state:
        needle = state["states_0"][0].tobytes()[:64]
    content = bytearray(path.read_bytes())
    at = content.index(needle)
    content[at] ^= 1
    path.write_bytes(content)
    resumed = run(e, tmp_path / "r", progress=False)
    assert "checkpoint.npz cannot be read; it resumes after round 4" in caplog.text
    assert resumed.summary.weights_sha256 == run(e, progress=False).summary.weights_sha256


class Odd(Objective):
    """What its nodes keep has the wrong shape."""

    name = "odd"
    keeps_states = True

    def next_states(self, states, shared, updates):
        return states[:, :-1]


def test_states_of_the_wrong_shape_are_refused_by_file_and_line():
    with pytest.raises(UserCodeError, match=r"test_node_states.py.*next_states.*it must be float32 of \(5, "):
        run(Experiment(**SMALL | {"strategy": "fedavg", "objective": Odd}), progress=False)
