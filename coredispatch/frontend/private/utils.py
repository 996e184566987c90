"""``cd._utils``: helpers that programs take from PyTorch's private module of that name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from coredispatch.frontend.compiler import is_compiling
from coredispatch.frontend.private.c import _get_accelerator
from coredispatch.frontend.private.exceptions import ExceptionWrapper, KeyErrorMessage
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device

__all__ = ["ExceptionWrapper", "KeyErrorMessage", "is_compiling"]


def _get_available_device_type() -> str | None:
    """The type of the device beside the CPU, None where there is none."""
    found = _get_accelerator()
    return None if found.type == "cpu" else str(found.type)


def _get_all_device_indices() -> list[int] | None:
    """The numbers of the devices of :func:`_get_available_device_type`."""
    kind = _get_available_device_type()
    return None if kind is None else list(range(_get_device_module(kind).device_count()))


def _get_current_device_index() -> int | None:
    """The number of the current device of that type."""
    kind = _get_available_device_type()
    return None if kind is None else int(_get_device_module(kind).current_device())


def _element_size(dtype: Any) -> int:
    """Bytes of an element."""
    return int(dtype.itemsize)


def _get_device_module(device_type: str) -> Any:
    """``cd.cuda`` for ``"cuda"``. Raises RuntimeError for a type without such a module."""
    import coredispatch

    module = getattr(coredispatch, device_type, None)
    if module is None:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module")
    return module


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


# -- what pickles of PyTorch's tensors call ------------------------------------------------------


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor inside a typed storage; offset and strides in elements."""
    from coredispatch.frontend.storage.tensor_methods import tensor_in

    return tensor_in(storage.untyped(), storage.dtype, storage_offset, size, stride, "unpickling")


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    """:func:`_rebuild_tensor`, with requires_grad; hooks are not restored."""
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    if metadata and metadata.get("conj"):
        tensor = tensor.conj()
    if metadata and metadata.get("neg"):
        tensor = tensor.neg()
    return tensor.requires_grad_(requires_grad)


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    """:func:`_rebuild_tensor_v2` for elements of another type than the storage's."""
    from coredispatch.frontend.storage import TypedStorage

    typed = TypedStorage._of(storage.untyped(), dtype)
    details = (storage_offset, size, stride, requires_grad, backward_hooks, metadata)
    return _rebuild_tensor_v2(typed, *details)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter over a tensor's memory."""
    from coredispatch.frontend.nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Any, requires_grad: bool, backward_hooks: Any, state: Any
) -> Any:
    """:func:`_rebuild_parameter`, with the attributes that were set on it."""
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    return _set_obj_state(parameter, state)


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Set attributes: a dict of them, or a pair of those and of slots."""
    members, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(members or {}), **(slots or {})}.items():
        setattr(obj, name, value)
    return obj


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor without data."""
    empty = TABLE.operator("empty")(tuple(size), dtype=dtype, device="meta")
    return empty.requires_grad_(requires_grad)


def _rebuild_device_tensor_from_cpu_tensor(
    data: Any, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    """A tensor of another device, which was saved as one of the CPU."""
    return data.to(dtype=dtype, device=device).requires_grad_(requires_grad)


def _rebuild_device_tensor_from_numpy(
    data: Any, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    """A tensor of another device, which was saved as an array."""
    from coredispatch.frontend.creation import from_numpy

    return from_numpy(data).to(dtype=dtype, device=device).requires_grad_(requires_grad)
