"""Elementwise kernels of arrays of any strides, against NumPy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES

import coredispatch as cd
from coredispatch_cpu_numba.kernels.elementwise import strided

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
FUNCTIONS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "lt": np.less,
}
REFERENCES: dict[str, Any] = {
    "addcdiv": lambda x, a, b, value: x + value * (a / b),
    "addcmul": lambda x, a, b, value: x + value * (a * b),
    "clamp": lambda x, low, high: x.maximum(cd.tensor(low, dtype=x.dtype)),
    "gelu": lambda x, approximate: cd.nn.functional.gelu(x, approximate=approximate),
    "hardswish": cd.nn.functional.hardswish,
    "leaky_relu": cd.nn.functional.leaky_relu,
    "lerp": lambda x, end, weight: x + weight * (end - x),
}


def laid_out(data: Any, shape: tuple[int, ...], dtype: Any, may_repeat: bool) -> np.ndarray:
    """An array of this shape: permuted, sliced or, where it may be, expanded."""
    order = data.draw(st.permutations(range(len(shape))))
    inner = [shape[d] for d in order]
    steps = [data.draw(st.sampled_from([1, 1, 2])) for _ in inner]
    repeated = [may_repeat and data.draw(st.integers(0, 3)) == 0 for _ in inner]
    lengths = [1 if r else n * s for n, s, r in zip(inner, steps, repeated, strict=True)]
    x = RNG.normal(size=lengths).astype(dtype)
    x = x[tuple(slice(None, None, 1 if r else s) for s, r in zip(steps, repeated, strict=True))]
    x = np.broadcast_to(x, inner) if any(repeated) else x
    return x.transpose(np.argsort(order))


def broadcasting(data: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that broadcasts to this shape."""
    small = tuple(n if data.draw(st.booleans()) else 1 for n in shape)
    small = small[data.draw(st.integers(0, len(shape) - 1)) :]
    return laid_out(data, small, dtype, False)


SHAPES = st.sampled_from([(1300,), (40, 33), (3, 500), (5, 1, 300), (2, 3, 17, 19), (2, 200, 7)])


@given(data=st.data(), shape=SHAPES, name=st.sampled_from([*FUNCTIONS]))
def test_binary(data: Any, shape: tuple[int, ...], name: str) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    x = laid_out(data, shape, dtype, True)
    y = data.draw(st.sampled_from([laid_out, broadcasting]))
    y = y(data, shape, dtype, True) if y is laid_out else y(data, shape, dtype)
    if data.draw(st.booleans()):
        x, y = y, x
    found = strided.PLAIN[name](x, y)
    wanted = FUNCTIONS[name](x, y)
    if found is not NotImplemented:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        lengths = [d for d in range(wanted.ndim) if wanted.shape[d] != 1]
        assert [found.strides[d] for d in lengths] == [wanted.strides[d] for d in lengths]


@given(data=st.data(), shape=SHAPES, name=st.sampled_from(["add", "sub", "mul", "maximum"]))
def test_in_place(data: Any, shape: tuple[int, ...], name: str) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    x = laid_out(data, shape, dtype, False)
    y = data.draw(st.sampled_from([2.5, None]))
    y = broadcasting(data, shape, dtype) if y is None else y
    wanted = FUNCTIONS[name](x, y)
    before = np.array(x)
    found = strided.PLAIN[name](x, y, x)
    if found is NotImplemented:
        np.testing.assert_array_equal(x, before)
    else:
        assert found is x
        np.testing.assert_array_equal(x, wanted)


@given(data=st.data(), shape=SHAPES)
def test_functions_with_numbers(data: Any, shape: tuple[int, ...]) -> None:
    x, a, b = (laid_out(data, shape, np.float64, True) for _ in range(3))
    with np.errstate(all="ignore"):
        for name, args in (
            ("addcmul", (x, a, b, 0.3)),
            ("addcdiv", (x, a, b, -0.3)),
            ("lerp", (x, a, 0.7)),
            ("clamp", (x, -0.5, None)),
            ("hardswish", (x,)),
            ("gelu", (x, "none")),
            ("leaky_relu", (x, 0.1)),
        ):
            found = strided.KERNELS[name](*args)
            if found is NotImplemented:
                continue
            tensors = [cd.from_numpy(np.array(v)) if type(v) is np.ndarray else v for v in args]
            wanted = REFERENCES[name](*tensors).numpy()
            np.testing.assert_allclose(found, wanted, 1e-14, 1e-14)


def test_what_is_taken() -> None:
    x = RNG.normal(size=(300, 500)).astype(np.float32)
    part, other = x[:, :400], x[:, 100:]
    assert strided.ACCEPTS_TWO(part, other) and strided.ACCEPTS_TWO(part, 2.0)
    assert strided.ACCEPTS_TWO(x, x[:1]) and strided.ACCEPTS_ONE(x.T)
    assert not strided.ACCEPTS_TWO(x, x.copy()) and not strided.ACCEPTS_ONE(x)
    assert not strided.ACCEPTS_TWO(part, other.astype(np.float64))
    assert not strided.ACCEPTS_ONE(part.astype(np.int64)) and not strided.ACCEPTS_ONE(part[:2])
    add = strided.PLAIN["add"]
    assert add(part, other[:, ::-1]) is NotImplemented
    assert add(part, other, part) is NotImplemented  # they overlap
    assert add(part, RNG.normal(size=(7, 400)).astype(np.float32)) is NotImplemented
    found = add(part, other)
    np.testing.assert_array_equal(found, part + other)
    out = np.empty((400, 300), np.float32).T
    assert strided.PLAIN["exp"](part.copy().T, out.T) is not None
    np.testing.assert_allclose(out.T, np.exp(part.T), 1e-6)


def test_the_operators_go_there() -> None:
    x = cd.randn(16, 32, 28, 28)
    row = cd.rand(1, 32, 1, 1)
    wanted = x.numpy() - row.numpy()
    assert cd.equal(x - row, cd.from_numpy(wanted))
    images = x.permute(0, 2, 3, 1)
    assert cd.equal(images + 1.5, cd.from_numpy(images.numpy() + np.float32(1.5)))
    assert cd.allclose(x[..., :20].sigmoid(), x[..., :20].contiguous().sigmoid())
    assert cd.equal(x.sub_(row), cd.from_numpy(wanted))
