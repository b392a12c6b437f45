"""A run with analog aggregation; the rule itself is in `tests/conformance/test_analog.py`."""

from fedpns_ray import Experiment, run


def test_in_a_run():
    e = Experiment(strategy="fedpns", aggregation="analog", nodes=8, fraction=0.5, rounds=3, samples_per_node=30)
    result = run(e, progress=False)
    assert [record["bytes_up"] for record in result.records] == [0, 0, 0]
    assert len({record["silent_fraction"] for record in result.records}) > 1
    assert run(e, progress=False).summary.weights_sha256 == result.summary.weights_sha256
    other = run(e.but(snr=0), progress=False)
    assert other.records[-1]["noise_fraction"] > result.records[-1]["noise_fraction"]
    slow = e.but(devices="log-normal", device_uplink=1.0)
    there = [run(one, progress=False).summary.simulated_seconds for one in (slow, slow.but(aggregation="mean"))]
    assert there[0] < 100 < there[1]  # sending takes no time, or most of it
