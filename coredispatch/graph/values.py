"""What is known of a value of a graph: the properties that ``node.meta["value"]`` holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coredispatch.graph.node import map_aggregate
from coredispatch.plugin import CoreDispatchError, Device, DType, Value, dtype_of, key_bit
from coredispatch.registry.dispatch.masks import call_masked

__all__ = ["ValueInfo", "info_of"]


@dataclass(frozen=True)
class ValueInfo:
    """The properties of a tensor.

    Attributes:
        shape: the sizes, each an int or a :class:`~coredispatch.plugin.Symbol`.
        dtype, device, layout: as those of the tensor.
        strides: in elements, None where they are not known.
        requires_grad: whether the tensor had a history, or was to have one.
    """

    shape: tuple[Any, ...]
    dtype: DType
    device: Device
    strides: tuple[int, ...] | None = None
    layout: str = "strided"
    requires_grad: bool = False

    @property
    def contiguous(self) -> bool:
        """Whether the elements are known to lie in row-major order without gaps."""
        if self.strides is None:
            return False
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


def info_of(value: Any) -> Any:
    """``value`` with a :class:`ValueInfo` in the place of each tensor; a tensor's own info.

    Tuples, lists and dicts keep their structure; numbers and all else stand for themselves.
    """
    return map_aggregate(value, _leaf)


def _leaf(value: Any) -> Any:
    if not isinstance(value, Value):
        return value
    # subclasses hear of the program's reads, not of these
    return call_masked(_info, (value,), key_bit("torch_function"))


def _info(value: Value) -> ValueInfo:
    tensor: Any = value
    layout = str.__str__(tensor.layout)  # its name, however texts spell the package
    try:
        strides = tuple(tensor.stride()) if layout == "strided" else None
    except CoreDispatchError:  # a wrapper of another layer, a layout without strides
        strides = None
    return ValueInfo(
        tuple(value.raw.shape),
        dtype_of(value),
        tensor.device,
        strides,
        layout,
        bool(tensor.requires_grad),
    )
