"""Which Ray `--address` means: a cluster, never the private Ray of another run."""

import logging
import os

import psutil
import pytest

from fedpns_ray import InputError
from fedpns_ray.runtime import local_rays as finding
from fedpns_ray.runtime.local_rays import Found
from fedpns_ray.runtime.session import session
from fedpns_ray.terminal.command_line import main
from tests.bench import Bench
from tests.heads import ray_head, wait_for_child

PRIVATE, CLUSTER, OTHER = Found("10.0.0.1:1", True), Found("10.0.0.1:2", False), Found("10.0.0.1:3", False)


@pytest.mark.parametrize(
    ("found", "noted", "address"),
    [
        ({CLUSTER}, None, CLUSTER.address),
        ({PRIVATE, CLUSTER}, None, CLUSTER.address),
        ({PRIVATE, CLUSTER, OTHER}, OTHER.address, OTHER.address),
        ({PRIVATE, CLUSTER}, PRIVATE.address, CLUSTER.address),
        ({CLUSTER}, "10.0.0.1:9", CLUSTER.address),  # the noted cluster is gone
        (set(), "10.0.0.1:9", "10.0.0.1:9"),  # its processes are not visible from here
    ],
)
def test_auto_is_the_cluster_that_ray_start_has_noted_or_another(monkeypatch, found, noted, address):
    monkeypatch.setattr(finding, "rays_here", lambda: found)
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: noted)
    assert finding.find_cluster() == address


@pytest.mark.parametrize(
    ("found", "message"),
    [(set(), "auto finds no Ray on this machine"), ({PRIVATE}, "auto finds only the private Ray of another run")],
)
def test_auto_without_a_cluster_is_refused(monkeypatch, found, message):
    monkeypatch.setattr(finding, "rays_here", lambda: found)
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: None)
    with pytest.raises(InputError, match=f"address: {message}.*`ray start --head`, or leave --address out"):
        finding.find_cluster()


def test_the_private_ray_of_a_run_cannot_be_joined(tmp_path, monkeypatch, capsys, caplog):
    bench = Bench(tmp_path, "run", "--nodes", "10", "--rounds", "100000", "--out", "r", "--json")
    process = bench.start()
    try:
        with ray_head(bench.environment) as (_, port):
            raylet = wait_for_child(process, "raylet")
            only = [raylet.pid]
            everything = psutil.process_iter
            # Other Rays on this machine must not affect this test.
            monkeypatch.setattr(psutil, "process_iter", lambda names: (p for p in everything(names) if p.pid in only))
            monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: None)
            monkeypatch.chdir(tmp_path)
            ((address, private),) = finding.rays_here()
            assert private
            local = f"127.0.0.1:{address.rpartition(':')[2]}"
            (tmp_path / "s.yaml").write_text("base: {rounds: 2}\n")
            for command in (["run", "--rounds", "2"], ["study", "s.yaml"], ["doctor"]):
                assert main([*command, "--address", "auto"]) == 2
                said = capsys.readouterr()
                assert said.err.startswith("fedpns: address: auto finds only the private Ray of another run")
                assert said.err.count("\n") == 1
            for given in (address, local):
                assert main(["doctor", "--address", given]) == 2
                assert capsys.readouterr().err.startswith(f"fedpns: address: {given} is the private Ray of another run")
            monkeypatch.setenv("RAY_ADDRESS", "auto")
            assert main(["run", "--rounds", "2"]) == 2
            assert "auto finds only the private Ray" in capsys.readouterr().err

            only += [p.pid for p in everything() if _is_raylet_of(p, port)]
            assert {ray.private for ray in finding.rays_here()} == {True, False}
            monkeypatch.delenv("RAY_AUTH_MODE", raising=False)  # as in a process that has not used Ray yet
            logging.getLogger("ray").setLevel(logging.INFO)
            caplog.clear()
            assert main(["doctor", "--address", "auto"]) == 0 and not caplog.text
            assert "1 with 2 CPU" in " ".join(capsys.readouterr().out.split())

            monkeypatch.setattr(finding, "rays_here", set)  # as if its processes were not visible from here
            monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: address)
            with pytest.raises(InputError, match=f"address: {address} does not answer"), session("auto"):
                pytest.fail("joined")
    finally:
        process.terminate()
        process.communicate(timeout=120)


def test_a_private_ray_that_other_machines_reach_cannot_be_joined(monkeypatch):
    """As older versions started them: its processes are not visible from here, but its label is, once it is joined."""
    with ray_head(dict(os.environ), labels=f"{finding.PRIVATE}=1") as (_, port):
        address = f"127.0.0.1:{port}"
        monkeypatch.setattr(finding, "rays_here", set)
        monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: address)
        with pytest.raises(InputError, match="is the private Ray of another run"), session("auto"):
            pytest.fail("joined")


def _is_raylet_of(process, port):
    try:
        return process.name() == "raylet" and any(
            word.startswith("--gcs-address=") and word.endswith(f":{port}") for word in process.cmdline()
        )
    except psutil.Error:
        return False
