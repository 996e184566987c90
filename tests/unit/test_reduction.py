"""Reductions, scans, sorting, searching: samples of the blocks and comparisons with PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import coredispatch as cd

pytestmark = pytest.mark.once

FAMILY = ("reduction",)

TIES = np.array([[1, 3, 3, 1, 2], [2, 2, 2, 2, 2], [5, 4, 3, 2, 1]], np.float32)
WITH_NAN = TIES.copy()
WITH_NAN[0, 2] = WITH_NAN[2, 0] = np.nan


def test_samples_agree_with_reference_and_body(sampled):
    family, name, dtype = sampled
    if name == "prod" and dtype.is_complex:
        pytest.skip("products of 257 complex numbers overflow on the way")
    family.check_samples(name, dtype)


def test_gradients(derivable):
    family, name = derivable
    assert family.check_gradients(name) > 0


# ---- against PyTorch --------------------------------------------------------------------------


def _inputs():
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=5).astype(np.float32),
        rng.normal(size=(3, 4)),
        rng.normal(size=(2, 3, 4)).astype(np.float32),
        (rng.normal(size=(3, 4)) * 4).astype(np.int32),
        rng.normal(size=(3, 4)) > 0,
        TIES,
        WITH_NAN,
        np.zeros((0, 3), np.float32),
        np.float32(3) * np.ones((), np.float32),
        rng.normal(size=(3, 4)).astype(np.float16),
    ]


def _flat(x):
    return [y for item in x for y in _flat(item)] if isinstance(x, (tuple, list)) else [x]


def _same(torch, name, args, kwargs, mine=None):
    """Run the op of this name in both frameworks; both results agree, or both refuse."""
    ref = getattr(torch, name)
    ours = mine or getattr(cd, name)
    to_torch = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args]
    to_ours = [cd.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in args]
    try:
        expected = ref(*to_torch, **kwargs)
    except (RuntimeError, IndexError, TypeError):
        return
    result = ours(*to_ours, **kwargs)
    for a, b in zip(_flat(result), _flat(expected), strict=True):
        what = f"{name}{[getattr(x, 'shape', x) for x in args]}{kwargs}"
        assert a.dtype.name == str(b.dtype).removeprefix("torch."), what
        assert tuple(a.shape) == tuple(b.shape), what
        loose = 1e-2 if a.dtype is cd.float16 else 2e-6
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=loose, atol=1e-6, err_msg=what)


WHOLE_OR_DIM = """sum prod mean amax amin any all nansum nanmean argmax argmin max min median
nanmedian var std var_mean std_mean count_nonzero sort argsort""".split()
DIM_ONLY = "logsumexp cumsum cumprod cummax cummin logcumsumexp".split()
NO_KEEPDIM = {"count_nonzero", "sort", "argsort", *DIM_ONLY} - {"logsumexp"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [*WHOLE_OR_DIM, *DIM_ONLY])
@pytest.mark.parametrize("number", range(len(_inputs())))
def test_every_dim_is_pytorchs(name, number):
    torch = pytest.importorskip("torch")
    x = _inputs()[number]
    if name not in DIM_ONLY:
        _same(torch, name, [x], {})
    for dim in range(-x.ndim or -1, x.ndim or 1):
        _same(torch, name, [x, dim], {})
        if name not in NO_KEEPDIM:
            _same(torch, name, [x, dim], {"keepdim": True})


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "any", "var", "std", "logsumexp"])
def test_several_dims(name):
    torch = pytest.importorskip("torch")
    x = _inputs()[2]
    for dim in ((0, 2), (0, -1), [1], (0, 1, 2)):
        _same(torch, name, [x, dim], {"keepdim": True})
        _same(torch, name, [x, dim], {})


@pytest.mark.parametrize("p", ["fro", 2, 1, 0, math.inf, -math.inf, 3, 0.5, 2.5, "nuc"])
def test_norms(p):
    torch = pytest.importorskip("torch")
    x = _inputs()[1].astype(np.float32)
    _same(torch, "norm", [x, p], {})
    if p not in ("fro", "nuc"):
        _same(torch, "norm", [x, p, 1], {"keepdim": True})
        _same(torch, "norm", [_inputs()[2], p, (0, 1)], {})


@pytest.mark.parametrize(
    "x", [TIES, WITH_NAN, (TIES * 3).astype(np.int64)], ids=["ties", "nan", "int"]
)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_order(x, dim):
    torch = pytest.importorskip("torch")
    for descending in (False, True):
        options = {"dim": dim, "descending": descending, "stable": True}
        _same(torch, "sort", [x], options)
        _same(torch, "argsort", [x], options)
    for k in (1, 2, 3):
        for largest in (False, True):
            mine = cd.topk(cd.from_numpy(x), k, dim, largest)
            theirs = torch.topk(torch.from_numpy(x), k, dim, largest)
            np.testing.assert_array_equal(mine.values.numpy(), theirs.values.numpy())
            gathered = np.take_along_axis(x, mine.indices.numpy(), dim)
            np.testing.assert_array_equal(gathered, mine.values.numpy())
        mine = cd.kthvalue(cd.from_numpy(x), k, dim)
        np.testing.assert_array_equal(
            mine.values.numpy(), torch.kthvalue(torch.from_numpy(x), k, dim).values.numpy()
        )


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(method):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    q = np.array([0.1, 0.5, 0.9], np.float32)
    for args in ([x, 0.37], [x, 0.37, 0], [x, 0.0, 1], [x, q, 0], [x, q], [WITH_NAN, 0.5, 1]):
        for keepdim in (False, True):
            options = {"interpolation": method, "keepdim": keepdim}
            _same(torch, "quantile", args, options)
            _same(torch, "nanquantile", args, options)


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_unique(shape):
    torch = pytest.importorskip("torch")
    x = np.array([3, 1, 2, 3, 1, 7]).reshape(shape)
    runs = np.array([1, 1, 2, 2, 3, 1]).reshape(shape)
    for inverse in (False, True):
        for counts in (False, True):
            options = {"return_inverse": inverse, "return_counts": counts}
            _same(torch, "unique", [x], options)
            _same(torch, "unique_consecutive", [runs], options)


def test_unique_slices():
    torch = pytest.importorskip("torch")
    x = np.array([[1, 2], [1, 2], [0, 5], [1, 2]])
    for name in ("unique", "unique_consecutive"):
        _same(torch, name, [x], {"dim": 0, "return_inverse": True, "return_counts": True})


def test_searching_and_counting():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    s, v = np.sort(rng.normal(size=9)), rng.normal(size=4)
    rows = np.sort(rng.normal(size=(3, 5)))
    for options in ({}, {"right": True}, {"side": "right"}, {"out_int32": True}):
        _same(torch, "searchsorted", [s, v], options)
        _same(torch, "searchsorted", [s, 0.1], options)
        _same(torch, "searchsorted", [rows, rng.normal(size=(3, 2))], options)
    _same(torch, "searchsorted", [s, np.array([np.nan, np.inf])], {})
    _same(torch, "bucketize", [rng.normal(size=(3, 3)), s], {"right": True})
    ints = np.array([1, 3, 3, 0])
    _same(torch, "bincount", [ints], {"minlength": 7})
    _same(torch, "bincount", [ints, v], {})
    _same(torch, "histc", [rng.normal(size=20).astype(np.float32), 5], {})
    _same(torch, "histc", [rng.normal(size=20)], {"bins": 4, "min": -1, "max": 1})
    _same(torch, "isin", [ints, np.array([0, 3])], {"invert": True})
    _same(torch, "isin", [ints, 3], {})


def test_statistics():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, f, a = rng.normal(size=(3, 4)), np.array([1, 2, 1, 3]), rng.random(4)
    _same(torch, "cov", [x], {"correction": 0})
    weights = {"fweights": f, "aweights": a}
    mine = cd.cov(cd.from_numpy(x), **{k: cd.from_numpy(v) for k, v in weights.items()})
    np.testing.assert_allclose(mine.numpy(), np.cov(x, **weights))
    _same(torch, "corrcoef", [x], {})
    _same(torch, "dist", [x, rng.normal(size=(3, 4))], {"p": 1})
    _same(torch, "renorm", [x, 2, 0, 1.0], {})
    _same(torch, "diff", [x], {"n": 2})
    _same(torch, "trapezoid", [x, rng.normal(size=4)], {})
    _same(torch, "trapezoid", [x], {"dx": 0.5, "dim": 0})
    _same(torch, "cumulative_trapezoid", [x, rng.normal(size=4)], {})


@pytest.mark.parametrize(
    "options",
    [
        {"unbiased": False},
        {"correction": 0},
        {"dim": 1, "unbiased": False},
        {"dim": 1, "correction": 2, "keepdim": True},
        {"dim": 1, "unbiased": True, "keepdim": True},
    ],
)
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_spellings_of_the_correction(name, options):
    torch = pytest.importorskip("torch")
    _same(torch, name, [_inputs()[1]], options)


def test_positional_unbiased():
    x = cd.tensor([[1.0, 2.0, 4.0], [1.0, 5.0, 6.0]])
    assert x.var(1, False).tolist() == x.var(1, correction=0).tolist()
    assert x.std(1, True, True).shape == (2, 1)
    assert x.var(False).tolist() == x.var(correction=0).tolist()
    assert x.std(True).tolist() == x.std(correction=1).tolist()
    for pair in (cd.var_mean, cd.std_mean):
        assert pair(x, False)[0].tolist() == pair(x, correction=0)[0].tolist()
    with pytest.raises(TypeError, match="not float"):
        x.var(1.5)


# ---- results ----------------------------------------------------------------------------------


def test_dtypes_of_sums():
    assert cd.tensor([True, True]).sum().item() == 2
    assert cd.tensor([100, 100], dtype=cd.int8).sum().item() == 200
    assert cd.ones(2).sum(dtype=cd.float64).dtype is cd.float64
    half = cd.ones(4096, dtype=cd.float16)
    assert half.sum().dtype is cd.float16
    assert half.sum().item() == 4096  # float16 addition alone stops at 2048
    assert cd.ones(1000, dtype=cd.bfloat16).sum().item() == 1000
    assert cd.ones(1000, dtype=cd.bfloat16).cumsum(0)[-1].item() == 1000


@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_moments_refuse_integers(name):
    with pytest.raises(TypeError, match="floating dtype"):
        getattr(cd, name)(cd.tensor([1, 2]))
    assert cd.tensor([1, 2]).mean(dtype=cd.float32).item() == 1.5


def test_max_has_three_forms():
    x, y = cd.tensor([[1.0, 3.0], [4.0, 2.0]]), cd.tensor([2.0, 2.0])
    assert x.max().item() == 4
    found = x.max(1)
    assert found.values.tolist() == [3, 4]
    assert found.indices.tolist() == [1, 0]
    assert x.max(dim=0, keepdim=True).values.shape == (1, 2)
    assert cd.max(x, y).tolist() == [[2, 3], [4, 2]]
    assert cd.min(x, y).tolist() == [[1, 2], [2, 2]]


def test_ties_share_the_gradient_of_amax_and_max():
    for function in (lambda x: cd.amax(x, 0), cd.max):
        x = cd.tensor([3.0, 1.0, 3.0], requires_grad=True)
        function(x).backward()
        assert x.grad.tolist() == [0.5, 0, 0.5]
    x = cd.tensor([3.0, 1.0, 3.0], requires_grad=True)
    x.max(0).values.backward()
    assert x.grad.tolist() == [1, 0, 0]


def test_empty_reductions():
    x = cd.zeros(0, 3)
    assert x.sum().item() == 0
    assert x.prod(0).tolist() == [1, 1, 1]
    assert math.isnan(x.mean().item())
    assert x.amax(1).shape == (0,)
    assert not x.any().item()
    assert x.all().item()
    for function in (cd.amax, cd.argmax, cd.max_dim if hasattr(cd, "max_dim") else cd.max):
        with pytest.raises(IndexError, match="is empty"):
            function(x, 0)


@pytest.mark.parametrize("dim", [2, -3, (0, 0), (0, 5)])
def test_wrong_dims(dim):
    with pytest.raises(IndexError, match=r"sum\("):
        cd.ones(2, 3).sum(dim)


def test_nan_wins():
    x = cd.from_numpy(WITH_NAN)
    assert x.amax(1).isnan().tolist() == [True, False, True]
    assert x.argmax(1).tolist() == [2, 0, 0]
    assert x.median(1).values.isnan().tolist() == [True, False, True]
    assert cd.sort(x[0]).values.isnan().tolist() == [False] * 4 + [True]
    assert x.cummax(1).values[0].isnan().tolist() == [False, False, True, True, True]


def test_norm_of_zero_has_gradient_zero():
    x = cd.zeros(3, requires_grad=True)
    x.norm().backward()
    assert x.grad.tolist() == [0, 0, 0]
    y = cd.ones(3, requires_grad=True)
    y.std().backward()
    assert y.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_with_zeros_differentiate(name, zeros):
    values = np.array([2.0, 3.0, 0.5, 4.0])
    values[:zeros] = 0
    x = cd.from_numpy(values).requires_grad_()
    function = (lambda t: t.prod()) if name == "prod" else (lambda t: t.cumprod(0))
    assert cd.autograd.gradcheck(function, (x,))


def test_mode_takes_the_smallest_of_the_most_frequent():
    found = cd.mode(cd.tensor([[3, 1, 3, 1, 2], [2, 2, 2, 1, 1]]))
    assert found.values.tolist() == [1, 2]
    assert found.indices.tolist() == [3, 2]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8", "float64"])
@pytest.mark.parametrize("descending", [False, True])
def test_large_sorts_are_stable(dtype, descending):
    rng = np.random.default_rng(0)
    x = cd.from_numpy(rng.integers(-20, 20, 1000)).to(getattr(cd, dtype))
    values, index = cd.sort(x, descending=descending)
    wide = x.double().numpy()
    order = np.argsort(-wide if descending else wide, kind="stable")
    np.testing.assert_array_equal(index.numpy(), order)
    np.testing.assert_array_equal(values.double().numpy(), wide[order])
    top = cd.topk(x, 7, largest=descending)
    np.testing.assert_array_equal(top.indices.numpy(), order[:7])


shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)


@given(hnp.arrays(np.float32, shapes, elements=st.floats(-100, 100, width=32)), st.data())
def test_reductions_are_numpys(x, data):
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    t = cd.from_numpy(x)
    np.testing.assert_allclose(t.sum(dim).numpy(), x.sum(dim), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(t.amax(dim).numpy(), x.max(dim))
    np.testing.assert_array_equal(t.argmin(dim).numpy(), x.argmin(dim))
    np.testing.assert_allclose(t.var(dim, correction=0).numpy(), x.var(dim), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(t.sort(dim).values.numpy(), np.sort(x, dim))
    np.testing.assert_array_equal(t.cummax(dim).values.numpy(), np.maximum.accumulate(x, dim))


def test_max_and_min_choose_among_their_forms_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    data = [[3.0, 1.0], [2.0, 4.0]]
    x, t = cd.tensor(data), torch.tensor(data)
    for name in ("max", "min"):
        mine, theirs = getattr(cd, name), getattr(torch, name)
        assert mine(x).item() == theirs(t).item()
        # A 0-dim integer tensor is an operand, not a dimension.
        zero, other = cd.tensor(0), torch.tensor(0)
        assert mine(x, zero).tolist() == theirs(t, other).tolist()
        assert mine(x, other=x + 1).tolist() == theirs(t, other=t + 1).tolist()
        for found, wanted in (
            (mine(x, 1), theirs(t, 1)),
            (mine(x, dim=-1, keepdim=True), theirs(t, dim=-1, keepdim=True)),
            (mine(x, 0, True), theirs(t, 0, True)),
        ):
            assert found.values.tolist() == wanted.values.tolist()
            assert found.indices.tolist() == wanted.indices.tolist()
            assert type(found).__name__ == name


@pytest.mark.parametrize("name", ["std", "var"])
def test_moments_of_numbers_that_differ_little(name: str) -> None:
    """The mean in single precision is off by more than they and their gradients may be."""
    rng = np.random.default_rng(3)
    array = (1000 + 0.01 * rng.standard_normal((4, 5))).astype(np.float32)
    found = []
    for dtype in (cd.float32, cd.float64):
        x = cd.tensor(array).to(dtype).requires_grad_()
        moment = getattr(x, name)(1)
        moment.sum().backward()
        assert x.grad is not None
        found.append([t.numpy().astype(np.float64) for t in (moment.detach(), x.grad)])
    for single, double in zip(*found, strict=True):
        assert np.abs(single - double).max() < 1e-6 * np.abs(double).max()


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16], ids=str)
@pytest.mark.parametrize("size", [2, 17, 257, 4097])
def test_an_extreme_is_the_element_that_its_index_names(size: int, dtype: Any) -> None:
    """The sign of a zero, too."""
    for first in (0.0, -0.0):
        x = cd.zeros(size, dtype=dtype)
        x[0], x[1] = first, -first
        for values, places in (x.max(0), x.min(0), x.max(0, keepdim=True)):
            assert places.flatten().tolist() == [0]
            assert values.signbit().flatten().tolist() == [x[0].signbit().item()]
