"""Gradient clipping, parameters as one vector, sequences of different lengths (``rnn``)."""

from __future__ import annotations

from coredispatch.frontend.nn.utils import rnn
from coredispatch.frontend.nn.utils.clipping import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    get_total_norm,
)
from coredispatch.frontend.nn.utils.vector import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]
