"""``out=`` and in-place forms: where results are written, and where they must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, WHEN

from coredispatch_cpu_numba.arrays import FLOATS, is_dense, is_like, may_write, overlap
from coredispatch_cpu_numba.kernels.elementwise.pointwise import BINARY, UNARY

pytestmark = pytest.mark.once

SIZE = 1000
BINARY = [name for name in BINARY if not name.endswith("backward")]


def positive(seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(seed).random(SIZE) + 0.5).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, "leaky_relu"])
def test_unary_out(name: str, dtype: Any) -> None:
    kernel, rest = KERNELS[name], (0.1,) if name == "leaky_relu" else ()
    x = positive(dtype=dtype)
    want = kernel(x, *rest)
    out = np.empty_like(x)
    assert kernel(x, *rest, out=out) is out
    np.testing.assert_array_equal(out, want)
    itself = x.copy()
    assert kernel(itself, *rest, out=itself) is itself
    np.testing.assert_array_equal(itself, want)
    strided = np.zeros(2 * SIZE, dtype)[::2]
    assert kernel(x, *rest, out=strided) is strided
    np.testing.assert_array_equal(strided, want)
    wider = np.zeros(SIZE, np.float64)
    kernel(x, *rest, out=wider)
    np.testing.assert_array_equal(wider, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_out(name: str, dtype: Any) -> None:
    kernel = KERNELS[name]
    x, y = positive(dtype=dtype), positive(1, dtype)
    row = y[:100].copy()
    for left, right in ((x, y), (x, 0.75), (x, x), (x.reshape(10, 100), row)):
        want = kernel(left, right)
        out = np.empty_like(left)
        assert kernel(left, right, out=out) is out
        np.testing.assert_array_equal(out, want)
        itself = left.copy()
        other = itself if right is left else right
        if right is row:  # which is left to the kernels of strided arrays
            assert kernel(itself, other, out=itself) is NotImplemented
            continue
        assert kernel(itself, other, out=itself) is itself
        np.testing.assert_array_equal(itself, want)
    into_second = y.copy()
    kernel(x, into_second, out=into_second)
    np.testing.assert_array_equal(into_second, kernel(x, y))


@pytest.mark.parametrize("shift", [1, 7, 16])
def test_partial_overlap(shift: int) -> None:
    """The result is that of inputs read before anything is written."""
    memory = np.arange(1.0, SIZE + shift + 1, dtype=np.float32)
    for forward in (True, False):
        buffer = memory.copy()
        x, out = (buffer[:-shift], buffer[shift:]) if forward else (buffer[shift:], buffer[:-shift])
        want = KERNELS["exp"](x.copy() * 0)
        KERNELS["sub"](x, x, out=out)
        np.testing.assert_array_equal(out, np.zeros_like(want))
        buffer = memory.copy()
        x, out = (buffer[:-shift], buffer[shift:]) if forward else (buffer[shift:], buffer[:-shift])
        want = np.square(x.copy())
        KERNELS["square"](x, out=out)
        np.testing.assert_array_equal(out, want)
        buffer = memory.copy()
        x, out = (buffer[:-shift], buffer[shift:]) if forward else (buffer[shift:], buffer[:-shift])
        want = out + x.copy()
        KERNELS["add"](out, x, out=out)
        np.testing.assert_array_equal(out, want)


def test_read_only_arrays() -> None:
    """They are read without a second compilation, and never written."""
    x = positive()
    x.flags.writeable = False
    np.testing.assert_array_equal(KERNELS["square"](x), np.square(x))
    before = x.copy()
    for call in (
        lambda: KERNELS["square"](x, out=x),
        lambda: KERNELS["add"](x, 1.0, out=x),
        lambda: KERNELS["leaky_relu"](x, 0.1, out=x),
    ):
        with pytest.raises(ValueError, match="read-only"):
            call()
    np.testing.assert_array_equal(x, before)


def test_optimizer_declines_shared_and_read_only_memory() -> None:
    arrays = [positive(seed) for seed in range(4)]
    options = (None, 1, 1e-3, 0.9, 0.999, 1e-8, 0.0, False, False)
    assert WHEN["adam_step"](*arrays, *options)
    assert not WHEN["adam_step"](arrays[0], arrays[0], *arrays[2:], *options)
    assert not WHEN["adam_step"](*arrays[:3], arrays[2], *options)
    frozen = arrays[0].copy()
    frozen.flags.writeable = False
    assert not WHEN["adam_step"](frozen, *arrays[1:], *options)


def test_predicates_reject() -> None:
    """What the loops would read wrongly goes to NumPy."""
    big = np.ones((300, 300), np.float32)
    swapped = big.astype(">f4")
    for odd in (
        big.T,
        big[:, ::2],
        big[:, 1:],
        big[::-1],
        np.broadcast_to(np.float32(1), (300, 300)),
        big.astype(np.float16).T,
        big.astype(np.int32),
        big.astype(np.complex64),
        swapped,
    ):
        if odd.shape == odd.T.shape and odd.flags.c_contiguous and odd.dtype in FLOATS:
            continue
        assert not WHEN["exp"](odd)
        assert not WHEN["add"](odd, 1.0)
        assert not WHEN["add"](big, odd)
        assert KERNELS["softmax"](odd, 1, None) is NotImplemented
        if odd.dtype not in FLOATS:  # reductions read the others in any order
            assert KERNELS["sum"](odd, None, False, None) is NotImplemented
            assert KERNELS["amax"](odd, (1,), False) is NotImplemented
            assert KERNELS["cumsum"](odd, 1, None) is NotImplemented
        assert not WHEN["layer_norm"](odd, odd.shape[1:], None, None, 1e-5)
    half = big.astype(np.float16)
    assert WHEN["exp"](half)
    assert KERNELS["sum"](half, None, False, None) is NotImplemented
    assert not WHEN["add"](big, half)
    assert WHEN["add"](big, big)
    assert not WHEN["add"](big, big.astype(np.float64))
    assert not WHEN["add"](1.0, big)
    assert not WHEN["add"](big, 2**60)
    assert not WHEN["add"](big, np.ones((300, 1), np.float32))
    assert KERNELS["sum"](big, (0,), False, "float64") is NotImplemented
    assert (
        KERNELS["sum"](np.ones((30, 30, 30), np.float32), (0, 2), False, None) is not NotImplemented
    )
    assert KERNELS["sum"](big, (2,), False, None) is NotImplemented
    assert KERNELS["amax"](big, (0, 0), False) is NotImplemented
    assert not WHEN["layer_norm"](big, (299,), None, None, 1e-5)
    assert not WHEN["layer_norm"](big, (300,), np.ones(1, np.float32), None, 1e-5)
    target = np.zeros(300, np.int64)
    options = (None, -100, "mean", 0.0)
    assert WHEN["cross_entropy"](big, target, *options)
    assert not WHEN["cross_entropy"](big, target.astype(np.int32), *options)
    assert not WHEN["cross_entropy"](big, target[:10], *options)
    assert not WHEN["cross_entropy"](big, target, np.ones(300), -100, "mean", 0.0)
    assert not WHEN["cross_entropy"](big, target, np.ones(2, np.float32), -100, "mean", 0.0)
    assert not WHEN["cross_entropy"](big, target, None, -100, "mean", 1.1)


def test_arrays_that_numpy_made_elsewhere() -> None:
    """A dtype object that is equal, not identical, is still recognised."""
    import pickle

    x = pickle.loads(pickle.dumps(positive()))
    assert is_dense(x, 1) and is_like(x, x) and may_write(x, x, x)
    np.testing.assert_array_equal(KERNELS["square"](x), np.square(x))


@settings(max_examples=200)
@given(st.data())
def test_overlap_is_what_numpy_says(data: Any) -> None:
    """Of owners, views, views of views and views of other memory."""
    owners = [np.arange(24.0), np.frombuffer(bytearray(192)), np.arange(24.0).reshape(4, 6)]
    a, b = (data.draw(_views(owners)) for _ in range(2))
    assert overlap(a, b) == np.may_share_memory(a, b)


@st.composite
def _views(draw: Any, owners: list[np.ndarray]) -> np.ndarray:
    array = owners[draw(st.integers(0, len(owners) - 1))]
    for _ in range(draw(st.integers(0, 2))):
        start, step = draw(st.integers(0, len(array) - 1)), draw(st.integers(1, 3))
        array = array[start::step]
    return array
