"""FedCS, BC and BC-BN2 in runs; their rules are proven in tests/conformance."""

import pytest

from fedpns_ray import Experiment, InputError, run


def test_rounds_keep_the_deadline():
    """Uploads are planned one after another and happen side by side: what fits the plan fits the round."""
    e = Experiment(
        strategy="fedcs", nodes=30, samples_per_node=20, epochs=1, rounds=10, deadline=0.5, devices="log-normal"
    )
    records = run(e).records
    assert all(record["simulated_seconds"] < 0.5 for record in records)
    assert len({len(record["drawn"]) for record in records}) > 1
    slower = run(e.but(strategy="fedavg")).records
    assert sum(r["simulated_seconds"] for r in slower) > sum(r["simulated_seconds"] for r in records)


def test_channels_rotate_and_must_fade():
    e = Experiment(strategy="bc", nodes=10, samples_per_node=20, epochs=1, rounds=20, devices="log-normal")
    counts = run(e).summary["nodes"]["drawn"]
    assert sum(counts) == 40 and max(counts) < 14
    with pytest.raises(
        InputError, match="device_fading: 'none' is not allowed; best-channel chooses by how channels fade"
    ):
        run(e.but(device_fading="none"))
    with pytest.raises(InputError, match="devices: off is not allowed; best-channel-largest-norm needs"):
        run(Experiment(strategy="bc-bn2", nodes=30))
