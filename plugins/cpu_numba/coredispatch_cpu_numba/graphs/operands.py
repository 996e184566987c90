"""What the loop nest of a group reads and writes. Importing this imports no Numba."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .expressions import Written
from .layout import Unfit

__all__ = ["NAMES", "Call", "Kernel", "Operand", "Operands"]

NAMES = {"f": "float32", "d": "float64", "i": "int64", "j": "int32", "b": "boolean"}


class Call(NamedTuple):
    """A node of a group: a pointwise operator (``written``) or a reduction (``reduction``).

    Attributes:
        letter: of the dtype of its result.
        written: how it is written, None for a reduction.
        reduction: ``"sum"``, ``"mean"``, ``"amax"``, ``"amin"``, or empty.
        operand: of a reduction what it reduces.
        shape: of the result.
        target: of a write in place the value that is written, else None.
    """

    node: Any
    letter: str
    written: Written | None
    reduction: str
    operand: Any
    shape: tuple[int, ...]
    target: Any


@dataclass(eq=False)
class Operand:
    """An array that the loop reads or writes, or both."""

    array: np.ndarray
    letter: str
    full: bool
    key: Any
    written: bool = False
    fresh: bool = False
    index: int = 0


@dataclass
class Kernel:
    """A loop nest as text, and what it is to be called with.

    Attributes:
        text: of the function ``loop(address, lo, hi)``.
        letters: the dtype of each operand.
        words: the arguments: an int, an :class:`Operand` (its address), a ``("number", node)``
            or a ``("constant", x)``.
        count: how many units there are to be done.
        work: how many elements are touched.
        unit: how many elements a unit has.
        partials: of a reduction over everything its ``(node, reduction, words index)``.
        temporaries: operands whose memory nobody else has.
    """

    text: str
    letters: list[str]
    words: list[Any]
    count: int
    work: int
    unit: int
    partials: list[tuple[Any, str, int]] = field(default_factory=list)
    temporaries: list[Operand] = field(default_factory=list)


class Operands:
    """The arrays of a group, and which node reads which.

    Args:
        group, calls, array_of, stored, fresh: as those of :func:`~.source.kernel_of`.
    """

    def __init__(self, group: Any, calls: Any, array_of: Any, stored: Any, fresh: Any) -> None:
        self.group, self.calls, self.array_of = group, calls, array_of
        self.kind, self.shape, self.inner = group.kind, group.shape, group.inner
        self.stored, self.fresh = set(stored), fresh
        self.operands: dict[Any, Operand] = {}
        self.current: dict[Any, Any] = {}
        self.sources: dict[Any, list[Any]] = {}
        self.stores: dict[Any, Operand] = {}
        self.asides: dict[Any, Operand] = {}
        self.words: list[Any] = []
        self.numbers: dict[Any, str] = {}
        self.numbers_at: list[str] = []
        self.temporaries: list[Operand] = []

    def is_full(self, node: Any) -> bool:
        """Whether a node of the group has an element for each element of the shape."""
        call = self.calls[node]
        return not call.reduction and call.shape == self.shape

    def collect(self) -> None:
        """The operands, in order; nodes know what they read."""
        last: dict[Any, Any] = {}
        for node in self.group.nodes:
            call = self.calls[node]
            if call.reduction:
                self.sources[node] = [self.source(call.operand, self.shape, True)]
            else:
                full = self.is_full(node)
                self.sources[node] = [
                    self.source(argument, call.shape, full) for argument, _ in call.written.operands
                ]
            if call.target is not None:
                self.current[call.target] = node
                last[call.target] = node
        for node in self.group.nodes:
            call = self.calls[node]
            if call.target is not None and last[call.target] is node:
                self.stores[node] = self.output(call.target, node)
            elif call.target is None and node in self.stored:
                self.stores[node] = self.output(node, node)
        self.check_overlaps()

    def source(self, argument: Any, shape: tuple[int, ...], full: bool) -> Any:
        """A node of the group, an operand, or a number as it is."""
        if not hasattr(argument, "graph"):
            return argument
        root = argument
        while root in self.calls and self.calls[root].target is not None:
            root = self.calls[root].target
        argument = self.current.get(root, argument)
        if argument in self.calls:
            return argument
        array = self.array_of(argument)
        return argument if array is None else self.operand(array, shape, full)

    def operand(self, array: np.ndarray, shape: tuple[int, ...], full: bool) -> Operand:
        letter = {"float32": "f", "float64": "d", "int64": "i", "int32": "j", "bool": "b"}.get(
            array.dtype.name
        )
        if letter is None:
            raise Unfit(f"an array of {array.dtype}")
        view = np.broadcast_to(array, shape)
        if not full and self.kind == "row" and len(shape) == len(self.shape):
            view = view[(..., *[0] * self.inner)]
        key = (array.__array_interface__["data"][0], view.strides, view.shape, letter, full)
        if key not in self.operands:
            self.operands[key] = Operand(view, letter, full, key)
        return self.operands[key]

    def output(self, target: Any, node: Any) -> Operand:
        call = self.calls[node]
        array = self.array_of(target)
        if array.shape != call.shape:
            raise Unfit("a result is broadcast as it is written")
        if self.kind in ("column", "full") and call.reduction:
            return Operand(array, call.letter, False, None, True)
        made = self.operand(array, call.shape, self.is_full(node))
        made.written, made.fresh = True, call.target is None and self.fresh(node)
        return made

    def check_overlaps(self) -> None:
        """Operands must be apart where one of them is written."""
        found = list(self.operands.values())
        for k, one in enumerate(found):
            for other in found[:k]:
                if (one.written or other.written) and np.may_share_memory(one.array, other.array):
                    raise Unfit("what is written overlaps with what is read elsewhere")
