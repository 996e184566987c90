"""What distributions share: broadcasting, probabilities and logits, triangular matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Final, Generic, TypeVar, overload

import coredispatch as cd
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.dtypes import default_dtype

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "euler_constant",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant: Final[float] = 0.57721566490153286060

Number = bool | int | float


def is_number(value: Any) -> bool:
    """Whether ``value`` is a Python number (no tensor)."""
    return isinstance(value, (bool, int, float))


def broadcast_all(*values: Tensor | Number) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape.

    Numbers get the dtype and device of the first tensor, the default dtype where there is none.
    Raises ``ValueError`` for anything else.
    """
    if not all(isinstance(v, Tensor) or is_number(v) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, "
            "torch.Tensor or objects implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    tensors = [
        v if isinstance(v, Tensor) else cd.tensor(v, dtype=dtype, device=device) for v in values
    ]
    return tuple(cd.broadcast_tensors(*tensors))


def standard_normal(shape: Sequence[int], like: Tensor) -> Tensor:
    """Numbers of the standard normal distribution, in the dtype and on the device of ``like``."""
    return cd.randn(tuple(shape), dtype=like.dtype, device=like.device)


def standard_uniform(shape: Sequence[int], like: Tensor) -> Tensor:
    """Numbers uniform in [0, 1), in the dtype and on the device of ``like``."""
    return cd.rand(tuple(shape), dtype=like.dtype, device=like.device)


def sum_rightmost(value: Any, dim: int) -> Any:
    """``value`` summed over its ``dim`` rightmost dimensions."""
    if dim == 0:
        return value
    return value.reshape((*value.shape[: value.dim() - dim], -1)).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log odds, or of unnormalized log probabilities along the last dimension."""
    if is_binary:
        return cd.sigmoid(logits)
    return cd.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities away from 0 and 1 by the ``eps`` of their dtype."""
    eps = cd.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds, or logarithms, of probabilities; finite also for 0 and 1."""
    clamped = clamp_probs(probs)
    if is_binary:
        return cd.log(clamped) - cd.log1p(-clamped)
    return cd.log(clamped)


T = TypeVar("T")
R = TypeVar("R")


class lazy_property(Generic[T, R]):
    """A method as an attribute that is computed once, with gradients recorded."""

    def __init__(self, wrapped: Callable[[T], R]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    @overload
    def __get__(self, instance: None, obj_type: Any = None) -> lazy_property[T, R]: ...

    @overload
    def __get__(self, instance: T, obj_type: Any = None) -> R: ...

    def __get__(self, instance: T | None, obj_type: Any = None) -> R | lazy_property[T, R]:
        if instance is None:
            return self
        with cd.enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value
        return value


def _below(size: int, diag: int, device: Any) -> Tensor:
    columns = cd.arange(size, device=device)
    return columns < columns.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements on and below diagonal ``diag`` of ``(..., D, D)`` matrices, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _below(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of :func:`tril_matrix_to_vec`; what is not in ``vec`` is 0."""
    length = vec.shape[-1]
    # the positive root of D**2 + (1 + 2 diag) D - |diag| (diag + 1) - 2 length
    linear = 1 + 2 * diag
    root = (-linear + math.sqrt(linear**2 + 8 * length + 4 * abs(diag) * (diag + 1))) / 2
    n = round(root)
    if abs(n - root) > cd.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    mat = vec.new_zeros((*vec.shape[:-1], n, n))
    mat[..., _below(n, diag, vec.device)] = vec
    return mat


def matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """``matrix @ vector`` for batches that broadcast."""
    return cd.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def mahalanobis(tril: Tensor, x: Tensor) -> Tensor:
    """``x' inv(L L') x`` for lower triangular ``L``, whose batch broadcasts with that of ``x``."""
    solve = cd.linalg.solve_triangular
    if tril.dim() == 2:  # one matrix: all vectors are columns of one system
        columns = x.reshape(-1, x.shape[-1]).mT
        return solve(tril, columns, upper=False).square().sum(-2).reshape(x.shape[:-1])
    return solve(tril, x.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


def half_log_determinant(tril: Tensor) -> Tensor:
    """Half the logarithm of the determinant of ``L L'``."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def infinite_where(condition: Tensor, values: Tensor) -> Tensor:
    """``values``, infinity where ``condition`` holds."""
    return cd.where(condition, math.inf, values)


def as_size(shape: Any) -> Size:
    """A shape in whatever form as :class:`Size`."""
    return shape if isinstance(shape, Size) else Size(shape)


# Names that libraries over PyTorch import, although they begin with an underscore.
_sum_rightmost = sum_rightmost


def _standard_normal(shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    return cd.randn(tuple(shape), dtype=dtype, device=device)
