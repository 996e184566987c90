"""What autocast does with an operator that asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.amp.autocast import autocast
from coredispatch.plugin import Value, backends, dispatch, dtypes, key_bit, operator

if TYPE_CHECKING:
    from coredispatch.frontend.library.definitions import Definition

__all__ = ["autocast_rule"]


def _lies_on(value: Any, bit: int) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_lies_on(item, bit) for item in value)
    return isinstance(value, Value) and bool(value.keys & bit)


def autocast_rule(definition: Definition) -> Callable[..., Any]:
    """The rule of the layer ``autocast``: floating tensors of the device in the given dtype."""
    to_dtype = operator("to_dtype")

    def cast(value: Any, dtype: Any, bit: int) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([cast(item, dtype, bit) for item in value])
        if not isinstance(value, Value) or not value.keys & bit:
            return value
        found = value.dtype  # type: ignore[attr-defined]
        if not found.is_floating_point or found in (dtype, dtypes.float64):
            return value
        return dispatch(to_dtype, (value, dtype))

    def rule(call: Any, *args: Any) -> Any:
        for device in backends():
            state = autocast.current(device)
            if state is None or not state.enabled:
                continue
            kernel = definition.autocast_kernels.get(device)
            if kernel is not None and any(_lies_on(value, key_bit(device)) for value in args):
                given, keywords = definition.written_out(args)
                return kernel(*given, **keywords)
            dtype = definition.autocast.get(device)
            if dtype is not None:
                args = tuple([cast(value, dtype, key_bit(device)) for value in args])
        return call.redispatch(*args)

    return rule
