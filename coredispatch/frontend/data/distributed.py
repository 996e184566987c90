"""Sampling for several processes that train together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import Any

from coredispatch.frontend.data.randomness import permutation
from coredispatch.frontend.data.sampler import Sampler
from coredispatch.registry.model.generator import Generator

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The part of a dataset's indices that one of several processes visits.

    All processes get equally many: the dataset is filled up with indices that appear twice, or cut
    off with `drop_last`. With `shuffle` every epoch has another order, the same in all processes:
    call :meth:`set_epoch` before each.

    Args:
        dataset: only its length is used.
        num_replicas: number of processes; that of the process group by default.
        rank: number of this process; its rank in the group by default.
        shuffle: visit in random order.
        seed: of that order, the same in all processes.
        drop_last: cut off instead of filling up.

    Raises:
        ValueError: the numbers are not given, and there is no process group; or the
            rank is not one of the processes.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            group = _process_group()
            num_replicas = group.get_world_size() if num_replicas is None else num_replicas
            rank = group.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        size = len(dataset)
        if drop_last and size % num_replicas:
            self.num_samples = math.ceil((size - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            indices = permutation(size, generator)
        else:
            indices = list(range(size))
        if self.drop_last:
            indices = indices[: self.total_size]
        elif indices:
            times = math.ceil(self.total_size / len(indices))
            indices = (indices * times)[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes, so that its order is another one."""
        self.epoch = epoch


def _process_group() -> Any:
    import coredispatch

    return coredispatch.distributed
