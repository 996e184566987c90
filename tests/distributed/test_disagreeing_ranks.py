"""Ranks that call different collectives, or the same with different particulars, are told so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist

Call = Callable[[], Any]
LIMIT = timedelta(seconds=60)


@pytest.fixture(params=["local", "socket"])
def texts_of(request: pytest.FixtureRequest) -> Callable[[list[Call]], list[str]]:
    """``texts_of(calls)``: rank r does ``calls[r]``; what each rank is told, "" for nothing."""

    def texts_of(calls: list[Call]) -> list[str]:
        store = dist.HashStore()

        def program(rank: int) -> str:
            if request.param == "socket":
                dist.destroy_process_group()
                dist.init_process_group(
                    "socket", store=store, rank=rank, world_size=len(calls), timeout=LIMIT
                )
            try:
                calls[rank]()
            except dist.DistBackendError as error:
                return str(error)
            return ""

        return dist.threads.spawn(program, nprocs=len(calls), timeout=LIMIT)

    return texts_of


def ones(count: int = 4, dtype: Any = cd.float32) -> Any:
    return cd.ones(count, dtype=dtype)


def rows(count: int = 2, dtype: Any = cd.float32) -> list[Any]:
    return [cd.ones(count, dtype=dtype) for _ in range(2)]


CALLS: dict[str, tuple[Call, str]] = {
    "all_reduce": (lambda: dist.all_reduce(ones()), "all_reduce of 4 elements of float32, sum"),
    "all_reduce max": (
        lambda: dist.all_reduce(ones(), dist.ReduceOp.MAX),
        "all_reduce of 4 elements of float32, max",
    ),
    "all_reduce int": (
        lambda: dist.all_reduce(ones(4, cd.int32)),
        "all_reduce of 4 elements of int32, sum",
    ),
    "all_reduce 3": (lambda: dist.all_reduce(ones(3)), "all_reduce of 3 elements of float32, sum"),
    "in the background": (
        lambda: dist.all_reduce(ones(6), async_op=True).wait(),
        "all_reduce of 6 elements of float32, sum",
    ),
    "broadcast 0": (
        lambda: dist.broadcast(ones(), 0),
        "broadcast of 4 elements of float32, root 0",
    ),
    "broadcast 1": (
        lambda: dist.broadcast(ones(), 1),
        "broadcast of 4 elements of float32, root 1",
    ),
    "broadcast int": (
        lambda: dist.broadcast(ones(4, cd.int32), 0),
        "broadcast of 4 elements of int32, root 0",
    ),
    "broadcast 5": (
        lambda: dist.broadcast(ones(5), 0),
        "broadcast of 5 elements of float32, root 0",
    ),
    "reduce 0": (
        lambda: dist.reduce(ones(), 0),
        "reduce of 4 elements of float32, root 0, sum",
    ),
    "reduce 1": (
        lambda: dist.reduce(ones(), 1),
        "reduce of 4 elements of float32, root 1, sum",
    ),
    "all_gather": (
        lambda: dist.all_gather(rows(), ones(2)),
        "all_gather of 4 elements of float32",
    ),
    "all_gather 3": (
        lambda: dist.all_gather(rows(3), ones(3)),
        "all_gather of 6 elements of float32",
    ),
    "reduce_scatter": (
        lambda: dist.reduce_scatter(ones(2), rows()),
        "reduce_scatter of 4 elements of float32, sum",
    ),
    "gather 0": (
        lambda: dist.gather(ones(2), rows() if dist.get_rank() == 0 else None, dst=0),
        "gather of float32, root 0",
    ),
    "gather 1": (
        lambda: dist.gather(ones(2), rows() if dist.get_rank() == 1 else None, dst=1),
        "gather of float32, root 1",
    ),
    "scatter 0": (
        lambda: dist.scatter(ones(2), rows() if dist.get_rank() == 0 else None, src=0),
        "scatter of float32, root 0",
    ),
    "all_to_all": (
        lambda: dist.all_to_all_single(ones(4), ones(4)),
        "all_to_all of float32",
    ),
    "barrier": (dist.barrier, "barrier"),
}
PAIRS = [
    ("all_reduce", "all_reduce max"),
    ("all_reduce", "all_reduce int"),
    ("all_reduce", "all_reduce 3"),
    ("all_reduce", "in the background"),
    ("all_reduce", "all_gather"),
    ("broadcast 0", "all_reduce"),
    ("all_reduce", "broadcast 0"),
    ("broadcast 0", "broadcast 1"),
    ("broadcast 1", "broadcast 0"),
    ("broadcast 0", "broadcast int"),
    ("broadcast 0", "broadcast 5"),
    ("reduce 0", "reduce 1"),
    ("reduce 0", "all_reduce"),
    ("reduce 0", "gather 0"),
    ("all_gather", "all_gather 3"),
    ("all_gather", "all_to_all"),
    ("reduce_scatter", "all_to_all"),
    ("gather 0", "gather 1"),
    ("gather 1", "gather 0"),
    ("scatter 0", "broadcast 1"),
    ("barrier", "all_gather"),
    ("broadcast 0", "barrier"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=" beside ".join)
def test_both_ranks_say_what_each_calls(
    texts_of: Callable[[list[Call]], list[str]], pair: tuple[str, str]
) -> None:
    found = texts_of([CALLS[name][0] for name in pair])
    for rank, text in enumerate(found):
        assert text.startswith(f"[rank {rank}] ") and "the ranks call differently" in text, found
        for other, name in enumerate(pair):
            assert f"rank {other} of the group: {CALLS[name][1]}\n" in text
        assert "\n  fix: " in text


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_of_three_ranks_none_goes_on_for_long(
    texts_of: Callable[[list[Call]], list[str]], odd: int
) -> None:
    """A rank whose own part was done is told at its next call."""

    def twice(root: int) -> Call:
        def call() -> None:
            dist.broadcast(ones(), root)
            dist.all_reduce(ones())

        return call

    found = texts_of([twice(1 if rank == odd else 0) for rank in range(3)])
    assert all("the ranks call differently" in text or "is gone" in text for text in found), found
    assert sum("the ranks call differently" in text for text in found) >= 2, found


def test_a_call_that_one_rank_leaves_out(texts_of: Callable[[list[Call]], list[str]]) -> None:
    def both() -> None:
        dist.barrier()
        dist.all_reduce(ones())

    found = texts_of([both, lambda: dist.all_reduce(ones())])
    assert "rank 1 of the group: all_reduce" in found[0]
    assert "rank 0 of the group: barrier" in found[1]


def test_parts_and_messages_that_do_not_fit(
    texts_of: Callable[[list[Call]], list[str]],
) -> None:
    def gather() -> None:
        mine = ones(2 + dist.get_rank())
        dist.gather(mine, rows() if dist.get_rank() == 0 else None)

    assert "rank 1 of the group sent 12 bytes, and 8 are expected" in texts_of([gather] * 2)[0]
    found = texts_of([lambda: dist.recv(ones(2), 1), lambda: dist.send(ones(2, cd.int32), 0)])
    assert "rank 1 of the group sent int32, and rank 0 receives float32" in found[0]
    assert not found[1]
