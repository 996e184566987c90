"""Decorators for ``autograd.Function``s that mean something under ``autocast``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from coredispatch.frontend.amp.autocast import autocast, get_autocast_dtype, is_autocast_enabled

__all__ = ["custom_bwd", "custom_fwd"]


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Floating tensors of the device type in ``dtype``, also those in containers."""
    if hasattr(value, "is_floating_point"):
        narrow = value.is_floating_point() and value.device.type == device_type
        return value.to(dtype) if narrow and value.dtype.name != "float64" else value
    if isinstance(value, Mapping):
        return {k: _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorate the ``forward`` of a Function.

    With ``cast_inputs``, a dtype, floating tensors of ``device_type`` (but float64) are converted
    to it where autocast is on, and autocast is off inside ``forward``. Without, ``forward`` runs as
    it is called, and :func:`custom_bwd` runs ``backward`` in the same state. Raises
    ``ValueError`` for a device type that is no string.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        ctx, on = args[0], is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            cast_args = _cast(args[1:], device_type, cast_inputs)
            return fwd(ctx, *cast_args, **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the ``backward`` of a Function: it runs in the state of autocast of ``forward``.

    Raises ``ValueError`` for a device type that is no string.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        if not ctx._fwd_used_autocast and not is_autocast_enabled(device_type):
            return bwd(*args, **kwargs)
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return backward
