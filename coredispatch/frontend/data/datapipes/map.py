"""Pipes that are indexed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.data.datapipes.datapipe import (
    DataChunk,
    IterDataPipe,
    MapDataPipe,
    functional_datapipe,
)
from coredispatch.frontend.data.randomness import draw_seed

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]


class SequenceWrapperMapDataPipe(MapDataPipe):
    """A pipe over a sequence or mapping, of a copy of it with ``deepcopy``."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        if deepcopy:
            try:
                sequence = copy.deepcopy(sequence)
            except TypeError:
                warn(
                    "The input sequence can not be deepcopied, please be aware of in-place "
                    "modification would affect source data"
                )
        self.sequence = sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe):
    """``fn`` of each item."""

    def __init__(self, datapipe: MapDataPipe, fn: Callable[..., Any] = lambda data: data) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __len__(self) -> int:
        return len(self.datapipe)

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe):
    """Lists of ``batch_size`` items; the last has fewer, or is left out with ``drop_last``."""

    def __init__(
        self,
        datapipe: MapDataPipe,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        first = index * self.batch_size
        last = min(first + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(first, last)])

    def __len__(self) -> int:
        count: int = len(self.datapipe)
        return (count if self.drop_last else count + self.batch_size - 1) // self.batch_size


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe):
    """One pipe after the other."""

    def __init__(self, *datapipes: MapDataPipe) -> None:
        _check(datapipes, MapDataPipe)
        self.datapipes = datapipes

    def __getitem__(self, index: int) -> Any:
        left = index
        for pipe in self.datapipes:
            if left < len(pipe):
                return pipe[left]
            left -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe):
    """Tuples of the items of all pipes, as many as the shortest has."""

    def __init__(self, *datapipes: MapDataPipe) -> None:
        _check(datapipes, MapDataPipe)
        self.datapipes = datapipes

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if index >= len(self):
            raise IndexError(f"Index {index} is out of range.")
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


class ShufflerIterDataPipe(IterDataPipe):
    """The items of an indexed pipe, in a new random order each time it is gone through."""

    def __init__(self, datapipe: MapDataPipe, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Whether the order is random; returns self."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """The seed of the next iteration; returns self."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        order = list(self.indices)
        if self._enabled:
            seed, self._seed = draw_seed() if self._seed is None else self._seed, None
            order = random.Random(seed).sample(order, len(order))
        for index in order:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


def _check(datapipes: tuple[Any, ...], kind: type) -> None:
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, kind) for pipe in datapipes):
        raise TypeError(f"Expected all inputs to be `{kind.__name__}`")


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
Batcher, Concater, Mapper = BatcherMapDataPipe, ConcaterMapDataPipe, MapperMapDataPipe
SequenceWrapper, Shuffler = SequenceWrapperMapDataPipe, ShufflerIterDataPipe
Zipper = ZipperMapDataPipe
