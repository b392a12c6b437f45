"""Optimisers with state, nodes with state, and compression: in process and on actors, the same bits."""

from examples.own_optimizer import Lion
from fedpns_ray import Experiment, run
from fedpns_ray.runtime.layout import Layout
from tests.runtime.test_same_bits import assert_same

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 50, "rounds": 5, "epochs": 2, "max_steps": 3}
SERVER = {"strategy": "fedpns", "server": "adam"}


def test_in_process_and_on_ray(cluster):
    for more in ({"momentum": 0.9, "clip_gradient": 1.0}, {"optimizer": Lion, "lr": 0.001}):
        e = Experiment(**SERVER, **SMALL, **more)
        assert_same(run(e, layout=Layout(actors=2, gpus_per_actor=0)), run(e))


def test_nodes_that_keep_states(cluster):
    """With small models, whose nodes train together, and with larger ones, whose states go through the object store.

    What they keep is a control variate, what compression has not sent, or both.
    """
    large = {"dataset": "mnist", "model": "cnn-m", "rounds": 3, "nodes": 6}
    both = {"compression": "top-k", "compression.momentum": 0.9}
    for more in ({}, {**large, **both}, {"strategy": "fedpns", "compression": "one-bit"}):
        e = Experiment(**{**SMALL, "strategy": "scaffold", "metrics": "node-fairness", **more})
        assert_same(run(e, layout=Layout(actors=2, gpus_per_actor=0)), run(e))
