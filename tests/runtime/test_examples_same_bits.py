"""The examples of a model, a loss and a metric of one's own, together: the same bits in this process and on Ray."""

from fedpns_ray import Experiment, run
from fedpns_ray.runtime.layout import Layout
from tests.runtime.test_same_bits import assert_same


def test_on_ray_as_in_this_process(cluster, mnist):
    e = Experiment(
        dataset="mnist", model="examples.own_model:SmallNet", buffers="average", loss="examples.own_loss:focal",
        metrics="label-accuracy, macro-f1, examples.own_metric:KappaMetric", strategy="fedpns", nodes=4, fraction=0.75,
        rounds=2, samples_per_node=40, sigma=0.5, epochs=1,
    )  # fmt: skip
    alone = run(e)
    found = run(e, layout=Layout(actors=2, gpus_per_actor=0))
    assert_same(found, alone)
    for mine, theirs in zip(alone.records, found.records, strict=True):
        assert mine["label_accuracy"] == theirs["label_accuracy"] and mine["cohens_kappa"] == theirs["cohens_kappa"]
