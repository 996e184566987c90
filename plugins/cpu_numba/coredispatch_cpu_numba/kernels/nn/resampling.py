"""Resampling of images: interpolate by the nearest, linear and cubic modes, and its gradient.

What an element of the result is made of follows from the sizes alone: the places of its taps and
their shares, dimension by dimension. The gradient is the same sum with the taps turned round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import floor, prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, INT64, POINTWISE
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_SPLIT = 16384
_FLOAT32 = np.dtype(np.float32)
_resampled = Loop("nn.resampling", "resampled", _SPLIT)
#: modes, and how many dimensions they have to have
_NEAREST = ("nearest", "nearest-exact")
_SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_CUBIC = -0.75
#: rows of up to so many elements are hardly work for vectors: planes are then made one row, if an
#: element has so few taps
_NARROW, _FEW = 32, 4

Factors = tuple[float | None, ...]
#: places and shares of the taps, each ``(taps, elements)``; -1 is the place of none
Taps = tuple[np.ndarray, np.ndarray]


def _sizes(spatial: Any, size: Any, scale_factor: Any, recomputed: Any) -> Any:
    """The sizes of the result, and the factors where they were given; None where they are odd."""
    n = len(spatial)
    if (size is None) == (scale_factor is None):
        return None
    given = size if scale_factor is None else scale_factor
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    if len(each) != n:
        return None
    if scale_factor is None:
        fits = all(type(s) is int and s > 0 for s in each) and not recomputed
        return (each, (None,) * n) if fits else None
    if any(type(f) not in (int, float) for f in each):
        return None
    factors = tuple([float(f) for f in each])
    sizes = tuple([floor(s * f) for s, f in zip(spatial, factors)])
    return (sizes, (None,) * n if recomputed else factors) if min(sizes) > 0 else None


@lru_cache(maxsize=256)
def _taps(
    source: int, target: int, factor: float | None, mode: str, align: bool, dtype: np.dtype[Any]
) -> Taps:
    """What each of ``target`` elements is made of."""
    ratio = 1 / factor if factor else source / target
    if mode in _NEAREST:
        # PyTorch computes the position in single precision whatever the dtype.
        at = np.arange(target, dtype=_FLOAT32) + _FLOAT32.type(mode == "nearest-exact" and 0.5)
        places = np.floor(at * _FLOAT32.type(ratio)).astype(INT64)
        return np.minimum(places, source - 1)[None], np.ones((1, target), dtype)
    # In double precision: of a long row a position in single precision has few digits left for
    # the share.
    at = np.arange(target, dtype=np.float64)
    if align:
        at = at * (source - 1) / max(target - 1, 1)
    else:
        at = (at + 0.5) * ratio - 0.5
    if mode == "bicubic":
        low = np.floor(at)
        share = at - low
        # Distances of the four elements around a position; Keys' cubic below 1, and beyond.
        d = np.stack([share + 1, share, 1 - share, 2 - share])
        near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
        far = (((d - 5) * d + 8) * d - 4) * _CUBIC
        shares = np.stack([far[0], near[1], near[2], far[3]])
        places = low.astype(INT64) + np.arange(-1, 3)[:, None]
        return np.clip(places, 0, source - 1), shares.astype(dtype)
    at = np.maximum(at, 0)
    low = np.minimum(np.floor(at).astype(INT64), source - 1)
    share = at - low
    shares = np.stack([1 - share, share])
    return np.stack([low, np.minimum(low + 1, source - 1)]), shares.astype(dtype)


def _turned(taps: Taps, source: int) -> Taps:
    """For each of ``source`` elements the results that it is a tap of, in their order."""
    places, shares = taps
    of, count = places.T.reshape(-1), places.shape[0]
    order = np.argsort(of, kind="stable")
    met = np.bincount(of, minlength=source)
    rank = np.arange(of.size) - np.repeat(np.cumsum(met) - met, met)
    turned = np.full((int(met.max()), source), -1, INT64)
    weights = np.zeros(turned.shape, shares.dtype)
    turned[rank, of[order]] = order // count
    weights[rank, of[order]] = shares.T.reshape(-1)[order]
    return turned, weights


def _numbered(taps: Taps) -> Taps:
    """The taps as the loop takes them: after the places, from where to where there are any."""
    places, shares = taps
    there = places >= 0
    first = there.argmax(1)
    stop = places.shape[1] - there[:, ::-1].argmax(1)
    every = [int(len(places) in (1, 2, 4) and there.all())]
    return np.concatenate([places.reshape(-1), first, stop, every]), shares.reshape(-1)


def _flat(rows: Taps, columns: Taps, width: int) -> Taps:
    """The taps of a plane's elements, in a plane that is ``width`` wide: one row of all."""
    (down, down_shares), (across, across_shares) = rows, columns
    taps = len(down) * len(across), down.shape[1] * across.shape[1]
    here, there = down[:, None, :, None], across[None, :, None, :]
    places = np.where((here < 0) | (there < 0), -1, here * width + there).reshape(taps)
    shares = (down_shares[:, None, :, None] * across_shares[None, :, None, :]).reshape(taps)
    kept = (places >= 0).any(1)
    return places[kept], shares[kept]


def _reach(places: np.ndarray) -> int:
    """How many rows of the source lie between the first and the last tap of an element, at most."""
    first = np.where(places < 0, places.max(), places).min(0)
    return max(1, int((places.max(0) - first).max()) + 1)


@lru_cache(maxsize=256)
def _plan(
    sources: tuple[int, ...],
    targets: tuple[int, ...],
    factors: Factors,
    mode: str,
    align: bool,
    turned: bool,
    dtype: np.dtype[Any],
) -> list[Any]:
    """One step for planes, and one for what is deep: what the loop takes beside the arrays."""
    along = []
    for source, target, factor in zip(sources, targets, factors):
        taps = _taps(source, target, factor, mode, align, dtype)
        along.append(_turned(taps, source) if turned else taps)
    given, made = (targets, sources) if turned else (sources, targets)
    steps = []
    if len(given) == 1:
        steps.append((1, given[0], 1, made[0], None, along[0]))
    else:
        flat = made[-1] <= _NARROW and len(along[-2][0]) * len(along[-1][0]) <= _FEW
        if flat:
            taps = _flat(*along[-2:], given[-1])
            steps.append((1, prod(given[-2:]), 1, prod(made[-2:]), None, taps))
        else:
            steps.append((*given[-2:], *made[-2:], *along[-2:]))
        if len(given) == 3:
            steps.append((given[0], prod(made[1:]), made[0], prod(made[1:]), along[0], None))
    neutral = 0.0 if turned else -0.0  # the sum of nothing; what is copied keeps its sign of zero
    plan: list[Any] = []
    for height, width, high, wide, rows, columns in steps:
        rows = rows or (np.zeros((1, 1), INT64), np.ones((1, 1), dtype))
        across = len(columns[0]) if columns else 0
        columns = columns or (np.zeros((1, 1), INT64), np.ones((1, 1), dtype))
        # Rows are made wide first, as there are fewer of them, unless there will be still fewer.
        rows_first = high * width < height * wide and across > 0
        sizes = height, width, high, wide, len(rows[0]), across, _reach(rows[0]), rows_first
        taps = (rows[0].reshape(-1), rows[1].reshape(-1), *_numbered(columns))
        plan.append((height * width, high * wide, np.array(sizes, INT64), *taps, neutral))
    return plan


def _run(x: np.ndarray, shape: tuple[int, ...], plan: list[Any]) -> np.ndarray:
    """``x`` resampled step by step, to ``shape``."""
    own = x.dtype
    for given, made, *rest in plan:
        planes = x.size // given
        out = np.empty(planes * made, own)
        _resampled(own, max(x.size, out.size), planes, x, out, *rest, weight=max(given, made))
        x = out
    return x.reshape(shape)


def _fits(x: Any, mode: Any, align: Any, antialias: Any) -> bool:
    """Whether there is a loop for it; what is not in order is left to the definition."""
    if type(x) is not np.ndarray or x.dtype not in POINTWISE or antialias or x.size == 0:
        return False
    if mode in _NEAREST:
        return x.ndim in (3, 4, 5) and align is None
    return _SMOOTH.get(mode) == x.ndim - 2 and align in (None, False, True)


def _dense(x: np.ndarray) -> np.ndarray:
    """``x`` as the loop takes it: half precision in float32, contiguous."""
    return np.ascontiguousarray(x, None if x.dtype in FLOATS else _FLOAT32)


def interpolate(
    input: np.ndarray,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    """Rows resampled once each, and then brought together."""
    if not _fits(input, mode, align_corners, antialias):
        return NotImplemented
    spatial = input.shape[2:]
    found = _sizes(spatial, size, scale_factor, recompute_scale_factor)
    if found is None:
        return NotImplemented
    targets, factors = found
    x = _dense(input)
    plan = _plan(spatial, targets, factors, mode, bool(align_corners), False, x.dtype)
    return _run(x, (*input.shape[:2], *targets), plan).astype(input.dtype, copy=False)


def interpolate_backward(
    grad: np.ndarray,
    input_shape: Any,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: Any,
    recompute_scale_factor: Any,
    antialias: bool,
) -> Any:
    """What each element gets of those that it was a tap of."""
    shape = tuple(input_shape)
    if not _fits(grad, mode, align_corners, antialias) or len(shape) != grad.ndim:
        return NotImplemented
    found = _sizes(shape[2:], size, scale_factor, recompute_scale_factor)
    if found is None or 0 in shape:
        return NotImplemented
    targets, factors = found
    if grad.shape != (*shape[:2], *targets):
        return NotImplemented
    g = _dense(grad)
    plan = _plan(shape[2:], targets, factors, mode, bool(align_corners), True, g.dtype)
    return _run(g, shape, plan).astype(grad.dtype, copy=False)


KERNELS: dict[str, Callable[..., Any]] = {
    "interpolate": interpolate,
    "interpolate_backward": interpolate_backward,
}
#: the definition is dozens of calls, however few elements there are
LEAST: dict[str, int] = dict.fromkeys(KERNELS, 1)
