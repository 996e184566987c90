"""Reductions through shared memory: ranks of one process, of which any may go on at any time."""

from __future__ import annotations

import mmap
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.once

shared_memory = pytest.importorskip("coredispatch_mpi.shared_memory")

REDUCTIONS = {
    "sum": np.add.reduce,
    "product": np.multiply.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "band": np.bitwise_and.reduce,
    "bor": np.bitwise_or.reduce,
    "bxor": np.bitwise_xor.reduce,
}


@pytest.fixture(autouse=True, scope="module")
def short_chunks() -> Any:
    """So that short arrays go through in many chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_memory, "_CHUNK", 4 * 64 * 3)
        patch.setattr(shared_memory, "_SMALL", 384)
        yield


def ranks_of(size: int) -> list[Any]:
    memory = mmap.mmap(-1, shared_memory._length(size))
    return [shared_memory.SharedMemory(memory, r, size, lambda: None) for r in range(size)]


def finish(works: list[Any]) -> None:
    """All make progress when one is asked; what went wrong is kept for who waits."""
    while not all(work.done() for work in works):
        pass


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, int]:
    op = draw(st.sampled_from(sorted(REDUCTIONS)))
    dtype = draw(st.sampled_from(["i1", "u2", "i4", "i8", "f4", "f8", "c8", "c16"]))
    if dtype[0] in "fc" and op.startswith("b"):
        dtype = "i4"
    if dtype[0] == "c":
        op = "sum"
    return op, dtype, draw(st.sampled_from([0, 1, 7, 33, 129, 400, 1203]))


@settings(max_examples=60)
@given(st.integers(2, 4), st.lists(calls(), min_size=1, max_size=5), st.integers(0, 2**32))
def test_all_ranks_get_the_same_whoever_is_ahead(
    size: int, program: list[tuple[str, str, int]], seed: int
) -> None:
    random, rng = Random(seed), np.random.default_rng(seed)
    given_ = [
        rng.integers(-3 if dtype[0] != "u" else 0, 4, (size, count)).astype(dtype)
        for _, dtype, count in program
    ]
    ranks, arrays = ranks_of(size), [[rows[r].copy() for rows in given_] for r in range(size)]
    begun: list[list[Any]] = [[] for _ in ranks]
    while not all(len(b) == len(program) and all(w.done() for w in b) for b in begun):
        r = random.randrange(size)
        if len(begun[r]) < len(program) and random.random() < 0.3:
            at = len(begun[r])
            begun[r].append(ranks[r].all_reduce(arrays[r][at], program[at][0]))
        else:
            ranks[r].advance()
    for at, (op, dtype, _) in enumerate(program):
        with np.errstate(all="ignore"):
            expected = REDUCTIONS[op](given_[at], dtype=dtype) if op in ("sum", "product") else (
                REDUCTIONS[op](given_[at]))  # fmt: skip
        for r in range(size):
            begun[r][at].wait(0.0)
            np.testing.assert_array_equal(arrays[r][at], expected, f"{op} {dtype} rank {r}")


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "other", [(np.ones(7), "sum"), (np.ones(900), "sum"), (np.ones(400, "f4"), "sum"),
              (np.ones(400), "max")], ids=["small", "long", "dtype", "operation"]
)  # fmt: skip
def test_ranks_that_call_differently_all_raise_and_go_on(size: int, other: Any) -> None:
    ranks = ranks_of(size)
    odd = [(np.ones(400), "sum")] * (size - 1) + [other]
    works = [rank.all_reduce(*call) for rank, call in zip(ranks, odd, strict=True)]
    finish(works)
    for work in works:
        with pytest.raises(ValueError, match=rf"rank {size - 1} of the group: {other[0].size} "):
            work.wait(0.0)
    for length in (5, 500):
        arrays = [np.full(length, float(r)) for r in range(size)]
        works = [rank.all_reduce(a, "sum") for rank, a in zip(ranks, arrays, strict=True)]
        finish(works)
        for work, array in zip(works, arrays, strict=True):
            work.wait(0.0)
            assert (array == sum(range(size))).all()


@pytest.mark.parametrize(
    "other", [[], [("broadcast", 1)], [("reduce", 0)], [("broadcast", 0), ("barrier", -1)]]
)
def test_all_reduce_tells_of_other_calls_before_it(other: list[tuple[str, int]]) -> None:
    """A broadcast ends at its root although another rank never calls it."""
    ranks = ranks_of(2)
    for rank, program in zip(ranks, [[("broadcast", 0)], other], strict=True):
        for name, root in program:
            rank.calls.begin(name, np.ones(4), root=root, op="sum" if name == "reduce" else "")
    works = [rank.all_reduce(np.ones(4), "sum") for rank in ranks]
    finish(works)
    for work in works:
        with pytest.raises(ValueError, match="called different collectives before this one"):
            work.wait(0.0)


def test_calls_before_a_queued_reduction_are_those_before_it_was_called() -> None:
    ranks = ranks_of(2)
    works = [rank.all_reduce(np.ones(90000), "sum") for rank in ranks for _ in range(2)]
    ranks[0].calls.begin("broadcast", np.ones(4), root=0)
    finish(works)
    for work in works:
        work.wait(0.0)


def test_not_numbers_reach_all() -> None:
    for size in (2, 3):
        for length in (3, 300):
            for op in ("min", "max"):
                ranks = ranks_of(size)
                arrays = [np.full(length, r, "f4") for r in range(size)]
                arrays[1][:] = np.nan
                works = [rank.all_reduce(a, op) for rank, a in zip(ranks, arrays, strict=True)]
                finish(works)
                for work in works:
                    work.wait(0.0)
                assert np.isnan(arrays).all()


def test_memory_that_is_not_the_other_process_s_is_not_opened(tmp_path: Any) -> None:
    name, where, memory, descriptor = shared_memory._make(4096)
    memory[:3] = b"abc"
    assert shared_memory._open(name, where)[:3] == b"abc"
    assert shared_memory._open("coredispatch-another", where) is None
    assert shared_memory._open(name, str(tmp_path / "missing")) is None
    shared_memory.os.close(descriptor)
    assert shared_memory._open(name, where) is None


def test_calls_of_mpi_that_do_not_fit_are_told_by_whom_they_concern() -> None:
    a, b = np.zeros(4, "f4"), np.zeros(8, "f4")
    fits: list[tuple[str, Any, Any]] = [  # what rank 0 and rank 1 say, and who raises
        ("all_gather", {"array": a, "counts": [4, 8]}, {"array": b, "counts": [4, 8]}),
        ("reduce_scatter", {"array": b, "counts": [4, 4], "op": "sum"}, None),
        ("all_to_all", {"array": a, "counts": [1, 3], "received": [1, 6]},
         {"array": b, "counts": [6, 2], "received": [3, 2]}),
        ("broadcast", {"array": a, "root": 0}, None),
        ("reduce", {"array": a, "root": 0, "op": "max"}, None),
        ("gather", {"array": a, "root": 0, "counts": [4, 8]}, {"array": b, "root": 0}),
        ("scatter", {"array": a, "root": 0, "counts": [4, 8]}, {"array": b, "root": 0}),
        ("barrier", {}, None),
    ]  # fmt: skip
    concerned = {"broadcast": [1], "scatter": [1], "reduce": [0], "gather": [0]}

    def outcomes(first: tuple[str, Any], second: tuple[str, Any]) -> list[bool]:
        ranks = ranks_of(2)
        checks = [
            rank.calls.begin(name, **arguments)
            for rank, (name, arguments) in zip(ranks, (first, second), strict=True)
        ]
        found = []
        for check in checks:
            try:
                check()
            except ValueError as error:
                found.append("rank 0 of the group: " in str(error) and "rank 1" in str(error))
            else:
                found.append(False)
        return found

    for name, first, second in fits:
        second = first if second is None else second
        assert outcomes((name, first), (name, second)) == [False, False], name
        expected = [rank in concerned.get(name, [0, 1]) for rank in (0, 1)]
        changes: list[dict[str, Any]] = []
        if name != "barrier":
            changes.append({"array": second["array"].astype("f8")})
        if name in ("broadcast", "reduce", "gather"):
            changes.append({"array": np.zeros(5, "f4")})
        if "op" in first:
            changes.append({"op": "min"})
        if name == "all_gather":
            changes.append({"counts": [4, 9]})
        if name == "all_to_all":
            changes += [{"counts": [5, 2]}, {"received": [4, 2]}]
        for change in changes:
            assert outcomes((name, first), (name, second | change)) == expected, (name, change)
        if name == "scatter":
            wrong = (name, first | {"counts": [4, 9]})
            assert outcomes(wrong, (name, second)) == [False, True]
    assert outcomes(("barrier", {}), ("all_gather", fits[0][2])) == [True, True]


def test_a_rank_far_ahead_has_written_over_what_it_said() -> None:
    ranks = ranks_of(2)
    check = ranks[1].calls.begin("broadcast", np.zeros(4), root=0)
    for _ in range(40):
        ranks[0].calls.begin("broadcast", np.zeros(7), root=0)
    check()  # nothing is known of that call any more
