"""``cd._C``: what programs take from PyTorch's compiled part."""

from __future__ import annotations

import enum
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
from coredispatch.frontend.tensor import Tensor
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


def _are_functorch_transforms_active() -> bool:
    """Whether a transform, such as ``vmap``, is running."""
    from coredispatch.frontend.transforms.levels import current

    return bool(current())


def _is_alias_of(one: Any, other: Any) -> bool:
    """Whether two tensors share memory: a view and its base do."""
    found: bool = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return found


def _set_grad_enabled(mode: bool) -> None:
    """See :class:`coredispatch.set_grad_enabled`."""
    set_grad_enabled(mode)


def __getattr__(name: str) -> Any:
    if name in ("PyTorchFileReader", "PyTorchFileWriter"):
        from coredispatch.frontend.serialization import records

        return getattr(records, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _get_privateuse1_backend_name() -> str:
    """PyTorch's name for a device of somebody's own; here such devices have names."""
    return "privateuseone"


def _get_accelerator(check: Any = None) -> device:
    """The device beside the CPU, or the CPU where there is none."""
    from coredispatch.frontend.accelerator import current_accelerator

    return current_accelerator() or device("cpu")


class _ExcludeDispatchKeyGuard:
    """A block in which keys of PyTorch's dispatcher are left out: those of autocast, or none."""

    def __init__(self, keys: Any) -> None:
        from coredispatch.frontend.amp.autocast import autocast

        self._blocks = [autocast(name, enabled=False) for name in sorted(keys.autocast_devices())]

    def __enter__(self) -> None:
        for block in self._blocks:
            block.__enter__()

    def __exit__(self, *error: Any) -> None:
        for block in reversed(self._blocks):
            block.__exit__(*error)


class DispatchKey(enum.Enum):
    """Keys of PyTorch's dispatcher that programs name; the keys here have names of their own."""

    CPU = "CPU"
    CUDA = "CUDA"
    Meta = "Meta"
    Python = "Python"
    PrivateUse1 = "PrivateUse1"
    AutogradCPU = "AutogradCPU"
    AutogradCUDA = "AutogradCUDA"
    Autograd = "Autograd"
    AutocastCPU = "AutocastCPU"
    AutocastCUDA = "AutocastCUDA"
    AutocastXPU = "AutocastXPU"
    AutocastMPS = "AutocastMPS"
    CompositeImplicitAutograd = "CompositeImplicitAutograd"
    CompositeExplicitAutograd = "CompositeExplicitAutograd"


class DispatchKeySet:
    """A set of :class:`DispatchKey`."""

    def __init__(self, key: DispatchKey | frozenset[DispatchKey]) -> None:
        self._keys = frozenset({key}) if isinstance(key, DispatchKey) else key

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether the key is in it."""
        return key in self._keys

    def autocast_devices(self) -> set[str]:
        """The devices here whose autocast is among the keys; raises for a key of another kind."""
        from coredispatch.frontend.amp.autocast import is_autocast_available

        names = set()
        for key in self._keys:
            if not key.name.startswith("Autocast"):
                raise NotImplementedError(
                    f"{key}: PyTorch's dispatch keys are not those of coredispatch\n"
                    "  fix: use autocast(device, enabled=False), no_grad(), or a mode of a plugin"
                )
            names.add(key.name.removeprefix("Autocast").lower())
        return {name for name in names if is_autocast_available(name)}


def _setting(name: str) -> Any:
    kept: list[Any] = [False]

    def function(value: Any = None, *rest: Any) -> Any:
        before, kept[0] = kept[0], value
        return before

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "A setting of TorchScript's fuser, which is not used: kept, changes nothing."
    return function


_jit_set_profiling_executor = _setting("_jit_set_profiling_executor")
_jit_set_profiling_mode = _setting("_jit_set_profiling_mode")
_jit_set_nvfuser_enabled = _setting("_jit_set_nvfuser_enabled")
_jit_set_nvfuser_guard_mode = _setting("_jit_set_nvfuser_guard_mode")
_jit_set_texpr_fuser_enabled = _setting("_jit_set_texpr_fuser_enabled")
_jit_override_can_fuse_on_cpu = _setting("_jit_override_can_fuse_on_cpu")
_jit_override_can_fuse_on_gpu = _setting("_jit_override_can_fuse_on_gpu")
_set_math_sdp_allow_fp16_bf16_reduction = _setting("_set_math_sdp_allow_fp16_bf16_reduction")


def _jit_can_fuse_on_cpu() -> bool:
    """False: nothing fuses in TorchScript's way."""
    return False


_jit_can_fuse_on_gpu = _jit_can_fuse_on_cpu

_has_torch_function = has_torch_function
_has_torch_function_unary = has_torch_function_unary
_has_torch_function_variadic = has_torch_function_variadic
#: the class of tensor classes
_TensorMeta = type(Tensor)
_protocols = (
    _disabled_torch_function_impl,
    _disabled_torch_dispatch_impl,
    _DisableTorchDispatch,
)
