"""FedCor's `GPR.py`, told again: the fit by torch's autograd and Adam, the choice with the whole covariance."""

import math

import torch
from torch.distributions.multivariate_normal import MultivariateNormal


def covariance(embedding, noise):
    """Poly_Kernel of order 1, not normalised, and the noise."""
    rows = list(zip(*embedding, strict=True))
    return [
        [sum(a * b for a, b in zip(x, y, strict=True)) + (noise**2 if i == j else 0.0) for j, y in enumerate(rows)]
        for i, x in enumerate(rows)
    ]


def released_choice(sigma, discount, weights, size):
    """Select_Clients: `sigma` is the whole matrix, conditioned in place."""
    left, chosen = list(range(len(sigma))), []
    for _ in range(min(size, len(sigma))):
        best = None
        for k in left:
            score = sum(weights[i] * sigma[i][k] for i in left) * discount[k] / math.sqrt(sigma[k][k])
            if best is None or score > best[0] + 1e-9 * abs(best[0]):
                best = (score, k)
        k = best[1]
        chosen.append(k)
        left.remove(k)
        column = [row[k] for row in sigma]
        sigma = [
            [sigma[i][j] - column[i] * column[j] / column[k] for j in range(len(sigma))] for i in range(len(sigma))
        ]
    return chosen


def released_fit(embedding, samples, gammas, noise, steps):
    """Train with loss type MML and update_mean, on whole samples."""
    x = torch.nn.Parameter(torch.tensor(embedding, dtype=torch.float64))
    values, gammas = torch.tensor(samples, dtype=torch.float64), torch.tensor(gammas, dtype=torch.float64)
    mean = (gammas[:, None] * values).sum(0) / gammas.sum()
    optimizer = torch.optim.Adam([x], lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        sigma = x.T @ x + noise**2 * torch.eye(x.shape[1], dtype=torch.float64)
        likelihood = MultivariateNormal(mean, covariance_matrix=sigma).log_prob(values)
        loss = -(gammas * likelihood).sum()
        loss.backward()
        optimizer.step()
    return x.detach().numpy()
