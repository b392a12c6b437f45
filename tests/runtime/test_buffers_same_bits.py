"""Models whose buffers change as they train and are tested: the same bits wherever nodes live."""

import pytest
import torch
from torch import nn

from fedpns_ray import Experiment, run
from fedpns_ray.runtime.layout import Layout
from tests.runtime.test_same_bits import assert_same


class Normalised(nn.Module):
    """Running statistics of every image that was ever seen."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=3)
        self.norm = nn.InstanceNorm2d(4, track_running_stats=True)
        self.out = nn.Linear(4 * 8 * 8, 10)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).flatten(1))


class Counting(nn.Module):
    """Its answers fade with every batch, of training or of a test."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(784, 10)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x):
        self.calls = self.calls + 1
        return self.out(x.flatten(1)) / self.calls


class BatchNormalised(nn.Sequential):
    """Batch normalisation, whose running statistics a policy sends or leaves."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 8 * 8, 10)
        )


def experiment(model, **more):
    return Experiment(
        dataset="mnist", model=f"{__name__}:{model.__name__}", strategy="fedpns", nodes=4, fraction=0.75, rounds=3,
        samples_per_node=40, sigma=0.5, epochs=1, **more,
    )  # fmt: skip


@pytest.mark.parametrize("model", [Normalised, Counting])
def test_any_layout(cluster, mnist, model):
    e = experiment(model)
    alone = run(e)
    for layout in (
        Layout(actors=1, gpus_per_actor=0),
        Layout(actors=2, gpus_per_actor=0),
        Layout(nodes_per_actor=1, gpus_per_actor=0),
    ):
        assert_same(run(e, layout=layout), alone)


def test_the_same_vectorised(cluster, mnist):
    """Each node has buffers of its own; on one actor as in this process, where cohorts are the same."""
    e = experiment(Normalised, vectorize="on")
    assert_same(run(e, layout=Layout(actors=1, gpus_per_actor=0)), run(e))


@pytest.mark.parametrize("policy", ["average", "local"])
def test_batch_normalisation_under_every_policy(cluster, mnist, policy):
    e = experiment(BatchNormalised, buffers=policy, batch_size=15)
    alone = run(e)
    assert len(alone.weights) == 4 * 26 + 8 + 2570 + (8 if policy == "average" else 0)
    for layout in (Layout(actors=2, gpus_per_actor=0), Layout(nodes_per_actor=1, gpus_per_actor=0)):
        assert_same(run(e, layout=layout), alone)
