"""What a kernel's entry remembers of promotions: the dtype that a call computes in.

It follows from dtypes, from which tensors have no dimensions, from the types of numbers, and from
the default dtype. The slow path works it out once, and leaves it here for the next call.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

import math
from typing import Any, Final

from coredispatch.registry.model.dtypes import DType, default_dtype
from coredispatch.registry.model.value import Value, dtype_of

INFINITE: Final = math.inf


class Agreement:
    """What two tensors that have dimensions compute in, by their dtypes."""

    def __init__(self, one: DType, other: DType, common: DType) -> None:
        self.one: DType = one
        self.other: DType = other
        self.common: DType = common


class NumberBeside:
    """What a tensor and a number compute in, by the tensor's dtype, and what the kernel sees of the
    number. ``default``: the default dtype that it follows from, where it does.
    """

    def __init__(
        self, dtype: DType, position: int, number: Any, raw: Any, common: DType, default: Any
    ) -> None:
        self.dtype: DType = dtype
        self.position: int = position
        self.number: Any = number
        self.raw: Any = raw
        self.common: DType = common
        self.default: Any = default


def beyond_half(number: Any) -> bool:
    """Whether float16 would read a finite number as infinite, as 0, or with fewer digits."""
    if type(number) is int:  # of any size
        return not -65504 <= number <= 65504
    size: float = abs(number)
    return (size > 65504.0 and size != INFINITE) or 0.0 < size < 6.103515625e-05  # 2**-14


def any_beyond_half(args: tuple[Any, ...]) -> bool:
    """Whether one of the arguments is such a number of Python's, or a float of NumPy's."""
    for argument in args:
        exact = type(argument) is float or type(argument) is int
        if not exact:  # NumPy's float64 is a float; a traced number is one, and is not read
            exact = type(argument).__module__ == "numpy" and isinstance(argument, float)
        if exact and beyond_half(argument):
            return True
    return False


def signature(args: tuple[Any, ...]) -> Any:
    """What the dtype follows from in which tensors, numbers and None compute; None for others."""
    found: list[Any] = [default_dtype()]
    for argument in args:
        if isinstance(argument, Value):
            found.append(dtype_of(argument))
            found.append(not argument.raw.shape)
        elif argument is None or type(argument) in (bool, int, float):
            found.append(type(argument))
        else:
            return None
    return tuple(found)
