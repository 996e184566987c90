"""Products of matrices of 8-bit floats, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F

WHOLE, ROWS = F.ScalingType.TensorWise, F.ScalingType.RowWise


def matrices(m: int = 4, k: int = 6, n: int = 5, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    a, b = (cd.tensor(rng.normal(size=s)).float() for s in ((m, k), (n, k)))
    return a.to(cd.float8_e4m3fn), b.to(cd.float8_e4m3fn).t()


def one(value: float) -> Any:
    return cd.tensor(value)


def test_the_documented_example() -> None:
    a, b = cd.ones(2, 3).to(cd.float8_e4m3fn), cd.ones(3, 4).to(cd.float8_e4m3fn)
    found = cd._scaled_mm(a, b, one(2.0), one(2.0), out_dtype=cd.bfloat16)
    assert found.dtype is cd.bfloat16 and found.tolist() == [[12] * 4] * 2
    found = F.scaled_mm(a, b, one(2.0), WHOLE, one(0.5), WHOLE)
    assert found.dtype is cd.bfloat16 and found.tolist() == [[3] * 4] * 2
    assert cd._scaled_mm(a, b, one(2.0), one(0.5)).dtype is cd.float8_e4m3fn
    meta = cd._scaled_mm(*(x.to("meta") for x in (a, b, one(1.0), one(1.0))))
    assert meta.shape == (2, 4) and meta.dtype is cd.float8_e4m3fn


@given(
    st.tuples(*[st.integers(0, 9)] * 3),
    st.integers(0, 99),
    st.sampled_from(["tensor", "one", "rows"]),
    st.sampled_from("float8_e4m3fn float8_e5m2 float32 bfloat16 float16".split()),
    st.booleans(),
    st.booleans(),
)
def test_results_are_those_of_pytorch(
    sizes: tuple[int, int, int], seed: int, scaling: str, out: str, biased: bool, rescaled: bool
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    m, k, n = sizes
    if 0 in (m, n):
        m = n = 1
    shapes = {"tensor": ((), ()), "one": ((1,), (1, 1)), "rows": ((m, 1), (1, n))}[scaling]
    given = [
        rng.normal(size=(m, k)).astype(np.float32),
        rng.normal(size=(n, k)).astype(np.float32),
        *(np.asarray(rng.uniform(0.1, 2, s), np.float32) for s in shapes),
    ]
    bias = rng.normal(size=n).astype(np.float32) if biased else None
    result_scale = np.float32(3) if rescaled else None

    def call(xp: Any, make: Any) -> Any:
        a, b, *scales = map(make, given)
        tail = [None if v is None else make(np.asarray(v)) for v in (bias, result_scale)]
        first, second = a.to(xp.float8_e4m3fn), b.to(xp.float8_e5m2).t()
        found = xp._scaled_mm(first, second, *scales, *tail, out_dtype=getattr(xp, out))
        return found.float().numpy()

    found, expected = call(cd, cd.from_numpy), call(torch, torch.from_numpy)
    # Both add up in float32, in an order of their own, and round once more.
    digits = {"float8_e4m3fn": 3, "float8_e5m2": 2, "bfloat16": 7, "float16": 10, "float32": 20}
    size = np.abs(expected) * 2.0 ** -digits[out] + 2e-3 / (1 + 99 * (out == "float32"))
    assert (np.abs(found - expected) <= size).all()


def test_what_pytorch_refuses_is_refused_with_what_to_do() -> None:
    a, b = matrices()
    whole = one(1.0)
    for call, text in (
        (lambda: cd._scaled_mm(a, a, whole, whole), "matrices"),
        (lambda: cd._scaled_mm(a[None], b, whole, whole), "matrices"),
        (lambda: cd._scaled_mm(a.float(), b, whole, whole), "no 8-bit float"),
        (lambda: cd._scaled_mm(a, b, whole.double(), whole), "float()"),
        (lambda: cd._scaled_mm(a, b, cd.ones(4, 1), whole), r"scale_b \(1, 5\)"),
        (lambda: cd._scaled_mm(a, b, cd.ones(4), cd.ones(5)), r"scale_a \(4, 1\)"),
        (lambda: cd._scaled_mm(a, b, whole, whole, cd.ones(3)), r"\(5,\)"),
        (lambda: cd._scaled_mm(a, b, whole, whole, None, cd.ones(2)), "one number"),
        (lambda: F.scaled_mm(a, b, whole, F.ScalingType.BlockWise1x32, whole, WHOLE), "RowWise"),
        (lambda: F.scaled_mm(a, b, whole, WHOLE, cd.ones(1, 5), ROWS), "the same recipe"),
        (lambda: F.scaled_mm(a, b, cd.ones(4), ROWS, cd.ones(5), ROWS), r"\(4, 1\)"),
        (lambda: F.scaled_mm(a, b, [whole] * 2, WHOLE, whole, WHOLE), "2 members"),
        (
            lambda: F.scaled_mm(
                *(a, b, whole, WHOLE, whole, WHOLE), swizzle_a=F.SwizzleType.SWIZZLE_32_4_4
            ),
            "NO_SWIZZLE",
        ),
        (
            lambda: F.scaled_mm(a, b, whole, WHOLE, whole, WHOLE, contraction_dim=(1, 1)),
            "transpose",
        ),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=text):
            call()


def test_rows_may_have_scales_of_their_own() -> None:
    a, b = matrices()
    rows, columns = cd.arange(4.0)[:, None] + 1, cd.arange(5.0)[None] + 1
    found = F.scaled_mm(a, b, rows, ROWS, columns, ROWS, output_dtype=cd.float32)
    expected = (a.float() * rows) @ (b.float() * columns)
    assert cd.allclose(found, expected, rtol=1e-5)


def test_a_wanted_gradient_is_refused() -> None:
    a, b = matrices()
    with pytest.raises(RuntimeError, match="derivative is not implemented"):
        cd._scaled_mm(a.requires_grad_(), b, one(1.0), one(1.0))


# ---- of groups --------------------------------------------------------------------------------


def test_the_documented_examples_of_groups() -> None:
    a, b = cd.ones(5, 3).to(cd.float8_e4m3fn), cd.ones(2, 3, 4).to(cd.float8_e4m3fn)
    ends = cd.tensor([2, 5], dtype=cd.int32)
    found = cd._scaled_grouped_mm(a, b, cd.ones(5), cd.full((2, 4), 2.0), ends)
    assert found.dtype is cd.bfloat16 and found.tolist() == [[6] * 4] * 5
    found = F.scaled_grouped_mm(a, b, cd.ones(5), ROWS, [cd.ones(2, 4)], [ROWS], offs=ends)
    assert found.dtype is cd.bfloat16 and found.tolist() == [[3] * 4] * 5
    meta = [x.to("meta") for x in (a, b, cd.ones(5), cd.ones(2, 4), ends)]
    assert cd._scaled_grouped_mm(*meta).shape == (5, 4)


FORMS = {
    "rows": ((7, 6), (3, 6, 5), (7,), (3, 5), 7),
    "columns": ((3, 4, 6), (6, 8), (3, 4), (8,), 8),
    "depth": ((4, 9), (9, 5), (12,), (15,), 9),
    "none": ((3, 4, 6), (3, 6, 5), (3, 4), (3, 5), 0),
}


@given(
    st.sampled_from(sorted(FORMS)),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
    st.integers(0, 99),
    st.sampled_from(["float32", "bfloat16", "float16"]),
)
def test_each_group_is_a_product_of_its_own(
    form: str, ends: list[int], seed: int, out: str
) -> None:
    *shapes, length = FORMS[form]
    rng = np.random.default_rng(seed)
    a, b, scale_a, scale_b = (rng.uniform(0.5, 2, s).astype(np.float32) for s in shapes)
    a, b = (np.asarray(cd.from_numpy(x).to(cd.float8_e4m3fn).float()) for x in (a, b))
    limits = np.minimum(np.maximum.accumulate([0, *ends]), length)
    spans = [slice(*pair) for pair in zip(limits, limits[1:])]
    if form == "rows":
        expected = np.zeros((7, 5))
        for k, rows in enumerate(spans):
            expected[rows] = (a[rows] * scale_a[rows, None]) @ (b[k] * scale_b[k])
    elif form == "columns":
        expected = np.zeros((4, 8))
        for k, rows in enumerate(spans):
            expected[:, rows] = (a[k] * scale_a[k, :, None]) @ (b[:, rows] * scale_b[rows])
    elif form == "depth":
        by_a, by_b = scale_a.reshape(3, 4, 1), scale_b.reshape(3, 1, 5)
        expected = np.stack([a[:, d] @ b[d] for d in spans]) * by_a * by_b
    else:
        expected = (a * scale_a[..., None]) @ (b * scale_b[:, None])
    offs = cd.tensor(ends, dtype=cd.int32) if length else None
    given = [cd.from_numpy(x).to(cd.float8_e4m3fn) for x in (a, b)]
    given += [cd.from_numpy(x) for x in (scale_a, scale_b)]
    found = cd._scaled_grouped_mm(*given, offs, out_dtype=getattr(cd, out))
    assert found.dtype is getattr(cd, out)
    near = {"float32": 1e-5, "bfloat16": 2**-8, "float16": 2**-10}[out]
    np.testing.assert_allclose(found.float().numpy(), expected, rtol=near, atol=1e-6)


def test_groups_that_do_not_fit_are_refused_with_what_to_do() -> None:
    eight = cd.float8_e4m3fn
    a, b = cd.ones(5, 3).to(eight), cd.ones(2, 3, 4).to(eight)
    by_a, by_b, ends = cd.ones(5), cd.ones(2, 4), cd.tensor([2, 5], dtype=cd.int32)
    call = cd._scaled_grouped_mm
    for refused, text in (
        (lambda: call(a, b, by_a, by_b), "Have to provide offsets"),
        (lambda: call(b, b, cd.ones(2, 3), by_b), "cannot be multiplied group by group"),
        (lambda: call(b, b.mT, cd.ones(2, 3), cd.ones(2, 3), ends), "no offset if both"),
        (lambda: call(a[:, :2], b, by_a, by_b, ends), "cannot be multiplied group by group"),
        (lambda: call(a, b, by_a, by_b, ends[None]), "offs has the shape"),
        (lambda: call(a, b, by_a, by_b, ends[:1]), "there are 1 groups"),
        (lambda: call(a, b, by_a[:4], by_b, ends), r"scale_a \(5,\) and scale_b \(2, 4\)"),
        (lambda: call(a.float(), b, by_a, by_b, ends), "no 8-bit float"),
        (lambda: call(a, b, by_a.double(), by_b, ends), "float()"),
        (lambda: call(a, b, by_a, by_b, ends.float()), "offs is float32"),
        (lambda: call(a, b, by_a, by_b, ends, out_dtype=cd.int32), "out_dtype=int32"),
        (lambda: call(a, b, by_a, by_b, ends, cd.ones(4)), "Bias"),
        (lambda: F.scaled_grouped_mm(a, b, by_a, WHOLE, by_b, ROWS, offs=ends), "RowWise"),
        (lambda: F.scaled_grouped_mm(a, b, [by_a] * 2, ROWS, by_b, ROWS, offs=ends), "2 members"),
        (
            lambda: F.scaled_grouped_mm(
                *(a, b, by_a, ROWS, by_b, ROWS), offs=ends, contraction_dim=(1, 1)
            ),
            "transpose",
        ),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=text):
            refused()
    with pytest.raises(RuntimeError, match="derivative is not implemented"):
        call(a.requires_grad_(), b, by_a, by_b, ends)
