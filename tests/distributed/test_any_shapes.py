"""Every collective on every engine, for any shape, dtype and sizes of parts."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.distributed as dist

pytestmark = pytest.mark.once

PROGRAM = Path(__file__).parent / "any_shapes_program.py"
program = SimpleNamespace(**runpy.run_path(str(PROGRAM)))


@settings(max_examples=120)
@given(case=program.cases(), ranks=st.integers(1, program.MOST))
def test_threads(case: Any, ranks: int) -> None:
    dist.threads.spawn(lambda rank: program.check(case), nprocs=ranks)


def test_two_ranks_of_mpi(mpirun: Any) -> None:
    assert mpirun(2, PROGRAM.name, "mpi", "150").stdout.count("agree") == 2


def test_three_spawned_processes(run_program: Any, tmp_path: Path) -> None:
    done = run_program(sys.executable, str(PROGRAM), "spawn", "150", "3", f"file://{tmp_path}/meet")
    assert done.stdout.count("agree") == 3


@settings(max_examples=40)
@given(
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64"]),
    place=st.tuples(st.integers(0, 999), st.integers(1, 1000)).filter(lambda p: p[0] < p[1]),
)
def test_simulated_ranks_have_the_shapes(shape: Any, dtype: str, place: Any) -> None:
    rank, size = place
    with dist.world.separate_world():
        dist.init_process_group("fake", rank=rank, world_size=size)
        x = cd.ones(shape, dtype=getattr(cd, dtype))
        dist.all_reduce(x)
        dist.broadcast(x, size - 1)
        into = cd.empty((size, *shape), dtype=x.dtype)
        dist.all_gather_into_tensor(into, x)
        assert into.shape == (size, *shape) and cd.equal(into[rank], x)
        part = cd.empty_like(x)
        dist.reduce_scatter_tensor(part, into)
        dist.all_to_all_single(into.clone(), into)
        assert part.shape == shape and part.dtype == x.dtype
        dist.destroy_process_group()
