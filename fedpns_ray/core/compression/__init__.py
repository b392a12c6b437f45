"""Compression: what a node sends of its update, one method per file."""

from fedpns_ray.core.compression.interfaces import Compression, Tensors
from fedpns_ray.core.compression.none import NoCompression

__all__ = ["Compression", "NoCompression", "Tensors"]
