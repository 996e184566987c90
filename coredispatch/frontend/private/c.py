"""``cd._C``: what programs take from PyTorch's compiled part."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.modes import is_grad_enabled, set_grad_enabled
from coredispatch.frontend.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.frontend.torch_dispatch import (
    disabled_torch_dispatch as _disabled_torch_dispatch_impl,
)
from coredispatch.frontend.torch_dispatch import without_dispatch as _DisableTorchDispatch
from coredispatch.registry.model.device import Device as device
from coredispatch.registry.model.dtypes import DType as dtype
from coredispatch.registry.model.generator import Generator
from coredispatch.registry.model.spelling import MemoryFormat as memory_format
from coredispatch.registry.model.spelling import TensorLayout as layout

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "Generator",
    "Size",
    "TensorBase",
    "device",
    "dtype",
    "is_grad_enabled",
    "layout",
    "memory_format",
    "set_grad_enabled",
]


def _log_api_usage_once(*args: Any) -> None:
    """Nobody counts."""


def _get_tracing_state() -> None:
    """None: nobody traces."""


def _is_tracing() -> bool:
    """False: nobody traces."""
    return False


def _set_grad_enabled(mode: bool) -> None:
    """See :class:`coredispatch.set_grad_enabled`."""
    set_grad_enabled(mode)


_has_torch_function = has_torch_function
_has_torch_function_unary = has_torch_function_unary
_has_torch_function_variadic = has_torch_function_variadic
_protocols = (
    _disabled_torch_function_impl,
    _disabled_torch_dispatch_impl,
    _DisableTorchDispatch,
)
