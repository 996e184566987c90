"""What ``Tensor`` does with storages: ``set_``, ``share_memory_``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.frontend.modes import is_grad_enabled
from coredispatch.frontend.storage.memory import memory_of, strided
from coredispatch.frontend.storage.typed import TypedStorage
from coredispatch.frontend.storage.untyped import UntypedStorage
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import AutogradError, DTypeError, OpError
from coredispatch.registry.model.sizes import contiguous_strides
from coredispatch.registry.model.value import bump_version, storage_of

__all__ = ["set_tensor", "share_tensor", "tensor_in"]


def tensor_in(
    storage: UntypedStorage,
    dtype: Any,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    what: str = "set_()",
) -> Tensor:
    """A tensor inside a storage; offset and strides in elements.

    Raises:
        OpError: it would not lie inside the storage.
        NotImplementedError: the storage lies on a device whose backend does not know its bytes.
    """
    shape, steps = tuple(map(int, size)), tuple(map(int, stride))
    if storage.device.type == "meta":
        made: Tensor = TABLE.operator("empty")(shape, dtype=dtype, device="meta")
        return made
    if storage.device.type != "cpu":
        flat = storage._as_tensor()
        unit = DType.of(dtype).itemsize
        typed: Tensor = flat[: flat.numel() // unit * unit].view(dtype)
        return typed.as_strided(shape, steps, int(offset))
    array = strided(storage._memory, numpy_dtype(dtype), int(offset), shape, steps, what)
    storage._lent = True
    backend = TABLE.snapshot.backends["cpu"][0]
    tensor: Tensor = Tensor(backend.from_numpy(array), TABLE.bit("cpu"))
    return tensor


def set_tensor(
    self: Tensor, source: Any, offset: int, size: Sequence[int] | None, stride: Any
) -> Tensor:
    """``Tensor.set_``."""
    if self.keys & AUTOGRAD and self.is_leaf and is_grad_enabled():
        raise AutogradError(
            "set_(): a leaf that requires grad is used in an in-place operation",
            fix="use cd.no_grad(), or set x.data",
        )
    other: Tensor | None = None
    if source is None:
        other = TABLE.operator("empty")((0,), dtype=self.dtype, device=self.device)
    elif isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            raise DTypeError(
                f"set_(): a tensor of {self.dtype} cannot become one of {source.dtype}"
            )
        if size is None and stride is None and not offset:
            other = source
        else:
            offset += 0 if offset else source.storage_offset()
            source = source.untyped_storage()
    elif isinstance(source, TypedStorage):
        if source.dtype is not self.dtype:
            raise DTypeError(
                f"set_(): expected a storage of {self.dtype}, got one of {source.dtype}"
            )
    elif not isinstance(source, UntypedStorage):
        raise TypeError(f"set_(): source is a {type(source).__name__}, not a storage or tensor")
    if other is None:
        untyped = source.untyped()
        if size is None:
            size = ((untyped.nbytes() // self.dtype.itemsize) - offset,)
        shape = (size,) if isinstance(size, int) else tuple(size)
        steps = contiguous_strides(shape) if stride is None else tuple(stride)
        other = tensor_in(untyped, self.dtype, offset, shape, steps)
    if other.device != self.device:
        raise OpError(f"set_(): the tensor is on {self.device}, the source on {other.device}")
    self.raw = other.raw
    self.keys = (other.keys & ~AUTOGRAD) | (self.keys & AUTOGRAD)
    self._dtype = None
    self._view = None
    self._storage = storage_of(other) if isinstance(source, Tensor) else None
    bump_version(self)
    return self


def share_tensor(self: Tensor) -> Tensor:
    """``Tensor.share_memory_``: the storage moves to shared memory, under all of its views."""
    from coredispatch.frontend.multiprocessing.segments import new_segment, segment_of

    if self.device.type != "cpu":
        return self  # as in PyTorch: memory of a device is not moved
    if self.layout != "strided":
        raise NotImplementedError(
            f"share_memory_(): tensors of layout {self.layout!r} are sent as copies; share the "
            "tensors of their parts"
        )
    raw = self.raw
    if not isinstance(raw, np.ndarray) or not raw.size or segment_of(raw) is not None:
        return self
    old = memory_of(raw)
    new = new_segment(old.size).memory
    new[...] = old
    start = old.__array_interface__["data"][0]
    for tensor in _sharing(self):
        array = tensor.raw
        place = array.__array_interface__["data"][0] - start
        if array.size and 0 <= place < old.size:
            tensor.raw = np.ndarray(array.shape, array.dtype, new, place, array.strides)
    return self


def _sharing(tensor: Tensor) -> list[Any]:
    """The tensor, what it is a view of, and the living views of that."""
    root: Any = tensor
    found = {id(tensor): tensor}
    while root._view is not None:
        root = root._view.base
        found[id(root)] = root
    for reference in storage_of(tensor).aliases:
        alias = reference()
        while alias is not None and id(alias) not in found:
            found[id(alias)] = alias
            alias = None if alias._view is None else alias._view.base
    return list(found.values())
