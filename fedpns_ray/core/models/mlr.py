"""Multinomial logistic regression, the model of the paper's synthetic data."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class MLR(nn.Module):
    """Multinomial logistic regression: one linear layer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))

    def cohort_gradients(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients and losses of many nodes at once, in closed form: (softmax(Wx + b) - onehot(y)) x^T / B.

        Row k of `weights` is node k's flat vector. The bits of a node do not depend on the other rows, and this is
        several times faster than autograd under vmap (`make bench`).
        """
        (m, b), c = y.shape, self.linear.out_features
        x = x.flatten(2)
        w, bias = weights[:, :-c].view(m, c, -1), weights[:, -c:]
        log_p = torch.baddbmm(bias.unsqueeze(1), x, w.transpose(1, 2)).log_softmax(-1)
        own = y.unsqueeze(-1)
        losses = log_p.gather(-1, own).sum(dim=(1, 2)).div_(-b)
        error = log_p.exp_().add_(own == torch.arange(c, device=own.device), alpha=-1).div_(b)
        gradients = torch.cat([torch.bmm(error.transpose(1, 2), x).view(m, -1), error.sum(1)], dim=1)
        return gradients, losses
