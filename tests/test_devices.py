"""The device model: seeded, off by default, and a round's bytes and seconds followed by hand."""

import re

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.costs import Costs, Ledger
from fedpns_ray.core.devices import DEEPEST_FADE, from_file, log_normal
from fedpns_ray.naming import folder_name
from fedpns_ray.settings import drop_idle
from fedpns_ray.strategies.bn2 import LargestNormSelection
from fedpns_ray.strategies.fedavg import RandomSelection
from fedpns_ray.terminal.command_line import main
from tests.strategies.made import devices, nodes, updates
from tests.test_run import untimed

SMALL = {"nodes": 10, "samples_per_node": 30, "epochs": 1, "rounds": 3}


def test_speeds_are_log_normal_around_their_median():
    speed, uplink = log_normal(1, 20_000, 1000, 5e5, 0.5)
    assert np.median(speed) == pytest.approx(1000, rel=0.02) and np.median(uplink) == pytest.approx(5e5, rel=0.02)
    assert np.log(speed).std() == pytest.approx(0.5, rel=0.02)
    assert abs(np.corrcoef(np.log(speed), np.log(uplink))[0, 1]) < 0.03
    again, _ = log_normal(1, 20_000, 1000, 5e5, 0.5)
    assert np.array_equal(speed, again) and not np.array_equal(speed, log_normal(2, 20_000, 1000, 5e5, 0.5)[0])
    assert set(log_normal(1, 5, 1000, 5e5, 0)[0]) == {1000.0}


def test_seconds_by_hand():
    """200 samples at 50 per second: 4 s. 1000 bytes at 100 per second: 10 s; gain 1 leaves log2(1 + 1) = 1 of it."""
    found = devices([50, 100], [100, 500], samples=200).resources(3)
    assert found.train.tolist() == [4, 2] and found.upload.tolist() == [10, 2] and found.gain.tolist() == [1, 1]


def test_channels_fade_by_round_alone():
    model = devices(np.ones(5000), np.full(5000, 100.0), fading=True)
    one, two = model.resources(1), model.resources(2)
    assert np.array_equal(one.gain, model.resources(1).gain) and not np.array_equal(one.gain, two.gain)
    assert one.gain.min() == DEEPEST_FADE and one.gain.mean() == pytest.approx(1, abs=0.05)
    np.testing.assert_allclose(one.upload, 10 / np.log2(1 + one.gain))


def test_a_file_of_devices(tmp_path):
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("node,speed,uplink\n1,20,200\n0,10,100\n2,30,300\n")
    speed, uplink = from_file(fleet, 3)
    assert speed.tolist() == [10, 20, 30] and uplink.tolist() == [100, 200, 300]
    with pytest.raises(InputError, match="has no row for node 3; there are 5 nodes"):
        from_file(fleet, 5)
    with pytest.raises(InputError, match="device_file: .*none.csv cannot be read"):
        from_file(tmp_path / "none.csv", 3)
    fleet.write_text("node,speed\n1,20\n")
    with pytest.raises(InputError, match="it must have the columns node,speed,uplink"):
        from_file(fleet, 1)
    for speed in ("0", "1e-308", "nan", "inf"):  # a round would last for longer than a number can say
        fleet.write_text(f"node,speed,uplink\n0,{speed},5\n")
        said = f"fleet.csv gives node 0 the speed {speed} and the uplink 5; both must be between 1e-06 and 1e\\+15"
        with pytest.raises(InputError, match=said):
            from_file(fleet, 1)


def test_a_run_on_a_file_of_devices(tmp_path, monkeypatch):
    """10 nodes that train 24 samples at 12 a second and send 2440 bytes at 1220 a second: 2 s + 2 s, every round."""
    (tmp_path / "fleet.csv").write_text("node,speed,uplink\n" + "".join(f"{k},12,1220\n" for k in range(10)))
    monkeypatch.chdir(tmp_path)
    e = Experiment(strategy="fedavg", devices="file", device_file="fleet.csv", device_fading="none", **SMALL)
    monkeypatch.chdir("/")  # the file is known by its whole path from here on
    result = run(e)
    assert [record["simulated_seconds"] for record in result.records] == pytest.approx([4, 4, 4])
    assert result.summary["simulated_seconds"] == pytest.approx(12)


def test_what_is_refused():
    with pytest.raises(
        InputError,
        match="device_speed: 5.0 is not allowed; it is only used with devices log-normal, and devices is off",
    ):
        Experiment(device_speed=5)
    with pytest.raises(InputError, match="device_file: is missing"):
        Experiment(devices="file")
    with pytest.raises(InputError, match="devices: 'on' is not allowed"):
        Experiment(devices="on")


def test_off_changes_neither_names_nor_bits():
    """The names that runs had before there was a device model."""
    names = [folder_name(Experiment(strategy="fedpns", dataset="mnist", sigma=0.2, rho=1, rounds=200, seed=1)),
             folder_name(Experiment(strategy="fedavg"))]  # fmt: skip
    assert names == ["mnist-fedpns-seed1-1bac7a99", "synthetic-fedavg-seed1-a6bae00a"]
    off, on = Experiment(**SMALL), Experiment(devices="log-normal", **SMALL)
    assert (
        "devices" not in off.settings() and on.settings()["device_speed"] == 1000 and "device_file" not in on.settings()
    )
    assert Experiment(**on.settings()) == on and Experiment(devices=False, **SMALL) == off  # YAML reads off so
    assert drop_idle({"devices": "off", "device_speed": 5}) == {"devices": "off"} and on.but(devices="off") == off
    one, two = run(off), run(on)
    assert one.summary["weights_sha256"] == two.summary["weights_sha256"]
    assert "simulated_seconds" not in one.summary and two.summary["simulated_seconds"] > 0
    with_time = [{k: v for k, v in record.items() if k != "simulated_seconds"} for record in untimed(two.records)]
    assert with_time == untimed(one.records)


def test_run_and_compare_say_what_it_cost(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--nodes", "10", "--samples-per-node", "30", "--epochs", "1", "--rounds", "2"]
    assert main(["run", *small, "--strategy", "fedavg", "--devices", "log-normal", "--in-process"]) == 0
    assert re.search(r"0\.00976 MB up, 0\.00976 MB down, \S+ simulated s", capsys.readouterr().out)
    assert main(["run", *small, "--strategy", "fedavg", "--in-process"]) == 0
    assert "0.00976 MB up, 0.00976 MB down\n" in capsys.readouterr().out
    assert main(["compare", *small, "--strategies", "fedavg,oort", "--devices", "log-normal"]) == 0
    assert "simulated s" in capsys.readouterr().out
    assert main(["compare", *small, "--strategies", "fedavg,oort"]) == 0
    assert "simulated s" not in capsys.readouterr().out
    assert main(["run", *small, "--strategy", "fedcs", "--choices", "5"]) == 2
    assert capsys.readouterr().err == (
        "fedpns: devices: off is not allowed; deadline needs a device model, such as devices log-normal\n"
    )


# --- the ledger ------------------------------------------------------------------------------------------------------

THREE = devices([100, 50, 10], [1000, 100, 500])  # 1, 2, 10 s of training; 1, 10, 2 s of upload


def ledger(model=THREE, **changes):
    e = Experiment(nodes=3, fraction=1.0, epochs=1, **changes)
    answered = {((1, 2), None): np.zeros(2), ((2,), 30): np.zeros(1)}
    return Ledger(e, nodes(3, 3, model=model), 1, 1000, answered)


def test_a_round_lasts_until_the_last_node_is_heard():
    """Seconds 2, 12 and 12. If only nodes 0 and 2 send, node 1 is heard after 2 s: 12 s; if only node 0 does, 10 s."""
    found = ledger().timed(updates([[1], [1], [1]]))
    assert found.seconds.tolist() == [2, 12, 12] and found.upload.tolist() == [1, 10, 2]
    for sent, seconds in (([0, 1, 2], 12), ([0, 2], 12), ([0], 10)):
        costs = ledger().costs(RandomSelection(), [0, 1, 2], found, found.subset(sent).node_ids)
        assert costs == Costs(bytes_up=1000 * len(sent), bytes_down=3000, simulated_seconds=seconds)


def test_where_the_server_chooses_uploads_wait_for_all_reports():
    """All norms are in after 10 s (8 bytes each); then node 1 sends for 10 s."""
    found = updates([[1], [1], [1]])
    costs = ledger().costs(LargestNormSelection(), [0, 1, 2], found, found.subset([1]).node_ids)
    assert costs == Costs(bytes_up=1000 + 24, bytes_down=3000, simulated_seconds=20)


def test_probes_are_counted_and_timed():
    """A loss costs a third of training: 10/3 s for node 2. Nodes 1 and 2 get the model for it, only node 1 is drawn."""
    book = ledger()
    book([1, 2])
    found = book.timed(updates([[1]], ids=(1,)))
    assert found.seconds[0] == pytest.approx(10 / 3 + 12)
    costs = book.costs(RandomSelection(), [1], found, found.node_ids)
    assert costs.bytes_up == 1000 + 16 and costs.bytes_down == 2000
    assert costs.simulated_seconds == pytest.approx(10 / 3 + 12)
    few = ledger()
    few([2], 30)
    assert few.costs(RandomSelection(), [], found.subset([]), []).simulated_seconds == pytest.approx(1)


def test_fewer_epochs_are_done_sooner_and_without_a_model_nothing_is_timed():
    half = updates([[1]], ids=(2,))  # 5 steps of the 10 that two epochs of 100 samples are
    e = Experiment(nodes=3, fraction=1.0, epochs=2)
    assert Ledger(e, nodes(3, 3, model=THREE), 1, 1000, {}).timed(half).seconds.tolist() == [5 + 2]
    off = ledger(model=None)
    assert off.timed(half) is half
    assert off.costs(RandomSelection(), [2], half, half.node_ids).simulated_seconds is None
