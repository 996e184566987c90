"""NumPy kernels that draw random numbers, from a SFC64 stream for each generator.

SFC64 (Doty-Humphrey, PractRand) is the fastest of NumPy's bit generators. Half precision is
drawn in float32 and rounded towards zero, so that ``uniform`` stays below its upper end.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.numpy.elementwise.masks import keep_where
from coredispatch.registry.around.raw_values import call_raw
from coredispatch.registry.model.dtypes import DType, default_dtype, int64
from coredispatch.registry.model.errors import ArgumentError
from coredispatch.registry.model.generator import Generator, default_generator
from coredispatch.registry.model.scalars import check_interval
from coredispatch.registry.model.sizes import as_size

__all__ = ["KERNELS", "Stream", "stream"]

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def _wanted(dtype: DType | np.dtype | None, default: DType) -> np.dtype:
    """The dtype asked for, of either kind."""
    return dtype if isinstance(dtype, np.dtype) else numpy_dtype(dtype or default)


def _float_dtype(dtype: DType | np.dtype | None) -> tuple[np.dtype, np.dtype]:
    """The dtype asked for, and the one to draw in."""
    wanted = _wanted(dtype, default_dtype())
    if wanted.kind in "biu":
        raise TypeError(f"floating-point numbers drawn as {wanted}")  # the dtype rule says more
    return wanted, _DOUBLE if wanted.itemsize >= 8 else _SINGLE


class Stream:
    """A NumPy generator, ``rng``, that can be saved as bytes and restored.

    For any backend that draws on the host: ``generator.stream(NumpyStream)`` has the methods
    ``uniform``, ``normal`` and ``integers``, whose arrays are right in half precision too.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.SFC64(seed))

    def state(self) -> bytes:
        """The position in the stream, 40 bytes."""
        saved = self.rng.bit_generator.state
        return struct.pack(
            "<4QII", *saved["state"]["state"].tolist(), saved["has_uint32"], saved["uinteger"]
        )

    def restore(self, state: bytes) -> None:
        """Go to the position that :meth:`state` returned."""
        if len(state) != struct.calcsize("<4QII"):
            raise ArgumentError(
                "this state belongs to another kind of generator",
                fix="use what get_state() of the same backend gave",
            )
        *words, has_uint32, uinteger = struct.unpack("<4QII", state)
        self.rng.bit_generator.state = {
            "bit_generator": "SFC64",
            "state": {"state": np.array(words, np.uint64)},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }

    def uniform(
        self, size: tuple[int, ...], low: float, high: float, dtype: DType | np.dtype | None
    ) -> np.ndarray:
        """Uniform numbers in [low, high), of a floating ``dtype`` (None: the default one).

        Both parts of complex numbers are such.
        """
        wanted, drawn = _float_dtype(dtype)
        if wanted.kind == "c":
            real = _DOUBLE if wanted.itemsize == 16 else _SINGLE
            return self.uniform((*size, 2), low, high, real).view(wanted)[..., 0]
        out = self.rng.random(size, drawn)
        if type(out) is not np.ndarray:
            out = np.asarray(out)
        if wanted.itemsize == 2:
            # As many bits as the dtype has, so that rounding cannot reach the upper end.
            steps = 2048.0 if wanted.kind == "f" else 256.0
            out = np.floor(out * np.float32(steps)) / np.float32(steps)
        if low != 0 or high != 1:
            out *= drawn.type(high - low)
            out += drawn.type(low)
            if wanted != drawn:
                out = out.astype(wanted)
            if high > low:  # a sum far from 0 rounds up to the end
                end, least = wanted.type(high), wanted.type(low)
                if end > least and end >= high:
                    np.minimum(out, np.nextafter(end, least), out=out)
        return out if wanted == drawn else out.astype(wanted, copy=False)

    def normal(
        self, size: tuple[int, ...], mean: float, std: float, dtype: DType | np.dtype | None
    ) -> np.ndarray:
        """Normal numbers; complex ones have variance ``std**2`` over both parts."""
        wanted, drawn = _float_dtype(dtype)
        if wanted.kind == "c":
            real = _DOUBLE if wanted.itemsize == 16 else _SINGLE
            parts = np.asarray(self.rng.standard_normal((*size, 2), real))
            out = parts.view(wanted)[..., 0] * real.type(math.sqrt(0.5))
            drawn = wanted
        else:
            out = self.rng.standard_normal(size, drawn)
            if type(out) is not np.ndarray:
                out = np.asarray(out)
        if std != 1:
            out *= drawn.type(std)
        if mean != 0:
            out += drawn.type(mean)
        return out if wanted == drawn else out.astype(wanted)

    def integers(
        self, size: tuple[int, ...], low: int, high: int, dtype: DType | np.dtype | None
    ) -> np.ndarray:
        """Integers in [low, high), of ``dtype`` (None: int64)."""
        wanted = _wanted(dtype, int64)
        check_interval(low, high, DType.of(wanted))
        drawn = np.int64 if high <= 1 << 63 else np.uint64
        if wanted.kind in "iub" and wanted != drawn:
            limits = (0, 1) if wanted.kind == "b" else (np.iinfo(wanted).min, np.iinfo(wanted).max)
            if limits[0] <= low and high - 1 <= limits[1]:
                return np.asarray(self.rng.integers(low, high, size, wanted))
        return np.asarray(self.rng.integers(low, high, size, drawn)).astype(wanted, copy=False)


def stream(generator: Generator | None) -> np.random.Generator:
    """The NumPy generator behind ``generator`` (None: the CPU's default one)."""
    return (generator or default_generator()).stream(Stream).rng


def random_uniform(
    size: tuple[int, ...],
    low: float,
    high: float,
    dtype: DType | None,
    device: Any,
    generator: Generator | None,
) -> np.ndarray:
    """Uniform numbers in [low, high)."""
    return (generator or default_generator()).stream(Stream).uniform(size, low, high, dtype)


def random_normal(
    size: tuple[int, ...],
    mean: float,
    std: float,
    dtype: DType | None,
    device: Any,
    generator: Generator | None,
) -> np.ndarray:
    """Normally distributed numbers; complex ones have variance ``std**2`` over both parts."""
    return (generator or default_generator()).stream(Stream).normal(size, mean, std, dtype)


def random_integers(
    size: tuple[int, ...],
    low: int,
    high: int,
    dtype: DType | None,
    device: Any,
    generator: Generator | None,
) -> np.ndarray:
    """Integers in [low, high)."""
    return (generator or default_generator()).stream(Stream).integers(size, low, high, dtype)


def _like(name: str) -> Callable[..., Any]:
    """The ``*_like`` form of one of the above."""

    def kernel(
        x: np.ndarray,
        dtype: DType | None,
        device: Any,
        generator: Generator | None,
        memory_format: Any,
    ) -> Any:
        wanted = x.dtype if dtype is None else numpy_dtype(dtype)
        if device is not None or wanted.kind in "biu":
            return NotImplemented  # the definition goes there, or says what is wrong
        draw = getattr((generator or default_generator()).stream(Stream), name)
        return draw(x.shape, 0.0, 1.0, wanted)

    return kernel


def multinomial(
    weights: np.ndarray, num_samples: int, replacement: bool, generator: Generator | None
) -> Any:
    """Numbers of the categories, by one or two passes over weights that are in order."""
    if weights.ndim != 1 or not weights.size or weights.dtype not in (_SINGLE, _DOUBLE):
        return NotImplemented
    if num_samples <= 0 or not weights.min() >= 0:
        return NotImplemented  # the definition says what is wrong
    if replacement:
        bounds = call_raw("cumsum", "cpu", weights, -1, None)
        if not 0 < bounds[-1] < math.inf:
            return NotImplemented  # as above
    elif weights.max() == math.inf or np.count_nonzero(weights) < num_samples:
        return NotImplemented
    source = (generator or default_generator()).stream(Stream)
    if not replacement:
        clocks = -call_raw("log1p", "cpu", -source.uniform(weights.shape, 0.0, 1.0, weights.dtype))
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = weights / clocks
        keys[weights == 0] = -1.0
        return call_raw("topk", "cpu", keys, num_samples, -1, True, True)[1]
    drawn = source.uniform((num_samples,), 0.0, 1.0, weights.dtype) * bounds[-1:]
    return bounds.searchsorted(drawn, "right")


def randperm(n: int, generator: Generator | None, dtype: DType | None, device: Any) -> np.ndarray:
    """A random order of 0 to n-1."""
    order = stream(generator).permutation(as_size(n, "n"))  # SFC64 wraps what 64 bits do not hold
    return order if dtype is None else order.astype(numpy_dtype(dtype), copy=False)


def native_dropout(
    x: np.ndarray, p: float, generator: Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """``x`` with elements zeroed with probability ``p``, the rest scaled; and what was kept."""
    # 32 random bits for each element; drawing whole words is 3 times as fast as floats.
    bits = stream(generator).bit_generator
    words = np.asarray(bits.random_raw((x.size + 1) // 2), np.uint64)
    threshold = min(round(p * 4294967296.0), 4294967295)
    keep = (words.view(np.uint32)[: x.size] >= np.uint32(threshold)).reshape(x.shape)
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    if x.dtype.itemsize == 2:
        out = (x.astype(np.float32) * np.float32(scale)).astype(x.dtype)
    else:
        out = x * x.dtype.type(scale)
    return keep_where(out, keep), keep


def dropout_backward(grad: np.ndarray, mask: np.ndarray, scale: float) -> np.ndarray:
    """``grad * scale`` where ``mask`` holds, else 0."""
    return keep_where(grad * grad.dtype.type(scale), mask)


def exponential(x: np.ndarray, rate: float, generator: Generator | None) -> np.ndarray:
    """Exponentially distributed numbers in the shape and dtype of ``x``."""
    drawn = _DOUBLE if x.dtype.itemsize >= 8 else _SINGLE
    out = np.asarray(stream(generator).standard_exponential(x.shape, drawn))
    # Zero has probability 2**-23 and would be a pole of log and of division.
    np.maximum(out, np.finfo(drawn).tiny, out=out)
    return (out / drawn.type(rate)).astype(x.dtype, copy=False)


def standard_gamma(concentration: np.ndarray, generator: Generator | None) -> np.ndarray:
    """Gamma distributed numbers of scale 1, one for each concentration."""
    if concentration.size and not float(concentration.min()) > 0:
        raise ArgumentError("gamma needs concentrations above zero", fix="use values above 0")
    out = stream(generator).standard_gamma(concentration.astype(np.float64))
    return np.asarray(out).astype(concentration.dtype)


def poisson(rate: np.ndarray, generator: Generator | None) -> np.ndarray:
    """Poisson distributed numbers, one for each rate."""
    if rate.size and not float(rate.min()) >= 0:
        raise ArgumentError("poisson needs rates >= 0")
    return np.asarray(stream(generator).poisson(rate.astype(np.float64))).astype(rate.dtype)


def binomial(count: np.ndarray, prob: np.ndarray, generator: Generator | None) -> np.ndarray:
    """Binomially distributed numbers, one for each pair of count and probability."""
    try:
        out = stream(generator).binomial(count.astype(np.int64), prob.astype(np.float64))
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    return np.asarray(out).astype(count.dtype)


def rand(
    size: tuple[int, ...], dtype: DType | None, device: Any, generator: Generator | None
) -> np.ndarray:
    """Uniform numbers in [0, 1)."""
    return random_uniform(size, 0.0, 1.0, dtype, device, generator)


def randn(
    size: tuple[int, ...], dtype: DType | None, device: Any, generator: Generator | None
) -> np.ndarray:
    """Numbers of the standard normal distribution."""
    return random_normal(size, 0.0, 1.0, dtype, device, generator)


def randint(
    low: int,
    high: int,
    size: tuple[int, ...],
    dtype: DType | None,
    device: Any,
    generator: Generator | None,
) -> np.ndarray:
    """Integers in [low, high)."""
    return random_integers(size, low, high, dtype, device, generator)


KERNELS: dict[str, Callable[..., Any]] = {
    "random_uniform": random_uniform,
    "random_normal": random_normal,
    "random_integers": random_integers,
    "rand": rand,
    "randn": randn,
    "randint": randint,
    "rand_like": _like("uniform"),
    "randn_like": _like("normal"),
    "multinomial": multinomial,
    "randperm": randperm,
    "native_dropout": native_dropout,
    "dropout_backward": dropout_backward,
    "exponential": exponential,
    "_standard_gamma": standard_gamma,
    "poisson": poisson,
    "binomial": binomial,
}
