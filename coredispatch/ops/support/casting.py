"""Conversions that decompositions start with.

The dispatcher promotes arguments for kernels; a decomposition gets them as the caller passed them,
and an unsigned integer must not meet ``1 - x`` before it is floating.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.registry import Promotion, Value
from coredispatch.registry.model.dtypes import default_dtype, float32
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import dtype_of


def floating(x: Any) -> Any:
    """A floating or complex tensor as it is, any other in the default floating dtype."""
    return x if dtype_of(x).category >= 2 else lazy.to_dtype(x, default_dtype())


def filled(like: Any, shape: Any, value: Any, dtype: Any = None) -> Any:
    """A tensor of one value with the device, and the dtype unless given, of ``like``."""
    return lazy.full(tuple(shape), value, dtype=dtype or dtype_of(like), device=like.device)


def common(rule: Promotion, *args: Any) -> tuple[Any, ...]:
    """Every tensor of ``args`` in the dtype that ``rule`` computes in; anything else as it is.

    For decompositions whose parts would promote one by one to something else than the whole does.
    """
    first = args[0]
    if isinstance(first, Value):  # alike, most of the time: nothing to convert
        dtype = dtype_of(first)
        if dtype.category >= 2 and all(
            isinstance(arg, Value) and dtype_of(arg) is dtype for arg in args
        ):
            return args
    given = [arg for arg in args if arg is not None]
    for arg in given:
        if not isinstance(arg, (Value, Number)):
            raise DTypeError(
                f"expected a tensor or a number, got {type(arg).__name__}",
                fix="convert it with cd.tensor(...)",
            )
    dtype = rule.compute(*given)
    return tuple(
        lazy.to_dtype(a, dtype) if isinstance(a, Value) and dtype_of(a) is not dtype else a
        for a in args
    )


def in_float32(function: Callable[..., Any], x: Any, *args: Any) -> Any:
    """``function(x, *args)``, computed in float32 and rounded once for half precision."""
    dtype = dtype_of(x)
    if dtype.itemsize != 2 or not dtype.is_floating_point:
        return function(x, *args)
    return lazy.to_dtype(function(lazy.to_dtype(x, float32), *args), dtype)
