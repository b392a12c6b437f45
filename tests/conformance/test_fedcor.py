"""FedCor (Tang et al. 2022): which rounds are sampled, what nodes are asked, what is learned from the answers."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.fedcor import CorrelatedSelection
from fedpns_ray.strategies.gaussian_process import fitted
from tests.conformance.oracles.fedcor import covariance, released_choice
from tests.strategies.made import Asked, updates

DIFFERENCES = (
    "After the warm-up, a sample is a round with a uniform draw whose model is kept; the released code trains an "
    "additional uniform set from the same model, asks all nodes for its losses, and throws it away.",
    "Every loss that a node is asked for is counted; the released code has them for nothing in every round.",
    "The embedding starts from one fixed stream, whatever the seed; the released code's from torch's global generator.",
    "The warm-up has `warmup` rounds; the released code's has one more.",
    "No epsilon-greedy draws and no dynamic size of the draw, which are off in the released commands.",
)
SMALL = {"warmup": 2, "fit_every": 3, "first_fit_steps": 20, "fit_steps": 5, "dimension": 2, "loss_noise": 0.1}


def begun(count=4, per_round=2, sizes=None, **more):
    selection = CorrelatedSelection(**{**SMALL, **more})
    sizes = np.full(count, 10) if sizes is None else np.array(sizes)
    selection.begin(Nodes(sizes, np.zeros(count, dtype=bool), per_round))
    return selection


def losses(t, count=4):
    """The losses of all nodes under the model of round t - 1."""
    return stream(t, "losses").random(count)


def play(selection, rounds, first=1):
    """Rounds in which every drawn node returns; what was drawn, and whether all were asked."""
    seen = []
    for t in range(first, first + rounds):
        probe = Asked(losses(t, selection._nodes.count))
        drawn = sorted(selection.draw(stream(t, "draw"), probe))
        asked = [ids for ids, _ in probe.questions]
        assert asked in ([], [list(range(selection._nodes.count))])
        probed = dict(enumerate(probe.losses.tolist())) if asked else {}
        outcome = Outcome(np.zeros(1, dtype=np.float32), probed=probed)
        selection.learn(updates(np.zeros((len(drawn), 1)), ids=drawn), outcome)
        seen.append((drawn, bool(asked)))
    return seen


def test_who_is_asked_and_when():
    """Warm-up 1, 2; sampled 5, 8: losses before rounds 1, 2, 5, 8 and after them, so before 2, 3, 6, 9."""
    asked = [asked for _, asked in play(begun(), 10)]
    assert [t + 1 for t, yes in enumerate(asked) if yes] == [1, 2, 3, 5, 6, 8, 9]
    defaults = CorrelatedSelection()
    found = (defaults.warmup, defaults.fit_every, defaults.annealing, defaults.history, defaults.forgetting)
    assert found == (15, 10, 0.9, 100, 0.95)  # the released command for FMNIST
    assert (defaults.dimension, defaults.loss_noise, defaults.first_fit_steps, defaults.fit_steps) == (
        15,
        0.01,
        1000,
        100,
    )


def test_where_it_starts():
    """X is drawn from a standard normal over sqrt(D), always the same; alpha = 1; no loss is known."""
    state = begun().state_dict()
    np.testing.assert_array_equal(state["embedding"], stream(0, "embedding of nodes").normal(size=(2, 4)) / np.sqrt(2))
    assert state["alpha"].tolist() == [1] * 4 and np.isnan(state["losses"]).tolist() == [True] * 4


def test_a_warm_up_of_one_round():
    """Round 1 is sampled, and round 2 is drawn from a fit to that one sample, of weight 1."""
    selection = begun(warmup=1)
    start = selection.state_dict()["embedding"].copy()
    assert [asked for _, asked in play(selection, 3)] == [True, True, False]
    expected = fitted(start, np.array([losses(2) - losses(1)]), np.ones(1), 0.1, 20)
    np.testing.assert_allclose(selection.state_dict()["embedding"], expected)


def test_samples_are_loss_changes_over_sampled_rounds():
    selection = begun()
    play(selection, 6)
    state = selection.state_dict()
    assert state["sampled"].tolist() == [1, 2, 5]
    expected = [losses(2) - losses(1), losses(3) - losses(2), losses(6) - losses(5)]
    np.testing.assert_allclose(state["samples"], expected)


def test_old_samples_are_forgotten():
    """A history of 3 rounds: with the sample of round 5, those of rounds 1 are gone; 2 + 3 >= 5 stays."""
    selection = begun(history=3)
    play(selection, 6)
    assert selection.state_dict()["sampled"].tolist() == [2, 5]


def test_the_draw_is_the_released_choice_from_the_fit():
    """Round 3 is drawn from an embedding fitted to the samples of rounds 1 and 2, weighted 0.95 and 1, by data size."""
    sizes = [10, 20, 30, 40]
    selection = begun(sizes=sizes)
    start = selection.state_dict()["embedding"].copy()
    play(selection, 2)
    samples = np.array([losses(2) - losses(1), losses(3) - losses(2)])
    x = fitted(start, samples, np.array([0.95, 1.0]), 0.1, 20)
    ((drawn, _),) = play(selection, 1, first=3)
    p = [size / 100 for size in sizes]
    assert drawn == sorted(released_choice(covariance(x.tolist(), 0.1), [1.0] * 4, p, 2))
    np.testing.assert_allclose(selection.state_dict()["embedding"], x)
    expected = [0.9 if node in drawn else 1.0 for node in range(4)]
    np.testing.assert_allclose(selection.state_dict()["alpha"], expected)  # alpha_k falls when k is drawn


def test_alpha_is_used_and_reset_by_a_fit():
    selection = begun(annealing=0.5)
    seen = play(selection, 4)
    alpha = np.ones(4)
    alpha[seen[2][0]] *= 0.5
    x = selection.state_dict()["embedding"]
    assert seen[3][0] == sorted(released_choice(covariance(x.tolist(), 0.1), alpha.tolist(), [0.25] * 4, 2))
    play(selection, 1, first=5)  # sampled: a uniform draw leaves alpha
    alpha[seen[3][0]] *= 0.5
    np.testing.assert_allclose(selection.state_dict()["alpha"], alpha)
    ((drawn, _),) = play(selection, 1, first=6)
    np.testing.assert_allclose(selection.state_dict()["alpha"], [0.5 if k in drawn else 1.0 for k in range(4)])


def test_later_fits_take_fewer_steps_from_the_embedding_before():
    selection = begun()
    play(selection, 5)
    before, state = selection.state_dict()["embedding"].copy(), selection.state_dict()
    samples = np.vstack([state["samples"], losses(6) - losses(5)])
    play(selection, 1, first=6)
    expected = fitted(before, samples, 0.95 ** np.array([4.0, 3.0, 0.0]), 0.1, 5)
    np.testing.assert_allclose(selection.state_dict()["embedding"], expected)


def test_sampled_rounds_draw_uniformly():
    drawn = [play(begun(), 1, first=t)[0][0] for t in range(1, 400)]
    np.testing.assert_allclose(np.bincount(np.concatenate(drawn)) / 399, 0.5, atol=0.09)


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_restored_state_has_the_same_future(rounds):
    one, two = begun(), begun()
    play(one, rounds)
    two.load_state_dict({key: value.copy() for key, value in one.state_dict().items()})
    assert play(one, 6, first=rounds + 1) == play(two, 6, first=rounds + 1)
    assert one.state_dict()["embedding"].tobytes() == two.state_dict()["embedding"].tobytes()


def test_edges():
    assert [drawn for drawn, _ in play(begun(1, 1), 6)] == [[0]] * 6
    assert [drawn for drawn, _ in play(begun(2, 5), 6)] == [[0, 1]] * 6
    selection = begun()
    for t in range(1, 7):  # losses that never change, or are not numbers
        probe = Asked([1.0, np.nan, np.inf, 1.0])
        drawn = selection.draw(stream(t, "draw"), probe)
        assert len(set(drawn)) == 2
        probed = dict(enumerate(probe.losses.tolist())) if probe.questions else {}
        selection.learn(updates(np.zeros((0, 1))), Outcome(np.zeros(1, dtype=np.float32), probed=probed))
    assert np.isfinite(selection.state_dict()["embedding"]).all()
