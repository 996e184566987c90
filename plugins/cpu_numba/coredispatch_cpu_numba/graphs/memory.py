"""The memory of a program: where values lie, which steps run, and where addresses belong."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coredispatch.plugin import numpy_dtype, passes

from .layout import Unfit

__all__ = ["Memory", "Segment", "Slot"]


class Slot(NamedTuple):
    """An array that comes with a call: where from, and how it lies.

    ``origin`` is ``"input"`` (``what`` its number), ``"attribute"`` (a tensor), ``"result"`` (the
    node that Python runs) or ``"output"`` (the node; memory is made for it).
    """

    origin: str
    what: Any
    array: np.ndarray


class Segment(NamedTuple):
    """Steps that run without Python, by the addresses of what they need.

    ``given`` are the arguments of :func:`.machine.execute` but for the last two, ``arrays`` how
    many slots have to be filled before, and ``memory`` is what the addresses point to.
    """

    given: tuple[int, int, int, int, int]
    arrays: int
    memory: tuple[np.ndarray, ...]


class _Home(NamedTuple):
    start: int
    end: int
    slot: int  # -1 for memory that stays where it is, -2 for the workspace
    offset: int  # in the block or the workspace; -1 where ``start`` is the address


def _memory(size: int) -> tuple[np.ndarray, int]:
    """``size`` bytes, and the address where they begin, that of a line of the cache."""
    memory = np.empty(size + 64, np.uint8)
    return memory, -(-memory.__array_interface__["data"][0] // 64) * 64


class Memory:
    """Arrays, steps, and the words that steps get as arguments.

    Args:
        size: of the block of memory in which results lie that nobody else sees.

    Attributes:
        slots: the arrays that come with a call.
        work: what is to be done in order: segments, and nodes that Python runs.
        numbers: by number node the words that want its value, as float64.
        arrays: by node where its value lies while the plan is made.
        workspace: how many bytes a kernel needs while it runs.
    """

    def __init__(self, size: int) -> None:
        self.slots: list[Slot] = []
        self.work: list[Any] = []
        self.numbers: dict[Any, list[int]] = {}
        self.arrays: dict[Any, Any] = {}
        self.keep: list[Any] = []
        self.homes: list[_Home] = []
        self.slot_of: dict[Any, int] = {}
        self.steps: list[Any] = []
        self.segments: list[list[Any]] = []
        self.workspace = self.taken = 0
        self.block, self.block_start = _memory(size)

    # -- values ----------------------------------------------------------------------------------

    def slot(self, node: Any, origin: str, what: Any, array: np.ndarray) -> np.ndarray:
        self.slot_of[node] = len(self.slots)
        self.slots.append(Slot(origin, what, array))
        self.home(array, len(self.slots) - 1, -1)
        return array

    def home(self, array: np.ndarray, slot: int, offset: int) -> None:
        """Keep an array: of a slot, at an offset in the block, or (-1, -1) where it is."""
        low, high = np.lib.array_utils.byte_bounds(array)
        self.homes.append(_Home(low, max(high, low + 1), slot, offset))
        self.keep.append(array)

    def room(self, size: int, dtype: Any) -> np.ndarray:
        """Memory for the steps of one kernel, which those of the next may write to."""
        array = np.empty(size, dtype)
        self.home(array, -2, self.taken)
        self.taken += -(-array.nbytes // 64) * 64
        self.workspace = max(self.workspace, self.taken)
        return array

    def made(self, node: Any) -> np.ndarray:
        """The array for the result of a node: in the block, or memory made in each call."""
        info = passes.inference.tensor_info(node)
        array = np.empty(info.shape, numpy_dtype(info.dtype))
        buffer = node.meta.get("buffer")
        if buffer is None:
            self.slot(node, "output", node, array)
        else:
            self.home(array, -1, buffer.offset)
        self.arrays[node] = array
        return array

    def find(self, array: np.ndarray) -> tuple[_Home, int]:
        """Where an array lies: its home and the distance from the home's start."""
        at = array.__array_interface__["data"][0]
        for home in self.homes:
            if home.start <= at < home.end:
                return home, at - home.start
        raise Unfit("an array from nowhere")

    # -- the program -----------------------------------------------------------------------------

    def step(
        self,
        task: int,
        words: list[Any],
        count: int,
        grain: int,
        verdict: int = 0,
        switch: int = 0,
    ) -> None:
        self.steps.append((task, words, count, grain, verdict, switch))

    def flush(self) -> None:
        """End a segment."""
        if self.steps:
            self.segments.append(self.steps)
            self.work.append((len(self.segments) - 1, len(self.slots)))
            self.steps = []

    def settle(self) -> None:
        """Put arguments and steps into memory, now that all places are known."""
        self.arguments = np.zeros(
            sum(len(s[1]) for steps in self.segments for s in steps) + 1, np.int64
        )
        self.floats = self.arguments.view(np.float64)
        start = self.arguments.__array_interface__["data"][0]
        at = 0
        sizes: list[int] = []
        rows: list[tuple[int, int]] = []
        for slot in self.slots:
            rows.append((slot.array.ndim, len(sizes)))
            for size, stride in zip(slot.array.shape, slot.array.strides, strict=True):
                sizes += [size, stride]
        self.sizes = np.array([*sizes, 0], np.int64)
        memory, self.workspace_start = _memory(self.workspace)
        self.keep.append(memory)
        built = []
        for steps in self.segments:
            lines: list[int] = []
            places: list[int] = []
            for task, words, count, grain, verdict, switch in steps:
                lines += [task, start + 8 * at, count, grain, int(grain < count), verdict, switch]
                for entry in words:
                    if isinstance(entry, tuple) and isinstance(entry[0], _Home):
                        home, distance = entry
                        if home.slot >= 0:
                            places += [start + 8 * at, home.slot, distance + self.shift(home)]
                        else:
                            self.arguments[at] = self.address(home) + distance
                    elif isinstance(entry, tuple) and entry[0] == "constant":
                        self.floats[at] = entry[1]
                    elif isinstance(entry, tuple):
                        self.number(entry[1], at)
                    else:
                        self.arguments[at] = entry
                    at += 1
            table = np.array([len(places) // 3, *places], np.int64)
            built.append((np.array(lines, np.int64), len(steps), table))
        self.work = [
            self.segment(built[entry[0]], rows[: entry[1]]) if isinstance(entry, tuple) else entry
            for entry in self.work
        ]

    def shift(self, home: _Home) -> int:
        """From the address of a slot's first element to the start of its memory."""
        array = self.slots[home.slot].array
        return home.start - array.__array_interface__["data"][0]

    def address(self, home: _Home) -> int:
        if home.offset < 0:
            return home.start
        return (self.workspace_start if home.slot == -2 else self.block_start) + home.offset

    def segment(self, built: Any, rows: list[tuple[int, int]]) -> Segment:
        steps, count, places = built
        flat = [x for row in rows for x in row]
        slots = np.array([len(rows), *flat], np.int64)
        steps_at, slots_at, places_at, sizes_at = (
            x.__array_interface__["data"][0] for x in (steps, slots, places, self.sizes)
        )
        given = (steps_at, count, slots_at, places_at, sizes_at)
        return Segment(given, len(rows), (steps, slots, places))

    def number(self, value: Any, at: int) -> None:
        self.numbers.setdefault(value, []).append(at)

    def place_of(self, node: Any) -> np.ndarray | None:
        """The array of a value whose memory stays where it is; None for one that comes anew."""
        array = self.arrays.get(node)
        if array is None or isinstance(array, tuple):
            return None
        home, distance = self.find(array)
        if home.slot >= 0:
            return None
        if home.offset < 0:
            return array
        offset = self.block_start - self.block.__array_interface__["data"][0] + home.offset
        return np.ndarray(array.shape, array.dtype, self.block, offset + distance, array.strides)
