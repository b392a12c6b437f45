"""A local optimiser with state and a server optimiser with state: in process and on actors, the same bits."""

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
