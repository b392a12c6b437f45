"""CMFL in a run; its rule is proven in tests/conformance."""

from fedpns_ray import Experiment, run


def test_in_a_run_the_last_global_update_is_the_models_difference():
    e = Experiment(
        strategy="cmfl",
        relevance=0.55,
        relevance_decay="none",
        nodes=8,
        fraction=0.5,
        samples_per_node=30,
        epochs=1,
        rounds=6,
    )
    result = run(e)
    first = result.records[0]
    assert first["aggregated"] == first["drawn"] and len(first["drawn"]) == 4
    model = 4 * len(result.weights)
    for record in result.records:
        assert set(record["aggregated"]) <= set(record["drawn"])
        assert record["bytes_up"] == model * len(record["aggregated"]) and record["bytes_down"] == 2 * model * 4
    assert any(len(record["aggregated"]) < 4 for record in result.records)
    assert (
        run(e.but(relevance=0.0)).summary["weights_sha256"] == run(e.but(strategy="fedavg")).summary["weights_sha256"]
    )
