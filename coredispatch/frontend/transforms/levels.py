"""Levels: which transform a value belongs to, and what a call does about it.

``vmap`` and ``jvp`` put *wrappers* in the place of tensors: :class:`Batched` hides a dimension,
:class:`Dual` carries a tangent beside the value. Transforms nest, so every wrapper has the number
of the *level* that made it; an inner transform has the higher number. A wrapper of level 2 may hold
a wrapper of level 1, never the other way round::

    vmap(jvp(f))          Dual(level 2) of Batched(level 1) of a plain tensor
    jvp(vmap(f))          Batched(level 2) of Dual(level 1) of a plain tensor

A call is served at the highest level among its arguments. Its wrappers are opened, the operator is
called again with what was in them, from the top of the key order, and the result is wrapped. What
belongs to lower levels, a tensor of a closure say, is a constant there. So levels peel off one by
one, whatever their order.

**Gradients need no wrapper.** ``grad`` is the autograd of the tensors that it gets: of plain
tensors at the outside, of wrappers inside ``vmap`` or ``jvp``. A tensor in a wrapper and the
wrapper itself are two tensors, each may have a history, and these are two graphs: the *depth* of a
graph is the level of the wrappers that it consists of, 0 for plain tensors. ``vmap(grad(f))``
records the graph of ``f`` on wrappers, and its backward pass computes with wrappers;
``grad(vmap(f))`` records what is called with the tensors inside. The layer ``transform`` therefore
lies above autograd, and lets it record a call only if an argument of the highest level requires
grad; a tensor of a lower depth that requires grad is a constant of that graph, and gets its own
history when the wrappers are opened.
"""

from __future__ import annotations

import itertools
from contextvars import ContextVar
from textwrap import indent
from typing import Any

from coredispatch.frontend.autograd.recording import alias_of
from coredispatch.frontend.modes import Recording
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.plugin import Switch, Wrapper
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import Value, storage_of
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "TRANSFORM",
    "Batched",
    "Dual",
    "Level",
    "Leveled",
    "Vmap",
    "current",
    "Forward",
    "below",
    "entered",
    "inside",
    "level_of",
    "retyped",
    "stripped",
    "top_level",
    "unrecorded",
    "unrecorded_depths",
    "wrapped",
]

TRANSFORM = TABLE.bit("transform")
_BITS = TRANSFORM | TABLE.bit("wrapped")
_NUMBERS = itertools.count(1)
#: the forward modes that are not finished: a tangent of any other has no meaning any more
IN_FORCE: set[int] = set()
_STACK: ContextVar[tuple[Any, ...]] = ContextVar("coredispatch_transforms", default=())


class Level:
    """One transform in force; ``number`` is higher than those of the transforms around it."""

    def __init__(self) -> None:
        self.number = next(_NUMBERS)

    def lift(self, tensor: Any) -> Any:
        """``tensor`` of a lower level as a constant of this one."""
        raise NotImplementedError


class Vmap(Level):
    """A ``vmap`` over ``size`` samples."""

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness

    def lift(self, tensor: Any) -> Any:
        return wrapped(Batched(tensor, self.number, batched=False))


class Forward(Level):
    """A ``jvp``, or a ``forward_ad.dual_level``.

    ``promoted`` are the tensors from outside that were written to, and therefore have a tangent
    while the level is in force, each with what it is afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.promoted: list[Any] = []
        IN_FORCE.add(self.number)

    def finish(self) -> None:
        """Take the tangents back from tensors that outlive the level."""
        IN_FORCE.discard(self.number)
        for reference, inner in self.promoted:
            value = reference()
            if value is not None and level_of(value) == self.number:
                inner = value.raw.value
                value.raw, value.keys = inner.raw, inner.keys
                value._node, value._output_nr = inner._node, inner._output_nr
        self.promoted.clear()

    def lift(self, tensor: Any) -> Any:
        return wrapped(Dual(tensor, self.number, None))


class entered:
    """A ``with`` block in which ``level`` is the innermost."""

    def __init__(self, level: Level) -> None:
        self.level = level

    def __enter__(self) -> Any:
        self.token = _STACK.set((*_STACK.get(), self.level))
        return self.level

    def __exit__(self, *_: object) -> None:
        _STACK.reset(self.token)


class below:
    """A ``with`` block in which levels from ``number`` on are not in force: for users' rules."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        inner = tuple(level for level in _STACK.get() if level.number < self.number)
        self.token = _STACK.set(inner)

    def __exit__(self, *_: object) -> None:
        _STACK.reset(self.token)


def current() -> tuple[Any, ...]:
    """The levels in force in this thread or task, outermost first."""
    return _STACK.get()


class unrecorded(Recording):
    """A block in which nothing is recorded at ``depth``: a backward pass that nobody
    differentiates.

    Any ``enable_grad`` inside ends it, as it ends ``no_grad``.
    """

    asks = True

    def __init__(self, depth: int) -> None:
        self.depths = unrecorded_depths() | {depth}

    def switches(self) -> Switch:
        """Nothing: autograd itself stays on, for graphs of other depths."""
        return _NOTHING

    def state(self) -> Any:
        """The depths, of this block and of those around."""
        return self.depths


_NOTHING = Switch()


def unrecorded_depths() -> frozenset[int]:
    """The depths of the :class:`unrecorded` blocks in force."""
    found = Recording.current()
    return found if type(found) is frozenset else frozenset()


class Leveled(Wrapper):
    """A wrapper that belongs to a level."""

    value: Any

    layer = "transform"
    # Plain attributes, which are read several times in each call.
    shape: Any = ()
    dtype: Any = None

    def __init__(self, value: Any, level: int) -> None:
        self.value = value
        self.level = level
        self.dtype = value.raw.dtype

    def lift(self, tensor: Any) -> Any:
        """``tensor`` of a lower level as a constant of this wrapper's level."""
        raise NotImplementedError

    def elements(self) -> Any:
        return self.value

    def mapped(self, change: Any, tensor: Any) -> Any:
        """``tensor``, in which this wrapper is, with ``change`` applied to what is in it."""
        raise NotImplementedError


class Batched(Leveled):
    """A tensor whose first dimension, one entry per sample, the program does not see.

    ``batched=False``: there is no such dimension, it is the same tensor for all samples.
    """

    def __init__(self, value: Any, level: int, batched: bool = True) -> None:
        super().__init__(value, level)
        self.batched = batched
        shape = value.raw.shape
        self.shape = tuple(shape[1:] if batched else shape)

    def lift(self, tensor: Any) -> Any:
        return wrapped(Batched(tensor, self.level, batched=False))

    def like(self, made: Any) -> Any:
        """``made`` (``new_zeros`` and the like) once for each sample, in memory of its own."""
        inner = self.value.raw
        if isinstance(inner, Leveled):
            made = inner.like(made)
        if not self.batched:
            return made
        size = (self.value.raw.shape[0], *made.raw.shape)
        copies = TABLE.operator("clone")(TABLE.operator("expand")(made, size))
        return wrapped(Batched(copies, self.level))

    def mapped(self, change: Any, tensor: Any) -> Any:
        inner = change(self.value)
        if inner is self.value:
            return tensor
        return wrapped(Batched(inner, self.level, self.batched))

    def own_strides(self) -> Any:
        inner = self.value.stride()
        return inner[1:] if self.batched else inner

    def printed(self) -> str:
        bdim = 0 if self.batched else None
        value = indent(repr(self.value), "    ")
        return f"BatchedTensor(lvl={_depth(self.level)}, bdim={bdim}, value=\n{value}\n)"


class Dual(Leveled):
    """A tensor with a tangent of the same shape; None stands for zero."""

    def __init__(self, value: Any, level: int, tangent: Any) -> None:
        super().__init__(value, level)
        self.tangent = tangent
        self.shape = tuple(value.raw.shape)

    def lift(self, tensor: Any) -> Any:
        return wrapped(Dual(tensor, self.level, None))

    def like(self, made: Any) -> Any:
        """``made``: a new tensor has no tangent at this level."""
        inner = self.value.raw
        return inner.like(made) if isinstance(inner, Leveled) else made

    def mapped(self, change: Any, tensor: Any) -> Any:
        inner = change(self.value)
        tangent = None if self.tangent is None else change(self.tangent)
        if inner is self.value and tangent is self.tangent:
            return tensor
        return wrapped(Dual(inner, self.level, tangent))

    def own_strides(self) -> Any:
        return self.value.stride()

    def printed(self) -> str:
        if self.tangent is None:
            return repr(self.value)
        return f"{repr(self.value)[:-1]}, tangent={self.tangent!r})"


def _depth(number: int) -> int:
    """How deep a level in force is nested, counted from 1; the number of one that has ended."""
    numbers = [level.number for level in current()]
    return numbers.index(number) + 1 if number in numbers else number


def wrapped(wrapper: Leveled) -> Any:
    """The wrapper as a tensor, with the device and the layout of what is in it."""
    order = TABLE.snapshot.order
    keys = wrapper.value.keys & (order.backend_bits | order.layout_bits)
    return HOOKS.value_type(wrapper, keys | _BITS)


def level_of(value: Any) -> int:
    """The level of a tensor, 0 for one that is no wrapper."""
    raw = value.raw
    return raw.level if isinstance(raw, Leveled) else 0


def top_level(items: Any) -> int:
    """The highest level among tensors, also in lists of them."""
    top = 0
    for item in items:
        if isinstance(item, Value):
            raw = item.raw
            if isinstance(raw, Leveled) and raw.level > top:
                top = raw.level
        elif type(item) is list or type(item) is tuple:
            inner = top_level(item)
            top = max(top, inner)
    return top


def stripped(value: Any) -> Any:
    """The same data and storage without the history that ``value`` has at its own depth."""
    if not value.keys & AUTOGRAD:
        return value
    return alias_of(value)


def retyped(value: Any) -> Any:
    """What ``value`` is, history included, as another tensor: ``value`` may change then."""
    made = HOOKS.value_type(value.raw, value.keys)
    made._node, made._output_nr = value._node, value._output_nr
    made._storage = storage_of(value)
    return made


def inside(value: Any) -> Any:
    """The tensor and what is in it, level by level."""
    while True:
        yield value
        raw = value.raw
        if not isinstance(raw, Leveled):
            return
        tangent = getattr(raw, "tangent", None)
        if tangent is not None:
            yield from inside(tangent)
        value = raw.value
