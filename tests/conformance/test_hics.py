"""HiCS-FL (Chen and Vikalo 2024): estimated entropies, clusters and their probabilities, by hand and by oracle."""

import math

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.hics import HeterogeneityGuidedSelection, cut_into, entropies, preferences, times_drawn
from tests.conformance.oracles.hics import released_clusters, released_entropy, released_probabilities
from tests.strategies.made import updates

DIFFERENCES = (
    "Last updates are renewed whenever a node trains, as in the paper; the released code keeps those of the warm-up if "
    "it is told that the Dirichlet alphas of the nodes differ (`renewal: never`).",
    "Clusters are always drawn by entropy; the released code turns to clustered sampling if the variance of the "
    "estimated entropies is 0.1 or more.",
    "Entropy is estimated from the biases, as in the paper; the released code takes row means of the weights "
    "(`estimate: weights`).",
    "Every node is drawn once before the first clusters; the released code leaves out the last |K| mod |S_t| nodes.",
    "gamma falls to 0 over `anneal` rounds, not over those of the run: a run can then be extended.",
)
NOTHING = Outcome(np.zeros(1, dtype=np.float32))


def begun(count, per_round, outputs=2, inputs=1, **more):
    selection = HeterogeneityGuidedSelection(**{"clusters": 2, "temperature": 1.0, **more})
    parameters = outputs * inputs + outputs + 1
    selection.begin(
        Nodes(np.full(count, 10), np.zeros(count, dtype=bool), per_round, parameters=parameters,
              last_layer=(outputs, inputs))
    )  # fmt: skip
    return selection


def taught(rows, per_round, **more):
    selection = begun(len(rows), per_round, **more)
    selection.learn(updates(np.hstack([np.full((len(rows), 1), 9.0), rows])), NOTHING)
    return selection


def test_entropy_by_hand():
    """Equal biases: ln 2. Biases 0 and T ln 3: p = (1/4, 3/4), entropy 2 ln 2 - 3/4 ln 3. Far apart: 0."""
    found = entropies(np.array([[5.0, 5.0], [0.0, 0.5 * math.log(3)], [0.0, 1e4]]), 0.5)
    np.testing.assert_allclose(found, [math.log(2), 2 * math.log(2) - 0.75 * math.log(3), 0], atol=1e-12)


def test_what_entropy_is_estimated_from():
    """2 outputs of 2 inputs: weights (1, 3), (0, 4) have means 2 and 2, so ln 2; biases of 0 and ln 3 have less."""
    row = [[1, 3, 0, 4, 0, math.log(3)]]
    biases, weights = (taught(row, 1, inputs=2, estimate=estimate) for estimate in ("biases", "weights"))
    less = 2 * math.log(2) - 0.75 * math.log(3)
    assert biases.entropies(np.array([0]))[0] == pytest.approx(less, abs=1e-6)
    assert weights.entropies(np.array([0]))[0] == pytest.approx(math.log(2), abs=1e-6)
    assert biases.notes() == {"estimated_entropy": pytest.approx(less, abs=1e-6)}


def test_probabilities_by_hand():
    """gamma_t = ln 4: 4^1 against 4^0: 0.8 and 0.2. gamma_t = 0: equal."""
    np.testing.assert_allclose(preferences(np.array([1.0, 0.0]), math.log(4)), [0.8, 0.2])
    np.testing.assert_allclose(preferences(np.array([1.0, 0.0]), 0.0), [0.5, 0.5])


def test_gamma_falls_to_0():
    selection = begun(2, 1, gamma=4.0, anneal=4)
    seen = []
    for _ in range(6):
        seen.append(selection._gamma)
        selection.learn(updates(np.zeros((0, 5))), NOTHING)
    assert seen == [4, 3, 2, 1, 0, 0]  # gamma (1 - t / T)


def groups_of(selection):
    everybody = np.arange(selection._nodes.count)
    return selection.groups(everybody, selection.entropies(everybody))


def test_a_cluster_is_drawn_at_most_as_often_as_it_has_nodes():
    assert times_drawn(stream(1, "draw"), np.array([1.0, 0.0]), [2, 3], 4) == [2, 2]
    assert times_drawn(stream(1, "draw"), np.array([0.5, 0.5]), [2, 1], 3) == [2, 1]
    firsts = [times_drawn(stream(t, "draw"), np.array([0.9, 0.1]), [5, 5], 1)[0] for t in range(1000)]
    assert np.mean(firsts) == pytest.approx(0.9, abs=0.03)


def test_the_entropy_counts_in_distances():
    """Directions: 0 and 1 are the same, 2 and 3 the opposite. Biases: 0 and 2 balanced, 1 and 3 not. With lambda 0 the
    directions cluster, with a large lambda the entropies."""
    rows = [[1, 1, 0, 0], [1, 1, 0.2, -0.2], [-1, -1, 0, 0], [-1, -1, 0.2, -0.2]]
    for weight, groups in ((0.0, [[0, 1], [2, 3]]), (1e4, [[0, 2], [1, 3]])):
        assert sorted(groups_of(taught(rows, 1, entropy_weight=weight))) == groups
    apart = taught(rows, 2, entropy_weight=1e4, gamma=1e6, temperature=0.05)
    assert sorted(apart.draw(stream(1, "draw"), None)) == [0, 2]


def test_the_warm_up_goes_round():
    selection = begun(5, 2)
    seen = []
    for t in range(3):
        drawn = selection.draw(stream(t, "draw"), None)
        seen.append(drawn)
        selection.learn(updates(np.ones((2, 5)), ids=sorted(drawn)), NOTHING)
    assert seen[:2] == [[0, 1], [2, 3]] and seen[2][0] == 4 and len(set(seen[2])) == 2


def test_renewal():
    """Node 0 trains again: its biases were far apart, and now are equal."""
    for renewal, expected in (("always", math.log(2)), ("never", 0.0)):
        selection = taught([[1, 1, 0, 1e4], [1, 1, 0, 0]], 1, renewal=renewal)
        selection.learn(updates([[9, 1, 1, 0, 0]], ids=(0,)), NOTHING)
        assert selection.entropies(np.array([0, 1])) == pytest.approx([expected, math.log(2)])


def test_defaults():
    made = HeterogeneityGuidedSelection()
    assert (made.clusters, made.temperature, made.entropy_weight, made.gamma, made.anneal) == (10, 0.001, 10, 4, 200)


def test_edges_and_restored_state():
    assert begun(2, 1).notes() == {"estimated_entropy": 0}
    assert taught([[1, 1, 0, 0]], 1).draw(stream(1, "draw"), None) == [0]
    assert sorted(taught([[0, 0, 0, 0]] * 3, 5).draw(stream(1, "draw"), None)) == [0, 1, 2]
    assert len(cut_into([], 1, 10)) == 1 and cut_into([(0, 1), (2, 3)], 3, 5) == [[0], [1], [2]]
    one = taught(stream(1, "case").standard_normal((6, 4)), 3)
    two = begun(6, 3)
    two.load_state_dict(one.state_dict())
    assert [one.draw(stream(t, "draw"), None) for t in range(9)] == [
        two.draw(stream(t, "draw"), None) for t in range(9)
    ]
    with pytest.raises(InputError, match="model: must end in a linear layer with biases, which hics looks at"):
        HeterogeneityGuidedSelection().begin(Nodes(np.ones(2, dtype=int), np.ones(2, dtype=bool), 1))


def test_the_balanced_are_drawn_first():
    """Nodes 0-2 have equal biases, 3-5 very unequal ones. exp(gamma ln 2) with gamma 40: always the balanced; with 0:
    half of the draws."""
    rows = [[1, 1, 0, 0]] * 3 + [[1, -1, 9, -9]] * 3
    strong = taught(rows, 2, gamma=40.0, anneal=10**6)
    assert all(set(strong.draw(stream(t, "draw"), None)) <= {0, 1, 2} for t in range(50))
    assert len(set(strong.draw(stream(1, "draw"), None))) == 2
    none = taught(rows, 1, gamma=0.0)
    drawn = [none.draw(stream(t, "draw"), None)[0] for t in range(800)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=6) / 800, 1 / 6, atol=0.04)
    some = taught(rows, 1, gamma=2.0, anneal=10**9)  # 2^2 = 4 against 1
    drawn = [some.draw(stream(t, "draw"), None)[0] for t in range(800)]
    assert np.mean([node < 3 for node in drawn]) == pytest.approx(0.8, abs=0.05)


def test_entropies_clusters_and_probabilities_against_the_released_rule():
    for case in range(150):
        rng = stream(case, "case")
        count, outputs = int(rng.integers(2, 9)), 3
        rows = rng.standard_normal((count, outputs * 2 + outputs)).astype(np.float32).astype(float)
        temperature, weight = float(rng.uniform(0.2, 2)), float(rng.choice([0.0, 1.0, 10.0]))
        selection = taught(rows, 2, outputs=outputs, inputs=2, temperature=temperature, entropy_weight=weight,
                           estimate="weights", clusters=3)  # fmt: skip
        found = selection.entropies(np.arange(count))
        magnitudes = [[(row[2 * c] + row[2 * c + 1]) / 2 for c in range(outputs)] for row in rows]
        expected = [released_entropy(magnitude, temperature) for magnitude in magnitudes]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        groups = groups_of(selection)
        assert sorted(groups) == released_clusters(rows.tolist(), expected, weight, 3)
        mean = [float(np.mean([expected[k] for k in group])) for group in groups]
        for done in (0, 50, 199):
            p = preferences(np.array(mean), 4.0 * (1 - done / 200))
            np.testing.assert_allclose(p, released_probabilities(mean, 4.0, done, 200), rtol=1e-9)
