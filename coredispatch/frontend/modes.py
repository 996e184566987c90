"""The modes of recording: ``no_grad``, ``enable_grad``, ``set_grad_enabled``, inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, overload

from coredispatch.plugin import DTypeError, Mode, Switch, is_masked, is_on, key_bit

__all__ = [
    "enable_grad",
    "fresh_keys",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_recording",
    "no_grad",
    "set_grad_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])
_INFERENCE = key_bit("inference")
_RECORD = Switch(released=("autograd",))
_IGNORE = Switch(off=("autograd",))
_INFER = Switch(on=("inference_mode",), off=("autograd", "inference"))
_LEAVE_INFERENCE = Switch(released=("inference_mode", "autograd", "inference"))
_NOTHING = Switch()


def is_grad_enabled() -> bool:
    """Whether operators are recorded in this thread or task.

    As in PyTorch, :class:`enable_grad` makes it true also inside :class:`inference_mode`, where
    nothing is recorded nevertheless.
    """
    if is_recording():
        return True
    return bool(Recording.current()) and is_inference_mode_enabled()


def is_recording() -> bool:
    """:func:`is_grad_enabled`, and not inside :class:`inference_mode`."""
    return not is_masked("autograd")


def is_inference_mode_enabled() -> bool:
    """Whether :class:`inference_mode` is in force in this thread or task."""
    return is_on("inference_mode")


def fresh_keys(keys: int) -> int:
    """``keys`` for a tensor that is made without an operator."""
    return keys | _INFERENCE if is_inference_mode_enabled() else keys


class Recording(Mode):
    """What says whether operators are recorded."""

    #: whether recording is asked for; inside inference mode nothing is recorded nevertheless
    asks: bool = False

    def switches(self) -> Switch:
        """Recorded or not, as the mode asks; :class:`inference_mode` keeps the last word."""
        if not self.asks:
            return _IGNORE
        return _NOTHING if is_inference_mode_enabled() else _RECORD

    def state(self) -> bool:
        """Whether recording was asked for last."""
        return self.asks


class no_grad(Recording):
    """Operators are not recorded; results do not require grad. Also a decorator."""

    @overload
    def __new__(cls, function: None = None) -> Self: ...

    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]  # @no_grad, without a call

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        return self if function is None else self(function)


class enable_grad(no_grad):
    """Operators are recorded, also inside :class:`no_grad` (not inside :class:`inference_mode`)."""

    asks = True


class set_grad_enabled(Recording):
    """Switch recording on or off: takes effect at once, and is undone when used with ``with``."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool) and type(mode).__name__ != "bool_":  # NumPy's
            raise DTypeError(
                "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not "
                f"{type(mode).__name__}"
            )
        self.mode = self.asks = bool(mode)
        self._first: Any = self.push()

    def push(self) -> Any:
        """The first time in ``with`` there is nothing left to do."""
        first = getattr(self, "_first", None)
        if first is None:
            return super().push()
        self._first = None
        return first

    def __call__(self, function: F) -> F:
        if self._first is not None:
            self.pop(self._first)
            self._first = None
        return super().__call__(function)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}(mode={self.mode})"


class inference_mode(Recording):
    """Like :class:`no_grad`, for results that never meet autograd. Also a decorator.

    Tensors made inside are *inference tensors* (``t.is_inference()``). Outside the mode they may
    be read, but not written in place nor saved for a backward pass, which raises
    :class:`AutogradError`; they have no version counter. ``inference_mode(False)`` leaves the mode.
    """

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...

    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]  # @inference_mode, without a call

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        if callable(mode):
            self.mode = True
            return self(mode)
        return self

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def switches(self) -> Switch:
        """Into the mode, out of it, or, outside of it, recorded."""
        if self.mode:
            return _INFER
        return _LEAVE_INFERENCE if is_inference_mode_enabled() else _RECORD
