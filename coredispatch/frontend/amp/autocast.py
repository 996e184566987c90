"""``autocast``, the mode that includes the autocast layer, and its state."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Self

from coredispatch.plugin import (
    ArgumentError,
    DeviceError,
    DType,
    Mode,
    Switch,
    backends,
    device_count,
    dtypes,
    is_masked,
    is_on,
    key_bit,
)

__all__ = [
    "AutocastState",
    "autocast",
    "autocast_decorator",
    "current_blocks",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]

_HALF = (dtypes.float16, dtypes.bfloat16)
_ON, _OFF = Switch(on="autocast"), Switch()
#: dtype of lower-precision ops where ``autocast`` is given none
DEFAULT_DTYPES: dict[str, DType] = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}
#: whether blocks that do not say it keep the weights that they convert
CACHING: ContextVar[bool] = ContextVar("coredispatch_autocast_caching", default=True)
#: how many blocks this thread or task is in
NESTING: ContextVar[int] = ContextVar("coredispatch_autocast_nesting", default=0)


class AutocastState:
    """What one autocast block means to the layer, for the tensors of its device."""

    __slots__ = ("bit", "cache", "dtype", "enabled")

    def __init__(
        self,
        device_type: str,
        dtype: DType,
        enabled: bool,
        cache: dict[int, tuple[Any, int, Any]] | None,
    ) -> None:
        self.dtype = dtype
        self.enabled = enabled
        self.bit = key_bit(device_type)
        # id(weight) -> (weight, version, cast weight); holding the weight keeps its id unique
        self.cache = cache


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is in force in this thread or task for the device type.

    Without one the question is about CUDA, as in PyTorch.
    """
    if not is_on("autocast") or is_masked("autocast"):
        return False
    state = autocast.current(device_type)
    return state is not None and bool(state.enabled)


def is_autocast_available(device_type: str) -> bool:
    """Whether there is a backend of that name."""
    return device_type in backends()


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype lower-precision ops run in, inside autocast, or would by default.

    A block that is given none takes this one.
    """
    state = autocast.current(device_type)
    if state is not None:
        lowered: DType = state.dtype
        return lowered
    return DEFAULT_DTYPES.get(device_type, dtypes.bfloat16)


class autocast(Mode):
    """Run ops in the precision their cast policy asks for. Also a decorator.

    ``device_type`` is a backend key, ``dtype`` float16 or bfloat16 (default: that of the block
    around, else bfloat16 on the CPU and float16 on CUDA). ``enabled=False`` switches autocast off
    inside the block. A block says nothing about the tensors of other devices: blocks of several
    devices may be nested.
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
        if device_type == "cuda" and enabled and not device_count("cuda"):
            warnings.warn(
                "CUDA is not available or torch_xla is imported. Disabling autocast.",
                stacklevel=2,
            )
            enabled = False
        elif device_type != "cuda" and not is_autocast_available(device_type):
            raise DeviceError(
                f"autocast: there is no backend {device_type!r}",
                fix=f"use one of {', '.join(backends())}",
            )
        if dtype is not None and not isinstance(dtype, DType):
            raise ArgumentError(
                f"autocast: dtype must be float16 or bfloat16, not {dtype!r}",
                fix="leave dtype away for the device's default",
            )
        if enabled and dtype is not None and dtype not in _HALF:
            warnings.warn(
                f"In {device_type.upper()} autocast, but the target dtype is not supported. "
                f"Disabling autocast.\n{device_type.upper()} Autocast only supports dtypes of "
                f"{', '.join(map(str, reversed(_HALF)))} currently.",
                stacklevel=2,
            )
            enabled = False
        self.device = self.part = device_type
        self.fast_dtype = dtype or get_autocast_dtype(device_type)
        self._enabled = bool(enabled)
        self._cache_enabled = CACHING.get() if cache_enabled is None else bool(cache_enabled)

    def __enter__(self) -> Self:
        super().__enter__()
        NESTING.set(NESTING.get() + 1)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        NESTING.set(NESTING.get() - 1)

    def switches(self) -> Switch:
        """The layer on; where ``enabled=False`` the state tells it to let calls pass."""
        return _ON if self._enabled else _OFF

    def state(self) -> AutocastState:
        """What the layer finds: its weight cache is that of the block around, if of one dtype."""
        cache: Any = None
        if self._enabled and self._cache_enabled:
            outer = self.current(self.device)
            same = outer is not None and outer.dtype is self.fast_dtype and outer.cache is not None
            cache = outer.cache if same else {}
        return AutocastState(self.device, self.fast_dtype, self._enabled, cache)


def autocast_decorator(autocast_instance: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """``func`` within the block: what ``@autocast("cpu")`` makes of a function.

    >>> half = autocast_decorator(cd.autocast("cpu"), lambda x: x @ x)
    >>> half(cd.ones(2, 2)).dtype
    cd.bfloat16
    """

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


def current_blocks() -> list[autocast]:
    """Blocks that bring what autocast is here back elsewhere: one for each device."""
    blocks = []
    for name in backends():
        state = autocast.current(name)
        if state is None:
            blocks.append(autocast(name, enabled=False))
        else:
            cached = state.cache is not None
            blocks.append(autocast(name, state.dtype, state.enabled, cache_enabled=cached))
    return blocks
