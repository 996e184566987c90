"""The arguments of a call: what must be equal for a program to serve it, and what goes into it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.attributes import attributes_of
from coredispatch.frontend.compiling.memory import crossings, is_owner, owner_of
from coredispatch.frontend.compiling.replaced import order_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.plugin import Device, DType, Value
from coredispatch.registry.model.value import storage_of

__all__ = ["CONSTANTS", "Arguments", "rebuilt", "with_numbers"]


#: values that never change, and are what they are equal to
CONSTANTS = frozenset((range, Device, DType))


class Arguments:
    """The arguments of one call, taken apart.

    Attributes:
        key: equal for calls that one program may serve: the structure, what is known of tensors,
            numbers and text by value, other objects by identity.
        leaves: the tensors, and the numbers at the places in ``moving``, in order; then ``sizes``.
        tensors: the tensors.
        sizes: the sizes that are symbols: different ones at the dimensions in ``open``, which are
            ``(number of a tensor, dim)``, or ``("number", place)``. One of 0 or 1 is no symbol.
        open_numbers: place of a number that decides sizes -> its symbol, equal to a size's or not.
        open_shapes: number of a tensor -> its shape, with ``"s0"``, ``"s1"``... for symbols.
        objects: what is neither a container, a tensor nor a constant.
        containers: the lists and dicts among the arguments, and the objects that are taken apart.
        apart: the classes of such objects.
        numbers: the places of all numbers: ``(place, value)``.
    """

    __slots__ = (
        "apart",
        "containers",
        "key",
        "known",
        "leaves",
        "moving",
        "numbers",
        "objects",
        "open",
        "open_numbers",
        "open_shapes",
        "sizes",
        "tensors",
        "views",
    )

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        moving: set[int],
        open_: Collection[tuple[Any, int]] = (),
        apart: Collection[type] = (),
    ) -> None:
        self.apart = apart
        self.enter(args, kwargs, moving, open_)
        if self.sizes and len(self.leaves) > 1 and self.key[-1] is not None:
            self.enter(args, kwargs, moving, ())  # what shares memory is as it is
        self.leaves += self.sizes

    def enter(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        moving: set[int],
        open_: Collection[tuple[Any, int]],
    ) -> None:
        """Take the arguments apart."""
        self.leaves: list[Any] = []
        self.tensors: list[Any] = []
        self.sizes: list[int] = []
        self.open_shapes: dict[int, tuple[Any, ...]] = {}
        self.open_numbers: dict[int, str] = {}
        self.open = open_
        self.objects: list[Any] = []
        self.containers: list[Any] = []
        self.known: dict[int, int] = {}  # id of an object that is taken apart -> its number
        self.numbers: list[Any] = []
        self.views = False
        self.moving = moving
        key: list[Any] = [self.part(value) for value in args]
        if kwargs:
            key.append(tuple([(name, self.part(value)) for name, value in kwargs.items()]))
        if len(self.leaves) > 1:
            key.append(self.sharing())
        self.key = tuple(key)

    def part(self, value: Any) -> Any:
        """The share of one argument in the key."""
        if isinstance(value, Value):
            raw = value.raw
            place = len(self.tensors)
            self.leaves.append(value)
            self.tensors.append(value)
            view = value._view is not None
            if view:
                self.views = True
            strides = getattr(raw, "strides", None)
            shape = raw.shape
            if self.open and type(raw) is np.ndarray and self.may_open(value):
                order = order_of(raw)
                shape = shape if order is None else self.opened(place, shape)
                strides = strides if shape is raw.shape else order
            tensor: Any = value
            device = None if type(raw) is np.ndarray else tensor.device  # keys have no index
            found = (type(value), shape, raw.dtype, value.keys, strides, view, device)
            return (*found, *self.attributes(value)) if value.__dict__ else found
        kind = type(value)
        if kind is int or kind is float:
            place = len(self.numbers)
            self.numbers.append(value)
            if kind is int and value > 1 and ("number", place) in self.open:
                self.open_numbers[place] = self.symbol(value)
                return (kind, self.open_numbers[place])
            if place in self.moving:
                self.leaves.append(value)
                return kind
            return (kind, value if value else repr(value))
        if value is None or kind in (bool, str, bytes, complex):
            return (kind, value)
        if kind in CONSTANTS:
            return (kind, value)
        if kind is tuple:
            return (kind, *[self.part(item) for item in value])
        if kind is list:
            self.containers.append(value)
            return (kind, *[self.part(item) for item in value])
        if kind is dict:
            self.containers.append(value)
            return (kind, *[(self.part(k), self.part(v)) for k, v in value.items()])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return (kind, *[self.part(item) for item in value])
        if self.apart and kind in self.apart:
            if id(value) in self.known:
                return (kind, self.known[id(value)])
            self.known[id(value)] = len(self.known)
            self.containers.append(value)
            return (kind, *[(name, self.part(item)) for name, item in vars(value).items()])
        self.objects.append(value)
        return (kind, id(value))

    def may_open(self, tensor: Any) -> bool:
        """Whether sizes of a tensor can be symbols."""
        return type(tensor) is Tensor and tensor._grad is None and not attributes_of(tensor)

    def opened(self, place: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A shape with the names of symbols; equal sizes are one symbol."""
        found: list[Any] = list(shape)
        for dim, n in enumerate(shape):
            if n > 1 and (place, dim) in self.open:
                found[dim] = self.symbol(n)
        made = tuple(found)
        if made == shape:
            return shape
        self.open_shapes[place] = made
        return made

    def symbol(self, n: int) -> str:
        """The name of the symbol for a size, or for a number that decides sizes."""
        if n not in self.sizes:
            self.sizes.append(n)
        return f"s{self.sizes.index(n)}"

    def attributes(self, tensor: Any) -> Any:
        """What a program has set on a tensor: constants by value, other things by identity."""
        for name in attributes_of(tensor):
            item = vars(tensor)[name]
            constant = type(item) in (int, float, bool, str, type(None))
            if not constant:
                self.objects.append(item)
            yield (name, type(item), repr(item) if constant else id(item))

    def sharing(self) -> Any:
        """Which tensors are the same, or share memory, and where in it they begin."""
        same: dict[int, int] = {}
        shared: dict[int, int] = {}
        found = []
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, Value):
                first = same.setdefault(id(leaf.raw), i)
                root = shared.setdefault(id(storage_of(leaf)), i) if self.views else first
                found.append((first, root))
        if self.views and len(shared) < len(found):
            return tuple(found), tuple([_begin(leaf) for leaf in self.leaves])
        if len(same) < len(found):
            return tuple(found)
        return self.crossed() if len(found) > 1 else None

    def crossed(self) -> Any:
        """Which arrays share memory although no tensor is a view; None where all have their own."""
        raws = [leaf.raw if isinstance(leaf, Value) else None for leaf in self.leaves]
        owners = [owner_of(raw) for raw in raws if type(raw) is np.ndarray]
        if len({id(owner) for owner in owners}) == len(owners) and all(map(is_owner, owners)):
            return None
        found = crossings(raws)
        return ("memory", *found) if found else None


def rebuilt(value: Any, part: Callable[[Any], Any], made: dict[int, Any]) -> Any:
    """An object like ``value`` that holds what ``part`` makes of what it holds; ``made`` has it."""
    if id(value) not in made:
        found = made[id(value)] = object.__new__(type(value))
        found.__dict__.update({name: part(item) for name, item in vars(value).items()})
    return made[id(value)]


def with_numbers(args: Any, kwargs: Any, moving: dict[int, Any], apart: Collection[type]) -> Any:
    """The arguments with others in the places of some numbers, in containers of their own."""
    count = iter(range(1 << 30))
    made: dict[int, Any] = {}

    def part(value: Any) -> Any:
        if type(value) in (int, float):
            return moving.get(next(count), value)
        if type(value) in (tuple, list):
            return type(value)([part(item) for item in value])
        if type(value) is dict:
            return {part(k): part(v) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[part(item) for item in value])
        return rebuilt(value, part, made) if type(value) in apart else value

    return tuple([part(item) for item in args]), {k: part(v) for k, v in kwargs.items()}


def _begin(leaf: Any) -> Any:
    """Where a view begins in its storage, in bytes."""
    raw = getattr(leaf, "raw", None)
    base = getattr(raw, "base", None)
    if raw is None or base is None or not hasattr(base, "__array_interface__"):
        return None
    return raw.__array_interface__["data"][0] - base.__array_interface__["data"][0]
