"""The text of the innermost loops of a group, phase by phase."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .layout import Unfit
from .operands import NAMES, Operand
from .phases import Phases

__all__ = ["BLOCK", "FOLD", "IDENTITY", "Bodies"]

#: how many float32 are added up before the sum goes on in float64
BLOCK = 4096
#: numbers that are part of the text always
_KEPT = (-1, 0, 0.5, 1, 2)
IDENTITY = {"sum": "0", "mean": "0", "amax": "-inf", "amin": "inf"}
FOLD = {"sum": "add_up", "mean": "add_up", "amax": "largest", "amin": "smallest"}


class Bodies(Phases):
    """:class:`Phases` as lines of text, over one row whose operands are at ``at{k}``.

    Attributes:
        how: by operand, how it goes along the row: ``"next"``, ``"apart"`` or ``"same"``.
        have: by operand and node the name of its value in the loop that is written.
    """

    lines: list[str]
    how: dict[Operand, str]
    have: dict[Any, str]

    def word(self, entry: Any) -> str:
        """The text that reads an argument."""
        self.words.append(entry)
        return f"word(address, {len(self.words) - 1})"

    def bases(self) -> None:
        for o in self.operands.values():
            self.line(1, f"base{o.index} = {self.word(o)}")

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

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
            start = IDENTITY[call.reduction]
            if node in sums and blocked:
                self.line(depth, f"total{name} = 0.0")
            else:
                self.line(depth, f"fold{name} = {NAMES[call.letter]}({start})")
        inside = depth
        if blocked:
            self.line(depth, f"for first in range(0, n, {BLOCK}):")
            inside = depth + 1
            for node in sums:
                self.line(inside, f"fold{self.name(node)} = {NAMES[self.calls[node].letter]}(0)")
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
        for node in self.asides:  # before something else is put in its place
            users = (u for u in self.group.nodes if node in self.sources[u])
            if self.phase[node] < phase and any(self.phase[user] == phase for user in users):
                self.computed(node, depth, phase)
        for o in self.operands.values():
            if o.written and self.read_first(o):
                self.loaded(o, depth)  # before it is written
        for node in self.group.nodes:
            if node in reductions:
                name = self.name(node)
                value = self.value(self.sources[node][0], self.calls[node].letter, depth, phase)
                fold = FOLD[self.calls[node].reduction]
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
        self.line(depth, f"v{name} = {NAMES[call.letter]}({divided})")
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
        return written.text.format(*values, T=NAMES[written.letter], c=written.letter)

    def may_differ(self, value: Any) -> bool:
        """Whether a number may be another one for other sizes, so that the text is not to have it.

        What was a size when the program was captured is a number like any other here.
        """
        graph = self.group.nodes[0].graph
        if graph is None or "sizes" not in graph.meta or isinstance(value, bool):
            return False
        return value not in _KEPT and abs(value) < 2**53

    def number(self, value: Any, letter: str) -> str:
        if isinstance(value, np.generic):
            value = value.item()  # whose text is that of a number
        if isinstance(value, (bool, int, float)):
            # LLVM takes the largest of what is -inf under a mask for a maximum of the elements
            # without it, and such a loop is not vectorized.
            if not self.may_differ(value) and abs(value) != math.inf:
                return f"{NAMES[letter]}({value!r})"
            entry = value = ("constant", float(value))
        elif hasattr(value, "graph"):
            entry = ("number", value)  # known when it runs
        else:
            raise Unfit(f"a number of {type(value).__name__}")
        if value not in self.numbers:
            self.words.append(entry)
            self.numbers[value] = f"number{len(self.numbers)}"
            self.numbers_at.append(
                f"    {self.numbers[value]} = floating(address, {len(self.words) - 1})"
            )
        return f"{NAMES[letter]}({self.numbers[value]})"


def _as(text: str, letter: str, wanted: str) -> str:
    """A value of one dtype as another."""
    if letter == wanted:
        return text
    return f"({text} != 0)" if wanted == "b" else f"{NAMES[wanted]}({text})"
