"""FedProx: equation (2) and Algorithm 2 of Li et al. 2018, by hand."""

import numpy as np
import torch

from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.fedprox import ProximalObjective

DIFFERENCES = (
    "Each drawn node is slow independently, with the probability `stragglers`; the released code makes exactly that "
    "fraction of the drawn nodes slow.",
    "A slow node does 1 .. E epochs, as the paper's text has it; the released code draws from 1 .. E - 1 (and fails at "
    "E = 1).",
    "The mean over the drawn nodes is (5) of the FedPNS paper; the released code weighs by data size.",
)


def test_the_gradient_of_the_proximal_term():
    """(2): d/dw mu/2 ||w - w_t||^2 = mu (w - w_t): 0.5 x ((3, 1) - (1, 2)) = (1, -0.5)."""
    objective = ProximalObjective(mu=0.5)
    gradient, anchor = torch.tensor([10.0, 10.0]), torch.tensor([1.0, 2.0])
    objective.correct(gradient, torch.tensor([3.0, 1.0]), anchor)
    assert gradient.tolist() == [11.0, 9.5]
    both = torch.full((2, 2), 10.0)
    objective.correct(both, torch.tensor([[3.0, 1.0], [1.0, 2.0]]), anchor)
    assert both.tolist() == [[11.0, 9.5], [10.0, 10.0]]  # at the anchor there is no pull


def test_the_gradient_is_that_of_autograd():
    """400 random points, 100 for each mu: what autograd finds for mu/2 ||w - w_t||^2."""
    torch.manual_seed(5)
    for mu in (0.0, 0.3, 1.0, 2.7):
        w, anchor = torch.randn(100, 4, dtype=torch.float64, requires_grad=True), torch.randn(4, dtype=torch.float64)
        (mu / 2 * torch.sum((w - anchor) ** 2)).backward()
        gradient = torch.zeros(100, 4, dtype=torch.float64)
        ProximalObjective(mu=mu).correct(gradient, w.detach(), anchor)
        torch.testing.assert_close(gradient, w.grad)


def test_epochs_are_uniform_and_one_stays_one():
    """Systems heterogeneity in its experiments: a straggler does a number of epochs drawn uniformly from 1 .. E."""
    always = ProximalObjective(stragglers=1)
    drawn = [always.epochs(4, stream(1, "epochs", t, 0)) for t in range(1500)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=5)[1:] / 1500, 0.25, atol=0.05)
    assert {always.epochs(1, stream(1, "epochs", t)) for t in range(50)} == {1}
    assert {ProximalObjective().epochs(4, stream(1, "epochs", t)) for t in range(50)} == {4}
    some = ProximalObjective(stragglers=0.25)
    slow = [some.epochs(1000, stream(1, "epochs", t)) < 1000 for t in range(1500)]
    assert abs(np.mean(slow) - 0.25) < 0.04


class Zero:
    """A generator whose uniform number is exactly 0."""

    def random(self):
        return 0.0


def test_without_stragglers_nobody_is_slow():
    assert ProximalObjective(stragglers=0).epochs(4, Zero()) == 4


def test_defaults():
    """mu = 1 is the paper's best for MNIST; without stragglers every node does E epochs."""
    assert (ProximalObjective().mu, ProximalObjective().stragglers) == (1.0, 0.0)
