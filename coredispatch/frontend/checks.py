"""``_check`` and its relatives: conditions that a program states, as libraries spell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.creation import tensor
from coredispatch.frontend.tensor import Tensor

__all__: list[str] = []


def _check_with(
    error_type: type[Exception], cond: Any, message: Callable[[], Any] | None = None
) -> None:
    """Raise ``error_type`` with ``message()`` unless ``cond``, a bool, is true."""
    if isinstance(cond, Tensor):
        raise TypeError(
            "cond must be a bool, but got a Tensor. For tensor conditions, use "
            "torch._check_tensor_all() to assert that all elements are true."
        )
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        _raise(error_type, message, "Expected cond to be True, but got False.")


def _raise(error_type: type[Exception], message: Any, default: str) -> None:
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(default if message is None else str(message()))


def _checking(name: str, error: type[Exception]) -> Callable[..., None]:
    def function(cond: Any, message: Callable[[], Any] | None = None) -> None:
        _check_with(error, cond, message)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raise {error.__name__} with ``message()`` unless ``cond`` is true."
    return function


_check = _checking("_check", RuntimeError)
_check_index = _checking("_check_index", IndexError)
_check_value = _checking("_check_value", ValueError)
_check_type = _checking("_check_type", TypeError)
_check_not_implemented = _checking("_check_not_implemented", NotImplementedError)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise ``error_type`` unless all elements of ``cond``, a bool tensor, are true."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype.name != "bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    if not bool(cond.all()):
        _raise(error_type, message, "Expected cond to be True, but got False.")


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    """Raise RuntimeError unless all elements of ``cond`` are true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Raise RuntimeError unless ``i`` is a length: not negative, and at most ``max``."""
    warn("_check_is_size is deprecated. Use _check(i >= 0)", FutureWarning)
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _assert_async(input: Tensor, assert_msg: str | None = None) -> None:
    """Raise RuntimeError unless the one element of ``input`` is true."""
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The lengths of the dimensions as a tensor of int64."""
    return tensor(list(input.shape), dtype="int64")
