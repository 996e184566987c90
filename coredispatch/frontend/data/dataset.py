"""Datasets: indexable or iterable collections of samples, and ways to combine and split them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coredispatch.frontend.data.randomness import permutation
from coredispatch.registry.model.errors import RequirementError

if TYPE_CHECKING:
    from coredispatch.frontend.tensor import Tensor

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
    "samples_of",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from keys to samples: subclasses define ``__getitem__`` and usually ``__len__``.

    A subclass may define ``__getitems__(indices) -> list`` to fetch a batch at once; the
    DataLoader then calls that. There is no default ``__len__``: a dataset without one cannot
    be used with a sampler that needs to know where it ends.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """A stream of samples: subclasses define ``__iter__``.

    With several DataLoader workers each one iterates over its own copy, so ``__iter__`` should
    ask :func:`get_worker_info` which part of the stream is its own.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[T_co]) -> ChainDataset[T_co]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple["Tensor", ...]]):
    """Sample ``i`` is ``(t[i] for t in tensors)``; all tensors have the same first dimension.

    Raises:
        ValueError: the sizes of the first dimension differ, or no tensor is given.
    """

    def __init__(self, *tensors: Tensor) -> None:
        sizes = [tensor.shape[0] if tensor.ndim else None for tensor in tensors]
        if not sizes or None in sizes or len(set(sizes)) > 1:
            raise RequirementError(
                "TensorDataset needs tensors with the same size in dimension 0, got shapes "
                f"{[tuple(tensor.shape) for tensor in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


def samples_of(dataset: Any, indices: Sequence[int]) -> Any:
    """The samples at `indices`, fetched at once where `dataset` has ``__getitems__``."""
    fetch = getattr(dataset, "__getitems__", None)
    return fetch(indices) if callable(fetch) else [dataset[index] for index in indices]


class StackDataset(Dataset[Any]):
    """Sample ``i`` is a tuple (or a dict, with keywords) of sample ``i`` of each dataset.

    Raises:
        ValueError: no dataset, positional and keyword datasets mixed, or lengths differ.
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset needs positional datasets or keyword datasets, not both")
        self.datasets: tuple[Dataset[Any], ...] | dict[str, Dataset[Any]] = args or kwargs
        lengths = {len(dataset) for dataset in (args or kwargs.values())}  # type: ignore[arg-type]
        if len(lengths) > 1:
            raise ValueError(f"StackDataset needs datasets of one length, got {sorted(lengths)}")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        stacked = self.datasets
        datasets = tuple(stacked.values()) if isinstance(stacked, dict) else stacked
        columns = [samples_of(dataset, indices) for dataset in datasets]
        for dataset, samples in zip(datasets, columns):
            if len(samples) != len(indices):
                raise ValueError(
                    f"StackDataset: {type(dataset).__name__}.__getitems__ returned {len(samples)} "
                    f"samples for {len(indices)} indices"
                )
        rows = zip(*columns)
        return [dict(zip(stacked, r)) for r in rows] if isinstance(stacked, dict) else list(rows)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """The samples of several map-style datasets, one dataset after the other.

    Raises:
        ValueError: no dataset is given, or one of them is an IterableDataset.
    """

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset needs at least one dataset")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ValueError("ConcatDataset cannot index an IterableDataset; use ChainDataset")
        self.cumulative_sizes = list(
            itertools.accumulate(len(dataset) for dataset in self.datasets)  # type: ignore[arg-type]
        )

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if index < 0:
            if -index > len(self):
                raise ValueError(
                    "absolute value of index should not exceed dataset length: "
                    f"{index} of {len(self)} samples"
                )
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        if which == len(self.datasets):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]


class ChainDataset(IterableDataset[T_co]):
    """The samples of several iterable datasets, one dataset after the other."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeError(
                    f"ChainDataset needs IterableDatasets, got {type(dataset).__name__}"
                )
            yield from dataset

    def __len__(self) -> int:
        sized: Any = self.datasets
        return sum(len(dataset) for dataset in sized)


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`, in that order."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        samples: list[T_co] = samples_of(self.dataset, [self.indices[i] for i in indices])
        return samples

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[float], generator: Any = None
) -> list[Subset[T_co]]:
    """Split `dataset` at random into disjoint subsets.

    Args:
        dataset: a dataset with a length.
        lengths: sizes that sum to ``len(dataset)``, or fractions that sum to 1. What rounding
            fractions down leaves over goes to the first subsets, one sample each.
        generator: a Generator for a reproducible split; the default one otherwise.

    Raises:
        ValueError: the lengths fit neither reading.
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"fractions must lie between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total or any(size < 0 for size in sizes):
        raise ValueError(
            f"the lengths {list(lengths)} sum to {sum(lengths)}, but the dataset has {total} "
            "samples; give sizes that sum to that, or fractions that sum to 1"
        )
    order = permutation(total, generator)
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes)]
