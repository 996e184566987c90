"""What a Python number may be beside tensors, and what one may be that is written into a tensor.

A number beside a tensor (``x + 300``) is converted as PyTorch converts it: integers wrap to the
integer type computed in, after they were found to be 64-bit integers at all. A number that is
stored as it is (``full``, ``masked_fill``, a bound of ``clamp``, an exponent) must fit: nothing
that was written as 300 may be read as 44.
"""

from __future__ import annotations

import math
from typing import Any

from coredispatch.registry.model.dtypes import DType, bfloat16, float16, float32, int64
from coredispatch.registry.model.errors import ArgumentError, NumberRangeError, ShapeError
from coredispatch.registry.model.sizes import Symbol, is_int

__all__ = [
    "arange_bounds",
    "check_interval",
    "integer_range",
    "operand",
    "python_number",
    "single_number",
    "stored",
]

_INT64 = (-(1 << 63), (1 << 63) - 1)
_LARGEST = {float16: 65504.0, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38}
_LARGEST |= {
    DType.of("float8_e4m3fn"): 448.0,
    DType.of("float8_e4m3fnuz"): 240.0,
    DType.of("float8_e5m2"): 57344.0,
    DType.of("float8_e5m2fnuz"): 57344.0,
    DType.of("float8_e8m0fnu"): 2.0**127,
}


def python_number(value: Any) -> Any:
    """``value`` as a Python number: NumPy's scalars and one-element tensors give theirs."""
    return value.item() if hasattr(value, "item") else value


def single_number(value: Any, name: str) -> Any:
    """:func:`python_number`; raises :class:`ShapeError` for a tensor that is not 0-dim."""
    shape = tuple(getattr(value, "shape", ()))
    if shape:
        raise ShapeError(
            f"{name} must be a number or a 0-dim tensor, and has shape {shape}",
            fix=f"take one element, for example {name}[0]",
        )
    return python_number(value)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of an integer type."""
    bits = 8 * dtype.itemsize
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


def operand(number: Any, dtype: DType) -> Any:
    """A number beside tensors that are computed with in ``dtype``.

    An integer wraps to an integer ``dtype`` (``uint8`` takes -1 for 255) and becomes a float for
    a floating one. Raises :class:`NumberRangeError` for an integer that ``dtype`` and 64 bits do
    not hold.
    """
    value = python_number(number)
    if not isinstance(value, int):
        return value
    if dtype.is_integral:
        low, high = integer_range(dtype)
        if not low <= value <= high:
            if not _INT64[0] <= value <= _INT64[1]:
                raise _beyond(value, dtype)
            value &= (1 << 8 * dtype.itemsize) - 1
            if value > high:
                value -= 1 << 8 * dtype.itemsize
    elif dtype.category >= 2:
        try:
            float(value)
        except OverflowError:
            raise _beyond(value, dtype) from None
        if dtype.is_floating_point:
            value = float(value)
    return value


def stored(number: Any, dtype: DType, name: str) -> Any:
    """A number that is written into elements of ``dtype`` as the argument ``name``.

    Raises :class:`NumberRangeError` where ``dtype`` cannot hold it: an integer out of range, NaN
    or an infinity for integers, a float beyond the greatest one, a complex number for real
    elements. A fraction is cut off for integers, and a negative integer wraps for unsigned ones
    (-1 is 255 in ``uint8``), as in PyTorch, unless it is an exponent. For bool every number fits.
    """
    if isinstance(number, Symbol):
        # Known when the program runs. Whether a float is too large is asked of numbers only: an
        # answer would be a part of the program.
        if not isinstance(number, (int, float)) or dtype.is_floating_point:
            return number
    value = python_number(number)
    if isinstance(value, complex) and not dtype.is_complex:
        if dtype.kind == "b":
            return value != 0
        if value.imag != 0:
            raise NumberRangeError(
                f"{name}={value} is complex, and the elements are {dtype.name}",
                fix=f"use {name}={value.real}, or a complex dtype",
            )
        value = value.real
    if dtype.is_integral:
        low, high = integer_range(dtype)
        whole = isinstance(value, int)
        # A wrapped exponent would be another power.
        wraps = whole and not dtype.is_signed and name != "exponent"
        least = -high if wraps else low
        if not (whole or math.isfinite(value)) or not least <= int(value) <= high:
            raise NumberRangeError(
                f"{name}={_shown(value)} does not fit {dtype.name}, which holds {low} to {high}",
                fix=f"use a number in that range, or convert to {_wider(value)} first",
            )
        value = int(value)
        return value + high + 1 if value < low else value
    if dtype.is_floating_point:
        value = operand(value, dtype)
        if math.isfinite(value) and abs(value) > _LARGEST.get(dtype, math.inf):
            raise NumberRangeError(
                f"{name}={_shown(value)} does not fit {dtype.name}, whose greatest number is "
                f"{_LARGEST[dtype]:g}",
                fix=f"use {'-' if value < 0 else ''}float('inf') or a smaller number",
            )
    return value


def arange_bounds(
    start: Any, end: Any, step: Any, dtype: DType | None = None
) -> tuple[Any, Any, Any]:
    """Start, end and step of ``arange`` as Python numbers; one bound alone is the end.

    For an integer ``dtype`` fractions are cut off, for int64 before the elements are counted
    (as PyTorch counts). Raises
    :class:`ArgumentError` where the step does not lead from start to end, or a bound is not
    finite, and :class:`NumberRangeError` for an integer that 64 bits do not hold.
    """
    start, end, step = python_number(start), python_number(end), python_number(step)
    if end is None:
        start, end = 0, start
    for name, value in (("start", start), ("end", end), ("step", step)):
        if not is_int(value) and not math.isfinite(value):
            raise ArgumentError(f"{name}={value} is not finite", fix=f"use a finite {name}")
    if dtype is not None and dtype.is_integral:
        if dtype is not int64 and int(step) and step * (end - start) >= 0:
            end = int(start) + math.ceil((end - start) / step) * int(step)
        start, end, step = (v if isinstance(v, Symbol) else int(v) for v in (start, end, step))
    if dtype is None or dtype.is_integral:
        most = integer_range(dtype)[1] if dtype is not None and not dtype.is_signed else 0
        for name, value in (("start", start), ("end", end)):
            if isinstance(value, int) and not _INT64[0] <= value <= max(_INT64[1], most + 1):
                raise NumberRangeError(
                    f"{name}={_shown(value)} does not fit {(dtype or DType.of(int)).name}",
                    fix="use smaller bounds, or a floating dtype",
                )
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(
            f"step {step} does not lead from {start} to {end}",
            fix="use a step of the sign of end - start",
        )
    return start, end, step


def check_interval(low: int, high: int, dtype: DType) -> None:
    """Refuse to draw integers from [low, high) where it is empty or goes beyond ``dtype``.

    Raises :class:`ArgumentError` and :class:`NumberRangeError`.
    """
    if low >= high:
        raise ArgumentError(
            f"random integers need low < high, got low={low} and high={high}", fix="swap them"
        )
    if dtype.is_integral or dtype.kind == "b":
        least, most = integer_range(dtype) if dtype.is_integral else (0, 1)
    else:
        least, most = _INT64
    for name, value in (("low", low), ("high - 1", high - 1)):
        if not least <= value <= most:
            raise NumberRangeError(
                f"{name}={_shown(value)} is outside the range of {dtype.name}, {least} to {most}",
                fix="draw from a smaller interval, or into a wider dtype",
            )


def _beyond(value: int, dtype: DType) -> NumberRangeError:
    if dtype.category >= 2:
        return NumberRangeError(
            f"the integer {_shown(value)} is beyond every floating-point number",
            fix="use float('inf') or a smaller number",
        )
    return NumberRangeError(
        f"the integer {_shown(value)} does not fit 64 bits, and the tensors hold {dtype.name}",
        fix=f"use a number in the range of {dtype.name}, or convert the tensor to float64 first",
    )


def _wider(value: Any) -> str:
    whole = isinstance(value, int) and _INT64[0] <= value <= _INT64[1]
    return "int64" if whole else "a floating dtype"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:20]}... ({len(text)} digits)"
