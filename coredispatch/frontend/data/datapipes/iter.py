"""Pipes that are gone through."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.data.collate import default_collate
from coredispatch.frontend.data.datapipes.branches import Demultiplexer, Forker
from coredispatch.frontend.data.datapipes.datapipe import (
    DataChunk,
    IterDataPipe,
    functional_datapipe,
)
from coredispatch.frontend.data.datapipes.files import FileLister, FileOpener, StreamReader
from coredispatch.frontend.data.randomness import draw_seed
from coredispatch.frontend.data.sampler import SequentialSampler
from coredispatch.frontend.data.worker import get_worker_info

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]


class IterableWrapperIterDataPipe(IterDataPipe):
    """A pipe over an iterable, of a copy of it for each iteration with ``deepcopy``."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(source)
            except TypeError:
                warn(
                    "The input iterable can not be deepcopied, please be aware of in-place "
                    "modification would affect source data."
                )
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe):
    """``fn`` of each item, or of its ``input_col`` alone, whose result goes to ``output_col``.

    A column is an index or key, several of them a list or tuple. Without ``output_col`` the result
    takes the place of the (first) input; ``-1`` appends it.
    """

    def __init__(
        self, datapipe: IterDataPipe, fn: Callable[..., Any], input_col: Any = None,
        output_col: Any = None,
    ) -> None:  # fmt: skip
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.datapipe, self.fn = datapipe, fn
        self.input_col, self.output_col = input_col, output_col

    def _apply(self, data: Any) -> Any:
        if self.input_col is None:
            return self.fn(data)
        several = isinstance(self.input_col, (list, tuple))
        columns = self.input_col if several else [self.input_col]
        result = self.fn(*[data[column] for column in columns])
        was_tuple = isinstance(data, tuple)
        made = list(data) if was_tuple else copy.copy(data)
        if self.output_col is None:
            made[columns[0]] = result
            for column in sorted(columns[1:], reverse=True):
                del made[column]
        elif self.output_col == -1:
            made.append(result)
        else:
            made[self.output_col] = result
        return tuple(made) if was_tuple else made

    def __iter__(self) -> Iterator[Any]:
        for data in self.datapipe:
            yield self._apply(data)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Batches as tensors, by ``collate_fn`` (``default_collate``)."""

    def __init__(
        self, datapipe: IterDataPipe, conversion: Any = default_collate,
        collate_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        function = conversion if collate_fn is None else collate_fn
        if not callable(function):
            raise TypeError(f"collate takes a function, not {type(function).__name__}")
        super().__init__(datapipe, fn=function)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe):
    """The items for which ``filter_fn`` (of the item, or of ``input_col``) is True."""

    def __init__(
        self, datapipe: IterDataPipe, filter_fn: Callable[..., Any], input_col: Any = None
    ) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        several = isinstance(self.input_col, (list, tuple))
        for data in self.datapipe:
            if self.input_col is None:
                chosen = self.filter_fn(data)
            elif several:
                chosen = self.filter_fn(*[data[column] for column in self.input_col])
            else:
                chosen = self.filter_fn(data[self.input_col])
            if not isinstance(chosen, bool):
                raise ValueError(
                    "Boolean output is required for `filter_fn` of FilterIterDataPipe, got "
                    f"{type(chosen)}"
                )
            if chosen:
                yield data


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe):
    """Lists of ``batch_size`` items; the last has fewer, or is left out with ``drop_last``."""

    def __init__(
        self, datapipe: IterDataPipe, batch_size: int, drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ) -> None:  # fmt: skip
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count: int = len(self.datapipe)
        return (count if self.drop_last else count + self.batch_size - 1) // self.batch_size


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe):
    """The items of batches, ``unbatch_level`` levels deep; -1 for all of them."""

    def __init__(self, datapipe: IterDataPipe, unbatch_level: int = 1) -> None:
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for element in self.datapipe:
            yield from self._inner(element, self.unbatch_level)

    def _inner(self, element: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level == -1 and not isinstance(element, (list, DataChunk))):
            yield element
            return
        if not isinstance(element, (list, DataChunk)):
            raise IndexError(
                f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe"
            )
        for item in element:
            yield from self._inner(item, level if level == -1 else level - 1)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe):
    """Lists of items of one key; a full buffer gives out its largest group.

    With ``keep_key`` pairs of a key and its list. A group of ``group_size`` is given out at once;
    one that the full buffer has to give out must have ``guaranteed_group_size`` (``group_size``),
    or is dropped with ``drop_remaining``. What is left at the end is given out in any case.
    """

    def __init__(
        self, datapipe: IterDataPipe, group_key_fn: Callable[[Any], Any], *, keep_key: bool = False,
        buffer_size: int = 10000, group_size: int | None = None,
        guaranteed_group_size: int | None = None, drop_remaining: bool = False,
    ) -> None:  # fmt: skip
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        least = group_size if guaranteed_group_size is None else guaranteed_group_size
        if guaranteed_group_size is not None:
            if group_size is None or not 0 < guaranteed_group_size <= group_size:
                raise AssertionError("guaranteed_group_size must be > 0 and <= group_size")
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.buffer_size, self.group_size = buffer_size, group_size
        self.guaranteed_group_size, self.drop_remaining = least, drop_remaining

    def _made(self, key: Any, group: list[Any]) -> Any:
        items: DataChunk[Any] = DataChunk(group)
        return (key, items) if self.keep_key else items

    def __iter__(self) -> Iterator[Any]:
        groups: OrderedDict[Any, list[Any]] = OrderedDict()
        held = 0
        for item in self.datapipe:
            key = self.group_key_fn(item)
            groups.setdefault(key, []).append(item)
            held += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                held -= self.group_size
                yield self._made(key, groups.pop(key))
            if held == self.buffer_size:
                largest = max(groups, key=lambda k: len(groups[k]))
                group = groups.pop(largest)
                held -= len(group)
                least = self.guaranteed_group_size
                if least is not None and len(group) < least and not self.drop_remaining:
                    raise RuntimeError(f"Failed to group items {group}")
                if least is None or len(group) >= least:
                    yield self._made(largest, group)
        for key, group in groups.items():
            yield self._made(key, group)


class _Several(IterDataPipe):
    """Made of several pipes."""

    def __init__(self, *datapipes: IterDataPipe) -> None:
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        self.datapipes = datapipes


@functional_datapipe("concat")
class ConcaterIterDataPipe(_Several):
    """One pipe after the other."""

    def __init__(self, *datapipes: IterDataPipe) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        super().__init__(*datapipes)

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(_Several):
    """Tuples of the items of all pipes, as many as the shortest has."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(_Several):
    """An item of each pipe in turn, until the shortest is exhausted."""

    def __iter__(self) -> Iterator[Any]:
        for items in zip(*self.datapipes, strict=False):
            yield from items

    def __len__(self) -> int:
        return min(len(p) for p in self.datapipes) * len(self.datapipes)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe):
    """The items in random order, drawn from a buffer of ``buffer_size`` of them."""

    def __init__(
        self, datapipe: IterDataPipe, *, buffer_size: int = 10000, unbatch_level: int = 0
    ) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.datapipe = datapipe.unbatch(unbatch_level) if unbatch_level else datapipe
        self.buffer_size, self._enabled = buffer_size, True
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
        if not self._enabled:
            yield from self.datapipe
            return
        seed, self._seed = draw_seed() if self._seed is None else self._seed, None
        stream, buffer = random.Random(seed), list[Any]()
        for item in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(item)
                continue
            place = stream.randrange(len(buffer))
            given, buffer[place] = buffer[place], item
            yield given
        stream.shuffle(buffer)
        yield from buffer

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe):
    """One item of every ``num_of_instances``; the workers of a DataLoader share by themselves."""

    def __init__(self, source_datapipe: IterDataPipe, sharding_group_filter: Any = None) -> None:
        self.source_datapipe, self.sharding_group_filter = source_datapipe, sharding_group_filter
        self._shards: tuple[int, int] | None = None

    def apply_sharding(
        self, num_of_instances: int, instance_id: int, sharding_group: Any = None
    ) -> None:
        """Say which share this is. Raises ValueError for a share that there is not."""
        if instance_id >= num_of_instances:
            raise ValueError(
                f"instance_id({instance_id}) should be smaller than num_of_instances"
                f"({num_of_instances})"
            )
        self._shards = num_of_instances, instance_id

    def is_shardable(self) -> bool:
        """True."""
        return True

    def _share(self) -> tuple[int, int]:
        worker = get_worker_info()
        if self._shards is None and worker is not None:
            return worker.num_workers, worker.id
        return self._shards or (1, 0)

    def __iter__(self) -> Iterator[Any]:
        count, own = self._share()
        for number, item in enumerate(self.source_datapipe):
            if number % count == own:
                yield item

    def __len__(self) -> int:
        count, own = self._share()
        total: int = len(self.source_datapipe)
        return total // count + (own < total % count)


class SamplerIterDataPipe(IterDataPipe):
    """What a sampler, made of the pipe and ``sampler_args``, gives."""

    def __init__(
        self, datapipe: IterDataPipe, sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None, sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.datapipe = datapipe
        self.sampler = sampler(datapipe, *(sampler_args or ()), **(sampler_kwargs or {}))

    def __iter__(self) -> Iterator[Any]:
        yield from self.sampler

    def __len__(self) -> int:
        return len(self.sampler)


Batcher, Collator, Concater = BatcherIterDataPipe, CollatorIterDataPipe, ConcaterIterDataPipe
Filter, Grouper, IterableWrapper = (
    FilterIterDataPipe,
    GrouperIterDataPipe,
    IterableWrapperIterDataPipe,
)
Mapper, Multiplexer, Sampler = MapperIterDataPipe, MultiplexerIterDataPipe, SamplerIterDataPipe
ShardingFilter, Shuffler = ShardingFilterIterDataPipe, ShufflerIterDataPipe
UnBatcher, Zipper = UnBatcherIterDataPipe, ZipperIterDataPipe
