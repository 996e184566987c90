"""Linear layers and convolutions of 8-bit integers, requantized: by int8 products of cuBLASLt.

Where that library is not there, refuses a product, or a group has few columns, products are made by
kernels of our own. Images are windows of which as many are made at a time as memory is kept for.
What is made of a weight is kept with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from coredispatch_cuda_cupy import cublaslt
from coredispatch_cuda_cupy.cublaslt import Matrix, Product, Products, alignment_of
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, blocks, dense
from coredispatch_cuda_cupy.cuda.loading import Family
from coredispatch_cuda_cupy.sharing import is_for_all_streams

__all__ = ["kernels"]

_BYTES = ("uint8", "int8")
_THREADS = 256
#: rows of factors are padded to so many bytes, columns of a product to so many
_PADDED, _COLUMNS = 16, 4
#: a group of fewer columns is no work for tiles
_FEW = 8
#: rows and columns of a tile (see quantized.cu)
_TILE = 64
#: bytes of windows that are made at a time
_WINDOWS = 1 << 28

Ints = Sequence[int]


class _Weight(NamedTuple):
    """A weight as a factor: ``(groups, columns, padded)`` bytes, their sums, and how it was."""

    data: Any
    sums: Any
    groups: int
    per: int
    columns: int
    k: int
    padded: int
    shifted: int


class _Rows(NamedTuple):
    """Rows of activations as a factor ``(groups, lines, padded)``, and their sums."""

    data: Any
    sums: Any
    lines: int


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    maker = _Maker(cupy)

    def requantized_linear(
        self: Any, weight: Any, zeros: Any, bias: Any, multiplier: Any, shift: Any, *rest: Any
    ) -> Any:
        channels = (zeros, bias, multiplier, shift)
        if weight.ndim != 2 or not self.ndim or not _fit(self, weight, channels):
            return NotImplemented
        x_zero, zero_point, low, high, *kept = rest
        if self.shape[-1] != weight.shape[1]:
            return NotImplemented
        factor = maker.weight(weight, 1, kept[0] if kept else None)
        rows = maker.rows(self, factor)
        out = cupy.empty((*self.shape[:-1], weight.shape[0]), self.dtype)
        maker.finish(rows, factor, channels, out, 1, (x_zero, zero_point, low, high))
        return out

    def requantized_conv2d(
        self: Any, weight: Any, zeros: Any, bias: Any, multiplier: Any, shift: Any, *rest: Any
    ) -> Any:
        channels = (zeros, bias, multiplier, shift)
        if weight.ndim != 4 or self.ndim != 4 or not _fit(self, weight, channels):
            return NotImplemented
        x_zero, zero_point, low, high, *options, groups = rest[:8]
        stride, padding, dilation = (tuple(v) * (2 if len(v) == 1 else 1) for v in options)
        size = _result(self.shape[2:], weight.shape[2:], stride, padding, dilation)
        if not _groups_fit(self, weight, groups) or min(size) < 1 or min(padding) < 0:
            return NotImplemented
        factor = maker.weight(weight, groups, rest[8] if len(rest) > 8 else None)
        batch, spatial = self.shape[0], prod(size)
        out = cupy.empty((batch, weight.shape[0], *size), self.dtype)
        step = max(1, _WINDOWS // (groups * spatial * factor.padded))
        x = dense(cupy, self)
        window = (*weight.shape[2:], *size, *stride, *padding, *dilation)
        for first in range(0, batch, step):
            images = x[first : first + step]
            rows = maker.windows(images, factor, window, x_zero)
            part = out[first : first + step]
            maker.finish(rows, factor, channels, part, spatial, (x_zero, zero_point, low, high))
        return out

    return {"requantized_linear": requantized_linear, "requantized_conv2d": requantized_conv2d}


class _Maker:
    """Makes factors, multiplies them, and brings the sums back."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.launch = Family(cupy, "quantized")
        found = cublaslt.library(cupy)
        self.products = None if found is None else Products(cupy, found)

    def weight(self, weight: Any, groups: int, kept: dict[Any, Any] | None) -> _Weight:
        """The weight as a factor, kept for the device and the groups that it was made for."""
        key = ("cuda", int(weight.device.id), groups)
        if kept is not None and key in kept:
            found: _Weight = kept[key]
            return found
        per, k = weight.shape[0] // groups, prod(weight.shape[1:])
        columns, padded = _up(per, _COLUMNS), _up(k, _PADDED)
        data = self.cupy.zeros((groups, columns, padded), "int8")
        sums = self.cupy.zeros((groups, columns), "int32")
        unsigned = int(weight.dtype.name == "uint8")
        sizes = (groups * per, k, padded, per, columns, 128 * unsigned)
        self._by_warps("factor_rows", groups * per, (dense(self.cupy, weight), data, sums, *sizes))
        made = _Weight(data, sums, groups, per, columns, k, padded, 128 * unsigned)
        if kept is not None and is_for_all_streams(self.cupy):
            kept[key] = made
        return made

    def rows(self, x: Any, weight: _Weight) -> _Rows:
        """The rows of a matrix."""
        count = x.size // weight.k
        data = self.cupy.empty((count, weight.padded), "int8")
        sums = self.cupy.empty(count, "int32")
        flip = 128 * (x.dtype.name == "uint8")
        sizes = (count, weight.k, weight.padded, count, count, flip)
        self._by_warps("factor_rows", count, (dense(self.cupy, x), data, sums, *sizes))
        return _Rows(data, sums, count)

    def windows(self, x: Any, weight: _Weight, window: tuple[int, ...], zero: int) -> _Rows:
        """The windows of images."""
        batch, channels, height, width = x.shape
        count = batch * window[2] * window[3]
        total = weight.groups * count
        data = self.cupy.empty((total, weight.padded), "int8")
        sums = self.cupy.empty(total, "int32")
        sizes = (batch, weight.groups, channels // weight.groups, height, width, *window)
        flip = 128 * (x.dtype.name == "uint8")
        given = (x, data, sums, *sizes, weight.padded, flip, int(zero) & 255)
        self._by_warps("factor_windows", total, given)
        return _Rows(data, sums, count)

    def finish(
        self,
        rows: _Rows,
        weight: _Weight,
        channels: tuple[Any, ...],
        out: Any,
        spatial: int,
        ending: tuple[int, int, int, int],
    ) -> None:
        """Multiply, and write the bytes that the sums are brought back to."""
        sums = self._multiplied(rows, weight)
        x_zero, zero_point, low, high = map(int, ending)
        unsigned = out.dtype.name == "uint8"
        arrays = (sums, rows.sums, weight.sums, *(dense(self.cupy, x) for x in channels), out)
        sizes = (weight.groups, rows.lines, weight.per, weight.columns, spatial, weight.k)
        numbers = (x_zero - 128 * unsigned, weight.shifted, zero_point, low, high)
        self.launch("brought_back", 1, blocks(out.size), _THREADS, (*arrays, *sizes, *numbers))

    def _multiplied(self, rows: _Rows, weight: _Weight) -> Any:
        groups, count, columns = weight.groups, rows.lines, weight.columns
        sums = self.cupy.empty((groups, count, columns), "int32")
        if weight.per >= _FEW and self._by_library(rows, weight, sums):
            return sums
        sizes = (groups, count, columns, weight.padded // 4)
        if weight.per < _FEW:
            name, grid = "byte_product_each", blocks(sums.size)
        else:
            tiles = groups * -(-count // _TILE) * -(-columns // _TILE)
            name, grid = "byte_product", min(tiles, MOST_BLOCKS)
        words = (rows.data.view("int32"), weight.data.view("int32"))
        self.launch(name, 1, grid, _THREADS, (*words, sums, *sizes))
        return sums

    def _by_library(self, rows: _Rows, weight: _Weight, sums: Any) -> bool:
        """The product by cuBLASLt; False where it does not take it."""
        if self.products is None:
            return False
        k, columns, count = weight.padded, weight.columns, rows.lines
        product = Product(
            Matrix("int8", k, columns, k, True, columns * k),
            Matrix("int8", k, count, k, False, count * k),
            Matrix("int32", columns, count, columns, False, columns * count),
            weight.groups,
            "",
            False,
            (
                alignment_of(weight.data.data.ptr),
                alignment_of(rows.data.data.ptr),
                alignment_of(sums.data.ptr),
                0,
            ),
        )
        return self.products.run(product, weight.data, rows.data, sums)

    def _by_warps(self, name: str, count: int, given: tuple[Any, ...]) -> None:
        grid = min(-(-count // (_THREADS // 32)), MOST_BLOCKS)
        self.launch(name, 1, grid, _THREADS, given)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _fit(x: Any, weight: Any, channels: tuple[Any, ...]) -> bool:
    """Whether the factors are bytes with elements, and each channel has its int64 numbers."""
    if x.dtype.name not in _BYTES or weight.dtype.name not in _BYTES or not x.size:
        return False
    shape = weight.shape[:1]
    return bool(weight.size) and all(c.shape == shape and c.dtype == "int64" for c in channels)


def _groups_fit(x: Any, weight: Any, groups: int) -> bool:
    fits = groups > 0 and weight.shape[0] % groups == 0
    return bool(fits and x.shape[1] == weight.shape[1] * groups)


def _result(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> list[int]:
    """Height and width of the result."""
    given = zip(size, kernel, stride, padding, dilation, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in given]
