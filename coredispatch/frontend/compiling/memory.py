"""Which arrays share memory, whatever made them.

Tensors that are views of one another say so. Others do not: two made of one NumPy array, a tensor
that got the data of another, or a part of one storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import Value

__all__ = ["Held", "crossings", "held", "is_owner", "overlaps", "owner_of"]

#: steps of the exact search for a common element; what takes more counts as common
_MOST = 10000


def owner_of(raw: Any) -> Any:
    """What has the memory of an array: an array as a rule, or what it was made over."""
    base = raw.base
    while base is not None:
        if isinstance(base, memoryview):
            base = base.obj
        elif not isinstance(base, np.ndarray):
            return base
        else:
            raw, base = base, base.base
    return raw


def is_owner(owner: Any) -> bool:
    """Whether arrays with other owners have no memory in common with this one's."""
    return isinstance(owner, np.ndarray) and owner.flags.owndata


def _meet(a: np.ndarray, b: np.ndarray) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_MOST)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def crossings(raws: Sequence[Any]) -> list[tuple[int, int]]:
    """The pairs ``(i, j)``, ``i < j``, of arrays that have memory in common."""
    spans = []
    for i, raw in enumerate(raws):
        if type(raw) is np.ndarray and raw.size:
            spans.append((*np.lib.array_utils.byte_bounds(raw), i))
    found = []
    open_: list[tuple[int, int]] = []
    for low, high, i in sorted(spans):
        open_ = [(end, j) for end, j in open_ if end > low]
        found += [(min(i, j), max(i, j)) for _, j in open_ if _meet(raws[i], raws[j])]
        open_.append((high, i))
    return sorted(found)


def held(recorder: Any, leaves: list[Any]) -> Held | None:
    """The memory that decides whether a recorded program may serve a call; None without writes."""
    if not recorder.overwritten:
        return None
    written = set(recorder.written())
    kinds = {i: origin.kind for i, (_, _, origin) in enumerate(recorder.inputs)}
    given = any(kinds[i] == "leaf" for i in written)
    tensors = [
        (value, given or i in written)  # else what is only read matters to no argument
        for i, (_, value, _) in enumerate(recorder.inputs)
        if isinstance(value, Value) and kinds[i] not in ("leaf", "leaf grad", "tangent")
    ]
    return Held(tensors, leaves)


def overlaps(recorder: Any) -> bool:
    """Whether inputs of a recorded graph share memory, and one of them is written."""
    if not recorder.overwritten:
        return False
    inputs = [v for _, v, o in recorder.inputs if isinstance(v, Value) and o.kind != "tangent"]
    storages = [id(t._storage) for t in inputs if t._storage is not None]
    if len(set(storages)) < len(storages):
        return True
    written = set(recorder.written())
    raws = [v.raw if isinstance(v, Value) else None for _, v, _ in recorder.inputs]
    return any(i in written or j in written for i, j in crossings(raws))


class Held:
    """The memory of tensors that a program holds, one of which or of its arguments it writes.

    Args:
        tensors: those that it holds, each with whether an argument may not share its memory.
        leaves: the arguments of the call that was recorded.
    """

    def __init__(self, tensors: list[tuple[Any, bool]], leaves: list[Any]) -> None:
        self.tensors = tensors
        self.crossed = self.look()
        self.then = [self.meets(leaf) for leaf in leaves]

    def beside(self, other: Held) -> Held:
        """The memory of both."""
        known = {id(entry[0]): entry for entry in (*self.tensors, *other.tensors)}
        made = Held(list(known.values()), [])
        made.then = [a or b for a, b in zip(self.then, other.then)]
        return made

    def look(self) -> list[tuple[int, int]]:
        """See where the tensors are; returns which of them share memory with one another."""
        found = [(t.raw, own) for t, own in self.tensors if type(t.raw) is np.ndarray]
        self.raws = [raw for raw, own in found if own]
        self.owners: dict[int, list[np.ndarray]] = {}
        self.foreign: list[np.ndarray] = []
        for raw in self.raws:
            owner = owner_of(raw)
            if is_owner(owner):
                self.owners.setdefault(id(owner), []).append(raw)
            else:
                self.foreign.append(raw)
        return crossings([raw for raw, _ in found])

    def meets(self, leaf: Any) -> bool:
        """Whether an argument has memory in common with them."""
        raw = leaf.raw if isinstance(leaf, Value) else None
        if type(raw) is not np.ndarray:
            return False
        owner = owner_of(raw)
        among = self.raws
        if is_owner(owner):
            among = self.owners.get(id(owner), [])
            if not among and not self.foreign:
                return False
            among = among + self.foreign
        return any(_meet(raw, other) for other in among)

    def holds(self, leaves: list[Any]) -> bool:
        """Whether the arguments have as much in common with them as those that were recorded."""
        return [self.meets(leaf) for leaf in leaves] == self.then

    def moved(self) -> bool:
        """Look again; whether they share memory with one another as they did."""
        return self.look() == self.crossed
