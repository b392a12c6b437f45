"""State without boilerplate: what a part keeps in private attributes crosses a checkpoint by itself."""

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, Interrupted, run
from fedpns_ray.strategies import Selection

SMALL = {"nodes": 12, "fraction": 0.25, "samples_per_node": 30, "epochs": 1, "rounds": 12}


class Wanderer(Selection):
    """Draws three nodes in a row, from where it has got to; nobody wrote a state_dict for it."""

    name = "wanderer"
    _count: int = 0
    _at: int = 0
    _mood: str = "calm"
    _pace: float = 1.0
    _seen: np.ndarray | None = None

    def begin(self, nodes):
        self._count = nodes.count

    def draw(self, rng, probe):
        shift = 0 if self._seen is None else int(self._seen.sum())
        return [(self._at + shift + k * (1 + (self._mood == "wild"))) % self._count for k in range(3)]

    def learn(self, updates, outcome):
        self._at += int(2 * self._pace)
        self._mood, self._pace = "wild" if self._at % 3 == 0 else "calm", self._pace + 0.5
        self._seen = np.arange(self._at % 4)


class Forgetful(Selection):
    """Keeps its memory where no checkpoint looks."""

    name = "forgetful"
    _memory: list = []  # noqa: RUF012

    def draw(self, rng, probe):
        return [0]


class Eager(Selection):
    """Trains more nodes than |S_t|."""

    name = "eager"

    def trains(self, per_round):
        return 3 * per_round

    def draw(self, rng, probe):
        return range(9)


@pytest.mark.parametrize("stop_after", [1, 4, 7])
def test_a_part_without_a_state_dict_resumes_to_the_same_bits(tmp_path, stop_after):
    e = Experiment(strategy="tests.strategies.test_state:Wanderer", **SMALL)
    whole, seen = run(e), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= stop_after)
    resumed = run(e, tmp_path / "r")
    assert resumed.rounds["drawn"].tolist() == whole.rounds["drawn"].tolist()
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]


def test_state_that_a_checkpoint_would_lose_is_refused(tmp_path):
    with pytest.raises(
        InputError, match="Forgetful: its attribute _memory is a list, which a checkpoint does not hold"
    ):
        run(Experiment(strategy="tests.strategies.test_state:Forgetful", **SMALL), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_checkpoint_that_lacks_a_key_is_not_built_on(tmp_path):
    e, seen = Experiment(strategy="fedpns", **SMALL), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 5)
    with np.load(tmp_path / "r" / "checkpoint.npz") as state:
        kept = {key: state[key] for key in state.files if key != "selection.p"}
    np.savez(tmp_path / "r" / "checkpoint.npz", **kept)
    again = []
    resumed = run(e, tmp_path / "r", on_round=again.append)
    assert again[0]["round"] == 1 and resumed.summary["weights_sha256"] == run(e).summary["weights_sha256"]


def test_plans_know_how_many_nodes_a_part_of_ones_own_trains():
    assert Experiment(strategy="tests.strategies.test_state:Eager", **SMALL).trained_per_round == 9
    assert Experiment(strategy="bn2", candidates=8, **SMALL).trained_per_round == 8
    assert Experiment(strategy="fedpns", **SMALL).trained_per_round == 3
