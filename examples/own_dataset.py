"""A data set of one's own: which of three rings does a point lie on? Every owner looks in another direction.

    fedpns run --dataset examples.own_dataset:Rings --set noise=0.05
    fedpns run --dataset examples.own_dataset:Rings --partition dirichlet --concentration 0.3

Fields are parameters: `--set noise=0.05`, a key of a study file, `Experiment(noise=0.05)`. The samples are the same
whatever the seed of the run; a partition decides who holds what. With owners (`train_node`), it may be `natural`.
"""

import numpy as np
from pydantic import Field

from fedpns_ray.data import Dataset, Samples


class Rings(Dataset):
    """Points on three rings around the origin, with 100 owners."""

    name = "rings"
    defaults = {"model": "mlr", "partition": "natural"}  # noqa: RUF012 -- what a user would write
    owners = True
    noise: float = Field(0.1, ge=0, le=1)
    """Standard deviation of the distance from the ring."""

    def load(self):
        rng = np.random.default_rng(0)
        ring, owner = rng.integers(3, size=6000), rng.integers(100, size=6000)
        angle = 2 * np.pi * owner / 100 + rng.normal(0, 0.5, 6000)
        radius = 1 + ring + rng.normal(0, self.noise, 6000)
        x = np.stack([radius * np.cos(angle), radius * np.sin(angle), radius**2], axis=1)
        return Samples(x[:5000], ring[:5000], x[5000:], ring[5000:], classes=3, train_node=owner[:5000])
