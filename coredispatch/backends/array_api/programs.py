"""Functions that a library compiles as one program, where each step of theirs would be one.

A library that compiles for each shape (JAX) pays for every function of its own that is called.
Given the library's compiler (``jax.jit``), a function of several such steps is compiled whole: its
arrays are the program's inputs, all other arguments belong to the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

__all__ = ["WHOLE", "as_program"]

#: kernels of many steps that read no element of their arrays. One of a step or two is not here:
#: its programs serve other kernels as well, and numbers among its arguments need no new one.
WHOLE = frozenset(
    (
        "avg_pool",
        "batch_norm_inference",
        "batch_norm_train",
        "constant_pad_nd",
        "conv_input_grad",
        "conv_weight_grad",
        "convolution",
        "cumprod",
        "cumsum",
        "fft_c2c",
        "fft_c2r",
        "fft_r2c",
        "group_norm",
        "layer_norm",
        "linear_weight_grad",
        "max_pool",
        "nextafter",
        "sort",
        "view_as_complex",
        "view_as_real",
    )
)


class _Call:
    """The arguments of a call but for its arrays; equal where the same program serves."""

    __slots__ = ("args", "key")

    def __init__(self, args: tuple[Any, ...], array_type: type, arrays: list[Any]) -> None:
        self.args = tuple(_without(value, array_type, arrays) for value in args)
        self.key = _key(self.args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def filled(self, arrays: tuple[Any, ...]) -> Iterator[Any]:
        """The arguments, with ``arrays`` in their places."""
        rest = iter(arrays)
        return (_with(value, rest) for value in self.args)


class _Array:
    """Where an array was among the arguments."""


_ARRAY = _Array()


def _without(value: Any, array_type: type, arrays: list[Any]) -> Any:
    if isinstance(value, array_type):
        arrays.append(value)
        return _ARRAY
    if type(value) in (list, tuple):
        return type(value)(_without(item, array_type, arrays) for item in value)
    return value


def _with(value: Any, arrays: Iterator[Any]) -> Any:
    if value is _ARRAY:
        return next(arrays)
    if type(value) in (list, tuple):
        return type(value)(_with(item, arrays) for item in value)
    return value


def _key(value: Any) -> Hashable:
    """Tells numbers apart that are equal and behave differently: 1, 1.0 and True, 0.0 and -0.0."""
    if type(value) in (list, tuple):
        return (type(value), *map(_key, value))
    if isinstance(value, (float, complex)):
        return (type(value), repr(value))
    if isinstance(value, slice):
        return (slice, _key((value.start, value.stop, value.step)))
    return (type(value), value)


def as_program(
    function: Callable[..., Any], jit: Callable[..., Any], array_type: type
) -> Callable[..., Any]:
    """``function``, compiled as one program for each kind of call.

    ``jit`` is called as ``jax.jit`` is, with the keyword ``static_argnums``. The arguments are
    arrays, what can be hashed, and tuples and lists of them. An error is raised by the function
    itself, outside of any program, so that it says what it says elsewhere.
    """

    def traced(call: _Call, *arrays: Any) -> Any:
        return function(*call.filled(arrays))

    program = jit(traced, static_argnums=(0,))

    @functools.wraps(function)
    def called(*args: Any) -> Any:
        arrays: list[Any] = []
        call = _Call(args, array_type, arrays)
        try:
            return program(call, *arrays)
        except Exception:
            function(*args)
            raise  # what only the compiler refuses

    return called
