"""Dropout: elements, channels or features zeroed at random during training.

Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014);
the alpha form keeps mean and variance of SELU activations (Klambauer et al., 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.ops.random.factories import rand_like, random_uniform
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Generator, Tensor
from coredispatch.ops.support.rules import same, same_shape
from coredispatch.ops.support.samples import Sample, unary
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType, bool_, float32
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

__all__ = [
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "dropout_backward",
    "feature_alpha_dropout",
    "native_dropout",
]


def _require_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(
            f"a dropout probability is between 0 and 1, got {p}",
            fix="use a probability from 0 to 1",
        )


def _scale(p: float) -> float:
    return 1.0 / (1.0 - p) if p < 1 else 0.0


@composite(
    out=lambda self, *_: [tuple(self.shape), tuple(self.shape)],
    dtype=lambda self, *_: (same(self), bool_),
    samples=lambda make: (Sample(s.args[0], 0.3) for s in unary(make)),
    dtypes="float",
    random=True,
    namespace=(),
    method=False,
)
def native_dropout(
    self: Tensor, p: float, generator: Generator | None = None
) -> tuple[Tensor, Tensor]:
    """``self`` with elements zeroed with probability ``p``, the others divided by ``1 - p``.

    Also returns the mask (bool) of what was kept.
    """
    drawn = random_uniform(
        tuple(self.shape), dtype=float32, device=self.device, generator=generator
    )
    kept = lazy.ge(drawn, p)
    return lazy.masked_fill(self * _scale(p), lazy.logical_not(kept), 0), kept


@native_dropout.vjp
def _(grad0, out1, p):
    return dropout_backward(grad0, out1, _scale(p))


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (Sample(make(s), make.mask(s), 1.5) for s in ((5,), (3, 5))),
    dtypes="float",
    namespace=(),
    method=False,
)
def dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """``grad * scale`` where ``mask`` holds, else 0."""
    return lazy.masked_fill(grad * scale, lazy.logical_not(mask), 0)


dropout_backward.vjp(grad=lambda grad, mask, scale: dropout_backward(grad, mask, scale))


_RATES = ((0.5, True), (0.0, True), (0.25, False))


def _trained(make: Any) -> Iterator[Sample]:
    for size in ((17,), (4, 6, 3), (0, 2)):
        for p, training in _RATES:
            yield Sample(make(size), p, training)


def _dropped_shape(input: Any, p: float, training: bool, *_: Any) -> tuple[int, ...]:
    _require_probability(p)
    if training and p:
        _require_floating(input)
    return same_shape(input)


def _require_floating(input: Any) -> None:
    if not DType.of(input.dtype).is_floating_point:
        raise DTypeError(
            f"what dropout leaves of {input.dtype} would not be {input.dtype}",
            fix="convert with x.float()",
        )


def _finished(input: Any, out: Any, inplace: bool) -> Any:
    return lazy.copy_(input, out) if inplace else out


_DROPOUT: dict[str, Any] = {
    "out": _dropped_shape,
    "dtype": same,
    "samples": _trained,
    "view": "maybe",  # input itself, where nothing is drawn
    "random": True,
    "namespace": ("", "nn.functional"),
    "method": False,
    "dtypes": "float",
}


@composite(**_DROPOUT)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """While ``training``: elements zeroed with probability ``p``, the rest divided by ``1 - p``.

    Otherwise ``input`` itself. Raises :class:`ArgumentError` unless 0 <= p <= 1.
    """
    _dropped_shape(input, p, training)
    if not training or p == 0 or input.numel() == 0:
        return input
    return _finished(input, native_dropout(input, p)[0], inplace)


def _warn_of_odd_shape(spatial: int, ndim: int) -> None:
    """PyTorch's warnings about inputs that have no ``spatial`` dimensions after their channels."""
    name = f"dropout{spatial}d"
    if ndim not in (spatial + 1, spatial + 2):
        warn(
            f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in "
            "an error in a future release. To retain the behavior and silence this warning, "
            f"please use dropout instead. Note that {name} exists to provide channel-wise dropout "
            f"on inputs with {spatial} spatial dimensions, a channel dimension, and an optional "
            f"batch dimension (i.e. {spatial + 1}D or {spatial + 2}D inputs)."
        )
    elif name == "dropout2d" and ndim == 3:
        warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D "
            "dropout behavior is desired - input is interpreted as shape (N, C, L), where C is "
            "the channel dim. This behavior will change in a future release to interpret the "
            "input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D "
            "channel-wise dropout behavior, please switch to using dropout1d instead."
        )


def _channels(input: Any, p: float, training: bool, inplace: bool, spatial: int) -> Any:
    """Zero whole channels, which ``spatial`` dimensions come after."""
    _require_probability(p)
    ndim = input.ndim
    planes = spatial == 2
    if spatial == 1 and ndim not in (2, 3):
        raise ShapeError(
            f"Expected 2D or 3D input, but received a {ndim}D input",
            fix="add or remove dimensions with unsqueeze or squeeze",
        )
    if spatial > 1:
        _warn_of_odd_shape(spatial, ndim)
    if ndim < (2 if planes else 1):
        raise ShapeError(
            f"Feature dropout requires at least 2 dimensions in the input, got {ndim}",
            fix="use dropout, which zeroes elements",
        )
    if planes and ndim == 2:
        return dropout(input, p, training, inplace)  # (N, C): a channel is an element
    if not training or p == 0:
        return input
    _require_floating(input)
    # PyTorch reads the input of dropout2d as (N, C, ...), whatever follows. For the others only
    # the number of dimensions that they are made for has a batch in front.
    lead = 2 if planes or ndim == spatial + 2 else 1
    mask = _channel_mask(input, p, lead)
    return _finished(input, input * (mask * _scale(p)).to_dtype(input.dtype), inplace)


def _channel_mask(input: Any, p: float, lead: int) -> Any:
    # Of a view rather than of a shape: what wraps the input draws for itself.
    places = (slice(None),) * lead + (slice(0, 1),) * (input.ndim - lead)
    return lazy.ge(rand_like(lazy.getitem(input, places), dtype=float32), p)


def _channel_dropout(name: str, spatial: int, shown: str) -> Any:
    @composite(
        name=name,
        out=_dropped_shape,
        dtype=same,
        view="maybe",
        samples=lambda make: (
            Sample(make((4, 6, *(3,) * spatial)), p, training) for p, training in _RATES
        ),
        random=True,
        namespace="nn.functional",
        method=False,
        dtypes="float",
    )
    def channel_dropout(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        return _channels(input, p, training, inplace, spatial)

    channel_dropout.__doc__ = (
        f"Like :func:`dropout` for whole channels of input {shown}, (C, ...) without a batch."
    )
    return channel_dropout


dropout1d = _channel_dropout("dropout1d", 1, "(N, C, L)")
dropout2d = _channel_dropout("dropout2d", 2, "(N, C, H, W)")
dropout3d = _channel_dropout("dropout3d", 3, "(N, C, D, H, W)")

# The value that SELU saturates at: -scale * alpha.
_SATURATION = -1.7580993408473766


def _alpha(input: Any, p: float, kept: Any) -> Any:
    """Klambauer et al., section 3: dropped units saturate, then mean and variance are restored."""
    a = ((1 - p) * (1 + p * _SATURATION**2)) ** -0.5 if p < 1 else 0.0
    b = -a * p * _SATURATION
    kept = kept.to_dtype(input.dtype)
    return (input * kept + (1 - kept) * _SATURATION) * a + b


@composite(**_DROPOUT)
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for SELU networks: keeps mean 0 and variance 1 of its input."""
    _require_probability(p)
    if not training or p == 0:
        return input
    _require_floating(input)
    kept = lazy.ge(rand_like(input, dtype=float32), p)
    return _finished(input, _alpha(input, p, kept), inplace)


def _of_channels(make: Any) -> Iterator[Sample]:
    return (s for s in _DROPOUT["samples"](make) if s.args[0].ndim > 1)


@composite(**_DROPOUT | {"samples": _of_channels})
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Like :func:`alpha_dropout` for whole channels of input (N, C, ...)."""
    _require_probability(p)
    if not training or p == 0:
        return input
    if input.ndim < 2:
        raise ShapeError(
            f"feature dropout requires at least 2 dimensions in the input, got shape "
            f"{tuple(input.shape)}",
            fix="use (N, C, *)",
        )
    _require_floating(input)
    return _finished(input, _alpha(input, p, _channel_mask(input, p, 2)), inplace)
