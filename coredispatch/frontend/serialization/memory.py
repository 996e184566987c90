"""Pickling and copying of tensors: what a tensor is made of, and back.

Tensors that share memory share it again in the copy, as in PyTorch, when they are pickled or
deep-copied together.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import numpy as np

from coredispatch.frontend.memory_spans import address, bytes_between, span
from coredispatch.frontend.serialization.errors import SerializationError
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import AutogradError, CoreDispatchError
from coredispatch.registry.model.value import Storage, Value, storage_of

__all__ = [
    "attributes",
    "copy_tensor",
    "deepcopy_tensor",
    "host_array",
    "instance",
    "is_own_slot",
    "make_tensor",
    "moved",
    "rebuild_tensor",
    "reduce_tensor",
]

Array = np.ndarray[Any, Any]


def host_array(tensor: Tensor) -> Array:
    """The tensor's elements in host memory, shared with the tensor where that is where they are."""
    result: Array = tensor.backend.to_numpy(tensor.raw)
    return result


# A tensor's own slots, which stand in its __dict__ where it runs interpreted. A copy does not
# retain its gradient: the hook that did it stays with the original.
_OWN = {"raw", "keys", "_retains", *Value.__annotations__, *TensorBase.__annotations__}


def is_own_slot(name: Any) -> bool:
    """Whether a name in a tensor's ``__dict__`` belongs to the framework."""
    return name in _OWN


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What was set on the tensor as attributes."""
    return {name: value for name, value in tensor.__dict__.items() if name not in _OWN}


def instance(cls: Any, raw: Any, keys: int) -> Any:
    """A tensor of class `cls`, whatever arguments the class itself takes."""
    tensor = TensorBase.__new__(cls)
    TensorBase.__init__(tensor, raw, keys | cls._class_keys)
    return tensor


def make_tensor(
    array: Array,
    device: str,
    requires_grad: bool = False,
    cls: type[Tensor] = Tensor,
    storage: Storage | None = None,
) -> Any:
    """A leaf tensor on `device` with the elements of `array`, sharing its memory on the CPU.

    Raises:
        SerializationError: there is no such device in this process.
    """
    backend = TABLE.snapshot.backends["cpu"][0]
    tensor = Tensor(backend.from_numpy(array), TABLE.bit("cpu"))
    if device == "cpu":
        tensor._storage = storage
    else:
        tensor = moved(tensor, device)
    if cls is not Tensor:
        kept = tensor._storage
        tensor = instance(cls, tensor.raw, tensor.keys)
        tensor._storage = kept
    if requires_grad:
        tensor.keys |= AUTOGRAD
    return tensor


def moved(tensor: Tensor, device: str) -> Tensor:
    """A tensor read on the host, on `device`; SerializationError where there is none."""
    try:
        return tensor.to(device)
    except CoreDispatchError as error:
        raise SerializationError(
            f"the tensor belongs on {device!r}: {error.message}",
            fix="load it with map_location='cpu', or install the plugin of that device",
        ) from error


# -- memory that several tensors share -----------------------------------------------------


class SharedMemory:
    """The bytes of one storage, as long as some pickle or copy in the making refers to them.

    A pickler writes an object once: handing it the same SharedMemory for each tensor of a
    storage is what makes them share memory again afterwards.
    """

    def __init__(self, block: Array, storage: Storage | None = None) -> None:
        self.block = block  # an array that holds the owner of its memory
        self.source = storage  # the storage in whose place this stands; keeps the id below alive
        self.storage = Storage()

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedMemory, (self.block,)


_in_use: weakref.WeakValueDictionary[int, SharedMemory] = weakref.WeakValueDictionary()


def _root(tensor: Value) -> Value:
    while tensor._view is not None:
        tensor = tensor._view.base
    return tensor


def _shared_memory(tensor: Tensor) -> SharedMemory | None:
    """The memory of a tensor that shares it with another one; None for all other tensors."""
    root = _root(tensor)
    storage = storage_of(tensor)
    if (root is tensor and not storage.aliases) or not isinstance(root.raw, np.ndarray):
        return None
    low, high = span(root.raw)
    first, last = span(tensor.raw)
    if not tensor.raw.size or first < low or last > high:
        return None
    found = _in_use.get(id(storage))
    if found is None or address(found.block) != low or found.block.nbytes != high - low:
        block = bytes_between(low, high, root.raw, root.raw.flags.writeable)
        found = SharedMemory(block, storage)
        _in_use[id(storage)] = found
    return found


def _place(array: Array, memory: SharedMemory) -> dict[str, Any]:
    return {
        "dtype": DType.of(array.dtype).name,
        "shape": array.shape,
        "strides": array.strides,
        "offset": address(array) - address(memory.block),
    }


def _view_in(block: Array, place: dict[str, Any]) -> Array:
    dtype = np.dtype(place["dtype"])
    return np.ndarray(place["shape"], dtype, block, place["offset"], place["strides"])


# -- pickle --------------------------------------------------------------------------------


def reduce_tensor(tensor: Tensor, share: bool = True) -> tuple[Any, ...]:
    """What ``Tensor.__reduce_ex__`` returns.

    With `share`, tensors that are pickled together and share memory share it again when they are
    unpickled, for which all the memory of their storage is pickled; without, each tensor takes
    its own elements along and nothing else.

    Kept: elements, dtype, shape, strides, device, requires_grad, the class and the attributes
    that were set on the tensor. Not kept, as in PyTorch: history, gradient and hooks.
    """
    state = attributes(tensor) or None
    details = (str(tensor.device), tensor.requires_grad, type(tensor))
    if tensor.layout != "strided" or tensor.is_meta:
        keys = tensor.keys & TABLE.snapshot.order.layout_bits
        host = tensor
        if not tensor.is_meta and tensor.backend.name != "cpu":
            host = instance(Tensor, tensor.raw, tensor.keys & ~AUTOGRAD).cpu()
        names = TABLE.snapshot.order.names(keys | TABLE.bit(host.backend.name))
        where = () if host.backend is tensor.backend else details[:1]
        return rebuild_other, (host.raw, names, *details[1:], *where), state
    memory = _shared_memory(tensor) if share else None
    if memory is None:
        return rebuild_tensor, (host_array(tensor), None, *details), state
    return rebuild_tensor, (memory, _place(tensor.raw, memory), *details), state


def rebuild_tensor(
    memory: Any, place: dict[str, Any] | None, device: str, requires_grad: bool, cls: type[Tensor]
) -> Any:
    """The tensor that :func:`reduce_tensor` took apart."""
    if place is None:
        return make_tensor(memory, device, requires_grad, cls)
    return make_tensor(_view_in(memory.block, place), device, requires_grad, cls, memory.storage)


def rebuild_other(
    raw: Any, names: tuple[str, ...], requires_grad: bool, cls: type[Tensor], device: str = ""
) -> Any:
    """A tensor whose raw data pickle themselves: of another layout, or without data.

    With ``device`` the data were brought to the host for it, and go back there.
    """
    keys = 0
    for name in names:
        keys |= TABLE.bit(name)
    tensor = Tensor(raw, keys)
    if device:
        tensor = moved(tensor, device)
    return instance(cls, tensor.raw, tensor.keys | (AUTOGRAD if requires_grad else 0))


# -- copy ----------------------------------------------------------------------------------


def copy_tensor(tensor: Tensor) -> Any:
    """What ``Tensor.__copy__`` returns: a leaf over the same memory, with the same attributes.

    As in PyTorch, class and requires_grad are kept; history, gradient and hooks are not.
    """
    if tensor.layout == "strided":
        plain = TABLE.operator("detach")(tensor)
    else:
        plain = instance(Tensor, tensor.raw, tensor.keys & ~AUTOGRAD)
    twin = plain
    if type(tensor) is not Tensor:
        twin = instance(type(tensor), plain.raw, plain.keys)
        twin._view, twin._storage = plain._view, storage_of(plain)
        twin._storage.aliases.append(weakref.ref(twin))
    if tensor.requires_grad:
        twin.keys |= AUTOGRAD
    twin.__dict__.update(attributes(tensor))
    return twin


# -- deepcopy ------------------------------------------------------------------------------


def deepcopy_tensor(tensor: Tensor, memo: dict[Any, Any]) -> Any:
    """What ``Tensor.__deepcopy__`` returns: a leaf with copied elements, gradient and attributes.

    Raises:
        AutogradError: the tensor is not a leaf.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    if tensor.requires_grad and not tensor.is_leaf:
        raise AutogradError(
            "only leaf tensors can be deep-copied: the copy would not know its history",
            fix="copy tensor.detach(), or use tensor.clone()",
        )
    twin = memo[id(tensor)] = _copy_elements(tensor, memo)
    if tensor._grad is not None:
        twin._grad = copy.deepcopy(tensor._grad, memo)
    twin.__dict__.update(copy.deepcopy(attributes(tensor), memo))
    return twin


def _copy_elements(tensor: Tensor, memo: dict[Any, Any]) -> Any:
    cls, requires_grad = type(tensor), tensor.requires_grad
    if tensor.layout != "strided":
        if tensor.backend.name == "cpu":
            return instance(cls, copy.deepcopy(tensor.raw, memo), tensor.keys)
        return instance(cls, _layout_copy(tensor), tensor.keys)
    if tensor.device.type != "cpu" or not isinstance(tensor.raw, np.ndarray):
        alone = instance(Tensor, tensor.raw, tensor.keys & ~AUTOGRAD).clone()
        return instance(cls, alone.raw, tensor.keys)
    memory = _shared_memory(tensor)
    if memory is None:
        return make_tensor(tensor.raw.copy(order="K"), "cpu", requires_grad, cls)
    key = ("coredispatch storage", id(memory))
    if key not in memo:
        # The memory itself goes into the memo too: its id must not be used again meanwhile.
        memo[key] = (SharedMemory(memory.block.copy()), memory)
    twin = memo[key][0]
    array = _view_in(twin.block, _place(tensor.raw, memory))
    return make_tensor(array, "cpu", requires_grad, cls, twin.storage)


def _layout_copy(tensor: Tensor) -> Any:
    """The data of a tensor of a layout on a device, with copies of all its arrays."""
    layout = TABLE.snapshot.layouts[tensor.layout][0]
    if not layout.movable:
        return tensor.detach().clone().raw
    bit = TABLE.bit(tensor.backend.name)
    return layout.rebuilt(tensor.raw, tensor.backend, lambda part: Tensor(part, bit).clone().raw)
