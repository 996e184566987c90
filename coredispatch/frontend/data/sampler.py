"""Samplers: in which order, and in which groups, the samples of a dataset are visited."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from coredispatch.frontend.creation import as_tensor
from coredispatch.frontend.data.randomness import integers, permutation, weighted
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

_FLOAT64 = DType.of("float64")
T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Iterates over indices (or lists of indices) of a dataset. Subclasses define ``__iter__``."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value!r}")
    return value


class SequentialSampler(Sampler[int]):
    """0, 1, ..., ``len(data_source) - 1``."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, a new order in each pass.

    Args:
        data_source: what is sampled; only its length is used.
        replacement: draw each index independently, so that some repeat.
        num_samples: how many indices a pass gives, ``len(data_source)`` by default. Without
            replacement several permutations follow each other until there are enough.
        generator: source of randomness; the default generator otherwise.

    Raises:
        ValueError: there is nothing to sample, or `num_samples` is not positive.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement!r}"
            )
        self.data_source = data_source
        self.replacement = replacement
        self.generator = generator
        self._num_samples = num_samples
        _count(self.num_samples, "num_samples")

    @property
    def num_samples(self) -> int:
        # Asked anew each time: a dataset may grow between two passes.
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size = len(self.data_source)
        remaining = self.num_samples
        if remaining and not size:
            raise ValueError(f"cannot draw {remaining} samples from an empty dataset")
        if self.replacement:
            yield from integers(size, remaining, self.generator)
            return
        while remaining > 0:
            order = permutation(size, self.generator)[:remaining]
            yield from order
            remaining -= len(order)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given `indices` in random order, without replacement."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in permutation(len(self.indices), self.generator):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices of `weights`, drawn with probability proportional to the weight.

    Args:
        weights: non-negative numbers, not necessarily summing to one.
        num_samples: how many indices a pass gives.
        replacement: whether an index may be drawn again; without, `num_samples` must not exceed
            the number of positive weights.
        generator: source of randomness; the default generator otherwise.

    Raises:
        ValueError: `weights` is not one-dimensional, `num_samples` is not positive, or
            `replacement` is no bool.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement!r}"
            )
        self.weights = as_tensor(weights, dtype=_FLOAT64)
        if self.weights.ndim != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples = _count(num_samples, "num_samples")
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        return weighted(self.weights.tolist(), self.num_samples, self.replacement, self.generator)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last one may be shorter.

    Args:
        sampler: any iterable of indices.
        batch_size: the number of indices in a list.
        drop_last: leave out a last list that is shorter.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.batch_size = _count(batch_size, "batch_size")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a bool, got {drop_last!r}")
        self.sampler = sampler
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
