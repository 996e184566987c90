"""Tensors from data, and ``requires_grad=`` for the factories."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from coredispatch._warnings import warn, warn_once
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.dtypes import stored as converted
from coredispatch.frontend.argument_types import DeviceLike, DTypeLike
from coredispatch.frontend.modes import fresh_keys
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry.dispatch.masks import includes_layers
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device, current_device
from coredispatch.registry.model.dtypes import DType, bool_, default_dtype, float64, int64
from coredispatch.registry.model.errors import (
    ArgumentError,
    DTypeError,
    NumberRangeError,
    RequirementError,
)
from coredispatch.registry.model.scalars import stored
from coredispatch.registry.model.sizes import Symbol
from coredispatch.registry.model.spelling import keeps_order
from coredispatch.registry.wiring import HOOKS

__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer", "tensor", "to_dlpack"]

_CPU = Device("cpu")


def _from_host(array: np.ndarray[Any, Any]) -> Tensor:
    """``array`` as a tensor on the CPU, through the operator that a layer can see."""
    if array.dtype.itemsize == 1 and array.dtype.kind in "Vf":  # ml_dtypes' 8-bit floats
        array = array.view(numpy_dtype(DType.of(array.dtype)))
    if HOOKS.observe is None and not includes_layers():
        return Tensor(array, fresh_keys(TABLE.bit("cpu")))  # 6 us less
    made: Tensor = TABLE.operator("from_host")(array, device=_CPU)
    return made


_READ_ONLY = (
    "The given {0} is not writable, and PyTorch does not support non-writable tensors. This means "
    "{1}. You may want to copy the {2} to protect its data or make it writable before converting "
    "it to a tensor. This type of warning will be suppressed for the rest of this program."
)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor that shares memory with ``array``; one that is read-only gives a warning.

    Raises :class:`DTypeError` for anything but an ndarray and for dtypes coredispatch has not.
    """
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        effect = "writing to this tensor will result in undefined behavior"
        warn_once(_READ_ONLY.format("NumPy array", effect, "array"))
    return shared_with(array)


def shared_with(array: np.ndarray[Any, Any]) -> Tensor:
    """:func:`from_numpy` of an array that nobody writes through the tensor."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"from_numpy(): expected numpy.ndarray, got {type(array).__name__}",
            fix="use cd.tensor(...)",
        )
    if not array.dtype.isnative:
        raise DTypeError(
            "from_numpy(): the array's byte order is not the machine's",
            fix="convert it with array.astype(array.dtype.newbyteorder('='))",
        )
    if type(array) is not np.ndarray:
        array = array.view(np.ndarray)
    numpy_dtype(DType.of(array.dtype))
    return _from_host(array)


def _contains_tensor(data: Any) -> bool:
    return isinstance(data, TensorBase) or (
        isinstance(data, (list, tuple)) and any(_contains_tensor(item) for item in data)
    )


def _plain(data: Any) -> Any:
    if isinstance(data, TensorBase):
        return data.numpy(force=True)  # type: ignore[attr-defined]
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data


def _array_of(data: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """``data`` as a fresh ndarray, floats in the default dtype unless ``dtype`` says otherwise."""
    if isinstance(data, np.ndarray):
        array = data.copy()
    else:
        if _contains_tensor(data):
            data = _plain(data)
        if isinstance(data, (list, tuple)) and data and type(data[0]) is np.ndarray:
            warn_once(
                "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please "
                "consider converting the list to a single numpy.ndarray with numpy.array() before "
                "converting to a tensor."
            )
        array = _array_of_numbers(data, dtype)
        if dtype is None and not isinstance(data, np.generic):
            if array.dtype == np.float64 or array.size == 0 and array.dtype.kind == "f":
                array = array.astype(numpy_dtype(default_dtype()))
            elif array.dtype == np.complex128:
                array = array.astype(numpy_dtype(default_dtype().to_complex()))
    if array.dtype.kind == "O" and all(isinstance(i, (int, float, Symbol)) for i in array.flat):
        return array  # with sizes of a program that is followed without data
    if array.dtype.kind in "OUSM":
        raise DTypeError(
            f"tensor(): cannot make a tensor from data of type {_kind(data)}",
            fix="pass numbers, nested lists of numbers, or an array of them",
        )
    if dtype is None:
        return array
    with np.errstate(all="ignore"):  # what is too large for a float is infinite
        return converted(array, numpy_dtype(dtype))


def _array_of_numbers(data: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """Python numbers as an array; raises where one does not fit ``dtype`` (int64 if none)."""
    try:
        array = np.array(data)
    except ValueError as error:
        raise ArgumentError(
            f"tensor(): the data are no regular array: {error}",
            fix="give all rows of a dimension the same length",
        ) from None
    kind = array.dtype.kind
    if kind == "O" and all(isinstance(item, (int, float, complex)) for item in array.flat):
        array = _array_of_long_integers(array, dtype)
    elif dtype is None:
        if array.dtype == np.uint64 and not isinstance(data, np.generic):
            _check_fits(array, int64)
    elif kind == "c" and not dtype.is_complex:
        raise DTypeError(
            f"tensor(): complex numbers do not make a tensor of {dtype.name}",
            fix="pass their real parts, or a complex dtype",
        )
    elif dtype.is_integral and kind in "iuf" and array.dtype != numpy_dtype(dtype):
        _check_fits(array, dtype)
    return array


def _array_of_long_integers(
    array: np.ndarray[Any, Any], dtype: DType | None
) -> np.ndarray[Any, Any]:
    """Numbers with integers among them that 64 bits do not hold."""
    mixed = not all(isinstance(item, int) for item in array.flat)
    if dtype is bool_:
        return array.astype(bool)
    if (int64 if dtype is None and not mixed else dtype or float64).is_integral:
        _check_fits(array, dtype or int64)
    try:
        return array.astype(complex if any(isinstance(i, complex) for i in array.flat) else float)
    except OverflowError:
        raise NumberRangeError(
            "tensor(): an integer is beyond every floating-point number",
            fix="use float('inf') or a smaller number",
        ) from None


def _check_fits(array: Any, dtype: DType) -> None:
    """Raise :class:`NumberRangeError` for the first number that ``dtype`` does not hold."""
    try:
        for extreme in (array.min(), array.max()) if array.size else ():
            stored(extreme, dtype, "the number")
    except NumberRangeError as error:
        error.call = f"tensor(..., dtype={dtype!r})"
        raise


def _kind(data: Any) -> str:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return type(data).__name__


def tensor(
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of ``data`` (numbers, nested lists, arrays, tensors).

    Without ``dtype`` Python floats take the default dtype and arrays keep theirs. ``pin_memory``
    puts what stays on the CPU in page-locked memory, where there is a device that copies from it.
    """
    wanted = None if dtype is None else DType.of(dtype)
    if isinstance(data, Tensor):
        warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than "
            "torch.tensor(sourceTensor)."
        )
        result = data.detach().clone()
        if wanted is not None or device is not None:
            result = result.to(device=device, dtype=wanted)
        return result.requires_grad_(requires_grad)
    array = _array_of(data, wanted)
    if array.dtype.kind == "O":
        result = _of_symbols(array, wanted, device)
    else:
        result = _on_device(array, device)
    if pin_memory:
        from coredispatch.frontend.pinned_memory import where_possible

        result = where_possible(result, pin_memory)
    return requiring(result, requires_grad)


def _of_symbols(array: np.ndarray[Any, Any], dtype: DType | None, device: Any) -> Tensor:
    """Numbers with sizes among them that are not known yet: operators make the tensor."""
    if dtype is None:
        whole = all(isinstance(item, Integral) for item in array.flat)
        dtype = int64 if whole else default_dtype()
    full = TABLE.operator("full")
    parts = [full((), item, dtype=dtype, device=device) for item in array.flat]
    made: Tensor = parts[0] if not array.ndim else TABLE.operator("stack")(parts)
    return made.reshape(array.shape)


def _on_device(array: np.ndarray[Any, Any], device: Any) -> Tensor:
    result = _from_host(array)
    target = current_device(device)
    return result if target.type == "cpu" else TABLE.operator("to_device")(result, target)


def as_tensor(
    data: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """``data`` as a tensor, sharing memory with tensors and arrays where nothing changes."""
    if isinstance(data, TensorBase):
        return data.to(device=device, dtype=dtype)  # type: ignore[attr-defined, no-any-return]
    if isinstance(data, np.ndarray):
        return from_numpy(data).to(device=current_device(device), dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def asarray(
    obj: Any,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``obj`` as a tensor; ``copy`` True always copies, False never does (or raises)."""
    if copy:
        if isinstance(obj, TensorBase):
            obj = obj.detach()  # type: ignore[attr-defined]
            return obj.to(device=device, dtype=dtype, copy=True).requires_grad_(requires_grad)  # type: ignore[no-any-return]
        return tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)
    result = as_tensor(obj, dtype=dtype, device=device)
    shares = isinstance(obj, np.ndarray) and np.shares_memory(obj, result.raw) or obj is result
    if copy is False and not shares:
        raise ArgumentError("asarray(): a copy is needed, but copy=False")
    return requiring(result, requires_grad)


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-D tensor over the memory of an object with the buffer protocol."""
    array = np.frombuffer(buffer, numpy_dtype(DType.of(dtype)), count, offset)
    if array.size and not array.flags.writeable:
        effect = "you can write to the underlying (supposedly non-writable) buffer using the tensor"
        warn_once(_READ_ONLY.format("buffer", effect, "buffer"))
    return requiring(shared_with(array), requires_grad)


def from_dlpack(
    ext_tensor: Any, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor that shares memory with any object that speaks DLPack, or with a capsule of it.

    Args:
        ext_tensor: has ``__dlpack__``, or is a capsule, which is then used up.
        device: where the tensor goes, if not where it is.
        copy: True copies always, False never; ValueError where a move needs a copy.
    """
    shared = _adopted(ext_tensor)
    if device is None and copy is None:
        return shared
    if type(ext_tensor).__name__ == "PyCapsule":
        raise RequirementError(
            "from_dlpack(): device and copy are not supported for a DLPack capsule"
        )
    moved = shared if device is None else shared.to(device)
    if copy is False and moved is not shared:
        raise ArgumentError(
            f"from_dlpack(): cannot move from {shared.device} to {moved.device} without copying",
            fix="set copy=None or copy=True",
        )
    return moved.clone() if copy and moved is shared else moved


def _adopted(source: Any) -> Tensor:
    if isinstance(source, TensorBase):
        return source.detach()  # type: ignore[attr-defined, no-any-return]
    from coredispatch.registry.around.loader import plugins

    if type(source).__name__ == "PyCapsule":
        from coredispatch.frontend.dlpack import Capsule

        source = Capsule(source)
    if not hasattr(source, "__dlpack__"):
        raise DTypeError(f"from_dlpack(): a {type(source).__name__} does not speak DLPack")
    device_type = source.__dlpack_device__()[0]
    if int(device_type) == 1:
        from coredispatch.frontend.dlpack import read

        return from_numpy(read(source))
    plugins.discover()
    for name, (backend, _) in TABLE.snapshot.backends.items():
        adopt = getattr(backend, "from_dlpack", None)
        if adopt is not None and name != "cpu":
            adopted: Tensor = Tensor(adopt(source), TABLE.bit(name))
            return adopted
    raise DTypeError(f"from_dlpack(): no backend takes DLPack device type {int(device_type)}")


def requiring(made: Tensor, requires_grad: bool | None) -> Tensor:
    """What a factory ``made``, with ``requires_grad`` set; None is False, all but bool refused."""
    if requires_grad is None or requires_grad is False:
        return made
    return made.requires_grad_(requires_grad)


def _no_first(op: Operator) -> DTypeError:
    first = op.schema.params[0]
    return DTypeError(
        f"{op.name}(): argument {first.name!r} must be {first.annotation}, not NoneType",
        fix="give a size, () or (2, 3)" if first.kind == "IntList" else None,
    )


def _of_layout(op: Operator, made: Tensor, layout: Any) -> Tensor:
    """Zeros of another layout; what is full of elements has the strided one."""
    if not op.name.startswith(("zeros", "empty")):
        raise ArgumentError(
            f"{op.name}(): there are no results of layout {layout}",
            fix=f"make a strided tensor, and call to_sparse(layout={layout})",
        )
    return TABLE.operator("zeros_like")(made).to_sparse(layout=layout)  # type: ignore[no-any-return]


def with_requires_grad(op: Operator) -> Callable[..., Any]:
    """The factory ``op`` as users call it: with ``requires_grad=`` and ignored layout hints."""

    first = op.schema.params[0].name

    @functools.wraps(op.function)
    def factory(*args: Any, **kwargs: Any) -> Any:
        if args and args[0] is None:
            raise _no_first(op)  # a kernel may take it for a default of its own
        if not kwargs:
            return op(*args)
        if not args and kwargs.get(first, ()) is None:
            raise _no_first(op)
        requires_grad = kwargs.pop("requires_grad", False)
        pin = kwargs.pop("pin_memory", None)
        layout = kwargs.pop("layout", None)
        order = kwargs.pop("memory_format", None)
        out = kwargs.pop("out", None)
        result = op(*args, **kwargs) if out is None else op(*args, out=out, **kwargs)
        if pin:
            from coredispatch.frontend.pinned_memory import where_possible

            result = where_possible(result, pin)
        if not keeps_order(order):
            result = result.contiguous(memory_format=order)
        if layout is not None and layout != "strided":
            result = _of_layout(op, result, layout)
        return requiring(result, requires_grad)

    factory.__name__ = factory.__qualname__ = op.name
    factory.__module__ = "coredispatch"  # where pickle finds it
    factory.operator = op  # type: ignore[attr-defined]
    return factory


def to_dlpack(tensor: Tensor) -> Any:
    """The capsule of a tensor, which another library's ``from_dlpack`` takes once."""
    return tensor.__dlpack__()
