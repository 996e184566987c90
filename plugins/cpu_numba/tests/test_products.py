"""Products of large matrices on register tiles, against float64 products by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch_cpu_numba.kernels.linalg import products

pytestmark = pytest.mark.once

ROWS = st.sampled_from([192, 193, 257, 320])
DEPTHS = st.sampled_from([171, 256, 300, 530])
COLUMNS = st.sampled_from([64, 65, 96, 107])


def close(found: Any, wanted: np.ndarray, depth: int) -> None:
    assert found is not NotImplemented
    assert found.shape == wanted.shape
    rounding = np.finfo(found.dtype).eps * depth**0.5
    np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * rounding * np.abs(wanted).max())


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@settings(max_examples=15)
@given(ROWS, DEPTHS, COLUMNS, st.sampled_from(["float32", "float64"]), st.booleans())
def test_linear(rows: int, depth: int, columns: int, dtype: str, biased: bool) -> None:
    x, w = drawn((rows, depth), dtype, 0), drawn((columns, depth), dtype, 1)
    bias = drawn((columns,), dtype, 2) if biased else None
    wanted = x.astype(float) @ w.T.astype(float) + (0 if bias is None else bias)
    close(products.FORMS["linear"](x, w, bias), wanted, depth)
    stacked = products.FORMS["linear"](x.reshape(1, rows, depth), w, bias)
    close(stacked, wanted[None], depth)


@settings(max_examples=15)
@given(ROWS, DEPTHS, COLUMNS, st.sampled_from(["float32", "float64"]))
def test_weight_gradient_and_plain_products(
    rows: int, depth: int, columns: int, dtype: str
) -> None:
    grad, x = drawn((depth, rows), dtype, 0), drawn((depth, columns), dtype, 1)
    wanted = grad.T.astype(float) @ x.astype(float)
    close(products.FORMS["linear_weight_grad"](grad, x), wanted, depth)
    left = np.ascontiguousarray(grad.T)
    close(products.FORMS["matmul"](left, x), wanted, depth)
    close(products.FORMS["matmul"](left, np.ascontiguousarray(x.T).T), wanted, depth)


@settings(max_examples=25)
@given(
    st.sampled_from([(3,), (2, 2), (1, 5, 1)]),
    st.sampled_from([16, 17, 64, 65]),
    st.sampled_from([16, 33, 300]),
    st.sampled_from([32, 64, 97]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["", "a", "b"]),
)
def test_stacks(
    outer: tuple[int, ...], rows: int, depth: int, columns: int, dtype: str, turned: str
) -> None:
    a, b = drawn((*outer, rows, depth), dtype, 0), drawn((*outer, depth, columns), dtype, 1)
    wanted = a.astype(float) @ b.astype(float)
    if turned == "a":
        a = np.ascontiguousarray(a.mT).mT
    if turned == "b":
        b = np.ascontiguousarray(b.mT).mT
    found = products.stacks(a, b)
    if found is NotImplemented:  # few elements, or few products in all
        assert a.size < 1 << 10 or a.size * columns < 1 << 16
    else:
        close(found, wanted, depth)


def test_stacks_that_do_not_fit_are_left_to_others() -> None:
    a, b = drawn((8, 64, 64), "float32", 0), drawn((8, 64, 64), "float32", 1)
    assert products.stacks(a, b) is not NotImplemented
    for x, y in (
        (a[0], b[0]), (a, b[:4]), (a, b[:, :32]), (a, b.astype(float)), (a[:, :8], b),
        (a[:, :, ::2], b[:, ::2]), (a, b[:, :, :7]), (a.transpose(1, 2, 0), b), (a[:, :0], b),
    ):  # fmt: skip
        assert products.stacks(x, y) is NotImplemented


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    x, w = drawn((1000, 300), "float32", 0), drawn((130, 300), "float32", 1)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            found.append(
                (
                    products.FORMS["linear"](x, w, None),
                    products.FORMS["linear_weight_grad"](x, x),
                    products.stacks(x.reshape(10, 100, 300), x.reshape(10, 300, 100)),
                )
            )
    finally:
        cd.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_what_is_no_number_reaches_its_row_and_its_column_only() -> None:
    x, w = drawn((200, 256), "float32", 0), drawn((64, 256), "float32", 1)
    x[3, 7], w[5, 9] = np.nan, np.inf
    lost = ~np.isfinite(products.FORMS["linear"](x, w, None))
    wanted = np.zeros_like(lost)
    wanted[3], wanted[:, 5] = True, True
    assert np.array_equal(lost, wanted)


def test_what_is_small_or_lies_otherwise_is_left_to_others() -> None:
    x, w = drawn((200, 256), "float32", 0), drawn((64, 256), "float32", 1)
    for a, b in (
        (x[:10], w), (x, w[:9]), (x[:, ::2], w[:, ::2]), (x, w.astype(float)),
        (x.astype(np.float16), w.astype(np.float16)),
    ):  # fmt: skip
        assert products.FORMS["linear"](a, b, None) is NotImplemented
    assert products.FORMS["linear"](x, w, drawn((1,), "float32", 0)) is NotImplemented
    assert products.FORMS["matmul"](x, x) is NotImplemented
