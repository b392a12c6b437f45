"""On CUDA nothing is left to chance unless the user says so. There is no GPU here: the settings are looked at."""

import os

import pytest
import torch

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.determinism import WORKSPACE, naming_the_remedy, settle
from fedpns_ray.core.training import Worker


def flags():
    b = torch.backends
    return (
        b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32, b.cudnn.benchmark, b.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = flags()
    yield
    b = torch.backends
    b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32, b.cudnn.benchmark, b.cudnn.deterministic = before[:4]
    torch.use_deterministic_algorithms(before[4])
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def test_full_precision_and_deterministic_unless_told_otherwise():
    settle(torch.device("cuda"), fast_math=False)
    assert flags() == (False, False, False, True, True) and os.environ["CUBLAS_WORKSPACE_CONFIG"] == WORKSPACE
    settle(torch.device("cuda"), fast_math=True)
    assert flags() == (True, True, True, False, False)


def test_a_machines_own_workspaces_give_way(monkeypatch):
    """Others would give other bits than the rest of the cluster, or be refused."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    settle(torch.device("cuda"), fast_math=False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == WORKSPACE


def test_a_cpu_is_left_alone():
    before = flags()
    settle(torch.device("cpu"), fast_math=True)
    assert flags() == before and "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_a_worker_settles_its_device_before_it_builds_its_model(monkeypatch):
    """A worker for CUDA, on a machine without: it has settled when torch refuses the device."""
    from fedpns_ray.data import build_population

    e = Experiment(model="mlr", nodes=4)
    with pytest.raises((RuntimeError, AssertionError)):
        Worker(e, build_population(e), "cuda")
    assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic


def test_an_operation_without_a_deterministic_algorithm_is_named_with_the_remedy():
    message = "adaptive_avg_pool2d_backward_cuda does not have a deterministic implementation, but you set ..."
    said = "fast_math: off .*adaptive_avg_pool2d_backward_cuda.*set fast_math"
    with pytest.raises(InputError, match=said) as error, naming_the_remedy():
        raise RuntimeError(message)
    assert "\n" not in str(error.value)
    message = "Deterministic behavior was enabled, but this operation is not deterministic because it uses CuBLAS"
    said = f"^fast_math: off .*has used cuBLAS before.*set CUBLAS_WORKSPACE_CONFIG={WORKSPACE} before Python starts"
    with pytest.raises(InputError, match=said), naming_the_remedy():
        raise RuntimeError(f"{message} ... you must set ...: CUBLAS_WORKSPACE_CONFIG=:4096:8 or ...")
    with pytest.raises(RuntimeError, match="^out of memory$"), naming_the_remedy():
        raise RuntimeError("out of memory")


def test_it_is_an_option_that_is_not_written_when_off_and_changes_nothing_on_a_cpu():
    small = {"model": "mlr", "nodes": 4, "rounds": 2, "fraction": 0.5}
    plain, fast = Experiment(**small), Experiment(**small, fast_math=True)
    assert "fast_math" not in plain.settings() and fast.settings()["fast_math"] is True
    digests = {run(e, progress=False).summary.weights_sha256 for e in (plain, fast)}
    assert len(digests) == 1
