"""``cd._utils``: helpers that programs take from PyTorch's private module of that name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from coredispatch.frontend.compiler import is_compiling
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device

__all__ = ["is_compiling"]


def _flatten_dense_tensors(tensors: Iterable[Any]) -> Any:
    """The elements of tensors of one dtype in one vector."""
    return TABLE.operator("cat")([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Iterable[Any]) -> tuple[Any, ...]:
    """Views of a vector with the shapes of ``tensors``."""
    made, start = [], 0
    for tensor in tensors:
        count = tensor.numel()
        made.append(flat[start : start + count].view(tensor.shape))
        start += count
    return tuple(made)


def _take_tensors(tensors: Iterable[Any], size_limit: int) -> Iterator[list[Any]]:
    """Groups of tensors of one type with at most ``size_limit`` bytes each, if one has no more."""
    groups: dict[str, tuple[list[Any], int]] = {}
    for tensor in tensors:
        kind, size = tensor.type(), tensor.numel() * tensor.element_size()
        group, used = groups.get(kind, ([], 0))
        if group and used + size > size_limit:
            yield group
            group, used = [], 0
        groups[kind] = ([*group, tensor], used + size)
    yield from (group for group, _ in groups.values() if group)


def _reorder_tensors_as(tensors: Sequence[Any], ordered_tensors: Sequence[Any]) -> tuple[Any, ...]:
    """``tensors``, grouped by type, in the order that the types have in ``ordered_tensors``."""
    waiting: dict[str, list[Any]] = {}
    for tensor in tensors:
        waiting.setdefault(tensor.type(), []).append(tensor)
    groups = {kind: iter(group) for kind, group in waiting.items()}
    return tuple(next(groups[tensor.type()]) for tensor in ordered_tensors)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that a device names; ValueError where it names none and must."""
    if isinstance(device, int):
        return device
    index = None if device is None else Device(device).index
    if index is None and isinstance(device, (str, Device)) and Device(device).type == "cpu":
        if allow_cpu:
            return -1
    if index is None:
        if optional:
            from coredispatch.frontend import cuda

            return cuda.current_device() if cuda.is_available() else 0
        raise ValueError(f"Expected a torch.device with a specified index or an integer: {device}")
    return index


def _import_dotted_name(name: str) -> Any:
    """The object with that full name."""
    import importlib

    head, *rest = name.split(".")
    found: Any = importlib.import_module(head)
    for part in rest:
        found = getattr(found, part)
    return found
