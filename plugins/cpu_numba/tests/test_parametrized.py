"""Elementwise functions with numbers beside the arrays: the loops against the decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import KERNELS, WHEN

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
SIZE = 1003
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 3.0, -3.0, 6.0, 100.0, -100.0]
#: name, arrays, numbers, units in the last place of the result or what it is made of
CASES: list[tuple[str, int, tuple[Any, ...], float]] = [
    ("addcdiv", 3, (0.3,), 4),
    ("addcmul", 3, (-2,), 4),
    ("celu", 1, (0.7,), 8),
    ("clamp", 1, (-0.5, 1), 0),
    ("clamp", 1, (None, 0.25), 0),
    ("clamp", 1, (0, None), 0),
    ("clamp", 1, (1.0, -1.0), 0),
    ("elu", 1, (1.3,), 8),
    ("elu_backward", 2, (0.5, 1.2, 0.7), 8),
    ("hardshrink", 1, (0.5,), 0),
    ("hardshrink_backward", 2, (0.5,), 0),
    ("hardsigmoid", 1, (), 4),
    ("hardswish", 1, (), 4),
    ("hardtanh", 1, (-0.5, 2.0), 0),
    ("hardtanh_backward", 2, (-0.5, 2.0), 0),
    ("lerp", 2, (0.3,), 6),
    ("lerp", 2, (0.9,), 6),
    ("lerp", 2, (-1.5,), 6),
    ("lerp", 3, (), 6),
    ("logsigmoid", 1, (), 6),
    ("mish", 1, (), 8),
    ("mish_backward", 2, (), 16),
    ("relu6", 1, (), 0),
    ("selu", 1, (), 8),
    ("softplus", 1, (1.0, 20.0), 6),
    ("softplus", 1, (2.0, 1.0), 6),
    ("softplus_backward", 2, (1.5, 2.0), 8),
    ("softshrink", 1, (0.5,), 2),
    ("threshold", 1, (0.1, 7), 0),
]


def drawn(count: int, dtype: Any, special: bool) -> list[np.ndarray]:
    arrays = [(RNG.normal(size=SIZE) * 3).astype(dtype) for _ in range(count)]
    if special:
        for x in arrays:
            x[: len(SPECIAL)] = SPECIAL
    return arrays


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "count", "numbers", "units"), CASES)
def test_functions(name: str, count: int, numbers: Any, units: float, dtype: Any) -> None:
    arrays = drawn(count, dtype, True)
    assert WHEN[name](*arrays, *numbers)
    wide = [cd.from_numpy(x.astype(np.float64)) for x in arrays]
    with np.errstate(all="ignore"):
        wanted = getattr(cd.ops, name).decomposition(*wide, *numbers).numpy()
        found = KERNELS[name](*arrays, *numbers)
        scale = max(1.0, *(float(np.abs(x[len(SPECIAL) :]).max()) for x in arrays))
    bound = units * np.finfo(dtype).eps
    exact = wanted.astype(dtype) if units == 0 else wanted
    assert found.dtype == dtype
    np.testing.assert_allclose(found, exact, bound, bound * scale if count > 1 else 1e-38)


@pytest.mark.parametrize(("name", "count", "numbers", "units"), CASES)
def test_results_go_where_they_are_wanted(
    name: str, count: int, numbers: Any, units: float
) -> None:
    if name.endswith("backward"):
        return
    arrays = drawn(count, np.float32, False)
    wanted = KERNELS[name](*arrays, *numbers)
    for position in range(count):
        given = [x.copy() for x in arrays]
        assert KERNELS[name](*given, *numbers, out=given[position]) is given[position]
        np.testing.assert_allclose(given[position], wanted, 1e-6, 1e-6)
    out = np.empty(SIZE)
    assert KERNELS[name](*arrays, *numbers, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    room = np.zeros(2 * SIZE, np.float32)
    room[:SIZE] = arrays[0]
    shifted = room[1 : SIZE + 1]
    KERNELS[name](room[:SIZE], *arrays[1:], *numbers, out=shifted)
    np.testing.assert_allclose(shifted, wanted, 1e-6, 1e-6)


@pytest.mark.parametrize("numbers", [(2.5, None, -7), (None, 1.0, None), (np.nan, 0, -0.0)])
@pytest.mark.parametrize("dtype", [cd.float32, cd.float64, cd.bfloat16, cd.float16])
def test_replacements(numbers: Any, dtype: Any) -> None:
    x = cd.from_numpy(drawn(1, np.float64, True)[0]).to(dtype)
    wanted = cd.ops.nan_to_num.decomposition(x, *numbers)
    assert cd.allclose(cd.nan_to_num(x, *numbers), wanted, 0, 0, equal_nan=True)
    assert cd.nan_to_num(x, posinf=1e300).isinf().sum() == (wanted.dtype is not cd.float64)


def test_in_place_forms_write_where_they_are() -> None:
    for size in (4, 1000, 100_000):
        x = cd.randn(size)
        address, version = x.data_ptr(), x._version
        wanted = x.clamp(-0.5, 0.5)
        x.clamp_(-0.5, 0.5)
        assert x.data_ptr() == address and x._version == version + 1
        assert cd.equal(x, wanted)
        y = cd.randn(size)
        wanted = cd.lerp(x, y, 0.25)
        assert cd.allclose(x.lerp_(y, 0.25), wanted) and x.data_ptr() == address
        assert cd.equal(cd.nn.functional.relu(x, inplace=True), wanted.relu())
        assert x.data_ptr() == address
        half = cd.randn(size, dtype=cd.bfloat16)
        wanted = cd.addcmul(half, half, half, value=0.5)
        assert cd.allclose(half.addcmul_(half, half, value=0.5), wanted, 0.02, 0.02)


def test_numbers_that_are_none_are_left_to_the_definition() -> None:
    x = np.zeros(SIZE, np.float32)
    assert not WHEN["clamp"](x, np.nan, 1.0)
    assert not WHEN["clamp"](x, None, None)
    assert not WHEN["lerp"](x, x, x[:1])
    assert KERNELS["celu"](x, 0.0) is NotImplemented
    assert KERNELS["hardtanh"](x, 1.0, -1.0) is NotImplemented


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_slope_for_all(dtype: Any) -> None:
    (x,), slope = drawn(1, dtype, True), np.array([0.3], dtype)
    for weight in (slope, slope[0:1].reshape(())):
        wanted = np.where(x > 0, x, x * slope)
        np.testing.assert_array_equal(KERNELS["prelu"](x, weight), wanted)
    assert KERNELS["prelu"](x, np.ones(SIZE, dtype)) is NotImplemented


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16, cd.int64])
@pytest.mark.parametrize("step", [1, 2])
def test_in_place_forms_of_one_tensor(dtype: Any, step: int) -> None:
    """With few elements and many, side by side and not: by the kernels of NumPy, too."""
    functional = cd.nn.functional
    names = ["relu"]
    if dtype is not cd.int64:
        names += ["relu6", "hardswish", "hardsigmoid", "silu", "elu", "selu", "leaky_relu"]
    for size in (5, 700, 70_000):
        given = (cd.randn(step * size) * 3).to(dtype)

        def same(write: Any, compute: Any, given: Any = given) -> None:
            whole = given.clone()
            x = whole[::step]
            wanted = compute(x)
            assert write(x) is x and whole._version == 1
            assert cd.allclose(x.double(), wanted.double(), 0.01, 1e-6)

        for name in names:
            of = getattr(functional, name)
            same(lambda x, of=of: of(x, inplace=True), of)
        if dtype is not cd.int64:
            same(
                lambda x: functional.leaky_relu(x, 2.5, inplace=True),
                lambda x: functional.leaky_relu(x, 2.5),
            )
        for name in ("neg", "sign"):
            same(
                lambda x, name=name: getattr(x, f"{name}_")(),
                lambda x, name=name: getattr(x, name)(),
            )
