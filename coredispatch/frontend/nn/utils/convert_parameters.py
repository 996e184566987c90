"""All parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other, 1-d."""
    vector: Tensor = TABLE.operator("cat")([p.reshape(-1) for p in parameters])
    return vector


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give the parameters the elements of ``vec``, as views of it."""
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[start : start + count].reshape(tuple(parameter.shape)).data
        start += count
