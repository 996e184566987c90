"""The loops of a group one after the other: which node is computed in which.

A group that reduces rows is a sequence of innermost loops over one row, its *phases*: what needs
the result of a reduction is in a later phase. A value of an earlier phase is read again where it
was stored, computed again where that is cheap, and put aside otherwise: into the memory of a
result that is written later, if there is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .expressions import EXPENSIVE
from .operands import NAMES, Operand, Operands

__all__ = ["Phases"]

#: how many expensive operators one after the other a loop has: each waits for the one before it
CHAIN = 1


class Phases(Operands):
    """:class:`Operands` with the phase of each node, and the places of values in between."""

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

        self.cut()

    def cut(self) -> None:
        """Spread a long chain of expensive operators over several loops.

        What goes from one loop to the next waits in the memory of a result. Where there is not
        enough of it the chain stays whole.
        """
        nodes = self.group.nodes
        whole = all(self.is_full(n) and self.calls[n].target is None for n in nodes)
        if self.kind != "point" or not whole:
            return
        length: dict[Any, int] = {}
        for node in nodes:
            before = (length[used] for used in self.sources[node] if used in self.calls)
            length[node] = max(before, default=0) + self.is_expensive(node)
        phase = {node: max(length[node] - 1, 0) // CHAIN for node in nodes}
        asides: dict[Any, Operand] = {}
        free_from: dict[Operand, int] = {}
        for node in nodes:
            users = [phase[user] for user in nodes if node in self.sources[user]]
            last = max(users, default=0)
            if last <= phase[node] or not length[node] or node in self.stores:
                continue
            for result, place in self.stores.items():
                fits = place.fresh and place.letter == self.calls[node].letter
                free = free_from.get(place, 0) <= phase[node]
                if fits and free and phase[result] >= last:
                    asides[node], free_from[place] = place, last
                    break
            else:
                return
        self.phase, self.asides = phase, asides
        self.last = max(phase.values(), default=0)

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
        array = np.empty(self.shape, NAMES[letter].replace("boolean", "bool"))
        self.asides[node] = self.operand(array, self.shape, True)
        self.asides[node].written = True
        self.temporaries.append(self.asides[node])
