"""Operators on few elements: what their one compiled call takes, and what it leaves to others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES

from coredispatch_cpu_numba.kernels import small, small_pointwise
from coredispatch_cpu_numba.kernels.elementwise.pointwise import COMPARISON, UNARY
from coredispatch_cpu_numba.kernels.small_pointwise import KERNELS
from coredispatch_cpu_numba.loops import small_pointwise as loops
from coredispatch_cpu_numba.loops.elementwise.pointwise import LOOPS

pytestmark = pytest.mark.once

Kernels = dict[str, Callable[..., Any]]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, 3e38, -3e38, 0.3, 5.0])
#: two matrices of all pairs
X, Y = (np.ascontiguousarray(m) for m in np.meshgrid(SPECIAL, SPECIAL))
EXACT = ("abs", "neg", "relu", "sqrt", "square", "add", "sub", "mul", "div", *COMPARISON)


@pytest.fixture(autouse=True)
def silence() -> Any:
    with np.errstate(all="ignore"):
        yield


def check(ours: Any, theirs: Any) -> None:
    """The same array bit by bit; NaN is one number."""
    theirs = np.asarray(theirs)
    assert type(ours) is np.ndarray
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_array_equal(ours, theirs)
    if ours.dtype.kind == "f":
        there = ~np.isnan(theirs)
        np.testing.assert_array_equal(np.signbit(ours)[there], np.signbit(theirs)[there])


def test_the_words_are_where_the_compiled_functions_look() -> None:
    for name in ("_RESULT", "_MOST", "_MISSING", "_TASKS"):
        assert getattr(small_pointwise, name) == getattr(loops, name)
    assert small_pointwise._VARIANTS == loops.VARIANTS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in EXACT if n in UNARY])
def test_one_array(name: str, dtype: Any, reference: Kernels) -> None:
    x = X.astype(dtype)
    wanted = reference[name](x)
    check(KERNELS[name](x), wanted)
    written = x.copy()
    assert KERNELS[name](written, out=written) is written
    check(written, wanted)
    other = np.empty_like(x)
    assert KERNELS[name](x, out=other) is other
    check(other, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in EXACT if n not in UNARY])
def test_two_operands(name: str, dtype: Any, reference: Kernels) -> None:
    kernel, wanted = KERNELS[name], reference[name]
    x, y = X.astype(dtype), Y.astype(dtype)
    for other in (y, x, 2.0, -1, 0, 2**53, -(2**53)):
        check(kernel(x, other), wanted(x, other))
    for operands in ((x[:1, 5].reshape(()), y[5, :1].reshape(())), (x[:0], y[:0])):
        check(kernel(*operands), wanted(*operands))
    if name in COMPARISON:
        assert kernel(x, y[3]) is NotImplemented
    else:
        check(kernel(x, y[3]), wanted(x, y[3]))
        for operands in ((x.copy(), y), (x.copy(), 3.0)):
            result = wanted(*operands)
            assert kernel(*operands, out=operands[0]) is operands[0]
            check(operands[0], result)
        second = y.copy()
        assert kernel(x, second, out=second) is second
        check(second, wanted(x, y))


@pytest.mark.parametrize("name", ["add", "gt"])
def test_what_is_left_to_the_next_kernel(name: str) -> None:
    kernel, x, y = KERNELS[name], X.astype(np.float32), Y.astype(np.float32)
    kernel(x, y)
    unaligned = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(np.float32)
    others = [
        (x, y.T),
        (x.T, y),
        (x, y.astype(np.float64)),
        (x.astype(np.int64), 1),
        (x.astype(">f4"), y.astype(">f4")),
        (x, y[:, :1]),
        (x, y[None]),
        (x, 2**53 + 1),
        (x, -(2**70)),
        (x, True),
        (x, None),
        (x, "text"),
        (2.0, x),
        (unaligned, unaligned),
        (np.zeros(70_000, np.float32), 1.0),
    ]
    for operands in others:
        assert kernel(*operands) is NotImplemented, operands


def test_every_task_that_is_asked_for_exists() -> None:
    for name in KERNELS:
        variants = ("", "_inplace") if name in UNARY else small_pointwise._VARIANTS
        if name in COMPARISON:
            variants = ("", "_scalar")
        for variant in variants:
            assert name + variant in LOOPS


def test_where_nothing_is_written() -> None:
    kernel, x = KERNELS["add"], np.arange(20, dtype=np.float32)
    one, other, read_only = x[1:11], x[:10], x[:10].view()
    read_only.flags.writeable = False
    kernel(one, one)
    before = x.copy()
    for operands, out in [
        ((one, other), one),  # another part of the same memory
        ((other, other), one),
        ((other, 1.0), read_only),
        ((other, 1.0), np.empty(10)),
        ((other, 1.0), np.empty(9, np.float32)),
    ]:
        assert kernel(*operands, out=out) is NotImplemented
    np.testing.assert_array_equal(x, before)


@settings(max_examples=200)
@given(data=st.data())
def test_arrays_are_joined_as_by_numpy(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 3), max_size=4).map(tuple))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int64]))
    many = data.draw(st.integers(1, 3))
    arrays = [np.arange(i, i + np.prod(shape, dtype=int)).reshape(shape) for i in range(many)]
    arrays = [array.astype(dtype) for array in arrays]
    dim = data.draw(st.integers(-len(shape) - 1, len(shape)))
    for items in (arrays, tuple(arrays)):
        check(small.stack(items, dim), np.stack(arrays, dim))
        if -len(shape) <= dim < len(shape):
            check(small.cat(items, dim), np.concatenate(arrays, dim))
        else:
            assert small.cat(items, dim) is NotImplemented


def test_what_is_not_joined() -> None:
    x = X.astype(np.float32)
    others = [[], x, None, [x, None], [x, 1.0], [x, x.T], [x, x.astype(np.float64)], [x, x[0]]]
    for items in [*others, [x[:, :2], x[:, :2]], [x.astype(np.int16)], [np.zeros(5000)]]:
        assert small.cat(items, 0) is NotImplemented
        assert small.stack(items, 0) is NotImplemented
    assert small.cat([x, x[:, :3].copy()], 0) is NotImplemented
    assert small.stack([x, x[:3]], 0) is NotImplemented


def test_nothing_is_kept_and_nothing_is_lost() -> None:
    x, y = X.astype(np.float32), Y.astype(np.float32)
    KERNELS["add"](x, y)
    counted = (x, y, None, NotImplemented)
    before = [sys.getrefcount(item) for item in counted]
    for _ in range(1000):
        KERNELS["add"](x, y)
        KERNELS["add"](x, y, out=x)
        KERNELS["add"](x, "text")
        small.cat([x, y], 0)
        small.cat([x, None], 0)
    for item, count in zip(counted, before, strict=True):
        assert abs(sys.getrefcount(item) - count) < 100
