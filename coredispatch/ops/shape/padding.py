"""Padding: borders of a constant, of mirrored, repeated or wrapped elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coredispatch.ops.shape.rules import padded
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Scalar, Tensor
from coredispatch.ops.support.rules import exact, require_one_of, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import ArgumentError, ModeError, ShapeError

__all__ = ["constant_pad_nd", "pad"]

_NUMPY_MODES = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


def _pairs(pad: Sequence[int], ndim: int) -> list[tuple[int, int]]:
    """NumPy's order of the pairs: the first dimension first."""
    given = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [*((0, 0) for _ in range(ndim - len(given))), *reversed(given)]


def _reference(self: Any, pad: Sequence[int], mode: str = "constant", value: Any = 0) -> Any:
    pairs = _pairs(pad, self.ndim)
    grow = [(max(a, 0), max(b, 0)) for a, b in pairs]
    options = {"constant_values": 0 if value is None else value} if mode == "constant" else {}
    kind: Any = _NUMPY_MODES[mode]
    if mode == "circular":
        return np.pad(_cropped(self, pairs), grow, kind)
    return _cropped(np.pad(self, grow, kind, **options), pairs)


def _cropped(x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
    inside = zip(x.shape, pairs)
    return x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in inside)]


def _constant_pads(make: Any) -> Iterator[Sample]:
    yield Sample(make((5,)), (1, 2))
    yield Sample(make((5,)), (-1, 2), 3)
    yield Sample(make((4, 4)), (1, 0, 2, 1))
    yield Sample(make((3, 5)), (2, -2))
    yield Sample(make((2, 3, 5)), (0, 0, 1, 1, 0, 2), 1)
    yield Sample(make((0, 3)), (1, 1))
    yield Sample(make((2, 3, 4, 5)), (1, 1, 1, 1))
    yield Sample(make((1, 2, 1, 3, 2)), (0, 1, 1, 0, 2, 0, 0, 1, 1, 2), 2)


@primitive(
    out=padded,
    dtype=same,
    reference=lambda self, pad, value=0: _reference(self, pad, "constant", value),
    samples=_constant_pads,
    errors=lambda make: [
        (Sample(make((3,)), (1,)), ShapeError),
        (Sample(make((3,)), (-2, -2)), ShapeError),
    ],
    tolerance=exact,
    fits=("value",),
)
def constant_pad_nd(self: Tensor, pad: IntList, value: Scalar = 0) -> Tensor:
    """Borders of ``value`` around ``self``.

    ``pad`` holds pairs (before, after), the last dimension first; a negative number crops.
    Raises :class:`ShapeError` for an odd number of pads or a negative length.
    """


@constant_pad_nd.vjp
def _(grad, pad):
    return constant_pad_nd(grad, tuple(-n for n in pad))


def _modes(make: Any) -> Iterator[Sample]:
    yield Sample(make((2, 5)), (1, 2))
    yield Sample(make((2, 5)), (1, 2), "constant", 3)
    for mode in ("reflect", "replicate", "circular"):
        yield Sample(make((2, 3, 5)), (2, 1), mode)
        yield Sample(make((2, 3, 4, 5)), (1, 2, 2, 1), mode)
        yield Sample(make((3, 5)), (-1, 2), mode)
        yield Sample(make((1, 4, 5)), (2, -2, -1, 1), mode)
        yield Sample(make((1, 2, 3, 4, 3)), (1, 2, 1, 0, 2, 1), mode)


def _pad_shape(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """The lengths grown by ``pad``; raises where the mode finds too little to fill borders with."""
    require_one_of("mode", mode, tuple(_NUMPY_MODES), ModeError)
    shape = padded(input, pad, uncropped=mode in ("reflect", "replicate"))
    if mode == "constant":
        return shape
    if value not in (None, 0):
        raise ArgumentError(
            f"mode {mode!r} fills with elements, and value={value} was given",
            fix="leave value away, or use mode='constant'",
        )
    for i in range(len(pad) // 2):
        length, before, after = input.shape[-1 - i], pad[2 * i], pad[2 * i + 1]
        left = length + min(before, 0) + min(after, 0) if mode == "circular" else length
        most = {"reflect": left - 1, "circular": left}.get(mode, math.inf if left else 0)
        if max(before, after, 0) > max(most, 0):
            raise ShapeError(
                f"padding ({before}, {after}) with mode {mode!r} needs more elements than the "
                f"{left} along dimension {len(input.shape) - 1 - i}",
                fix=f"pad by at most {max(most, 0)}",
            )
    return shape


@composite(
    out=_pad_shape,
    dtype=same,
    reference=_reference,
    samples=_modes,
    tolerance=exact,
    namespace="nn.functional",
    fits=("value",),
)
def pad(
    input: Tensor,
    pad: IntList,
    mode: str = "constant",
    value: Scalar | None = None,
) -> Tensor:
    """Borders around ``input``: pairs (before, after) in ``pad``, the last dimension first.

    ``mode``: ``"constant"`` fills with ``value`` (0); ``"reflect"`` mirrors without repeating
    the edge; ``"replicate"`` repeats the edge; ``"circular"`` takes the other end of what a
    negative number leaves. Raises :class:`ShapeError` where there is not enough to mirror or wrap.
    """
    _pad_shape(input, pad, mode, value)
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode == "circular":  # what is cropped is not wrapped around
        input = constant_pad_nd(input, tuple([min(n, 0) for n in pad]))
        pad = tuple([max(n, 0) for n in pad])
    for i in range(len(pad) // 2):
        before, after = pad[2 * i], pad[2 * i + 1]
        if before or after:
            dim = input.ndim - 1 - i
            places = _sources(input.shape[dim], before, after, mode, input.device)
            input = lazy.index_select(input, dim, places)
    return input


@pad.vjp
def _(grad, input_shape, pad, mode):
    if mode == "constant":
        return constant_pad_nd(grad, tuple([-n for n in pad]))
    inward, outward = tuple([max(-n, 0) for n in pad]), [max(n, 0) for n in pad]
    if mode != "circular" and any(inward):
        grad = constant_pad_nd(grad, inward)
    for i in range(len(pad) // 2):
        before, after = outward[2 * i], outward[2 * i + 1]
        if before or after:
            grad = _folded(grad, grad.ndim - 1 - i, before, after, mode)
    return constant_pad_nd(grad, inward) if mode == "circular" and any(inward) else grad


def _folded(grad: Any, dim: int, before: int, after: int, mode: str) -> Any:
    """What lies in the borders along ``dim`` added to where it came from."""
    length = grad.shape[dim] - before - after
    places = _sources(length, before, after, mode, grad.device)
    borders = [
        (lazy.narrow(x, d, 0, before), lazy.narrow(x, d, before + length, after))
        for x, d in ((places, 0), (grad, dim))
    ]
    index, rows = (lazy.cat(pair, d) for pair, d in zip(borders, (0, dim)))
    return lazy.index_add(lazy.narrow(grad, dim, before, length), dim, index, rows)


def _sources(length: int, before: int, after: int, mode: str, device: Any) -> Any:
    """Where each element along a padded dimension comes from, int64."""
    places = lazy.arange(-before, length + after, device=device)
    if mode == "replicate":
        return lazy.clamp(places, 0, length - 1)
    if mode == "circular":
        return lazy.remainder(places, length)
    last = length - 1
    return last - lazy.abs(last - lazy.abs(places))
