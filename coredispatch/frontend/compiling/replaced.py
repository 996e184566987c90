"""What a program replaces in each call, in a place of Python's state: numbers, tensors, containers.

Such values are inputs of the graph. A value is taken apart into its parts, each with a path: ``()``
where it stands alone, ``(1, "k")`` for ``value[1]["k"]``. Sizes of tensors that differ between
calls may be symbols, like those of arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.attributes import attributes_of
from coredispatch.frontend.compiling.records import Record, equal
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph.symbols import Expression
from coredispatch.plugin import Value

__all__ = [
    "containers",
    "CONTAINERS",
    "Part",
    "Path",
    "SizeOf",
    "alike",
    "fits",
    "grown",
    "may_grow",
    "order_of",
    "parts_of",
    "filled",
]

Path = tuple[Any, ...]
#: containers that are looked into; a subclass may do other things with its elements
CONTAINERS = (tuple, list, dict)


class Part:
    """A number or tensor in what a record has, as a record of its own."""

    kind = "part"
    dynamic = True

    def __init__(self, record: Record, path: Path, value: Any) -> None:
        self.record, self.path, self.holder, self.value = record, path, record.holder, value
        self.key = "_".join(map(str, (record.key, *path)))
        self.how = record.how + "".join(f"[{key!r}]" for key in path)

    @property
    def place(self) -> Any:
        """Where it stands."""
        return self.record.place, self.path

    def now(self) -> Any:
        """What it is now."""
        value = self.record.now()
        for key in self.path:
            value = value[key]
        return value


class SizeOf:
    """A size of a tensor that is a part of a record, as a record of its own."""

    kind = "size"
    dynamic = True

    def __init__(self, part: Part, dim: int) -> None:
        self.part, self.dim, self.holder = part, dim, part.holder
        self.key = f"{part.key}_size{dim}"
        self.how = f"dimension {dim} of {part.how}"

    def now(self) -> Any:
        """What it is now."""
        return self.part.now().raw.shape[self.dim]


def parts_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The numbers, tensors and other values in ``value``, with their paths."""
    if type(value) in CONTAINERS:
        pairs = value.items() if type(value) is dict else enumerate(value)
        for key, item in pairs:
            yield from parts_of(item, (*path, key))
    else:
        yield path, value


def filled(value: Any, parts: Mapping[Path, Any], path: Path = ()) -> Any:
    """``value`` with other parts: lists and dicts are written to, tuples are made anew."""
    if type(value) is dict:
        for key, item in value.items():
            value[key] = filled(item, parts, (*path, key))
    elif type(value) is list:
        value[:] = [filled(item, parts, (*path, i)) for i, item in enumerate(value)]
    elif type(value) is tuple:
        items = [filled(item, parts, (*path, i)) for i, item in enumerate(value)]
        return tuple(items) if any(a is not b for a, b in zip(items, value)) else value
    return parts.get(path, value)


def alike(now: Any, then: Any, dims: Mapping[Path, Any] | None = None, path: Path = ()) -> bool:
    """Whether two values differ in nothing but numbers: alone, in containers, or in tensors.

    Args:
        now, then: the values.
        dims: path -> the dimensions of the tensor there that may differ, 2 at least.
        path: where the values stand.
    """
    if type(now) is not type(then):
        return False
    if type(then) is dict:
        same = list(now) == list(then) and all(map(equal, now, then))
        return same and all(alike(now[k], then[k], dims, (*path, k)) for k in then)
    if type(then) in CONTAINERS:
        pairs = enumerate(zip(now, then))
        same = len(now) == len(then)
        return same and all(alike(a, b, dims, (*path, i)) for i, (a, b) in pairs)
    if isinstance(then, Value):
        return now is then or _described(now, dims, path) == _described(then, dims, path)
    return type(then) in (int, float) or bool(path and equal(now, then))


def _described(tensor: Any, dims: Mapping[Path, Any] | None, path: Path) -> Any:
    """What a graph depends on of a tensor, its numbers aside."""
    raw = tensor.raw
    open_ = dims.get(path) if dims else None
    if not open_:
        return raw.shape, tensor.dtype, getattr(raw, "strides", None), tensor.keys
    if not may_grow(tensor):
        return None
    shape = [None if dim in open_ else n for dim, n in enumerate(raw.shape)]
    return shape, tensor.dtype, order_of(raw), tensor.keys


def may_grow(tensor: Any) -> bool:
    """Whether sizes of a tensor of Python's state can be symbols."""
    if type(tensor) is not Tensor or attributes_of(tensor):
        return False
    alone = tensor._view is None and tensor._grad is None
    return alone and type(tensor.raw) is np.ndarray and order_of(tensor.raw) is not None


def grown(now: Any, then: Any) -> dict[Path, set[int]]:
    """The dimensions in which tensors differ, by path; none where something else differs."""
    before = dict(parts_of(then))
    found: dict[Path, set[int]] = {}
    for path, tensor in parts_of(now):
        old = before.get(path)
        if isinstance(tensor, Value) and isinstance(old, Value) and may_grow(tensor):
            shape, known = tensor.raw.shape, old.raw.shape
            if any(isinstance(n, Expression) for n in (*shape, *known)):
                return {}
            same = (tensor.raw.dtype, tensor.keys) == (old.raw.dtype, old.keys)
            if same and len(shape) == len(known):
                dims = {dim for dim, (a, b) in enumerate(zip(shape, known)) if a != b}
                if dims:
                    found[path] = dims
    rest = _without(now, found), _without(then, found)
    return found if alike(*rest, None, ("",)) else {}


def _without(value: Any, paths: Collection[Path], path: Path = ()) -> Any:
    """``value`` with None in the place of some parts."""
    if type(value) is dict:
        return {key: _without(item, paths, (*path, key)) for key, item in value.items()}
    if type(value) in CONTAINERS:
        return type(value)([_without(item, paths, (*path, i)) for i, item in enumerate(value)])
    return None if path in paths else value


def fits(record: Record) -> bool:
    """Whether what is there now can be an input in the place of what was."""
    return alike(record.now(), record.value, record.open)


def order_of(raw: Any) -> tuple[int, ...] | None:
    """The dimensions from the outermost to the innermost of an array without gaps, else None."""
    shape, strides = raw.shape, raw.strides
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    step = raw.itemsize
    for dim in reversed(order):
        if shape[dim] != 1 and strides[dim] != step:
            return None
        step *= shape[dim]
    return tuple(order)


def containers(value: Any) -> Iterator[Any]:
    """The lists, dicts and tuples of which a value is made."""
    if type(value) in CONTAINERS:
        if value or type(value) is not tuple:  # there is one empty tuple
            yield value
        for item in value.values() if type(value) is dict else value:
            yield from containers(item)
