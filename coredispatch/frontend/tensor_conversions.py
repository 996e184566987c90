"""Tensors as NumPy arrays, numbers and lists, of another dtype, elsewhere, and like this one.

See :mod:`.tensor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from coredispatch._warnings import warn_of_lost_imaginary
from coredispatch.backends.dtypes import readable
from coredispatch.frontend.subclasses import kept_class
from coredispatch.frontend.tensor_base import AUTOGRAD, UNLAYERED, TensorBase
from coredispatch.frontend.torch_function import OVERRIDE
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.masks import includes_layers
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.device import Device, current_device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DTypeError,
)
from coredispatch.registry.model.spelling import SPELLING, keeps_order
from coredispatch.registry.wiring import HOOKS, OBSERVERS, SLOTS

if TYPE_CHECKING:
    from coredispatch.frontend.argument_types import DeviceLike, DTypeLike
    from coredispatch.frontend.tensor import Tensor

    _Above = Tensor  # for a type checker the methods of this file are those of a Tensor
else:
    _Above = object

__all__ = ["TensorConversions"]

_TYPE_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def _is_at(target: Device, here: Device) -> bool:
    """Whether ``target``, which may have no number, is the device ``here``."""
    if target.type != here.type:
        return False
    if target.index is None and here.type in ("cpu", "meta"):
        return True
    index = HOOKS.current_index(here.type) if target.index is None else target.index
    return bool(index == (here.index or 0))


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _op(name: str) -> Any:
    return TABLE.operator(name)


def _recording() -> bool:
    from coredispatch.frontend.modes import is_grad_enabled  # it imports this module

    return is_grad_enabled()


class TensorConversions(_Above):
    """The conversions of a tensor."""

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The data as a NumPy array, sharing memory on the CPU.

        Raises for tensors that lie elsewhere or that require grad while gradients are recorded,
        unless ``force``.
        """
        if self.keys & AUTOGRAD and not force and _recording():
            raise AutogradError(
                "can't call numpy() on a tensor that requires grad",
                fix="use tensor.detach().numpy()",
            )
        result: np.ndarray[Any, Any]
        if isinstance(self.raw, Wrapper):  # its layer may have a kernel for this
            result = _op("to_host")(self)
            return result
        order = TABLE.snapshot.order
        if self.keys & order.layout_bits:
            raise DTypeError(
                f"can't convert a {self.layout} tensor to NumPy", fix="convert it to dense first"
            )
        backend = self.backend
        if backend.name != "cpu" and not force:
            raise DTypeError(
                f"can't convert a {self.device} tensor to NumPy", fix="use tensor.cpu() first"
            )
        if self.keys & ~UNLAYERED or HOOKS.observe is not None or includes_layers():
            result = _op("to_host")(self)
        else:  # nobody stands between the call and the array: 2 us less
            result = backend.to_numpy(self.raw)
        return result if result.dtype.names is None else readable(result)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError("a copy is needed to convert the dtype, but copy=False")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> int | float | bool:
        """The value of a one-element tensor as a Python number (also a complex one).

        :class:`TensorBase` asks here where an array of NumPy is not all there is to it.
        """
        if self.numel() != 1:
            raise ArgumentError(
                f"a tensor with {self.numel()} elements cannot be converted to a number",
                fix="index one element, or use .tolist()",
            )
        if OBSERVERS.item is not None:
            found: int | float | bool = OBSERVERS.item(self, lambda: _plain(self.numpy(force=True)))
            return found
        return _plain(self.numpy(force=True))

    def tolist(self) -> Any:
        """Nested lists of Python numbers (a number for a 0-dim tensor)."""
        array = self.numpy(force=True)
        if self.dtype.name == "bfloat16" or self.dtype in dtypes.STORAGE_DTYPES:
            array = array.astype(np.float32)
        return array.tolist()

    @overload
    def to(
        self,
        dtype: DTypeLike,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    @overload
    def to(
        self,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    @overload
    def to(
        self,
        other: Tensor,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """``to(dtype)``, ``to(device, dtype)`` or ``to(other)``; self where nothing changes.

        Keywords: ``dtype``, ``device``, ``copy``, ``memory_format``, and ``non_blocking``, which
        lets an asynchronous backend return before the data have arrived.
        """
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        copy = kwargs.pop("copy", False)
        memory_format = kwargs.pop("memory_format", None)
        non_blocking = bool(kwargs.pop("non_blocking", False))
        if kwargs:
            raise DTypeError(f"to() got an unexpected keyword argument {next(iter(kwargs))!r}")
        flags: list[bool] = []
        for argument in args:
            if isinstance(argument, TensorBase):
                device, dtype = argument.device, argument.dtype  # type: ignore[attr-defined]
            elif isinstance(argument, (str, Device)):
                device = argument
            elif isinstance(argument, bool):
                flags.append(argument)  # non_blocking, copy by position
            elif isinstance(argument, int):
                device = Device(argument)
            elif argument is not None:
                dtype = DType.of(argument)
        if flags:
            non_blocking, copy = flags[0], (flags[1] if len(flags) > 1 else copy)
        result: Any = self
        if dtype is not None and DType.of(dtype) is not self.dtype:
            if self.dtype.is_complex and DType.of(dtype).category in (1, 2):
                warn_of_lost_imaginary()
            result = _op("to_dtype")(result, dtype)
        if device is not None:
            target = current_device(device)
            here = self.device
            if target != here and not _is_at(target, here):
                result = _op("to_device")(result, target, non_blocking)
        if not keeps_order(memory_format):
            result = result.contiguous(memory_format=memory_format)
        return result.clone() if copy and result is self else result

    def contiguous(self, memory_format: Any = None) -> Tensor:
        """The tensor itself where it lies in ``memory_format`` (row-major) already, else a copy."""
        strided = not self.keys & TABLE.snapshot.order.layout_bits
        # of a compiled program's open sizes the order is known
        if strided and (not isinstance(self.raw, Wrapper) or self.raw.layer == "compile"):
            flags = getattr(self.raw, "flags", None) if memory_format is None else None
            if self.is_contiguous(memory_format) if flags is None else flags.c_contiguous:
                return self
        contiguous = _op("contiguous")
        if memory_format is None:  # the default needs no binding
            made: Tensor = contiguous(self)
        else:
            made = contiguous(self, memory_format=memory_format)
        return made

    def cpu(self, memory_format: Any = None) -> Tensor:
        """The tensor on the CPU."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(
        self,
        device: DeviceLike | None = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        """The tensor on a CUDA device, the current one by default; itself if it is there.

        ``non_blocking`` lets a copy from page-locked memory arrive later. Raises
        :class:`DeviceError` for a device of another kind.
        """
        target = Device("cuda" if device is None else device)
        if target.type != "cuda":
            raise DeviceError(
                f"Invalid device, must be cuda device, got {target}", fix=f"x.to({str(target)!r})"
            )
        return self.to(target, non_blocking=non_blocking, memory_format=memory_format)

    @overload
    def type(self, dtype: None = None) -> str: ...

    @overload
    def type(self, dtype: DTypeLike, non_blocking: bool = False) -> Tensor: ...

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Tensor | str:
        """The dtype's tensor type name, or the tensor converted to ``dtype``.

        A dtype may also be spelled as types were once: ``"torch.FloatTensor"``, ``FloatTensor``.
        """
        if dtype is None:
            prefix = SPELLING.of("" if self.device.type == "cpu" else f"{self.device.type}.")
            return prefix + _TYPE_NAMES.get(self.dtype.name, _capital(self.dtype.name)) + "Tensor"
        from coredispatch.frontend.legacy import convert

        return convert(self, dtype, non_blocking)

    def new(self, *args: Any, **options: Any) -> Tensor:
        """``x.new(2, 3)``, ``x.new([1, 2])``: a tensor of this one's dtype and device.

        Lengths of dimensions give memory that nobody initialised.
        """
        from coredispatch.frontend.legacy import new

        return new(self, *args, **options)

    def float(self, memory_format: Any = None) -> Tensor:
        """The tensor as float32."""
        return self.to(dtypes.float32, memory_format=memory_format)

    def double(self, memory_format: Any = None) -> Tensor:
        """The tensor as float64."""
        return self.to(dtypes.float64, memory_format=memory_format)

    def half(self, memory_format: Any = None) -> Tensor:
        """The tensor as float16."""
        return self.to(dtypes.float16, memory_format=memory_format)

    def bfloat16(self, memory_format: Any = None) -> Tensor:
        """The tensor as bfloat16."""
        return self.to(dtypes.bfloat16, memory_format=memory_format)

    def int(self, memory_format: Any = None) -> Tensor:
        """The tensor as int32."""
        return self.to(dtypes.int32, memory_format=memory_format)

    def long(self, memory_format: Any = None) -> Tensor:
        """The tensor as int64."""
        return self.to(dtypes.int64, memory_format=memory_format)

    def short(self, memory_format: Any = None) -> Tensor:
        """The tensor as int16."""
        return self.to(dtypes.int16, memory_format=memory_format)

    def char(self, memory_format: Any = None) -> Tensor:
        """The tensor as int8."""
        return self.to(dtypes.int8, memory_format=memory_format)

    def byte(self, memory_format: Any = None) -> Tensor:
        """The tensor as uint8."""
        return self.to(dtypes.uint8, memory_format=memory_format)

    def bool(self, memory_format: Any = None) -> Tensor:
        """The tensor as bool."""
        return self.to(dtypes.bool_, memory_format=memory_format)

    def cfloat(self, memory_format: Any = None) -> Tensor:
        """The tensor as complex64."""
        return self.to(dtypes.complex64, memory_format=memory_format)

    def cdouble(self, memory_format: Any = None) -> Tensor:
        """The tensor as complex128."""
        return self.to(dtypes.complex128, memory_format=memory_format)

    def type_as(self, other: Tensor) -> Tensor:
        """The tensor in the dtype of ``other``."""
        return self.to(other.dtype)

    def new_tensor(
        self, data: Any, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
    ) -> Tensor:
        """A tensor of ``data`` with this one's dtype and device unless given."""
        from coredispatch.frontend.creation import tensor

        made = tensor(data, dtype=dtype or self.dtype, device=device or self.device)
        return kept_class(self, made) if self.keys & OVERRIDE else made

    def _new(self, name: str, size: Any, kwargs: dict[str, Any], *extra: Any) -> Tensor:
        kwargs.setdefault("dtype", self.dtype)
        kwargs.setdefault("device", self.device)
        requires_grad = kwargs.pop("requires_grad", False)
        if not size and "size" in kwargs:
            size = (kwargs.pop("size"),)
        if len(size) == 1 and isinstance(size[0], (tuple, list)):
            size = tuple(size[0])
        made = _op(name)(tuple(size), *extra, **kwargs)
        if isinstance(self.raw, Wrapper):
            made = self.raw.like(made)
        made = made.requires_grad_(requires_grad)
        return kept_class(self, made) if self.keys & OVERRIDE else made

    def new_zeros(self, *size: Any, **kwargs: Any) -> Tensor:
        """Zeros of ``size`` with this tensor's dtype and device unless given."""
        return self._new("zeros", size, kwargs)

    def new_ones(self, *size: Any, **kwargs: Any) -> Tensor:
        """Ones of ``size`` with this tensor's dtype and device unless given."""
        return self._new("ones", size, kwargs)

    def new_empty(self, *size: Any, **kwargs: Any) -> Tensor:
        """An uninitialised tensor of ``size`` with this one's dtype and device unless given."""
        return self._new("empty", size, kwargs)

    def new_full(self, size: Any, fill_value: Any, **kwargs: Any) -> Tensor:
        """``fill_value`` everywhere, with this tensor's dtype and device unless given."""
        return self._new("full", (size,), kwargs, fill_value)

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """``self`` where ``condition`` holds, else ``other``."""
        return _op("where")(condition, self, other)


SLOTS.item = TensorConversions.item


def _plain(array: np.ndarray[Any, Any]) -> Any:
    value = array.reshape(()).item()
    # ml_dtypes scalars are no Python numbers
    return float(value) if type(value).__module__ == "ml_dtypes" else value
