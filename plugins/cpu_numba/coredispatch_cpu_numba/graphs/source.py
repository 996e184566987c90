"""From a group of nodes to the text of one loop nest. Importing this imports no Numba.

The text holds no sizes and no addresses: these are among the arguments, a row of words. So one
compiled function serves all groups that do the same, whatever their sizes.

A group that reduces rows is a sequence of innermost loops over one row, its *phases*: what needs
the result of a reduction is in a later phase. A value of an earlier phase is read again where it
was stored, computed again where that is cheap, and put aside otherwise: into the memory of a
result that is written later, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .expressions import EXPENSIVE, Written
from .layout import Nest, Unfit, nest

__all__ = ["BLOCK", "Call", "Kernel", "Operand", "copy_kernel", "kernel_of"]

#: how many float32 are added up before the sum goes on in float64
BLOCK = 4096
#: how many elements of a flat array one unit of a reduction over everything has
FULL_BLOCK = 8192
#: how many columns one unit of a reduction over rows has
TILE = 128
_NAMES = {"f": "float32", "d": "float64", "i": "int64", "j": "int32", "b": "boolean"}
_IDENTITY = {"sum": "0", "mean": "0", "amax": "-inf", "amin": "inf"}
_FOLD = {"sum": "add_up", "mean": "add_up", "amax": "largest", "amin": "smallest"}


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
        words: the arguments: an int, an :class:`Operand` (its address), or a ``("number", x)``.
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


def kernel_of(group: Any, calls: dict[Any, Call], array_of: Any, stored: Any, fresh: Any) -> Kernel:
    """The kernel of a group.

    Args:
        group: a :class:`coredispatch.graph.passes.fusion.Group`.
        calls: what each of its nodes does.
        array_of: gives the array of a value from outside, or that is stored.
        stored: the nodes of the group whose results somebody else needs.
        fresh: whether the array of a stored node has memory of its own.

    Raises :class:`Unfit` where no loop can be made of it.
    """
    return _Builder(group, calls, array_of, stored, fresh).build()


def copy_kernel(from_: np.ndarray, to: np.ndarray, letter: str) -> Kernel:
    """A kernel that copies one array to another of the same shape."""
    nodes = _Copied(from_, to, letter)
    return _Builder(nodes.group, nodes.calls, nodes.array_of, [nodes.made], lambda n: False).build()


class _Copied:
    """The group of a single copy."""

    class _Node:
        graph = None

        class target:
            name = "clone"

    def __init__(self, from_: np.ndarray, to: np.ndarray, letter: str) -> None:
        self.given, self.made = self._Node(), self._Node()
        written = Written("{0}", letter, [(self.given, letter)])
        call = Call(self.made, letter, written, "", None, from_.shape, None)
        self.calls = {self.made: call}
        self.group = _Single("point", from_.shape, 0, [self.made])
        self.array_of = {self.given: from_, self.made: to}.get


class _Single(NamedTuple):
    kind: str
    shape: tuple[int, ...]
    inner: int
    nodes: list[Any]


class _Builder:
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

    # -- what is read and written ----------------------------------------------------------------

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

    # -- phases ----------------------------------------------------------------------------------

    def schedule(self) -> None:
        """In which phase each node is computed; values per row: before which."""
        self.phase: dict[Any, int] = {}
        for node in self.group.nodes:
            ready = [self.phase[used] for used in self.sources[node] if used in self.calls]
            self.phase[node] = max(ready, default=0)
            if self.calls[node].reduction:
                self.phase[node] += 1  # there when its phase has ended
        self.last = max(
            [self.phase[n] - bool(self.calls[n].reduction) for n in self.group.nodes], default=0
        )
        self.cost = {}
        for node in self.group.nodes:
            own = self.calls[node].written is not None and self.is_expensive(node)
            inside = (self.cost.get(used, False) for used in self.sources[node])
            self.cost[node] = own or any(inside)
        for node in self.group.nodes:
            if self.is_full(node) and node not in self.stores and self.cost[node]:
                self.put_aside(node)

    def is_expensive(self, node: Any) -> bool:
        name = node.target.name
        return name in EXPENSIVE or name[:-1] in EXPENSIVE

    def put_aside(self, node: Any) -> None:
        """Find a place for an expensive value that a later phase reads."""
        later = [
            self.phase[user] - bool(self.calls[user].reduction)
            for user in self.group.nodes
            if node in self.sources[user]
        ]
        if max(later, default=0) <= self.phase[node]:
            return
        letter = self.calls[node].letter
        for result, operand in self.stores.items():
            free = operand not in self.asides.values() and operand.full and operand.fresh
            if free and operand.letter == letter and self.phase[result] >= max(later):
                self.asides[node] = operand
                return
        array = np.empty(self.shape, _NAMES[letter].replace("boolean", "bool"))
        self.asides[node] = self.operand(array, self.shape, True)
        self.asides[node].written = True
        self.temporaries.append(self.asides[node])

    # -- text ------------------------------------------------------------------------------------

    def build(self) -> Kernel:
        """Everything in turn."""
        self.collect()
        self.schedule()
        for index, operand in enumerate(self.operands.values()):
            operand.index = index
        self.lines: list[str] = []
        if self.kind == "column":
            return self.column()
        full = {o: o.array for o in self.operands.values() if o.full}
        rows = {o: o.array for o in self.operands.values() if not o.full}
        self.nest = nest(self.shape, self.inner if self.kind == "row" else 0, full, rows)
        if self.kind == "full":
            return self.full()
        return self.rows()

    def word(self, entry: Any) -> str:
        """The text that reads an argument."""
        self.words.append(entry)
        return f"word(address, {len(self.words) - 1})"

    def bases(self) -> None:
        for o in self.operands.values():
            self.line(1, f"base{o.index} = {self.word(o)}")

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def row_places(self, depth: int, nest: Nest) -> None:
        """The address of each operand in row ``r``."""
        sizes = nest.outer
        for k in range(1, len(sizes)):
            self.line(1, f"extent{k} = {self.word(sizes[k])}")
        for o in self.operands.values():
            for k in range(len(sizes)):
                if nest.strides[o][k]:
                    self.line(1, f"stride{o.index}_{k} = {self.word(nest.strides[o][k])}")
        self.inner_strides(nest)
        self.places = []
        rest = "r"
        for k in range(len(sizes) - 1, 0, -1):
            self.places.append(f"i{k} = {rest} % extent{k}")
            self.places.append(f"r{k} = {rest} // extent{k}")
            rest = f"r{k}"
        if sizes:
            self.places.append(f"i0 = {rest}")
        for o in self.operands.values():
            terms = [f"i{k} * stride{o.index}_{k}" for k in range(len(sizes)) if nest.strides[o][k]]
            self.places.append(f"at{o.index} = " + " + ".join([f"base{o.index}", *terms]))

    def inner_strides(self, nest: Nest) -> None:
        self.how: dict[Operand, str] = {}
        for o in self.operands.values():
            stride = nest.strides[o][-1]
            if stride == 0:
                if o.written and o.full and nest.inner > 1:
                    raise Unfit("a result whose elements share memory")
                self.how[o] = "same"
            elif stride == o.array.itemsize:
                self.how[o] = "next"
            elif stride % o.array.itemsize:
                raise Unfit("elements that lie askew")
            else:
                self.how[o] = "apart"
                self.line(1, f"step{o.index} = {self.word(stride // o.array.itemsize)}")

    def rows(self) -> Kernel:
        """A group of kind point or row."""
        flat = not self.nest.outer and self.kind == "point"
        self.bases()
        self.row_places(1, self.nest)
        if flat:
            self.line(1, "n = hi - lo")
            for o in self.operands.values():
                step = {"same": "0", "next": str(o.array.itemsize)}.get(
                    self.how[o], f"step{o.index} * {o.array.itemsize}"
                )
                self.line(1, f"at{o.index} = base{o.index} + lo * {step}")
            depth = 1
        else:
            self.line(1, f"n = {self.word(self.nest.inner)}")
            self.line(1, "for r in range(lo, hi):")
            for place in self.places:
                self.line(2, place)
            depth = 2
        self.phases(depth)
        size = self.nest.rows * self.nest.inner
        if flat:
            return self.kernel(size, size, 1)
        return self.kernel(self.nest.rows, size, max(self.nest.inner, 1))

    def full(self) -> Kernel:
        """A group that reduces everything: a partial result for each unit."""
        flat = not self.nest.outer
        self.bases()
        self.row_places(1, self.nest)
        partials = []
        for node in self.group.nodes:
            if self.calls[node].reduction:
                self.line(1, f"partial{len(partials)} = {self.word(('partial', node))}")
                partials.append((node, self.calls[node].reduction, len(self.words) - 1))
        self.line(1, f"size = {self.word(self.nest.inner)}")
        self.line(1, "for r in range(lo, hi):")
        if flat:
            self.line(2, f"n = min({FULL_BLOCK}, size - r * {FULL_BLOCK})")
            for o in self.operands.values():
                step = {"same": "0", "next": str(o.array.itemsize)}.get(
                    self.how[o], f"step{o.index} * {o.array.itemsize}"
                )
                self.line(2, f"at{o.index} = base{o.index} + r * ({FULL_BLOCK} * {step})")
        else:
            self.line(2, "n = size")
            for place in self.places:
                self.line(2, place)
        self.phases(2)
        for k, (node, _, _) in enumerate(partials):
            self.line(2, f"store_partial(partial{k}, r, total{self.name(node)})")
        size = self.nest.rows * self.nest.inner
        count = -(-size // FULL_BLOCK) if flat else self.nest.rows
        made = self.kernel(count, size, min(size, FULL_BLOCK) if flat else self.nest.inner)
        made.partials = partials
        return made

    def phases(self, depth: int) -> None:
        """The phases over one row whose operands are at ``at{k}``, of ``n`` elements."""
        self.have: dict[Any, str] = {}
        for o in self.operands.values():
            if self.how[o] == "same" and not (o.written and not self.read_first(o)):
                self.line(depth, f"x{o.index} = load_{o.index}(at{o.index}, 0)")
        for phase in range(self.last + 1):
            self.per_row(depth, phase)
            self.one_phase(depth, phase)
        self.per_row(depth, self.last + 1)

    def read_first(self, operand: Operand) -> bool:
        return any(operand in used for used in self.sources.values())

    def per_row(self, depth: int, phase: int) -> None:
        """Values with one element per row that are there before this phase."""
        for node in self.group.nodes:
            if self.is_full(node) or self.phase[node] != phase:
                continue
            if not self.calls[node].reduction:
                self.have[node] = f"v{self.name(node)}"
                self.line(depth, f"v{self.name(node)} = {self.expression(node, depth)}")
            if node in self.stores and self.kind != "full":
                o = self.stores[node]
                self.line(depth, f"store_{o.index}(at{o.index}, 0, v{self.name(node)})")

    def one_phase(self, depth: int, phase: int) -> None:
        reductions = [
            n for n in self.group.nodes if self.calls[n].reduction and self.phase[n] == phase + 1
        ]
        sinks = [
            n
            for n in self.group.nodes
            if self.is_full(n) and self.phase[n] == phase and (n in self.stores or n in self.asides)
        ]
        if not reductions and not sinks:
            return
        kept = dict(self.have)
        sums = [n for n in reductions if self.calls[n].reduction in ("sum", "mean")]
        blocked = any(self.calls[n].letter == "f" for n in sums) and self.kind != "full"
        for node in reductions:
            call, name = self.calls[node], self.name(node)
            start = _IDENTITY[call.reduction]
            if node in sums and blocked:
                self.line(depth, f"total{name} = 0.0")
            else:
                self.line(depth, f"fold{name} = {_NAMES[call.letter]}({start})")
        inside = depth
        if blocked:
            self.line(depth, f"for first in range(0, n, {BLOCK}):")
            inside = depth + 1
            for node in sums:
                self.line(inside, f"fold{self.name(node)} = {_NAMES[self.calls[node].letter]}(0)")
            self.line(inside, f"for i in range(first, min(first + {BLOCK}, n)):")
        else:
            self.line(depth, "for i in range(n):")
        self.body(inside + 1, phase, sinks, reductions)
        if blocked:
            for node in sums:
                self.line(inside, f"total{self.name(node)} += fold{self.name(node)}")
        self.have = kept
        for node in reductions:
            self.finish(depth, node, blocked and node in sums)

    def body(self, depth: int, phase: int, sinks: list[Any], reductions: list[Any]) -> None:
        for o in self.operands.values():
            if o.written and self.read_first(o):
                self.loaded(o, depth)  # before it is written
        for node in self.group.nodes:
            if node in reductions:
                name = self.name(node)
                value = self.value(self.sources[node][0], self.calls[node].letter, depth, phase)
                fold = _FOLD[self.calls[node].reduction]
                self.line(depth, f"fold{name} = {fold}(fold{name}, {value})")
            elif node in sinks:
                value = self.value(node, self.calls[node].letter, depth, phase)
                for o in filter(None, (self.stores.get(node), self.asides.get(node))):
                    self.line(depth, f"store_{o.index}(at{o.index}, {self.index(o)}, {value})")

    def finish(self, depth: int, node: Any, blocked: bool) -> None:
        """The result of a reduction, from what the loop added up."""
        call, name = self.calls[node], self.name(node)
        folded = f"total{name}" if blocked else f"fold{name}"
        if self.kind == "full":
            self.line(depth, f"total{name} = float64({folded})")
            return
        divided = f"float64({folded}) / n" if call.reduction == "mean" else folded
        self.line(depth, f"v{name} = {_NAMES[call.letter]}({divided})")
        self.have[node] = f"v{name}"

    # -- expressions -----------------------------------------------------------------------------

    def name(self, node: Any) -> int:
        return self.group.nodes.index(node)

    def index(self, operand: Operand) -> str:
        return {"next": "i", "same": "0"}.get(self.how[operand], f"i * step{operand.index}")

    def value(self, source: Any, letter: str, depth: int, phase: int = 0) -> str:
        """The text of a value as ``letter``; what it needs is written first."""
        if isinstance(source, Operand):
            return _as(self.loaded(source, depth), source.letter, letter)
        if source in self.calls if hasattr(source, "graph") else False:
            return _as(self.computed(source, depth, phase), self.calls[source].letter, letter)
        return self.number(source, letter)

    def loaded(self, o: Operand, depth: int) -> str:
        if self.how[o] == "same":
            return f"x{o.index}"
        if o not in self.have:
            self.line(depth, f"x{o.index} = load_{o.index}(at{o.index}, {self.index(o)})")
            self.have[o] = f"x{o.index}"
        return self.have[o]

    def computed(self, node: Any, depth: int, phase: int) -> str:
        if node in self.have:
            return self.have[node]
        aside = self.asides.get(node) or self.stores.get(node)
        name = f"v{self.name(node)}"
        if self.phase[node] < phase and aside is not None:
            self.line(depth, f"{name} = load_{aside.index}(at{aside.index}, {self.index(aside)})")
        else:
            self.line(depth, f"{name} = {self.expression(node, depth, phase)}")
        self.have[node] = name
        return name

    def expression(self, node: Any, depth: int, phase: int = 0) -> str:
        call = self.calls[node]
        written = call.written
        values = [
            self.value(source, kind, depth, phase)
            for source, (_, kind) in zip(self.sources[node], written.operands, strict=True)
        ]
        return written.text.format(*values, T=_NAMES[written.letter], c=written.letter)

    def number(self, value: Any, letter: str) -> str:
        if isinstance(value, (bool, int, float)):
            return f"{_NAMES[letter]}({value!r})"
        if not hasattr(value, "graph"):
            raise Unfit(f"a number of {type(value).__name__}")
        if value not in self.numbers:  # known when it runs
            self.words.append(("number", value))
            self.numbers[value] = f"number{len(self.numbers)}"
            self.numbers_at.append(
                f"    {self.numbers[value]} = floating(address, {len(self.words) - 1})"
            )
        return f"{_NAMES[letter]}({self.numbers[value]})"

    # -- columns ---------------------------------------------------------------------------------

    def column(self) -> Kernel:
        """A group that adds up over the first dimensions: a unit is a tile of columns."""
        cut = self.inner
        above, below = self.shape[:cut], self.shape[cut:]
        arrays = {o: o.array for o in self.operands.values()}
        self.nest = nest(above + below, len(below), arrays, {})
        self.bases()
        self.row_places(1, self.nest)
        self.line(1, f"rows = {self.word(self.nest.rows)}")
        self.line(1, f"size = {self.word(self.nest.inner)}")
        reductions = [n for n in self.group.nodes if self.calls[n].reduction]
        for node in reductions:
            k, call = self.name(node), self.calls[node]
            if call.letter not in "fd":
                raise Unfit("a sum of integers over rows")
            self.line(1, f"out{k} = {self.word(self.stores[node])}")
            self.line(1, f"total{k} = reserve()")
        self.line(1, "for tile in range(lo, hi):")
        self.line(2, f"n = min({TILE}, size - tile * {TILE})")
        for node in reductions:
            start = _IDENTITY[self.calls[node].reduction]
            self.line(2, "for i in range(n):")
            self.line(3, f"store_total(total{self.name(node)}, i, float64({start}))")
        self.line(2, "for r in range(rows):")
        for place in self.places:
            self.line(3, place)
        for o in self.operands.values():
            if self.how[o] != "same":
                step = "" if self.how[o] == "next" else f"step{o.index} * "
                self.line(3, f"at{o.index} += tile * ({step}{TILE * o.array.itemsize})")
        self.have = {}
        for o in self.operands.values():
            if self.how[o] == "same":
                self.line(3, f"x{o.index} = load_{o.index}(at{o.index}, 0)")
        self.line(3, "for i in range(n):")
        for node in self.group.nodes:
            if node in reductions:
                k, call = self.name(node), self.calls[node]
                value = self.value(self.sources[node][0], call.letter, 4)
                fold = {"add_up": "{} + {}"}.get(
                    _FOLD[call.reduction], _FOLD[call.reduction] + "({}, {})"
                )
                folded = fold.format(f"load_total(total{k}, i)", f"float64({value})")
                self.line(4, f"store_total(total{k}, i, {folded})")
            elif node in self.stores:
                o = self.stores[node]
                value = self.value(node, self.calls[node].letter, 4)
                self.line(4, f"store_{o.index}(at{o.index}, {self.index(o)}, {value})")
        for node in reductions:
            k, call = self.name(node), self.calls[node]
            divided = " / rows" if call.reduction == "mean" else ""
            self.line(2, "for i in range(n):")
            self.line(
                3,
                f"store_out_{call.letter}(out{k}, tile * {TILE} + i, "
                f"{_NAMES[call.letter]}(load_total(total{k}, i){divided}))",
            )
        size = self.nest.rows * self.nest.inner
        count = -(-self.nest.inner // TILE)
        return self.kernel(count, size, self.nest.rows * min(TILE, self.nest.inner))

    def kernel(self, count: int, work: int, unit: int) -> Kernel:
        letters = [o.letter for o in self.operands.values()]
        head = [
            "def loop(address, lo, hi):",
            "    full_vectors()",
            *self.numbers_at,
        ]
        text = "\n".join(
            [f"# operands: {' '.join(letters)}", *head, *self.lines, "    return 0", ""]
        )
        return Kernel(text, letters, self.words, count, work, unit, [], self.temporaries)


def _as(text: str, letter: str, wanted: str) -> str:
    """A value of one dtype as another."""
    if letter == wanted:
        return text
    return f"({text} != 0)" if wanted == "b" else f"{_NAMES[wanted]}({text})"
