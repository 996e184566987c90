"""``autocast``, the mode that includes the autocast layer, and its state."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import (
    ArgumentError,
    DeviceError,
    DType,
    Mode,
    Switch,
    backends,
    dtypes,
    is_masked,
    is_on,
    key_bit,
)

__all__ = [
    "AutocastState",
    "autocast",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]

_HALF = (dtypes.float16, dtypes.bfloat16)
_ON, _RELEASED = Switch(on=("autocast",)), Switch(released=("autocast",))
#: dtype of lower-precision ops where ``autocast`` is given none
DEFAULT_DTYPES: dict[str, DType] = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}


class AutocastState:
    """What one autocast block means to the layer."""

    __slots__ = ("bit", "cache", "device_type", "dtype")

    def __init__(
        self, device_type: str, dtype: DType, cache: dict[int, tuple[Any, int, Any]] | None
    ) -> None:
        self.device_type = device_type
        self.dtype = dtype
        self.bit = key_bit(device_type)
        # id(weight) -> (weight, version, cast weight); holding the weight keeps its id unique
        self.cache = cache


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is in force in this thread or task (for the device type, if given)."""
    if not is_on("autocast") or is_masked("autocast"):
        return False
    return device_type is None or autocast.current().device_type == device_type


def is_autocast_available(device_type: str) -> bool:
    """Whether there is a backend of that name."""
    return device_type in backends()


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype lower-precision ops run in, inside autocast, or would by default."""
    state = autocast.current()
    if state is not None and state.device_type == device_type:
        lowered: DType = state.dtype
        return lowered
    return DEFAULT_DTYPES.get(device_type, dtypes.bfloat16)


class autocast(Mode):
    """Run ops in the precision their cast policy asks for. Also a decorator.

    ``device_type`` is a backend key, ``dtype`` float16 or bfloat16 (default: bfloat16 on the
    CPU, float16 on CUDA). ``enabled=False`` switches autocast off inside the block.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ArgumentError(
                f"autocast: device_type must be a string, not {type(device_type).__name__}",
                fix="autocast('cpu')",
            )
        if not is_autocast_available(device_type):
            raise DeviceError(
                f"autocast: there is no backend {device_type!r}",
                fix=f"use one of {', '.join(backends())}",
            )
        if dtype is not None and dtype not in _HALF:
            raise ArgumentError(
                f"autocast: dtype must be float16 or bfloat16, not {dtype}",
                fix="leave dtype away for the device's default",
            )
        self.device_type = device_type
        self.dtype = dtype or DEFAULT_DTYPES.get(device_type, dtypes.bfloat16)
        self.enabled = bool(enabled)
        self.cache_enabled = True if cache_enabled is None else bool(cache_enabled)

    def switches(self) -> Switch:
        """The layer on, or, where ``enabled=False``, off whatever the blocks around say."""
        return _ON if self.enabled else _RELEASED

    def state(self) -> AutocastState:
        """What the layer finds: its weight cache is that of the block around, if of one dtype."""
        cache: Any = None
        if self.enabled and self.cache_enabled:
            outer = self.current()
            same = outer is not None and outer.dtype is self.dtype and outer.cache is not None
            cache = outer.cache if same else {}
        return AutocastState(self.device_type, self.dtype, cache)
