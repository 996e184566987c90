"""From a group of nodes to the text of one loop nest. Importing this imports no Numba.

The text holds no sizes and no addresses: these are among the arguments, a row of words. So one
compiled function serves all groups that do the same, whatever their sizes. What the innermost
loops do is written by :mod:`.bodies`, around which these functions put the loops over rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .bodies import FOLD, IDENTITY, Bodies
from .expressions import Written
from .layout import Nest, Unfit, nest
from .operands import NAMES, Call, Kernel, Operand

__all__ = ["TILE", "Call", "Kernel", "Operand", "copy_kernel", "kernel_of"]

#: how many elements of a flat array one unit of a reduction over everything has
FULL_BLOCK = 8192
#: how many columns one unit of a reduction over rows has
TILE = 128
#: how many elements go through the loops of a chain that was cut, one loop after the other
STRIP = 1024
#: elements of the longest vectors, and of the rows that are gone through one vector at a time
VECTOR, SHORT = 16, 128


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


class _Builder(Bodies):
    """:class:`Bodies` with the loops around them, and what a call needs."""

    row_is_function = False

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
            depth, start = (2, "first") if self.last else (1, "lo")
            if self.last:
                self.line(1, f"for first in range(lo, hi, {STRIP}):")
            self.line(depth, f"n = min({STRIP}, hi - first)" if self.last else "n = hi - lo")
            for o in self.operands.values():
                step = {"same": "0", "next": str(o.array.itemsize)}.get(
                    self.how[o], f"step{o.index} * {o.array.itemsize}"
                )
                self.line(depth, f"at{o.index} = base{o.index} + {start} * {step}")
        else:
            self.line(1, f"n = {self.word(self.nest.inner)}")
            before = len(self.lines)
            for place in self.places:
                self.line(1, place)
            depth = 1
        self.phases(depth)
        size = self.nest.rows * self.nest.inner
        if flat:
            return self.kernel(size, size, 1)
        self.over_rows(before)
        return self.kernel(self.nest.rows, size, max(self.nest.inner, 1))

    def is_short(self) -> bool:
        """Whether rows are a few whole vectors, but no multiple of the four of a loop's turn.

        Those that are left over would go one element at a time.
        """
        graph, size = self.group.nodes[0].graph, self.nest.inner
        known = graph is not None and "sizes" not in graph.meta
        whole = size % VECTOR == 0 and size % (4 * VECTOR) != 0
        return self.kind == "row" and known and whole and size < SHORT

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
        before = len(self.lines)
        if flat:
            self.line(1, f"n = min({FULL_BLOCK}, size - r * {FULL_BLOCK})")
            for o in self.operands.values():
                step = {"same": "0", "next": str(o.array.itemsize)}.get(
                    self.how[o], f"step{o.index} * {o.array.itemsize}"
                )
                self.line(1, f"at{o.index} = base{o.index} + r * ({FULL_BLOCK} * {step})")
        else:
            self.line(1, "n = size")
            for place in self.places:
                self.line(1, place)
        self.phases(1)
        for k, (node, _, _) in enumerate(partials):
            self.line(1, f"store_partial(partial{k}, r, total{self.name(node)})")
        self.over_rows(before)
        size = self.nest.rows * self.nest.inner
        count = -(-size // FULL_BLOCK) if flat else self.nest.rows
        made = self.kernel(count, size, min(size, FULL_BLOCK) if flat else self.nest.inner)
        made.partials = partials
        return made

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
            start = IDENTITY[self.calls[node].reduction]
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
                    FOLD[call.reduction], FOLD[call.reduction] + "({}, {})"
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
                f"{NAMES[call.letter]}(load_total(total{k}, i){divided}))",
            )
        size = self.nest.rows * self.nest.inner
        count = -(-self.nest.inner // TILE)
        return self.kernel(count, size, self.nest.rows * min(TILE, self.nest.inner))

    def over_rows(self, before: int) -> None:
        """Make of the lines from ``before`` on, which are one row, the loop over rows.

        Rows with expensive functions are a function of their own. LLVM puts the constants of an
        innermost loop before it only where no other loop is around: inside of one they are read
        again for every vector (layer normalization and GELU of 512 x 1024 float32 with AVX2: 980 us
        so, 820 us in a function). Other rows are not worth its call.
        """
        if self.is_short():
            self.line(1, "single_vectors()")
        if any(self.is_expensive(n) and n.target.name != "exp" for n in self.group.nodes):
            self.row_is_function = True
        else:
            self.lines[before:] = [
                "    for r in range(lo, hi):",
                *("    " + line for line in self.lines[before:]),
            ]

    def kernel(self, count: int, work: int, unit: int) -> Kernel:
        letters = [o.letter for o in self.operands.values()]
        text = [f"# operands: {' '.join(letters)}"]
        if self.row_is_function:
            text += ["@compiled", "def row(address, r):"]
        else:
            text += ["def loop(address, lo, hi):"]
        text += ["    full_vectors()", *self.numbers_at, *self.lines]
        if self.row_is_function:
            text += ["def loop(address, lo, hi):", "    for r in range(lo, hi):"]
            text += ["        row(address, r)"]
        text += ["    return 0", ""]
        return Kernel("\n".join(text), letters, self.words, count, work, unit, [], self.temporaries)
