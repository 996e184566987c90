"""Methods of ``Module`` that move or convert all its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from coredispatch._warnings import warn
from coredispatch.frontend.nn.parameter import is_lazy
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType, float16, float32, float64
from coredispatch.registry.model.dtypes import bfloat16 as _bfloat16
from coredispatch.registry.model.errors import DTypeError

if TYPE_CHECKING:
    from coredispatch.frontend.nn.module import Module

__all__ = [
    "bfloat16",
    "convert",
    "cpu",
    "cuda",
    "double",
    "float_",
    "half",
    "share_memory",
    "to",
    "to_empty",
    "type_",
]

M = TypeVar("M", bound="Module")


def convert(module: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
    """Replace every parameter's, gradient's and buffer's data by ``fn`` of them.

    Parameters stay the objects they are, so that optimizers keep working on them.
    """
    if recurse:
        for child in module.children():
            child._apply(fn)
    members = module.__dict__
    for name in members["_parameter_names"]:
        parameter = members[name]
        if parameter is None:
            continue
        data = fn(parameter.data)
        gradient = parameter.grad
        parameter.grad = None
        if data.raw is not parameter.raw:
            parameter.data = data
        if gradient is not None:
            parameter.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)
    for name in members["_buffer_names"]:
        buffer = members[name]
        if buffer is None:
            continue
        if is_lazy(buffer):  # it stays without a shape
            buffer.data = fn(buffer.data)
        else:
            members[name] = fn(buffer)
    return module


def _converter(dtype: DType) -> Callable[[Tensor], Tensor]:
    """Convert what is floating or complex to ``dtype``; leave the rest."""

    def fn(tensor: Tensor) -> Any:
        own = tensor.dtype
        return tensor.to(dtype) if own.is_floating_point or own.is_complex else tensor

    return fn


def to(module: M, *args: Any, **kwargs: Any) -> M:
    """``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``, in place.

    A dtype applies to floating and complex tensors only. Raises :class:`DTypeError` for an
    integer dtype.
    """
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    memory_format = kwargs.pop("memory_format", None)
    non_blocking = bool(kwargs.pop("non_blocking", False))
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument {next(iter(kwargs))!r}")
    for argument in args:
        if isinstance(argument, Tensor):
            device, dtype = argument.device, argument.dtype
        elif isinstance(argument, (str, Device)):
            device = argument
        elif isinstance(argument, int) and not isinstance(argument, bool):
            device = Device(argument)
        elif isinstance(argument, bool):
            non_blocking = argument
        elif argument is not None:
            dtype = argument
    dtype = None if dtype is None else DType.of(dtype)
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise DTypeError(
            f"nn.Module.to only accepts floating point or complex dtypes, but got {dtype}",
            fix="convert single buffers with buffer.to(dtype)",
        )

    if dtype is not None and dtype.is_complex:
        warn(
            "Complex modules are a new feature under active development whose design may change, "
            "and some modules might not work as expected when using complex tensors as parameters "
            "or buffers. Please file an issue at https://github.com/pytorch/pytorch/issues/new"
            "?template=bug-report.yml if a complex module does not work as expected."
        )

    def fn(tensor: Tensor) -> Any:
        floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        wanted = dtype if floating else None
        result = tensor.to(device=device, dtype=wanted, non_blocking=non_blocking)
        if memory_format is not None and result.ndim == 4:
            result = result.contiguous(memory_format=memory_format)
        return result

    return module._apply(fn)


def cpu(module: M) -> M:
    """Move everything to the CPU."""
    return module._apply(lambda t: t.cpu())


def cuda(module: M, device: Any = None) -> M:
    """Move everything to a CUDA device."""
    return module._apply(lambda t: t.cuda(device))


def type_(module: M, dst_type: Any) -> M:
    """Convert everything to ``dst_type``, integers included."""
    return module._apply(lambda t: t.type(dst_type))


def float_(module: M) -> M:
    """Convert everything floating to float32."""
    return module._apply(_converter(float32))


def double(module: M) -> M:
    """Convert everything floating to float64."""
    return module._apply(_converter(float64))


def half(module: M) -> M:
    """Convert everything floating to float16."""
    return module._apply(_converter(float16))


def bfloat16(module: M) -> M:
    """Convert everything floating to bfloat16."""
    return module._apply(_converter(_bfloat16))


def to_empty(module: M, *, device: Any, recurse: bool = True) -> M:
    """Uninitialised tensors of the same shapes on ``device``."""
    empty_like = TABLE.operator("empty_like")

    def make(tensor: Any) -> Any:
        own = getattr(tensor, "_emptied", None)  # a tensor whose parts lie elsewhere
        return empty_like(tensor, device=device) if own is None else own(device)

    return module._apply(make, recurse)


def share_memory(module: M) -> M:
    """Move parameters, their gradients and buffers to memory that other processes can see."""
    for tensor in [*module.parameters(), *module.buffers()]:
        tensor.share_memory_()
        if tensor.grad is not None:
            tensor.grad.share_memory_()
    return module
