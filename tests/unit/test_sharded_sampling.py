"""``DistributedSampler``, and samplers that draw as they go."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.utils.data import DistributedSampler, RandomSampler
from coredispatch.utils.data.distributed import DistributedSampler as Same


@given(st.integers(1, 30), st.integers(1, 5), st.booleans(), st.booleans())
def test_every_index_is_visited(size: int, count: int, shuffle: bool, drop_last: bool) -> None:
    samplers = [
        DistributedSampler(range(size), count, rank, shuffle, 3, drop_last) for rank in range(count)
    ]
    for sampler in samplers:
        sampler.set_epoch(2)
    found = [list(sampler) for sampler in samplers]
    assert {len(part) for part in found} == {len(samplers[0])}
    visited = set(itertools.chain(*found))
    if not drop_last:
        assert visited == set(range(size))
    else:
        assert len(visited) == sum(map(len, found)) <= size < len(visited) + count
    if not shuffle and size % count == 0:
        assert found[0] == list(range(0, size, count))


def test_epochs_have_orders_of_their_own() -> None:
    sampler = Same(range(50), num_replicas=2, rank=1)
    first = list(sampler)
    assert first == list(sampler)
    sampler.set_epoch(1)
    assert first != list(sampler)
    with pytest.raises(
        ValueError, match=r"Invalid rank 2, rank should be in the interval \[0, 1\]"
    ):
        DistributedSampler(range(3), 2, 2)
    with pytest.raises(ValueError, match="has not been initialized"):
        DistributedSampler(range(3))


@pytest.mark.parametrize("replacement", [False, True])
def test_a_long_pass_is_drawn_as_it_goes(replacement: bool) -> None:
    sampler = RandomSampler(range(7), replacement, num_samples=10**10)
    assert len(sampler) == 10**10
    assert set(itertools.islice(sampler, 1000)) == set(range(7))
    weights = cd.utils.data.WeightedRandomSampler([1.0, 0.0, 2.0], 10**10)
    assert set(itertools.islice(weights, 1000)) == {0, 2}
