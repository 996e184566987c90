"""Optimizer steps and updates of lists of tensors, against the decompositions in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import DTYPES, KERNELS, WHEN

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
#: name, states ("a": any sign, "s": not negative, None), options
STEPS: list[tuple[str, tuple[str | None, ...], tuple[Any, ...]]] = [
    ("adagrad_step", ("s",), (0.1, 1e-10, 0.1, True)),
    ("adam_step", ("a", "s", None), (3, 0.01, 0.9, 0.999, 1e-8, 0.1, False, True)),
    ("adam_step", ("a", "s", "s"), (3, 0.01, 0.9, 0.99, 1e-8, 0.1, True, False)),
    ("adamax_step", ("a", "s"), (3, 0.01, 0.9, 0.99, 1e-8, 0.1, True)),
    ("asgd_step", ("a",), (1e-2, 0.01, 1.0, 0.1, False)),
    ("asgd_step", ("a",), (1e-2, 0.01, 0.25, 0.0, True)),
    ("nadam_step", ("a", "s"), (3, 0.01, 0.9, 0.99, 1e-8, 0.1, 0.4, 0.5, False, True)),
    ("nadam_step", ("a", "s"), (3, 0.01, 0.9, 0.99, 1e-8, 0.1, 0.4, 0.5, True, False)),
    ("radam_step", ("a", "s"), (1, 0.01, 0.9, 0.99, 1e-8, 0.1, False, True)),
    ("radam_step", ("a", "s"), (9, 0.01, 0.9, 0.99, 1e-8, 0.1, True, False)),
    ("rmsprop_step", ("s", None, None), (0.01, 0.99, 1e-8, 0.1, 0.0, True)),
    ("rmsprop_step", ("s", None, "a"), (0.01, 0.99, 1e-8, 0.0, 0.9, False)),
    ("sgd_step", (None,), (0.1, 0.0, 0.0, 0.01, False, False, True)),
    ("sgd_step", ("a",), (0.1, 0.9, 0.1, 0.01, False, True, True)),
    ("sgd_step", ("a",), (0.1, 0.9, 0.0, 0.0, True, False, False)),
]


def drawn(kind: str | None, size: Any, dtype: Any) -> Any:
    if kind is None:
        return None
    x = RNG.normal(size=size)
    return np.asarray(np.abs(x) if kind == "s" else x, dtype)


def wide(x: Any) -> Any:
    return None if x is None else cd.from_numpy(x.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 17, 1003])
@pytest.mark.parametrize(("name", "states", "options"), STEPS)
def test_steps(name: str, states: Any, options: Any, size: int, dtype: Any) -> None:
    arrays = [drawn(kind, size, dtype) for kind in ("a", "a", *states)]
    wanted = [wide(x) for x in arrays]
    assert WHEN[name](*arrays, *options)
    getattr(cd.ops, name).decomposition(*wanted, *options)
    KERNELS[name](*arrays, *options)
    for found, exact in zip(arrays, wanted, strict=True):
        if found is not None:
            eps = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(found, exact.numpy(), 16 * eps, 16 * eps)


@pytest.mark.parametrize(("name", "states", "options"), STEPS)
def test_steps_of_what_is_not_finite(name: str, states: Any, options: Any) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    param, grad = (x.reshape(-1) for x in np.meshgrid(special, special))
    arrays = [param, grad, *(drawn(kind, param.size, np.float64) for kind in states)]
    wanted = [wide(x) for x in arrays]
    with np.errstate(all="ignore"):
        getattr(cd.ops, name).decomposition(*wanted, *options)
        KERNELS[name](*arrays, *options)
    for found, exact in zip(arrays, wanted, strict=True):
        if found is not None:
            np.testing.assert_allclose(found, exact.numpy(), 1e-14, 1e-14)


def test_centered_rmsprop_and_aliases_are_left_to_others() -> None:
    p, g, v = (drawn("s", 9, np.float32) for _ in range(3))
    options = (0.01, 0.99, 1e-8, 0.0, 0.0, False)
    assert WHEN["rmsprop_step"](p, g, v, None, None, *options)
    assert not WHEN["rmsprop_step"](p, g, v, v.copy(), None, *options)
    assert not WHEN["rmsprop_step"](p, g, g, None, None, *options)
    assert not WHEN["adagrad_step"](p[::2], g[::2], v[::2], 0.1, 1e-8, 0.0, False)


SIZES: list[tuple[int, ...]] = [(5,), (3, 5), (), (0, 2), (257,), (300, 200), (4,)]
UPDATES: list[tuple[str, int, list[float]]] = [
    ("add", 1, [1.0]),
    ("add", 1, [-0.3]),
    ("mul", 0, [0.7]),
    ("lerp", 1, [0.1]),
    ("addcmul", 2, [0.4]),
    ("addcdiv", 2, [-0.4]),
    ("clamp", 0, [-0.5, 0.25]),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "operands", "numbers"), UPDATES)
def test_updates_of_lists(function: str, operands: int, numbers: Any, dtype: Any) -> None:
    kinds = ["a", *["s"] * operands]
    lists = [[drawn(kind, size, dtype) for size in SIZES] for kind in kinds]
    wanted = [[wide(x) for x in column] for column in lists]
    rest = [[] for _ in range(3 - len(lists))]
    assert KERNELS["update_each"](*lists, *rest, function, numbers) is None
    cd.ops.update_each.decomposition(*wanted, *rest, function, numbers)
    for found, exact in zip(lists[0], wanted[0], strict=True):
        eps = float(np.finfo(dtype).eps)
        np.testing.assert_allclose(found, exact.numpy(), 8 * eps, 8 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [SIZES, SIZES[:4]])
def test_norms_and_clipping(sizes: Any, dtype: Any) -> None:
    arrays = [drawn("a", size, dtype) for size in sizes]
    exact = [np.linalg.norm(x.astype(np.float64).reshape(-1)) for x in arrays]
    found = KERNELS["norm_of_each"](arrays, 2.0)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, exact, 2 * np.finfo(dtype).eps)
    before = [x.copy() for x in arrays]
    assert KERNELS["clip_each"](arrays, np.asarray(2.0, dtype), 0.5) is None
    for x, was in zip(arrays, before, strict=True):
        np.testing.assert_allclose(x, was * (0.5 / (2.0 + 1e-6)), 4 * np.finfo(dtype).eps)
    assert KERNELS["clip_each"](before, np.asarray(2.0, dtype), 5.0) is None
    for x, was in zip(arrays, before, strict=True):
        np.testing.assert_allclose(x * (2.0 + 1e-6) / 0.5, was, 8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [SIZES, SIZES[:4]])
def test_unscaling_of_lists(sizes: Any, dtype: Any) -> None:
    arrays = [drawn("a", size, dtype) for size in sizes]
    before, found = [x.copy() for x in arrays], np.zeros((), np.float32)
    assert KERNELS["unscale_each"](arrays, found, 0.25) is None
    assert found == 0
    for x, was in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, was * dtype(0.25))
    for value in (np.nan, np.inf, -np.inf):
        for row in (0, 1, len(sizes) - 2):
            damaged, found = [x.copy() for x in before], np.zeros((), np.float32)
            damaged[row].reshape(-1)[-1] = value
            assert KERNELS["unscale_each"](damaged, found, np.asarray(2, np.float32)) is None
            assert found == 1
    assert KERNELS["unscale_each"]([arrays[0], arrays[1][:, ::2]], found, 0.5) is NotImplemented


def test_squares_do_not_overflow_in_float32() -> None:
    large = np.full(100, 1e30, np.float32)
    assert KERNELS["norm_of_each"]([large, large[:4]], 2.0).tolist() == pytest.approx([1e31, 2e30])


def test_what_lists_reject_is_not_written() -> None:
    update = KERNELS["update_each"]
    x, y = (drawn("a", 6, np.float32) for _ in range(2))
    before = x.copy()
    for others in (
        [y, y[:3]],
        [y, y.astype(np.float64)],
        [y, np.repeat(y, 2)[::2]],
        [y, x],
        [y, x[::-1]],
        [y],
    ):
        assert update([x, x], others, [], "add", [1.0]) is NotImplemented
    read_only = x.copy()
    read_only.flags.writeable = False
    assert update([x, read_only], [], [], "mul", [2.0]) is NotImplemented
    assert update([], [], [], "mul", [2.0]) is NotImplemented
    assert update([x], [], [], "clamp", [np.nan, 1.0]) is NotImplemented
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_steps_of_lists_are_those_of_one_after_the_other(amsgrad: bool) -> None:
    kinds = ("a", "a", "a", "s", "s" if amsgrad else None)
    options = (3, 0.01, 0.9, 0.999, 1e-8, 0.1, True, False)
    columns = [[drawn(kind, size, np.float32) for size in SIZES] for kind in kinds]
    single = [[None if x is None else x.copy() for x in column] for column in columns]
    lists = [[] if column[0] is None else column for column in columns]
    assert KERNELS["adam_steps"](*lists, *options) is None
    for row in zip(*single, strict=True):
        KERNELS["adam_step"](*row, *options)
    for column, other in zip(columns, single, strict=True):
        for found, wanted in zip(column, other, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_with_numbers_of_steps_in_arrays(dtype: Any, amsgrad: bool) -> None:
    kernel = KERNELS["capturable_adam_steps"]
    kinds = ("a", "a", "a", "s", *(["s"] * amsgrad))
    columns = [[drawn(kind, size, dtype) for size in SIZES] for kind in kinds]
    steps = [np.array(float(k % 3), np.float32) for k in range(len(SIZES))]
    lists = columns if amsgrad else [*columns, []]
    options = (0.9, 0.999, 1e-8, 0.1, True, False)
    exact = [[wide(x) for x in members] for members in (*lists, steps)]
    cd.ops.capturable_adam_steps.decomposition(*exact, None, 0.01, *options)
    before = [x.copy() for members in columns for x in members]
    assert kernel(*lists, steps, np.array(1.0, np.float32), 0.01, *options) is None
    for x, y in zip((x for members in columns for x in members), before, strict=True):
        np.testing.assert_array_equal(x, y)  # there was an overflow
    assert kernel(*lists, steps, np.array(0.0, np.float32), np.array(0.01), *options) is None
    eps = float(np.finfo(dtype).eps)
    for members, wanted in zip((*lists, steps), exact, strict=True):
        for x, y in zip(members, wanted, strict=True):
            np.testing.assert_allclose(x, y.numpy(), 16 * eps, 16 * eps)


def test_numbers_of_steps_that_are_shared_or_whole_are_left_to_others() -> None:
    kernel = KERNELS["capturable_adam_steps"]
    lists = [[drawn("s", 4, np.float32) for _ in range(2)] for _ in range(4)]
    before, shared = [x.copy() for x in lists[0]], np.zeros((), np.float32)
    options = (None, 0.01, 0.9, 0.999, 1e-8, 0.0, False, False)
    for steps in ([shared, shared], [np.array(0), np.array(0)], [np.zeros(1), np.zeros(1)]):
        assert kernel(*lists, [], steps, *options) is NotImplemented
    one = [np.zeros(()), np.zeros(())]
    for bad in ((None, 0.01, 1.0, *options[3:]), (None, np.zeros(2), *options[2:])):
        assert kernel(*lists, [], one, *bad) is NotImplemented
    for x, y in zip(lists[0], before, strict=True):
        np.testing.assert_array_equal(x, y)
    assert shared == 0
