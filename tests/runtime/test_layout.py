"""Plans: what is used, what is refused, and what is offered instead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpns_ray import InputError
from fedpns_ray.runtime.layout import ACTOR_MEMORY, Layout, Machine, plan

GB = 10**9
LAPTOP = [Machine("laptop", 2, 0, 16 * GB)]
TWO_BY_TWO = [Machine("a", 8, 2, 64 * GB), Machine("b", 8, 2, 64 * GB)]


def test_auto_uses_every_core_and_no_more_actors_than_help():
    assert plan(Layout(), LAPTOP, nodes=50, drawn=10).actors == 2
    assert plan(Layout(), [Machine("big", 64, 0, 256 * GB)], nodes=50, drawn=10).actors == 10
    assert plan(Layout(), [Machine("big", 64, 0, 256 * GB)] * 3, nodes=50, drawn=1).actors == 1


def test_auto_uses_every_gpu():
    p = plan(Layout(), TWO_BY_TWO, nodes=500, drawn=100)
    assert p.actors == 16 and p.actors_in == (4, 4, 4, 4) and p.gpus_per_actor == 0.25
    assert all(bundle == {"GPU": 1.0, "CPU": 4.0} for bundle in p.bundles)


def test_one_node_one_actor_shares_the_cores():
    p = plan(Layout(nodes_per_actor=1), LAPTOP, nodes=50, drawn=10)
    assert p.actors == 50 and p.cpus_per_actor == pytest.approx(0.04) and p.layout.nodes_per_actor == 1


def test_shares_fit_the_machines_they_fall_on():
    """6 actors over two 2-core machines: 4 / 6 of a core would leave the sixth without a machine."""
    p = plan(Layout(nodes_per_actor=1), [Machine("a", 2, 2, 8 * GB), Machine("b", 2, 2, 8 * GB)], nodes=6, drawn=3)
    assert p.actors == 6 and p.gpus_per_actor == 0.5 and p.cpus_per_actor == pytest.approx(0.6666)
    assert sorted(p.actors_in) == [1, 1, 2, 2]


def test_gpus_are_dealt_evenly():
    p = plan(Layout(actors=6, gpus_per_actor=0.25), TWO_BY_TWO, nodes=50, drawn=10)
    assert sorted(p.actors_in) == [1, 1, 2, 2]
    p = plan(Layout(actors=16, gpus_per_actor=0.25, cpus_per_actor=0.5), TWO_BY_TWO, nodes=50, drawn=10)
    assert p.actors_in == (4, 4, 4, 4)


def test_machines_are_planned_as_they_are():
    """Several GPUs here and one there, few cores here and many there, and a machine without GPUs."""
    few_cores, few_gpus = Machine("a", 2, 4, 64 * GB), Machine("b", 16, 1, 64 * GB)
    cores_only = Machine("c", 64, 0, 64 * GB)
    p = plan(Layout(actors=8), [few_cores, few_gpus, cores_only], nodes=50, drawn=10)
    assert p.gpus_per_actor == 0.5 and p.cpus_per_actor == 0.3333  # 6 actors share the 2 cores of a
    assert sorted(p.actors_in) == [1, 1, 2, 2, 2]
    p = plan(Layout(actors=8, cpus_per_actor=1), [few_cores, few_gpus, cores_only], nodes=50, drawn=10)
    assert p.gpus_per_actor == 0.1666 and sorted(p.actors_in) == [1, 1, 6]
    p = plan(Layout(), [few_cores, few_gpus, cores_only], nodes=500, drawn=100)
    assert p.gpus_per_actor == 0.25 and sorted(p.actors_in) == [1, 1, 4]
    little = Machine("d", 16, 2, 2 * ACTOR_MEMORY)
    assert sorted(plan(Layout(actors=6), [little, TWO_BY_TWO[0]], nodes=50, drawn=10).actors_in) == [1, 1, 2, 2]


LAPTOP_HAS = "2 CPUs, 0 GPUs and 16.0 GB are free on 1 machine; the nearest that fits"


@pytest.mark.parametrize(
    ("layout", "machines", "message"),
    [
        (
            Layout(actors=3, cpus_per_actor=1),
            LAPTOP,
            f"actors: 3 actors with 1 CPU and 200 MB each do not fit; {LAPTOP_HAS}: --actors 2",
        ),
        (
            Layout(nodes_per_actor=1, cpus_per_actor=1),
            LAPTOP,
            f"nodes_per_actor: 50 actors with 1 CPU and 200 MB each do not fit; {LAPTOP_HAS}: --nodes-per-actor 25",
        ),
        (
            Layout(gpus_per_actor=0.5),
            LAPTOP,
            f"layout: 1 actor with 1 CPU, 0.5 GPU and 200 MB does not fit; {LAPTOP_HAS}: --gpus-per-actor 0",
        ),
        (Layout(actors=9, gpus_per_actor=0.5), TWO_BY_TWO, "the nearest that fits: --actors 8"),
        (
            Layout(nodes_per_actor=1),
            [Machine("small", 2, 0, 4 * GB)],
            "50 actors with 0.04 CPU and 200 MB each do not fit; 2 CPUs, 0 GPUs and 4.0 GB are free on 1 machine; "
            "the nearest that fits: --nodes-per-actor 3",
        ),
        (Layout(), [Machine("busy", 0, 0, 4 * GB)], "the nearest that fits: --in-process"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_nearest_that_does(layout, machines, message):
    with pytest.raises(InputError) as caught:
        plan(layout, machines, nodes=50, drawn=10)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"actors": 0}, "actors: 0 is not allowed; it must be at least 1"),
        ({"nodes_per_actor": 0}, "nodes_per_actor: 0 is not allowed; it must be at least 1"),
        ({"gpus_per_actor": -1}, "gpus_per_actor: -1 is not allowed; it must be at least 0"),
        ({"cpus_per_actor": float("nan")}, "cpus_per_actor: nan is not allowed; it must be at least 0"),
        (
            {"actors": 2, "nodes_per_actor": 2},
            "nodes_per_actor: 2 is not allowed together with actors; set only one of them",
        ),
        ({"gpus_per_actor": 1.5}, "gpus_per_actor: 1.5 is not allowed; above 1 it must be a whole number"),
    ],
)
def test_nonsense_is_refused(wrong, message):
    with pytest.raises(InputError) as caught:
        Layout(**wrong)
    assert str(caught.value) == message


memory = st.integers(0, 20).map(lambda n: n * GB / 4)
machines = st.lists(
    st.builds(Machine, st.just("m"), st.integers(0, 16), st.integers(0, 4), memory), min_size=1, max_size=4
)


@settings(max_examples=400, deadline=None)
@given(
    machines, st.none() | st.integers(1, 40), st.none() | st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 1.0, 2.0]),
    st.none() | st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0]),
)  # fmt: skip
def test_a_plan_fits_and_is_even(machines, actors, gpus_per_actor, cpus_per_actor):
    layout = Layout(actors=actors, gpus_per_actor=gpus_per_actor, cpus_per_actor=cpus_per_actor)
    try:
        p = plan(layout, machines, nodes=50, drawn=10)
    except InputError:
        return
    assert p.actors == (actors or p.actors) >= 1
    assert p.actors * ACTOR_MEMORY <= sum(m.memory for m in machines)
    assert sum(b.get("GPU", 0) for b in p.bundles) <= sum(m.gpus for m in machines)
    assert sum(b["CPU"] for b in p.bundles) <= sum(m.cpus for m in machines) + 1e-3
    if p.gpus_per_actor:
        assert all(n * p.gpus_per_actor <= b["GPU"] + 1e-9 for n, b in zip(p.actors_in, p.bundles, strict=True))
        roomy = all(m.cpus >= 4 and m.memory >= 4 * GB for m in machines) and (cpus_per_actor or 0) <= 0.1
        if roomy and actors:
            gpus = sum(int(m.gpus // max(1, p.gpus_per_actor)) for m in machines)
            per_gpu = [*p.actors_in, *[0] * (gpus - len(p.actors_in))]
            assert max(per_gpu) - min(per_gpu) <= 1
