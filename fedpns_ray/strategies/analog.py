"""Broadband analog aggregation (Zhu et al. 2020): all nodes send at once, and the air adds their updates up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Aggregation, CheckLoss, Nodes, Outcome, Updates, Vector
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.core.streams import stream

SILENT = Quantity("silent_fraction", "sub-channels left silent", "%", 100.0, "lower")
NOISE = Quantity("noise_fraction", "noise against the aggregated step", better="lower")


class AnalogAggregation(Aggregation):
    """The mean of the updates as radio adds it up: truncated channel inversion and receiver noise (Zhu 2020).

    Entry k of an update is an amplitude on sub-channel k mod M, whose Rayleigh gain |h|^2 is exponential with mean 1.
    A node inverts its channel, so that amplitudes arrive aligned; where |h|^2 is below the threshold g, that would
    take too much power, and it is silent: with probability 1 - exp(-g). The receiver gets the sum of what was sent and
    Gaussian noise: w <- w + (sum of delta_i over those who sent + z) / m, where the standard deviation of z is
    nu / sqrt(SNR), and nu^2 the mean square of all entries: the source sends amplitudes of unit variance.

    Gains last for a round and are drawn anew for each node and round, as is the noise. Not taken over: path loss, the
    scheduling of nodes near the base station, the transmit power that g and the SNR imply together, and subtracting
    the mean before sending. The server never sees a single update; a selection that learns from them still does.
    """

    name = "analog"
    over_the_air = True
    quantities = (SILENT, NOISE)
    gain_threshold: float = Field(0.1, ge=0, le=20)
    """g, the power gain below which a node is silent on a sub-channel."""
    snr: float = Field(20.0, ge=-100, le=200)
    """The receive signal-to-noise ratio of one node's amplitude, in dB."""
    subchannels: int = Field(1000, ge=1, le=100_000_000)
    """M, sub-channels that fade independently; 1: a node is silent with its whole update or not at all."""
    _nodes: Nodes
    _received: int = 0

    def begin(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        self._received += 1
        entries, m = len(weights), len(updates)
        shares = np.full(m, 1 / m) if updates.shares is None else updates.shares
        step, power, open_channels = np.zeros(entries), 0.0, []
        for node, delta, share in zip(updates.node_ids, updates.deltas, shares, strict=True):
            sends = self._gains(node, entries) >= self.gain_threshold
            open_channels.append(sends)
            step += share * np.where(np.resize(sends, entries), delta, 0)
            power += float(np.square(delta, dtype=np.float64).mean()) / m
        z = stream(self._nodes.seed, "receiver noise", self._received).standard_normal(entries)
        noise = z * np.sqrt(power / 10 ** (self.snr / 10)) / m
        heard = np.array([sends.any() for sends in open_channels])
        ids, square = np.array(updates.node_ids), float(np.square(step).sum())
        return Outcome(
            (weights + step + noise).astype(np.float32),
            aggregated=tuple(ids[heard].tolist()),
            excluded=tuple(ids[~heard].tolist()),
            notes={
                SILENT.key: 1 - float(np.mean(open_channels)),
                NOISE.key: float(np.sqrt(np.square(noise).sum() / square)) if square else None,
            },
        )

    def _gains(self, node: int, entries: int) -> NDArray[np.float64]:
        """|h|^2 of each sub-channel that a node uses in this round."""
        channels = min(self.subchannels, entries)
        return stream(self._nodes.seed, "sub-channels", self._received, node).exponential(size=channels)
