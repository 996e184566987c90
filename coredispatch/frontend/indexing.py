"""What may stand in ``x[...]``, and assignment through it."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from coredispatch._warnings import warn
from coredispatch.frontend.creation import shared_with, tensor
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import bool_, uint8
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.sizes import Symbol
from coredispatch.registry.wiring import HOOKS, SLOTS

#: kinds of NumPy arrays that operators take in a tensor's place
_KINDS = "biufc"

__all__ = ["assign", "normal_index", "operand"]


def normal_index(index: Any) -> tuple[Any, ...]:
    """The tuple that ``getitem`` takes: arrays become tensors, everything else stays."""
    items = index if isinstance(index, tuple) else (index,)
    for item in items:
        if isinstance(item, TensorBase):
            if item.dtype is uint8:
                warn(
                    "indexing with dtype torch.uint8 is now deprecated, please use a dtype "
                    "torch.bool instead."
                )
        elif isinstance(item, (np.ndarray, np.generic, range)):
            return tuple(_item(i) for i in items)
    return items


def _item(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return shared_with(item)
    if isinstance(item, np.generic):
        return item.item()
    return list(item) if isinstance(item, range) else item


def assign(target: Any, index: Any, value: Any) -> None:
    """``target[index] = value``: an in-place write, recorded like any other."""
    if not isinstance(value, TensorBase):
        if isinstance(value, np.ndarray):
            value = shared_with(value)
        elif isinstance(value, (list, tuple)):
            value = tensor(value, device=target.device)
        elif isinstance(value, np.generic):
            value = value.item()
        elif not (isinstance(value, (bool, int, float, complex)) or _open(value)):
            raise DTypeError(
                f"cannot assign {type(value).__name__} to a tensor", fix="assign a tensor or number"
            )
    if type(index) is not int and type(index) is not slice:
        index = normal_index(index)
    else:
        index = (index,)
    given: Any = value
    is_tensor = isinstance(value, TensorBase)
    if is_tensor:
        if given.dtype is not target.dtype and (
            _is_view(index) or _fills(index, given, target.dtype)
        ):
            value = given = given.to(target.dtype)  # warns of imaginary parts
        if given.device != target.device and _is_view(index):
            # As in PyTorch: what is copied into a view of the target may lie on any device.
            value = given.to(target.device)
    TABLE.operator("index_put_")(target, index, value)


def _is_view(index: tuple[Any, ...]) -> bool:
    """Whether ``x[index]`` is a view: no tensor, list or bool among the items."""
    return all(
        item is None or item is Ellipsis or type(item) is int or isinstance(item, (slice, Symbol))
        for item in index
    )


def _fills(index: tuple[Any, ...], value: Any, dtype: Any) -> bool:
    """Whether ``x[index] = value`` is ``masked_fill``, which reads a number from the tensor."""
    if value.ndim or (value.dtype.is_complex and dtype is not bool_):
        return False
    masks = [item for item in index if isinstance(item, TensorBase)]
    return len(masks) == len(index) == 1 and masks[0].dtype is bool_


def _open(value: Any) -> bool:
    """Whether it is a number that is not known yet, as sizes are in an export."""
    return isinstance(value, Symbol) and isinstance(value, numbers.Number)


def operand(other: Any) -> Any:
    """``other`` as an operand of an infix operator, or NotImplemented."""
    if isinstance(other, (bool, int, float, complex)) or _open(other):
        return other
    if isinstance(other, np.generic):
        return other.item()
    if isinstance(other, np.ndarray) and other.dtype.kind in _KINDS:
        return shared_with(other)
    return other if HOOKS.foreign(type(other)) else NotImplemented


SLOTS.index = normal_index
SLOTS.operand = operand
