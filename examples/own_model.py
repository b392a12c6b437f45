"""A user-defined model: any class or function that returns an nn.Module. This one has batch normalisation.

    fedpns run --dataset mnist --model examples.own_model:SmallNet --buffers average --rounds 20

A factory may take `shape` (of one input) and `classes`; it is called with the seed's own random numbers. Batch
normalisation has running statistics, which are not parameters: `buffers` says what becomes of them.
"""

from torch import nn


class SmallNet(nn.Sequential):
    """Two convolutions, normalised over the batch, for images of any size."""

    def __init__(self, shape, classes):
        super().__init__(
            nn.Conv2d(shape[0], 8, kernel_size=5, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, kernel_size=5, stride=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
            nn.Linear(16 * 9, classes),
        )
