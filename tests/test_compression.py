"""Compression: by hand, against plain loops, with true byte counts, beside every other thing that nodes keep."""

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, Interrupted, run
from fedpns_ray.core.compression import Compression
from fedpns_ray.core.compression.none import NoCompression
from fedpns_ray.core.compression.one_bit import OneBitCompression
from fedpns_ray.core.compression.sending import compressed
from fedpns_ray.core.compression.top_k import TopKCompression, largest
from fedpns_ray.core.interfaces import Updates
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.errors import UserCodeError
from fedpns_ray.registry import PARTS
from fedpns_ray.runtime.driver import begun
from tests.test_run import untimed

SMALL = {"nodes": 8, "fraction": 0.5, "samples_per_node": 30, "rounds": 6, "model": "mlr", "lr": 0.05}
EVERY = {
    "top-k": {"compression": "top-k", "compression.ratio": 0.1, "compression.momentum": 0.5},
    "one-bit": {"compression": "one-bit"},
}
MLR = 61 * 10
"""Parameters: 10 x 60 and 10."""


def vector(*numbers):
    return np.array(numbers, dtype=np.float32)


def rounds_of(compression, updates, tensors):
    """What the server reads in each round, and what the node keeps after it."""
    kept = np.zeros((compression.keeps, len(updates[0])), dtype=np.float32)
    found = []
    for update in updates:
        message, kept = compression.encode(vector(*update), kept, tensors)
        assert len(message) == compression.expected_bytes(tensors)
        found.append((compression.decode(message, tensors).tolist(), kept.tolist()))
    return found


def test_top_k_by_hand():
    """Lin et al. 2018, Section 3.2 and 3.3, with m = 0.5; one of three entries of each tensor is sent.

    Round 1: u = v = g = (4, -1, 2 | 1, 1, -3): 4 and -3 are sent, there u = v = 0.
    Round 2: g = (0, -1, 1 | 2, 0, 0): u = 0.5 (0, -1, 2 | 1, 1, 0) + g = (0, -1.5, 2 | 2.5, 0.5, 0),
             v = (0, -1, 2 | 1, 1, 0) + u = (0, -2.5, 4 | 3.5, 1.5, 0): 4 and 3.5 are sent.
    """
    found = rounds_of(
        TopKCompression(ratio=1 / 3, momentum=0.5), [(4, -1, 2, 1, 1, -3), (0, -1, 1, 2, 0, 0)], ((3,), (1, 3))
    )
    assert found[0] == ([4, 0, 0, 0, 0, -3], [[0, -1, 2, 1, 1, 0]] * 2)
    assert found[1] == ([0, 0, 4, 3.5, 0, 0], [[0, -2.5, 0, 0, 1.5, 0], [0, -1.5, 0, 0, 0.5, 0]])


def test_error_feedback_alone_by_hand():
    """m = 0: what is not sent is added up, and nothing is ever lost."""
    updates = [(4, -1, 2), (0, -1, 1), (1, 0, 0)]
    found = rounds_of(TopKCompression(ratio=0.1), updates, ((3,),))
    assert found == [([4, 0, 0], [[0, -1, 2]]), ([0, 0, 3], [[0, -2, 0]]), ([0, -2, 0], [[1, 0, 0]])]
    sent = np.sum([read for read, _ in found], axis=0)
    assert (sent + found[-1][1][0]).tolist() == np.sum(updates, axis=0).tolist()


def test_the_largest_are_those_of_a_full_sort():
    rng = np.random.default_rng(1)
    for _ in range(200):
        tensors = tuple((int(n),) for n in rng.integers(1, 9, size=rng.integers(1, 4)))
        numbers = rng.integers(-3, 4, size=sum(n for (n,) in tensors)).astype(np.float32)  # with many ties
        ratio, expected, start = float(rng.uniform(0.01, 1)), [], 0
        for (size,) in tensors:
            by_size = sorted(range(size), key=lambda k: (-abs(numbers[start + k]), k))
            expected += sorted(start + k for k in by_size[: max(1, round(ratio * size))])
            start += size
        assert largest(numbers, tensors, ratio).tolist() == expected


def test_one_bit_by_hand():
    """Seide et al. 2014. Round 1: the first column (1, 3, -2) is read as 2 and -2, the second (4, 0, -1) as 2 and -1;
    the bias (-3, -5) has only negative entries, read as -4. The error is (-1, 1, 0 | 2, -2, 0 | 1, -1).
    Round 2 adds (0, 0, 0 | 1, 1, 1 | 0, 4): (-1, 1, 0) is read as 0.5 and -1, (3, -1, 1) as 2 and -1, (1, 3) as 2.
    """
    updates = [(1, 3, -2, 4, 0, -1, -3, -5), (0, 0, 0, 1, 1, 1, 0, 4)]
    found = rounds_of(OneBitCompression(), updates, ((2, 3), (2,)))
    assert found[0] == ([2, 2, -2, 2, 2, -1, -4, -4], [[-1, 1, 0, 2, -2, 0, 1, -1]])
    assert found[1] == ([-1, 0.5, 0.5, 2, -1, 2, 2, 2], [[0, 0.5, -0.5, 1, 0, -1, -1, 1]])
    whole = rounds_of(OneBitCompression(values_per="tensor"), updates[:1], ((2, 3), (2,)))
    assert whole[0][0] == [2, 2, -1.5, 2, 2, -1.5, -4, -4]
    assert OneBitCompression().expected_bytes(((2, 3), (2,))) == 1 + 3 * 8


def test_what_is_sent_takes_the_place_of_the_update():
    """Buffers as they are; an update that is not finite costs a message and changes nothing that is kept."""
    deltas = np.array([[4, -1, 2, 9], [np.nan, 0, 0, 9]], dtype=np.float32)
    ones = np.ones(2, dtype=np.int64)
    updates, kept = Updates((3, 5), deltas, np.ones(2), ones, ones, 0.1, buffers=1), np.ones((2, 3), dtype=np.float32)
    found, after = compressed(TopKCompression(ratio=0.1), kept, updates, ((3,),))
    assert found.deltas[0].tolist() == [5, 0, 0, 9] and after.tolist() == [[0, 0, 3], [1, 1, 1]]
    assert found.message_bytes.tolist() == [8 + 4, 8 + 4] and np.isnan(found.deltas[1, 0])
    assert updates.deltas[0, 0] == 4 and kept[0, 0] == 1
    assert compressed(NoCompression(), kept, updates, ((3,),))[0] is updates
    message, _ = NoCompression().encode(vector(1, 2, 3), kept[:0], ((3,),))
    assert len(message) == 12 and NoCompression().decode(message, ((3,),)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "each"), [("none", 4 * MLR), ("top-k", 8 * (60 + 1)), ("one-bit", -(-MLR // 8) + 8 * 11)]
)
def test_bytes_are_those_of_the_messages(name, each):
    device = {"devices": "log-normal", "device_fading": "none", "device_speed": 1e12}
    settings = {**SMALL, **EVERY.get(name, {}), **device, "strategy": "fedavg"}
    plain = run(Experiment(**{**SMALL, **device, "strategy": "fedavg"}), progress=False)
    result = run(Experiment(**settings), progress=False)
    assert [record["bytes_up"] for record in result.records] == [4 * each] * 6
    assert [record["bytes_down"] for record in result.records] == [4 * 4 * MLR] * 6
    faster = each / (4 * MLR)
    assert result.summary.simulated_seconds == pytest.approx(faster * plain.summary.simulated_seconds, rel=1e-6)


def test_none_is_what_it_always_was():
    e = Experiment(**SMALL)
    assert e == Experiment(**SMALL, compression="none") and "compression" not in e.settings()
    worker = Worker(e, build_population(e))
    updates = worker.train(worker.initial_weights, 1, [0, 3])
    assert updates.states is None and updates.message_bytes is None


def test_against_a_plain_loop():
    """Error feedback written once more, from the updates of single nodes."""
    with one_thread():
        loop, weights = _both(Experiment(**SMALL, **EVERY["one-bit"], strategy="fedavg"))
    assert (
        np.abs(loop.weights - weights).max() < 1e-6 < 1e-3 < np.abs(loop.weights - loop.evaluator.initial_weights).max()
    )


def _both(e):
    """The run, and the weights of a plain loop."""
    population = build_population(e)
    worker = Worker(e, population)
    loop, plain = begun(e, population, worker), Worker(e.but(compression="none"), population)
    weights, owed = worker.initial_weights, {}
    while (work := loop.ask()) is not None:
        if work.train:
            read = []
            for node in work.train:
                delta = plain.train(weights, work.round, [node]).deltas[0] + owed.get(node, 0)
                sent = np.empty_like(delta)
                for some in [*(slice(60 * k, 60 * k + 60) for k in range(10)), slice(600, 610)]:
                    column = delta[some]
                    high, low = column[column >= 0], column[column < 0]
                    sent[some] = np.where(column >= 0, high.mean() if len(high) else 0, low.mean() if len(low) else 0)
                owed[node] = delta - sent
                read.append(sent)
            weights = (weights + np.mean(read, axis=0, dtype=np.float64)).astype(np.float32)
        loop.tell(worker.answer(work))
    return loop, weights


@pytest.mark.parametrize(
    "more",
    [
        {"strategy": "fedpns", "server": "adam", **EVERY["top-k"]},
        {"strategy": "scaffold", **EVERY["top-k"]},
        {"strategy": "scaffold", **EVERY["one-bit"], "selection": "largest-norm", "candidates": 8},
        {"strategy": "fedavg", "aggregation": "analog", "subchannels": 5},
    ],
    ids=["fedpns and adam", "scaffold and top-k", "nodes that do not send", "analog"],
)
def test_resumed_to_the_same_bits(tmp_path, more):
    e = Experiment(**SMALL, **more)
    whole, seen = run(e, progress=False), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 3, progress=False)
    resumed = run(e, tmp_path / "r", progress=False)
    assert resumed.summary.weights_sha256 == whole.summary.weights_sha256
    assert untimed(resumed.records) == untimed(whole.records)


def test_control_variates_stay_those_of_the_nodes():
    """SCAFFOLD's c_i come from the path of the node, not from what it sent; c stays their mean."""
    e = Experiment(**SMALL, strategy="scaffold", **EVERY["top-k"])
    population = build_population(e)
    worker = Worker(e, population)
    loop = begun(e, population, worker)
    with one_thread():
        while (work := loop.ask()) is not None:
            loop.tell(worker.answer(work))
    state = loop.checkpoint()
    assert state["states_0"].shape == (len(state["state_nodes"]), 3 * MLR)
    own = np.zeros((8, MLR))
    own[state["state_nodes"]] = state["states_0"][:, :MLR]
    assert np.abs(own.mean(axis=0) - state["objective.c"]).max() < 1e-6 < np.abs(own).max()


class Odd(Compression):
    """Sends, reads or keeps what it should not."""

    name = "odd"
    how: str = "sends"

    @property
    def keeps(self):
        return 1

    def encode(self, update, kept, tensors):
        return ("text" if self.how == "sends" else b"x"), (kept[:, 1:] if self.how == "keeps" else kept)

    def decode(self, message, tensors):
        return np.zeros(3)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("sends", r"encode: it returned \('text'.*must return bytes"),
        ("keeps", r"encode: the node keeps an array of float32 of shape \(1, 609\); it must be float32 of \(1, 610\)"),
        ("reads", r"decode: it returned an array of float64 of shape \(3,\); it must be float32 of \(610,\)"),
    ],
)
def test_a_wrong_one_is_blamed_by_file_and_line(how, words):
    with pytest.raises(UserCodeError, match=f"test_compression.py.*{words}"):
        run(Experiment(**SMALL, compression=Odd, **{"compression.how": how}), progress=False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"compression": "zip"}, "compression: 'zip' is unknown; choose from none, top-k, one-bit, or package"),
        (
            {"compression": "top-k", "compression.ratio": 0},
            "compression.ratio: 0 is not allowed; it must be greater than 0",
        ),
        (
            {"compression.ratio": 0.5},
            "compression.ratio: 0.5 is not allowed; it is only used with compression top-k, and",
        ),
        ({"compression": "one-bit", "aggregation": "analog"}, "compression: 'one-bit' .*analog nodes send no messages"),
    ],
)
def test_bad_input_is_refused_in_one_line(settings, words):
    with pytest.raises(InputError, match=words) as caught:
        Experiment(**SMALL, **settings)
    assert "\n" not in str(caught.value)


def test_every_built_in_one_is_tested_here():
    assert set(PARTS["compression"]) == {"none", *EVERY}
