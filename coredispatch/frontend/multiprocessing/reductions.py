"""How tensors and storages are pickled on the way to another process: as memory that both see."""

from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import numpy as np

from coredispatch.frontend.memory_spans import address
from coredispatch.frontend.multiprocessing import segments
from coredispatch.frontend.multiprocessing.segments import Segment, segment_of
from coredispatch.frontend.nn.parameter import Buffer, Parameter
from coredispatch.frontend.serialization.memory import (
    attributes,
    make_tensor,
)
from coredispatch.frontend.serialization.memory import (
    reduce_tensor as reduce_as_copy,
)
from coredispatch.frontend.storage import TypedStorage, UntypedStorage
from coredispatch.frontend.storage.tensor_methods import share_tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry.model.dtypes import DType

__all__ = ["init_reductions", "reduce_storage", "reduce_tensor"]


def reduce_segment(segment: Segment) -> tuple[Any, ...]:
    """A segment as the other process opens it."""
    if segment.name is None:
        return _rebuild_segment, (DupFd(segment.number), segment.size)
    segments.count_up(segment)
    return segments.opened_by_name, (segment.name, segment.size)


def _rebuild_segment(number: Any, size: int) -> Segment:
    return segments.opened(number.detach(), size)


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor as the other process sees it: over the same memory, which becomes shared memory.

    Tensors of other devices and layouts are copied.

    Raises:
        RuntimeError: the tensor has a history, which does not cross processes.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    plain = tensor.layout == "strided" and tensor.device.type == "cpu" and tensor.numel()
    if not plain:
        return reduce_as_copy(tensor, share=False)
    raw = share_tensor(tensor).raw
    segment = segment_of(raw)
    assert segment is not None
    place = {
        "dtype": tensor.dtype.name,
        "shape": raw.shape,
        "strides": raw.strides,
        "offset": address(raw) - address(segment.memory),
    }
    details = (bool(tensor.keys & AUTOGRAD), type(tensor))
    return rebuild_tensor, (segment, place, *details), attributes(tensor) or None


def rebuild_tensor(
    segment: Segment, place: dict[str, Any], requires_grad: bool, cls: type[Tensor]
) -> Any:
    """The tensor that :func:`reduce_tensor` took apart."""
    from coredispatch.backends.dtypes import numpy_dtype

    array: np.ndarray[Any, Any] = np.ndarray(
        place["shape"],
        numpy_dtype(DType.of(place["dtype"])),
        segment.memory,
        place["offset"],
        place["strides"],
    )
    return make_tensor(array, "cpu", requires_grad, cls)


def reduce_storage(storage: UntypedStorage) -> tuple[Any, ...]:
    """A storage as the other process sees it; moves it to shared memory where it can be moved."""
    if storage.device.type != "cpu" or not storage.nbytes():
        return storage.__reduce__()
    storage.share_memory_()
    segment = segment_of(storage._memory)
    assert segment is not None
    offset = address(storage._memory) - address(segment.memory)
    return rebuild_storage, (segment, offset, storage.nbytes())


def rebuild_storage(segment: Segment, offset: int, size: int) -> UntypedStorage:
    """The storage that :func:`reduce_storage` took apart."""
    return UntypedStorage._over(segment.memory[offset : offset + size])


def _reduce_typed(storage: TypedStorage) -> tuple[Any, ...]:
    return TypedStorage._of, (storage.untyped(), storage.dtype)


def init_reductions() -> None:
    """Tell Python's ``multiprocessing`` how to pickle them."""
    ForkingPickler.register(Segment, reduce_segment)
    ForkingPickler.register(UntypedStorage, reduce_storage)
    ForkingPickler.register(TypedStorage, _reduce_typed)
    for cls in (Tensor, Parameter, Buffer):
        ForkingPickler.register(cls, reduce_tensor)
