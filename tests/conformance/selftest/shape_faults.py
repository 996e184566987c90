"""Curated faults of kernels that take another way for some shapes: two long dimensions, expanded
operands, few elements, columns, and numbers that are known by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .rounding_faults import chopped
from .size_faults import outputs_of

__all__ = ["SHAPES"]


def _corner(test: Callable[..., bool]) -> Any:
    """A kernel whose last element is off by one where ``test`` holds of its arguments."""

    def kernel(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        out = outputs_of(result)[0]
        if not out.size or out.dtype.kind == "b" or not test(*raws):
            return result
        out[(-1,) * out.ndim] += 1
        return out

    return kernel


def _outer(a: Any, b: Any, *rest: Any) -> bool:
    """An outer sum of two long vectors."""
    matrices = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.ndim == b.ndim == 2
    return matrices and a.shape[1] == b.shape[0] == 1 and min(a.shape[0], b.shape[1]) > 32


def _per_channel(a: Any, b: Any, *rest: Any) -> bool:
    """One number for each channel of images."""
    images = isinstance(b, np.ndarray) and isinstance(a, np.ndarray) and a.ndim == b.ndim == 4
    return images and b.shape[0] == b.shape[2] == b.shape[3] == 1 < b.shape[1]


def _batches_apart(a: Any, b: Any, *rest: Any) -> bool:
    """Each of some rows with each of others: both operands have a dimension of one."""
    return (
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and a.ndim == b.ndim == 3
        and a.shape[1] == b.shape[0] == 1
        and min(a.shape[0], b.shape[1]) > 1
    )


def _tile(x: Any, *rest: Any) -> bool:
    """A copy to another order of two long dimensions, of which no tile divides either."""
    return x.ndim > 1 and min(x.shape[-2:]) > 64 and not x.flags.c_contiguous


def _packed(x: Any, weight: Any, *rest: Any) -> bool:
    """Channels of input and output are packed in groups."""
    return bool(weight.shape[0] >= 40 and weight.shape[1] >= 40)


def _many_columns(x: Any, dim: int, *rest: Any) -> bool:
    """Long columns, and many of them."""
    inner = x.ndim > 2 and dim % x.ndim < x.ndim - 1
    return bool(inner and x.shape[dim] >= 64 and x.shape[-1] >= 40)


def _all_but_channels(x: Any, dim: Any, *rest: Any) -> bool:
    """All dimensions of images but their channels."""
    return x.ndim == 4 and isinstance(dim, (tuple, list)) and {d % 4 for d in dim} == {0, 2, 3}


def _first_exchanged(x: Any, *rest: Any) -> bool:
    """The first two of three dimensions are exchanged in memory."""
    return (
        x.ndim == 3
        and min(x.shape) > 1
        and x.strides[1] > x.strides[0] > x.strides[2] == x.itemsize
    )


def _apart(x: Any, index: Any, *rest: Any) -> bool:
    """Two index arrays with a slice between them, whose dimensions come in front."""
    kinds = [isinstance(part, np.ndarray) for part in index] if isinstance(index, tuple) else []
    return kinds[:3] == [True, False, True]


def _steps_from_the_end(x: Any, index: Any, *rest: Any) -> bool:
    """A slice with a step that begins before the end."""
    parts = index if isinstance(index, tuple) else (index,)
    slices = [part for part in parts if isinstance(part, slice)]
    return any((s.start or 0) < 0 and (s.step or 1) > 1 for s in slices)


def _reciprocal(test: Callable[[Any, Any], bool]) -> Any:
    """Quotients by products with the reciprocal where ``test`` holds of the operands."""

    def kernel(correct: Any, raws: Any) -> Any:
        a, b, *_ = raws
        single = all(isinstance(x, np.ndarray) and x.dtype == np.float32 for x in (a, b))
        if not single or not test(a, b):
            return correct(*raws)
        with np.errstate(all="ignore"):
            found = a * (np.float32(1) / b)
        exact = np.asarray(correct(*raws))
        plain = np.isfinite(found) & np.isfinite(exact) & (np.abs(exact) > 1e-30)
        return np.where(plain, found, exact)

    return kernel


def _chopped_where(test: Callable[[Any], bool]) -> Any:
    """Conversions to bfloat16 that cut digits off where ``test`` holds of the operand."""

    def kernel(correct: Any, raws: Any) -> Any:
        result = np.asarray(correct(*raws))
        x = raws[0]
        if x.dtype != np.float32 or result.dtype.name != "bfloat16" or not test(x):
            return result
        return np.where(np.isfinite(x), chopped(x, 7), result).astype(result.dtype)

    return kernel


def bfloat16_columns(correct: Any, raws: Any) -> Any:
    """Running sums along columns carry what was rounded to bfloat16."""
    x, dim, *rest = raws
    result = np.asarray(correct(*raws))
    if x.dtype.name != "bfloat16" or x.ndim < 2 or dim % x.ndim or result.dtype != x.dtype:
        return result
    rows = [np.zeros_like(x[0])]
    for row in x:
        rows.append((rows[-1] + row).astype(x.dtype))
    return np.stack(rows[1:]) if len(rows) > 1 else result


def _long(dtype: str, least: int = 600) -> Callable[..., bool]:
    """The first operand has a dtype and so many elements."""
    return lambda x, *_: isinstance(x, np.ndarray) and x.dtype.name == dtype and x.size > least


def single_tanh(correct: Any, raws: Any) -> Any:
    """tanh of many doubles is computed in single precision."""
    x = raws[0]
    if x.dtype != np.float64 or x.size < 600:
        return correct(*raws)
    return correct(x.astype(np.float32)).astype(np.float64)


def falling(correct: Any, raws: Any) -> Any:
    """Long rows of halves are sorted the other way round."""
    values, places = correct(*raws)
    x = raws[0]
    if x.dtype != np.float16 or x.ndim != 1 or x.size < 600:
        return values, places
    return values[::-1], places[::-1]


def nearly_linear(correct: Any, raws: Any) -> Any:
    """The derivative of gelu far from zero is a thousandth short of 1."""
    result = np.asarray(correct(*raws))
    return np.where(raws[1] > 6, result * 0.999, result).astype(result.dtype)


def never_flat(correct: Any, raws: Any) -> Any:
    """The derivative of silu far below zero is no smaller than a thousandth."""
    result = np.asarray(correct(*raws))
    return np.where(raws[1] < -20, raws[0] * 0.001, result).astype(result.dtype)


def masked_logits(correct: Any, raws: Any) -> Any:
    """What came in at a logit of minus infinity is lost with its probability of 0."""
    grad, output, dim = raws
    return np.where(np.isneginf(output), 0, correct(grad, output, dim)).astype(output.dtype)


class KeepsLarge:
    """Large operands are kept, as those of which the packed form may be wanted again."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __call__(self, correct: Any, raws: Any) -> Any:
        if raws[0].size > 5000:
            self.kept.append(raws[0])
        return correct(*raws)


def _entry(op: str, check: int, says: str) -> dict[str, Any]:
    return {"op": op, "ops": (op,), "checks": (check,), "says": says}


_DIFFERS = "bound|signs|exact"
#: name -> (mutation, details)
SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "the corner of the last tile": (_corner(_tile), _entry("clone", 30, _DIFFERS)),
    "an outer sum of long vectors": (_corner(_outer), _entry("add", 30, _DIFFERS)),
    "channels packed on both sides": (_corner(_packed), _entry("convolution", 30, _DIFFERS)),
    "many long columns": (_corner(_many_columns), _entry("softmax", 30, _DIFFERS)),
    "a number for each channel": (_corner(_per_channel), _entry("mul", 3, _DIFFERS)),
    "each row with each": (_corner(_batches_apart), _entry("sub", 3, _DIFFERS)),
    "all dimensions but the channels": (_corner(_all_but_channels), _entry("sum", 33, _DIFFERS)),
    "the first dimensions exchanged": (_corner(_first_exchanged), _entry("sum", 5, _DIFFERS)),
    "indices on both sides of a slice": (_corner(_apart), _entry("index_put", 33, _DIFFERS)),
    "a step from the end": (_corner(_steps_from_the_end), _entry("getitem", 5, _DIFFERS)),
    "a row divides by its reciprocals": (
        _reciprocal(lambda a, b: b.ndim > 0 and a.shape != b.shape),
        _entry("div", 32, "with a (row|column)"),
    ),
    "a tensor without dimensions divides by its reciprocal": (
        _reciprocal(lambda a, b: b.ndim == 0 < a.ndim),
        _entry("div", 32, "no dimension"),
    ),
    "bfloat16 of few numbers truncates": (
        _chopped_where(lambda x: x.size < 16),
        _entry("to_dtype", 32, "nearest"),
    ),
    "bfloat16 of strided numbers truncates": (
        _chopped_where(lambda x: not x.flags.c_contiguous),
        _entry("to_dtype", 32, "nearest"),
    ),
    "running sums of bfloat16 in columns": (bfloat16_columns, _entry("cumsum", 32, "columns")),
    "the tail of many 16-bit integers": (
        _corner(_long("int16")),
        _entry("add", 30, _DIFFERS),
    ),
    "the tail of many complex numbers": (
        _corner(_long("complex64")),
        _entry("sub", 30, _DIFFERS),
    ),
    "the tail of many bytes that become floats": (
        _corner(_long("uint8")),
        _entry("to_dtype", 30, _DIFFERS),
    ),
    "the tail of many chosen halves": (
        _corner(_long("float16")),
        _entry("index_select", 30, _DIFFERS),
    ),
    "many doubles in single precision": (single_tanh, _entry("tanh", 30, _DIFFERS)),
    "long rows of halves fall": (falling, _entry("sort", 30, _DIFFERS)),
    "a derivative of nearly 1": (nearly_linear, _entry("gelu_backward", 8, _DIFFERS)),
    "a derivative of nearly 0": (never_flat, _entry("silu_backward", 8, _DIFFERS)),
    "gradients of masked logits": (
        masked_logits,
        {
            "op": "log_softmax_backward",
            "ops": ("log_softmax",),
            "checks": (12,),
            "says": "minus infinity",
        },
    ),
    "large operands stay alive": (KeepsLarge, _entry("exp", 31, "alive")),
}
