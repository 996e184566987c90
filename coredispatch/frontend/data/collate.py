"""From a list of samples to one batch, and from foreign arrays to tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.creation import as_tensor, tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.ops.shape.joining import stack
from coredispatch.registry.model.dtypes import DType

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

_FLOAT64 = DType.of("float64")
CollateFunctions = dict[type | tuple[type, ...], Callable[..., Any]]


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _rebuild_mapping(value: Mapping[Any, Any], convert: Callable[[Any], Any]) -> Any:
    """The same kind of mapping with ``convert(key)`` as values; a dict where that fails."""
    items = {key: convert(key) for key in value}
    if type(value) is dict:
        return items
    try:
        # Copied, then updated: keeps what a subclass holds beside its items (a defaultdict's
        # factory), which its constructor could not be given.
        clone = copy.copy(value)
        clone.update(items)  # type: ignore[attr-defined]
        return clone
    except (AttributeError, TypeError):
        return items


def _rebuild_sequence(value: Sequence[Any], items: list[Any]) -> Any:
    kind: Any = type(value)
    if _is_namedtuple(value):
        return kind(*items)
    if kind in (list, tuple):
        return kind(items)
    try:
        return kind(items)
    except TypeError:  # a sequence that is not built from an iterable, such as range
        return items


def default_convert(data: Any) -> Any:
    """Turn the NumPy arrays and scalars inside `data` into tensors; leave everything else.

    Used by a DataLoader that does not batch (``batch_size=None``). Containers keep their type, but
    for a tuple, which becomes a list as in PyTorch.
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return as_tensor(data) if data.dtype.kind in "biufcV" else data
    if isinstance(data, Mapping):
        return _rebuild_mapping(data, lambda key: default_convert(data[key]))
    if type(data) is tuple:
        return [default_convert(item) for item in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _rebuild_sequence(data, [default_convert(item) for item in data])
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Combine samples into a batch: the samples' structure with a new dimension 0 in its leaves.

    Tensors and NumPy arrays of one shape are stacked; Python floats become a float64 tensor,
    ints an int64 one, bools a bool one; strings and bytes stay lists; mappings, named tuples,
    tuples and other sequences are combined element by element. A type that is added to
    ``default_collate_fn_map`` is combined by its function.

    Raises:
        RuntimeError: samples whose shapes or lengths differ.
        TypeError: a leaf of another type; a ``collate_fn`` of your own can handle it.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """:func:`default_collate` with functions of your own: ``{type: function}``.

    A function is called as ``function(items, collate_fn_map=...)`` with the samples' leaves of its
    type, or of a subclass. Without a function for it, a container is combined element by element
    and any other leaf is refused with ``TypeError``.
    """
    first = batch[0]
    if collate_fn_map is not None:
        function = collate_fn_map.get(type(first))
        if function is None:
            matches = (f for types, f in collate_fn_map.items() if isinstance(first, types))
            function = next(matches, None)
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)

    def combined(items: Sequence[Any]) -> Any:
        return collate(items, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return _rebuild_mapping(first, lambda key: combined([item[key] for item in batch]))
    if isinstance(first, Sequence):
        lengths = {len(item) for item in batch}
        if len(lengths) > 1:
            raise RuntimeError(
                "each sample of a batch should have as many elements as the others, got lengths "
                f"{sorted(lengths)}"
            )
        columns = [combined(column) for column in zip(*batch)]
        # Plain tuples become lists, as in PyTorch: what they hold is no longer one sample.
        return columns if type(first) is tuple else _rebuild_sequence(first, columns)
    raise TypeError(_refusal(f"{type(first)}"))


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """Tensors of one shape, stacked."""
    return stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """NumPy arrays of one shape, stacked. Raises ``TypeError`` for strings and objects."""
    if batch[0].dtype.kind in "SUO":
        raise TypeError(_refusal(f"{batch[0].dtype}"))
    return stack([as_tensor(item) for item in batch], 0)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """NumPy numbers as a tensor of their type."""
    return as_tensor(np.array(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """Python floats as a float64 tensor."""
    return tensor(batch, dtype=_FLOAT64)


def collate_int_fn(batch: Any, *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """Integers, bools or complex numbers as a tensor."""
    return tensor(list(batch))


def collate_str_fn(batch: Any, *, collate_fn_map: CollateFunctions | None = None) -> Any:
    """Strings or bytes as they are."""
    return batch


#: what :func:`default_collate` does with leaves; earlier types come first, so that NumPy's numbers
#: are not taken for Python's. Programs add types of theirs.
default_collate_fn_map: CollateFunctions = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    np.generic: collate_numpy_scalar_fn,
    float: collate_float_fn,
    (int, complex): collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def _refusal(what: str) -> str:
    return (
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{what}\n  fix: pass collate_fn= to the DataLoader"
    )
