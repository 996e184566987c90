"""Datasets, samplers, collation and the DataLoader in this process."""

from __future__ import annotations

import collections
import copy
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)


class Squares(Dataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return index**2


class Many(Squares):
    """Fetches several samples at once."""

    def __getitem__(self, index: int) -> int:
        raise AssertionError("one by one")

    def __getitems__(self, indices: list[int]) -> list[int]:
        return list(indices)


class Few(Many):
    """Forgets samples."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return list(indices)[1:]


class Count(IterableDataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


def seeded(seed: int = 0) -> cd.Generator:
    return cd.Generator().manual_seed(seed)


def rows(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


# -- datasets ------------------------------------------------------------------------------


def test_the_two_public_names_are_one_module() -> None:
    import coredispatch.utils.data as by_utils

    assert cd.data is cd.utils.data is by_utils
    assert cd.data.DataLoader is DataLoader


def test_tensor_dataset() -> None:
    data = TensorDataset(cd.arange(6).reshape(3, 2), cd.arange(3))
    assert len(data) == 3
    x, y = data[1]
    assert (x.tolist(), y.item()) == ([2, 3], 1)
    assert [row[1].item() for row in (data[-1], data[0])] == [2, 0]
    for bad in [(cd.ones(2), cd.ones(3)), (cd.ones(()),), ()]:
        with pytest.raises(ValueError, match="same size in dimension 0"):
            TensorDataset(*bad)


def test_concat_and_chain() -> None:
    both = Squares(3) + Squares(2)
    assert isinstance(both, ConcatDataset)
    assert [both[i] for i in range(len(both))] == [0, 1, 4, 0, 1]
    assert both[-1] == 1
    assert both[-5] == 0
    for index in (5, -6):
        with pytest.raises((IndexError, ValueError), match="5 samples"):
            both[index]
    with pytest.raises(ValueError, match="at least one dataset"):
        ConcatDataset([])
    with pytest.raises(ValueError, match="ChainDataset"):
        ConcatDataset([Squares(1), Count(1)])
    chained = Count(2) + Count(3)
    assert isinstance(chained, ChainDataset)
    assert list(chained) == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError, match="got Squares"):
        list(ChainDataset([Squares(2)]))


def test_stack_dataset() -> None:
    assert StackDataset(Squares(3), Squares(3))[2] == (4, 4)
    assert StackDataset(a=Squares(3), b=Squares(3))[1] == {"a": 1, "b": 1}
    assert StackDataset(a=Squares(3), b=Many(3)).__getitems__([2, 1]) == [
        {"a": 4, "b": 2},
        {"a": 1, "b": 1},
    ]
    assert StackDataset(Many(3), Squares(3)).__getitems__([2, 0]) == [(2, 4), (0, 0)]
    with pytest.raises(ValueError, match="1 samples for 2 indices"):
        StackDataset(Few(3)).__getitems__([0, 1])
    with pytest.raises(ValueError, match="one length"):
        StackDataset(Squares(3), Squares(2))
    with pytest.raises(ValueError, match="not both"):
        StackDataset(Squares(3), a=Squares(3))


def test_subset() -> None:
    part = Subset(Squares(10), [7, 2])
    assert (len(part), part[0], part[1]) == (2, 49, 4)
    assert part.__getitems__([1, 0]) == [4, 49]


def test_random_split() -> None:
    a, b = random_split(Squares(10), [7, 3], generator=seeded())
    assert sorted([*a.indices, *b.indices]) == list(range(10))
    again = random_split(Squares(10), [7, 3], generator=seeded())
    assert again[0].indices == a.indices
    other = random_split(Squares(10), [7, 3], generator=seeded(1))
    assert other[0].indices != a.indices
    assert [len(part) for part in random_split(Squares(10), [0.5, 0.3, 0.2])] == [5, 3, 2]
    assert [len(part) for part in random_split(Squares(8), [1 / 3, 1 / 3, 1 / 3])] == [3, 3, 2]
    for lengths in ([7, 4], [0.5, 0.4], [11, -1]):
        with pytest.raises(ValueError, match="10 samples"):
            random_split(Squares(10), lengths)
    with pytest.raises(ValueError, match="between 0 and 1"):
        random_split(Squares(10), [1.5, -0.5])


def test_a_dataset_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="Dataset must define __getitem__"):
        Dataset[int]()[0]
    with pytest.raises(NotImplementedError, match="IterableDataset must define __iter__"):
        iter(IterableDataset[int]())


# -- samplers ------------------------------------------------------------------------------


def test_sequential_and_batch_sampler() -> None:
    assert list(SequentialSampler(Squares(3))) == [0, 1, 2]
    source = SequentialSampler(range(7))
    assert list(BatchSampler(source, 3, drop_last=False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(BatchSampler(source, 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert [len(BatchSampler(source, 3, drop)) for drop in (False, True)] == [3, 2]
    for size in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="batch_size should be a positive integer"):
            BatchSampler(source, size, False)  # type: ignore[arg-type]


def test_random_sampler() -> None:
    sampler = RandomSampler(range(10), generator=seeded())
    first, second = list(sampler), list(sampler)
    assert sorted(first) == list(range(10))
    assert first != second
    assert list(RandomSampler(range(10), generator=seeded())) == first
    longer = list(RandomSampler(range(4), num_samples=10, generator=seeded()))
    assert len(longer) == 10
    assert sorted(longer[:4]) == sorted(longer[4:8]) == [0, 1, 2, 3]
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=100))
    assert set(drawn) == {0, 1, 2}
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        RandomSampler([])
    with pytest.raises(ValueError, match="empty dataset"):
        list(RandomSampler([], num_samples=3))
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        RandomSampler(range(3), num_samples=0)


def test_samples_are_drawn_as_they_are_needed() -> None:
    many = 10**15  # no list of them fits the memory
    endless = iter(RandomSampler(range(3), replacement=True, num_samples=many))
    assert {next(endless) for _ in range(100)} == {0, 1, 2}
    weighted = iter(WeightedRandomSampler([0.0, 1.0, 1.0], many))
    assert {next(weighted) for _ in range(100)} == {1, 2}
    repeated = iter(RandomSampler(range(3), num_samples=many))
    assert sorted(next(repeated) for _ in range(6)) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("count", [1, 1000, 2**14 - 1, 2**14, 2**14 + 1, 40_000])
def test_piecewise_draws_are_those_of_one_draw(count: int) -> None:
    weights = [1.0, 0.0, 2.0, 5.0]
    drawn = [
        list(RandomSampler(range(7), True, count, seeded())),
        list(WeightedRandomSampler(weights, count, True, seeded())),
    ]
    streams = [
        np.random.default_rng(int(cd.randint(0, 1 << 62, (), generator=seeded()))) for _ in drawn
    ]
    assert drawn[0] == streams[0].integers(7, size=count).tolist()
    assert drawn[1] == streams[1].choice(4, count, p=np.array(weights) / 8).tolist()


def test_manual_seed_governs_the_order() -> None:
    orders = []
    for _ in range(2):
        cd.manual_seed(3)
        orders.append(rows(DataLoader(Squares(20), 4, shuffle=True)))
    assert orders[0] == orders[1]
    assert orders[0] != rows(DataLoader(Squares(20), 4, shuffle=True))


def test_subset_and_weighted_sampler() -> None:
    assert sorted(SubsetRandomSampler([3, 5, 8])) == [3, 5, 8]
    drawn = list(WeightedRandomSampler([0.0, 1.0, 3.0], 4000, generator=seeded()))
    assert 0 not in drawn
    assert 0.70 < drawn.count(2) / 4000 < 0.80
    unique = list(WeightedRandomSampler([1, 1, 0, 1], 3, replacement=False))
    assert sorted(unique) == [0, 1, 3]
    assert len(WeightedRandomSampler(cd.ones(4), 2)) == 2
    with pytest.raises(ValueError, match="only 2 weights are positive"):
        list(WeightedRandomSampler([1, 1, 0], 3, replacement=False))
    with pytest.raises(ValueError, match="non-negative"):
        list(WeightedRandomSampler([1, -1], 1))


# -- collation -----------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


def test_collate_numbers_tensors_and_arrays() -> None:
    assert default_collate([1, 2]).dtype is cd.int64
    assert default_collate([True, False]).dtype is cd.bool
    assert default_collate([0.5, 1.0]).dtype is cd.float64
    assert default_collate([cd.ones(2), cd.zeros(2)]).tolist() == [[1.0, 1.0], [0.0, 0.0]]
    stacked = default_collate([np.float32([1, 2]), np.float32([3, 4])])
    assert (stacked.dtype, stacked.shape) == (cd.float32, (2, 2))
    assert default_collate([np.int16(3), np.int16(4)]).dtype is cd.int16
    assert default_collate(["a", "b"]) == ["a", "b"]


def test_collate_containers() -> None:
    batch = default_collate([{"x": 1, "y": (cd.ones(1), "a")}, {"x": 2, "y": (cd.ones(1), "b")}])
    assert batch["x"].tolist() == [1, 2]
    assert batch["y"][0].shape == (2, 1)
    assert batch["y"][1] == ("a", "b")
    pair = default_collate([Pair(1, [2, 3]), Pair(4, [5, 6])])
    assert type(pair) is Pair
    assert pair.left.tolist() == [1, 4]
    assert [column.tolist() for column in pair.right] == [[2, 5], [3, 6]]
    ordered = default_collate([collections.OrderedDict(a=1), collections.OrderedDict(a=2)])
    assert type(ordered) is collections.OrderedDict


def test_collate_refuses_with_a_reason() -> None:
    with pytest.raises(RuntimeError, match=r"lengths \[1, 2\]"):
        default_collate([[1], [1, 2]])
    with pytest.raises(RuntimeError):
        default_collate([cd.ones(2), cd.ones(3)])
    for bad in (object(), np.array(["a"])):
        with pytest.raises(TypeError, match="collate_fn"):
            default_collate([bad])


def test_convert_keeps_structure() -> None:
    converted = default_convert({"a": np.arange(2), "b": [np.float32(1), "text", 3]})
    assert converted["a"].tolist() == [0, 1]
    assert converted["b"][0].dtype is cd.float32
    assert converted["b"][1:] == ["text", 3]
    pair = default_convert(Pair(np.ones(1), (np.ones(1),)))
    assert type(pair) is Pair
    assert type(pair.right) is list  # as in PyTorch


# -- loader --------------------------------------------------------------------------------


def test_batches_in_order() -> None:
    loader = DataLoader(Squares(5), batch_size=2)
    assert len(loader) == 3
    assert rows(loader) == rows(loader) == [[0, 1], [4, 9], [16]]
    assert rows(DataLoader(Squares(5), 2, drop_last=True)) == [[0, 1], [4, 9]]
    assert len(DataLoader(Squares(5), 2, drop_last=True)) == 2
    assert rows(DataLoader(Squares(0), 2)) == []


def test_without_batching() -> None:
    assert list(DataLoader(Squares(3), batch_size=None)) == [0, 1, 4]
    arrays = [np.float32([1]), np.float32([2])]
    assert rows(DataLoader(arrays, batch_size=None)) == [[1.0], [2.0]]  # type: ignore[arg-type]


def test_samplers_and_collate_fn() -> None:
    assert rows(DataLoader(Squares(9), 2, sampler=[4, 2, 0])) == [[16, 4], [0]]
    assert rows(DataLoader(Squares(9), batch_sampler=[[1], [2, 3]])) == [[1], [4, 9]]
    assert list(DataLoader(Squares(4), 2, collate_fn=sum)) == [1, 13]
    shuffled = DataLoader(Squares(50), 50, shuffle=True, generator=seeded())
    assert sorted(rows(shuffled)[0]) == [i**2 for i in range(50)]


def test_fetching_a_batch_at_once() -> None:
    class Many(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [-i for i in indices]

    assert rows(DataLoader(Many(4), 2)) == [[0, -1], [-2, -3]]
    assert rows(DataLoader(Subset(Many(4), [3, 1]), 2)) == [[-3, -1]]


def test_streams() -> None:
    assert rows(DataLoader(Count(5), 2)) == [[0, 1], [2, 3], [4]]
    assert rows(DataLoader(Count(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(DataLoader(Count(3), batch_size=None)) == [0, 1, 2]
    with pytest.raises(TypeError):
        len(DataLoader(Count(5), 2))

    class Sized(Count):
        def __len__(self) -> int:
            return self.size

    assert len(DataLoader(Sized(5), 2)) == 3
    assert len(DataLoader(Sized(5), 2, drop_last=True)) == 2
    assert len(DataLoader(Sized(5), None)) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers should not be negative"),
        ({"timeout": -1}, "timeout should not be negative"),
        ({"prefetch_factor": 2}, "prefetch_factor needs worker processes"),
        ({"persistent_workers": True}, "persistent_workers needs worker processes"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor should be at least 1"),
        ({"sampler": [1], "shuffle": True}, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "mutually exclusive with batch_size"),
        ({"batch_sampler": [[1]], "drop_last": True}, "mutually exclusive with batch_size"),
        ({"batch_size": None, "drop_last": True}, "excludes drop_last"),
        ({"batch_size": 0}, "batch_size should be a positive integer"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Squares(3), **options)


@pytest.mark.parametrize("option", ["shuffle", "sampler", "batch_sampler"])
def test_a_stream_has_its_own_order(option: str) -> None:
    value: Any = {"shuffle": True, "sampler": [0], "batch_sampler": [[0]]}[option]
    with pytest.raises(ValueError, match=f"own order: {option}="):
        DataLoader(Count(3), **{option: value})


def test_an_exception_of_the_dataset_passes_through() -> None:
    loader = DataLoader(Squares(3), batch_sampler=[[0], [7], [1]])
    batches = iter(loader)
    assert next(batches).tolist() == [0]
    with pytest.raises(IndexError, match="7"):
        next(batches)


def test_no_worker_here() -> None:
    assert get_worker_info() is None


def test_a_loader_can_be_copied() -> None:
    assert rows(copy.deepcopy(DataLoader(Squares(3), 2))) == [[0, 1], [4]]


def test_two_threads_iterate_independently() -> None:
    import threading

    loader = DataLoader(Squares(200), 7, shuffle=True)
    sums: list[int] = []

    def walk() -> None:
        sums.append(sum(int(batch.sum()) for batch in loader))

    threads = [threading.Thread(target=walk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [sum(i**2 for i in range(200))] * 4


def test_shuffling_leaves_other_generators_alone() -> None:
    random.seed(0)
    expected = random.Random(0).random()
    rows(DataLoader(Squares(9), 2, shuffle=True))
    assert random.random() == expected


def test_errors_of_indices_and_samplers_are_those_of_pytorch() -> None:
    joined = cd.utils.data.ConcatDataset([range(2), range(3)])
    with pytest.raises(ValueError, match="absolute value of index should not exceed"):
        joined[-9]
    with pytest.raises(IndexError):
        joined[9]
    sampler = cd.utils.data.WeightedRandomSampler([1, 0.5], 3)
    assert sampler.weights.dtype is cd.float64
    assert sampler.weights.tolist() == [1, 0.5]
    assert len(list(sampler)) == 3
    with pytest.raises(ValueError, match="1d sequence"):
        cd.utils.data.WeightedRandomSampler([[1.0]], 1)
    with pytest.raises(ValueError, match="replacement should be a boolean value"):
        cd.utils.data.WeightedRandomSampler([1.0], 1, replacement=0)
    with pytest.raises(TypeError, match="batch must contain tensors.*found <class 'object'>"):
        cd.utils.data.default_collate([object()])
