"""``autocast``, the mode that includes the autocast layer, and its state."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from coredispatch.frontend.modes import Mode
from coredispatch.registry.dispatch.masks import current_masks, pop_masks, push_mode
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType, bfloat16, float16
from coredispatch.registry.model.errors import ArgumentError, DeviceError

__all__ = [
    "AutocastState",
    "autocast",
    "current_state",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]

AUTOCAST = TABLE.bit("autocast")
#: dtype of lower-precision ops where ``autocast`` is given none
DEFAULT_DTYPES: dict[str, DType] = {"cpu": bfloat16, "cuda": float16}


class AutocastState:
    """What one autocast block means to the layer."""

    __slots__ = ("bit", "cache", "device_type", "dtype")

    def __init__(
        self, device_type: str, dtype: DType, cache: dict[int, tuple[Any, int, Any]] | None
    ) -> None:
        self.device_type = device_type
        self.dtype = dtype
        self.bit = TABLE.bit(device_type)
        # id(weight) -> (weight, version, cast weight); holding the weight keeps its id unique
        self.cache = cache


_state: ContextVar[AutocastState | None] = ContextVar("coredispatch_autocast", default=None)


def current_state() -> AutocastState | None:
    """The innermost autocast block of the running thread or task."""
    return _state.get()


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is in force in this thread or task (for the device type, if given)."""
    state = _state.get()
    included, excluded = current_masks()
    on = state is not None and bool(included & ~excluded & AUTOCAST)
    return on and (device_type is None or (state is not None and state.device_type == device_type))


def is_autocast_available(device_type: str) -> bool:
    """Whether there is a backend of that name."""
    from coredispatch.registry.around.loader import plugins

    plugins.discover()
    return device_type in TABLE.snapshot.backends


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype lower-precision ops run in, inside autocast, or would by default."""
    state = _state.get()
    if state is not None and state.device_type == device_type:
        return state.dtype
    return DEFAULT_DTYPES.get(device_type, bfloat16)


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
                fix=f"use one of {', '.join(TABLE.snapshot.backends)}",
            )
        if dtype is not None and dtype not in (float16, bfloat16):
            raise ArgumentError(
                f"autocast: dtype must be float16 or bfloat16, not {dtype}",
                fix="leave dtype away for the device's default",
            )
        self.device_type = device_type
        self.dtype = dtype or DEFAULT_DTYPES.get(device_type, bfloat16)
        self.enabled = bool(enabled)
        self.cache_enabled = True if cache_enabled is None else bool(cache_enabled)

    def _push(self) -> Any:
        outer = _state.get()
        cache: Any = None
        if self.enabled and self.cache_enabled:
            same = outer is not None and outer.dtype is self.dtype
            cache = outer.cache if same and outer is not None and outer.cache is not None else {}
        if self.enabled:
            masks = push_mode(AUTOCAST, 0)
        else:
            masks = push_mode(0, 0, AUTOCAST)
        return masks, _state.set(AutocastState(self.device_type, self.dtype, cache))

    def _pop(self, token: Any) -> None:
        masks, state = token
        _state.reset(state)
        pop_masks(masks)

    def clone(self) -> Mode:
        return autocast(self.device_type, self.dtype, self.enabled, self.cache_enabled)
