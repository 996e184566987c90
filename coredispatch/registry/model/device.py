"""Devices: the name of a backend key and an index."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from coredispatch.registry.model.errors import DeviceError, DTypeError
from coredispatch.registry.wiring import HOOKS

__all__ = ["Device", "current_device", "default_device", "set_default_device"]

_DEFAULT: ContextVar[Device | None] = ContextVar("coredispatch_default_device", default=None)


class Device:
    """A device such as ``Device("cpu")`` or ``Device("cuda", 1)`` or ``Device("cuda:1")``.

    ``type`` is the backend key, ``index`` the number of the device or None for the current one. A
    number alone is that of an accelerator, ``Device(1)`` is ``Device("cuda:1")`` with CUDA.

    Raises :class:`DTypeError` for what is no name, and :class:`DeviceError` for a name that cannot
    be one, a negative number, and a number where there is no accelerator.
    """

    __slots__ = ("index", "type")

    def __init__(self, type: str | Device | int, index: int | None = None) -> None:
        if isinstance(type, Device):
            index = type.index if index is None else index
            type = type.type
        elif index is None and hasattr(type, "__index__") and not isinstance(type, bool):
            type, index = _of_number(type.__index__())
        if not isinstance(type, str):
            raise DTypeError(f"a device is named by a string, not {type!r}", fix="Device('cpu')")
        if index is not None and not hasattr(index, "__index__"):
            raise DTypeError(f"the index of a device is an integer, not {index!r}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None or not (number.isdecimal() and number.isascii()):
                raise DeviceError(f"invalid device {type!r}", fix="write 'cpu' or 'cuda:1'")
            index = int(number)
        if not name.isidentifier():
            raise DeviceError(f"invalid device {type!r}", fix="write 'cpu' or 'cuda:1'")
        self.type: str = name
        self.index: int | None = index

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Device, (self.type, self.index))

    def __enter__(self) -> Device:
        _ENTERED.set((*_ENTERED.get(), _DEFAULT.set(self)))
        return self

    def __exit__(self, *_: object) -> None:
        *rest, token = _ENTERED.get()
        _ENTERED.set(tuple(rest))
        _DEFAULT.reset(token)


def _of_number(number: int) -> tuple[str, int]:
    """The accelerator, and which one it is."""
    if number < 0:
        raise DeviceError(f"Device index must not be negative, got {number}", fix="count from 0")
    key = HOOKS.accelerator()
    if key is None:
        raise DeviceError(
            f"device {number}: Cannot access accelerator device when none is available.",
            fix="name a device that is there: 'cpu'",
        )
    return key, number


_ENTERED: ContextVar[tuple[Any, ...]] = ContextVar("coredispatch_entered_devices", default=())
_CPU = Device("cpu")
_process_default: Device = _CPU


def default_device() -> Device:
    """The device on which factories create tensors when none is given."""
    return _DEFAULT.get() or _process_default


def current_device(device: Device | str | int | None) -> Device:
    """``device`` as a :class:`Device`; None means the default one."""
    if device is None:
        return default_device()
    return device if isinstance(device, Device) else Device(device)


def set_default_device(device: Device | str | int | None) -> None:
    """Set the process-wide default device; None restores the CPU."""
    global _process_default
    _process_default = _CPU if device is None else Device(device)
