"""Collectives of shapes, dtypes and sizes that hypothesis chooses, against NumPy.

    any_shapes_program.py mpi EXAMPLES
    any_shapes_program.py spawn EXAMPLES RANKS URL

All ranks choose the same examples: they are derived from the test alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.conformance import hypothesis_profile

FLOATING = ["float32", "float64", "float16", "bfloat16"]
WHOLE = ["int64", "int32", "int16", "int8", "uint8"]
COMBINE = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "AVG": "mean"}
MOST = 4  # ranks for which sizes are chosen


@dataclass(frozen=True)
class Case:
    """A call: `rows` and `table` are sizes of parts, by rank and by pair of ranks."""

    name: str
    dtype: str
    op: str
    shape: tuple[int, ...]
    rows: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    root: int
    turned: bool
    later: bool


sizes = st.lists(st.integers(0, 3), min_size=MOST, max_size=MOST).map(tuple)


@st.composite
def cases(draw: Any) -> Case:
    """Any collective, with what it takes."""
    dtype = draw(st.sampled_from([*FLOATING, *WHOLE, "bool", "complex64", "complex128"]))
    ops = ["SUM", "PRODUCT", "MIN", "MAX"]
    if dtype.startswith("complex"):
        ops = ["SUM", "AVG"]
    elif dtype in FLOATING:
        ops.append("AVG")
    return Case(
        name=draw(st.sampled_from(sorted(CHECKS))),
        dtype=dtype,
        op=draw(st.sampled_from(ops)),
        shape=tuple(draw(st.lists(st.integers(0, 5), max_size=3))),
        rows=draw(sizes),
        table=tuple(draw(sizes) for _ in range(MOST)),
        root=draw(st.integers(0, MOST - 1)),
        turned=draw(st.booleans()),
        later=draw(st.booleans()),
    )


class Rank:
    """What one rank has in a case, and what all have."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.root = case.root % self.size
        self.op = getattr(dist.ReduceOp, case.op)

    def numbers(self, shape: tuple[int, ...], *who: int) -> Any:
        """Small numbers, which all dtypes and their sums have exactly."""
        rng = np.random.default_rng([len(shape), *shape, *who])
        found = np.asarray(rng.integers(0, 2 if self.case.dtype == "bool" else 3, shape))
        if self.case.dtype.startswith("complex"):
            found = found + 1j * np.asarray(rng.integers(0, 3, shape))
        return found

    def tensor(self, shape: tuple[int, ...], *who: int) -> Any:
        """The numbers as a tensor, maybe with turned strides."""
        made = cd.tensor(self.numbers(shape, *who)).to(getattr(cd, self.case.dtype))
        if self.case.turned and made.ndim > 1:
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        return made

    def room(self, shape: tuple[int, ...]) -> Any:
        """A tensor to be written to."""
        return cd.zeros(shape, dtype=getattr(cd, self.case.dtype))

    def done(self, work: Any) -> None:
        if self.case.later:
            work.wait()

    def combined(self, arrays: list[Any]) -> Any:
        found = getattr(np.stack(arrays), COMBINE[self.case.op])(0)
        return found != 0 if self.case.dtype == "bool" else found

    def same(self, got: Any, expected: Any) -> None:
        kind = cd.complex128 if got.dtype.is_complex else cd.float64
        found = got.to(kind).numpy()
        assert found.shape == np.shape(expected), (self.case, found.shape, np.shape(expected))
        tolerance = 1e-2 if "16" in self.case.dtype else 1e-6
        np.testing.assert_allclose(found, expected, rtol=tolerance, err_msg=str(self.case))


def all_reduce(r: Rank) -> None:
    """Also ``reduce``, which leaves the other ranks' tensors as they were."""
    shape = r.case.shape
    expected = r.combined([r.numbers(shape, k) for k in range(r.size)])
    x = r.tensor(shape, r.rank)
    r.done(dist.all_reduce(x, r.op, async_op=r.case.later))
    r.same(x, expected)
    y = r.tensor(shape, r.rank)
    r.done(dist.reduce(y, r.root, r.op, async_op=r.case.later))
    r.same(y, expected if r.rank == r.root else r.numbers(shape, r.rank))


def broadcast(r: Rank) -> None:
    x = r.tensor(r.case.shape, r.rank)
    r.done(dist.broadcast(x, r.root, async_op=r.case.later))
    r.same(x, r.numbers(r.case.shape, r.root))


def all_gather(r: Rank) -> None:
    """Of parts of several sizes, and of one size into one tensor."""
    shapes = [(rows, *r.case.shape) for rows in r.case.rows[: r.size]]
    out = [r.room(shape) for shape in shapes]
    own = r.tensor(shapes[r.rank], r.rank)
    r.done(dist.all_gather(out, own, async_op=r.case.later))
    for k, part in enumerate(out):
        r.same(part, r.numbers(shapes[k], k))
    into = r.room((r.size, *r.case.shape))
    own = r.tensor(r.case.shape, r.rank)
    r.done(dist.all_gather_into_tensor(into, own, async_op=r.case.later))
    r.same(into, np.stack([r.numbers(r.case.shape, k) for k in range(r.size)]))


def gather(r: Rank) -> None:
    """Also ``scatter``, back again."""
    here = r.rank == r.root
    out = [r.room(r.case.shape) for _ in range(r.size)] if here else None
    r.done(dist.gather(r.tensor(r.case.shape, r.rank), out, r.root, async_op=r.case.later))
    for k, part in enumerate(out or []):
        r.same(part, r.numbers(r.case.shape, k))
    own = r.room(r.case.shape)
    r.done(dist.scatter(own, out, r.root, async_op=r.case.later))
    r.same(own, r.numbers(r.case.shape, r.rank))


def reduce_scatter(r: Rank) -> None:
    """Of parts of several sizes, and of one size from one tensor."""
    shapes = [(rows, *r.case.shape) for rows in r.case.rows[: r.size]]
    own = r.room(shapes[r.rank])
    parts = [r.tensor(shape, r.rank, k) for k, shape in enumerate(shapes)]
    r.done(dist.reduce_scatter(own, parts, r.op, async_op=r.case.later))
    r.same(own, r.combined([r.numbers(shapes[r.rank], k, r.rank) for k in range(r.size)]))
    own = r.room(r.case.shape)
    every = cd.stack([r.tensor(r.case.shape, r.rank, k) for k in range(r.size)])
    r.done(dist.reduce_scatter_tensor(own, every, r.op, async_op=r.case.later))
    r.same(own, r.combined([r.numbers(r.case.shape, k, r.rank) for k in range(r.size)]))


def all_to_all(r: Rank) -> None:
    """As lists of tensors and as one tensor with sizes; nothing for some pairs."""
    rest = r.case.shape[1:]
    rows = [list(line[: r.size]) for line in r.case.table[: r.size]]
    sent = [r.tensor((n, *rest), r.rank, k) for k, n in enumerate(rows[r.rank])]
    coming = [line[r.rank] for line in rows]
    got = [r.room((n, *rest)) for n in coming]
    r.done(dist.all_to_all(got, sent, async_op=r.case.later))
    expected = [r.numbers((n, *rest), k, r.rank) for k, n in enumerate(coming)]
    for part, numbers in zip(got, expected, strict=True):
        r.same(part, numbers)
    into = r.room((sum(coming), *rest))
    work = dist.all_to_all_single(into, cd.cat(sent), coming, rows[r.rank], async_op=r.case.later)
    r.done(work)
    r.same(into, np.concatenate(expected))


def messages(r: Rank) -> None:
    """To the next rank, from the one before."""
    if r.size == 1:
        return
    after, before = (r.rank + 1) % r.size, (r.rank - 1) % r.size
    got = r.room(r.case.shape)
    sent = r.tensor(r.case.shape, r.rank)
    pair = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    r.same(got, r.numbers(r.case.shape, before))


CHECKS = {
    check.__name__: check
    for check in (
        *(all_reduce, broadcast, all_gather, gather),
        *(reduce_scatter, all_to_all, messages),
    )
}


def check(case: Case) -> None:
    """Carry out a case on this rank."""
    CHECKS[case.name](Rank(case))


def check_many(examples: int) -> None:
    """The same cases on all ranks of this group."""
    hypothesis_profile.use()

    @settings(max_examples=examples, derandomize=True, database=None)
    @given(cases())
    def every(case: Case) -> None:
        check(case)

    every()
    engine = dist.group.WORLD.communicators["cpu"].name
    print(f"rank {dist.get_rank()}: {examples} cases over {engine} agree")


def spawned(rank: int, size: int, where: str, examples: int) -> None:
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
    check_many(examples)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        ranks = int(sys.argv[3])
        args = (ranks, sys.argv[4], int(sys.argv[2]))
        cd.multiprocessing.spawn(spawned, args, nprocs=ranks)
    else:
        dist.init_process_group(sys.argv[1])
        check_many(int(sys.argv[2]))
        dist.destroy_process_group()
