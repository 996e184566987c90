"""Top-level functions in the form of PyTorch's kernels: ``native_layer_norm``, ``grid_sampler``.

Programs call them for what the functions of ``nn.functional`` leave out: the statistics that a
normalization computed, or the order of arguments of a kernel. Found on first use.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.sizes import normalize_dim

__all__: list[str] = []

_SAMPLING = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """``nn.functional.grid_sample`` with its modes as numbers: bilinear, nearest, bicubic, and
    zeros, border, reflection. Raises ``ValueError`` for another number.
    """
    mode = _named("interpolation_mode", interpolation_mode, _SAMPLING)
    padding = _named("padding_mode", padding_mode, _PADDING)
    return F.grid_sample(input, grid, mode, padding, align_corners)


def _named(name: str, number: int, modes: tuple[str, ...]) -> str:
    number = operator.index(number)
    if not 0 <= number < len(modes):
        meant = ", ".join(f"{i} ({mode})" for i, mode in enumerate(modes))
        raise ArgumentError(f"grid_sampler: {name}={number} is no mode", fix=f"use one of {meant}")
    return modes[number]


grid_sampler_2d = grid_sampler_3d = grid_sampler


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Any:
    """``nn.functional.affine_grid``."""
    return F.affine_grid(theta, size, align_corners)


def _statistics(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    wide = x.to(dtypes.float32) if x.dtype.itemsize < 4 else x
    mean = wide.mean(dims, keepdim=True)
    rstd = (wide.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return mean, rstd


def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> tuple[Any, Any, Any]:
    """``nn.functional.layer_norm``, the means, and one over the standard deviations."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    mean, rstd = _statistics(input, tuple(range(-len(shape), 0)), eps)
    return F.layer_norm(input, shape, weight, bias, eps), mean, rstd


def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Any, Any, Any]:
    """``nn.functional.group_norm``, the means, and one over the standard deviations."""
    mean, rstd = _statistics(input.reshape(N, group, -1), (-1,), eps)
    return F.group_norm(input, group, weight, bias, eps), mean[..., 0], rstd[..., 0]


def native_batch_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any]:
    """``nn.functional.batch_norm``, the means, and one over the standard deviations.

    The last two are empty outside training.
    """
    if training:
        dims = (0, *range(2, input.ndim))
        mean, rstd = (s.reshape(-1) for s in _statistics(input, dims, eps))
    else:
        mean, rstd = input.new_empty(0), input.new_empty(0)
    out = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return out, mean, rstd


_NOTHING = {
    "sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf"),
}  # fmt: skip
_REDUCTIONS = {"sum": "sum", "mean": "mean", "prod": "prod", "max": "amax", "min": "amin"}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Reduce rows that follow each other: ``lengths[i]`` of them, or those between ``offsets``.

    Args:
        data: (..., N, ...), floating point; N is the size of ``axis``.
        reduce: ``"sum"``, ``"mean"``, ``"max"``, ``"min"`` or ``"prod"``.
        lengths: (..., S), how many rows each segment has; the dimensions before are those of
            ``data`` before ``axis``.
        offsets: (..., S + 1), where each begins, and where the last ends.
        axis: the last dimension of ``lengths`` or ``offsets``.
        unsafe: whether the lengths may add up to less than N.
        initial: what each segment begins with.

    Returns (..., S, ...). An empty segment is ``initial``, else 0, 1 or infinite; NaN for
    ``"mean"``.

    Raises:
        RuntimeError: lengths do not add up, are not there for each row before ``axis``, or neither
            lengths nor offsets are given; ``indices`` are.
        IndexError: there is no dimension ``axis``.
        TypeError: ``data`` are not floating point.
    """
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"unsupported reduction given! {reduce!r}: one of {sorted(_REDUCTIONS)}")
    axis = normalize_dim(axis, data.ndim)
    if indices is not None:
        raise RuntimeError(
            "segment_reduce(): indices based reduction is not supported yet\n"
            "  fix: scatter_reduce takes any index"
        )
    if not data.is_floating_point():
        raise DTypeError(
            f"segment_reduce: not for {data.dtype}", fix="give data of a floating-point dtype"
        )
    if lengths is None:
        if offsets is None:
            raise RuntimeError("segment_reduce: Either lengths or offsets must be defined")
        lengths = offsets.diff()
    before, size = data.shape[:axis], data.shape[axis]
    if lengths.shape[:-1] != before:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths and lengths to "
            f"have the shape {(*before, 'S')}, got axis {axis} and the shape {tuple(lengths.shape)}"
        )
    totals = lengths.sum(-1)
    if not bool((totals <= size if unsafe else totals == size).all()) or bool((lengths < 0).any()):
        raise RuntimeError(
            f"segment_reduce(): Expected all rows of lengths along axis to sum to "
            f"data.size(axis) = {size} and not to be negative, got {lengths.tolist()}"
        )
    # What the lengths leave over is one segment more in each row, which is cut off at the end.
    all_lengths = TABLE.operator("cat")([lengths, (size - totals).unsqueeze(-1)], -1)
    count, tail = all_lengths.numel(), data.shape[axis + 1 :]
    rows = data.reshape(math.prod(before) * size, *tail)
    each = all_lengths.reshape(-1)
    places = TABLE.operator("arange")(count, device=data.device).repeat_interleave(each)
    places = places.reshape(-1, *(1,) * len(tail)).expand(places.shape[0], *tail)
    start = _NOTHING[reduce] if initial is None else initial
    empty = TABLE.operator("full")((count, *tail), start, dtype=data.dtype, device=data.device)
    if reduce != "mean":
        found = empty.scatter_reduce(0, places, rows, _REDUCTIONS[reduce], include_self=True)
    else:
        sizes = each.reshape(-1, *(1,) * len(tail))
        found = empty.scatter_add(0, places, rows) / sizes
        if initial is not None:
            found = TABLE.operator("where")(sizes == 0, start, found)
    return found.reshape(*all_lengths.shape, *tail).narrow(axis, 0, lengths.shape[-1])


def feature_alpha_dropout_(input: Any, p: float, train: bool) -> Any:
    """``nn.functional.feature_alpha_dropout`` in place."""
    return input.copy_(F.feature_alpha_dropout(input, p, train)) if train else input
