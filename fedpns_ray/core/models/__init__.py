"""Models: the built-in ones, one family per file, any other, and the flat vector that represents them all."""

from fedpns_ray.core.models.buffers import Buffers, for_testing, has_batch_norm
from fedpns_ray.core.models.build import (
    BUILT_IN,
    Fit,
    build_model,
    flat_model_for,
    last_layer,
    model_for,
    numbers_sent,
    refuse_unvectorisable,
)
from fedpns_ray.core.models.cnn import CNNC, CNNM
from fedpns_ray.core.models.dropout import NodeDropout
from fedpns_ray.core.models.flat import (
    CohortModel,
    FlatModel,
    Gradients,
    memory_layout,
    own_randomness,
    parameter_shapes,
)
from fedpns_ray.core.models.mlr import MLR

__all__ = [
    "BUILT_IN", "CNNC", "CNNM", "MLR", "Buffers", "CohortModel", "Fit", "FlatModel", "Gradients", "NodeDropout",
    "build_model", "flat_model_for", "for_testing", "has_batch_norm", "last_layer", "memory_layout", "model_for",
    "numbers_sent", "own_randomness", "parameter_shapes", "refuse_unvectorisable",
]  # fmt: skip
