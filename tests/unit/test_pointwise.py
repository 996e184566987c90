"""Elementwise operators: samples of the blocks, special values, integers, overloads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import coredispatch as cd

pytestmark = pytest.mark.once

FAMILY = ("elementwise",)

SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf,
     np.nan, 0.3, -7.7, 20, -20, 88, -88, 100]
)  # fmt: skip
INTEGERS = np.array([0, 1, -1, 2, 5, -7, 100, -128], np.int8)


def test_samples_agree_with_reference_and_body(sampled):
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_gradients(derivable):
    family, name = derivable
    assert family.check_gradients(name) > 0


@pytest.mark.parametrize(
    "name", ["mul", "div", "pow", "exp", "log", "sqrt", "tanh", "abs", "angle", "conj", "sigmoid"]
)
def test_complex_gradients(name):
    from coredispatch.registry import TABLE

    op = TABLE.operator(name)
    rng = np.random.default_rng(0)
    x = cd.from_numpy(rng.normal(size=3) + 1j * rng.normal(size=3)).requires_grad_()
    y = cd.from_numpy(rng.normal(size=3) + 1j * rng.normal(size=3)).requires_grad_()
    inputs = (x, y) if len(op.tensors) == 2 else (x,)
    assert cd.autograd.gradcheck(op, inputs)


# ---- special values ---------------------------------------------------------------------------

UNARY = """abs neg sgn square reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan
asin acos atan sinh cosh tanh asinh acosh atanh floor ceil trunc round frac sigmoid erf erfc erfinv
lgamma digamma isnan isinf isfinite isposinf isneginf signbit logical_not deg2rad rad2deg sinc
nan_to_num angle logit""".split()
BINARY = """add sub mul div floor_divide pow maximum minimum fmax fmin atan2 eq ne lt le gt ge
logical_and logical_or logical_xor copysign hypot logaddexp logaddexp2 xlogy float_power
nextafter""".split()


def _agree(mine, theirs, what):
    assert mine.dtype.name == str(theirs.dtype).removeprefix("torch."), what
    a, b = mine.numpy(), theirs.numpy()
    if what == "sgn":  # PyTorch drops NaN there, NumPy does not
        b = np.where(np.isnan(a), a, b)
    np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6, err_msg=what)
    if a.dtype.kind == "f" and what not in ("rsqrt", "hypot", "sinc"):
        # Signed zeros match as well.
        np.testing.assert_array_equal(np.signbit(a[a == 0]), np.signbit(b[a == 0]), what)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.bool_])
def test_unary_special_values_are_pytorchs(name, dtype):
    torch = pytest.importorskip("torch")
    x = SPECIAL.astype(dtype) if np.dtype(dtype).kind == "f" else INTEGERS.astype(dtype)
    try:
        theirs = getattr(torch, name)(torch.from_numpy(x))
    except RuntimeError:
        pytest.skip("PyTorch refuses the dtype")
    _agree(getattr(cd, name)(cd.from_numpy(x)), theirs, name)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_binary_special_values_are_pytorchs(name, dtype):
    torch = pytest.importorskip("torch")
    a, b = (m.ravel().copy() for m in np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype)))
    theirs = getattr(torch, name)(torch.from_numpy(a), torch.from_numpy(b))
    mine = getattr(cd, name)(cd.from_numpy(a), cd.from_numpy(b))
    np.testing.assert_allclose(
        mine.numpy(), theirs.numpy(), rtol=3e-6, atol=1e-7 if name.startswith("logadd") else 1e-37
    )


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "add", "sub", "mul", "pow"])
@pytest.mark.parametrize("scalar", [3, -3, 2.5, True])
def test_integers_are_pytorchs(name, scalar):
    torch = pytest.importorskip("torch")
    if name == "sub" and scalar is True or name == "pow" and scalar == -3:
        pytest.skip("PyTorch refuses")
    a, b = (m.ravel().copy() for m in np.meshgrid(INTEGERS, INTEGERS[1:]))
    ours, ref = getattr(cd, name), getattr(torch, name)
    _agree(ours(cd.from_numpy(a), cd.from_numpy(b)), ref(*map(torch.from_numpy, (a, b))), name)
    _agree(ours(cd.from_numpy(a), scalar), ref(torch.from_numpy(a), scalar), name)


def test_integers_wrap():
    x = cd.tensor([100, -128], dtype=cd.int8)
    assert (x + 300).tolist() == [-112, -84]
    assert (x * x).tolist() == [16, 0]
    assert cd.neg(x).tolist() == [-100, -128]


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
@pytest.mark.parametrize("zero", [0, "tensor"])
def test_integer_division_by_zero_is_an_error(name, zero):
    x = cd.tensor([1, 2])
    with pytest.raises(RuntimeError, match="ZeroDivisionError") as caught:
        getattr(cd, name)(x, cd.tensor([1, 0]) if zero == "tensor" else 0)
    assert isinstance(caught.value, ZeroDivisionError)
    assert name in str(caught.value)


def test_bool_subtraction_is_refused():
    with pytest.raises(TypeError):
        cd.tensor([True]) - cd.tensor([False])


def test_shifts_past_the_width():
    x = cd.tensor([1, -8])
    assert cd.bitwise_left_shift(x, 64).tolist() == [0, 0]
    assert cd.bitwise_right_shift(x, 64).tolist() == [0, -1]


# ---- overloads and options --------------------------------------------------------------------


def test_alpha():
    x, y = cd.tensor([1.0, 2.0]), cd.tensor([3.0, 5.0])
    assert cd.add(x, y, alpha=2).tolist() == [7, 12]
    assert cd.sub(x, 1, alpha=3).tolist() == [-2, -1]
    assert cd.rsub(x, y, alpha=2).tolist() == [1, 1]
    assert x.add_(y, alpha=0.5).tolist() == [2.5, 4.5]


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_rounding_mode(mode, dtype):
    torch = pytest.importorskip("torch")
    a, b = np.arange(-9, 9, dtype=dtype), np.array([2, -3, 4] * 6, dtype=dtype)
    mine = cd.div(cd.from_numpy(a), cd.from_numpy(b), rounding_mode=mode)
    _agree(mine, torch.div(torch.from_numpy(a), torch.from_numpy(b), rounding_mode=mode), "div")


def test_trunc_division_of_large_integers_is_exact():
    big = cd.tensor([2**62 + 1, -(2**62) - 1])
    assert cd.div(big, 3, rounding_mode="trunc").tolist() == [
        (2**62 + 1) // 3,
        -((2**62 + 1) // 3),
    ]


def test_unknown_rounding_mode():
    with pytest.raises(ValueError, match="rounding_mode='up'"):
        cd.div(cd.tensor([1.0]), 2, rounding_mode="up")


def test_rounding_halves_to_even_and_to_decimals():
    assert cd.round(cd.tensor([0.5, 1.5, 2.5, -0.5])).tolist() == [0, 2, 2, 0]
    assert cd.round(cd.tensor([1.2345]), decimals=2).item() == pytest.approx(1.23)
    assert cd.round(cd.tensor([1234.0]), decimals=-2).item() == 1200
    assert cd.round(cd.tensor([5])).dtype is cd.int64


def test_clamp_bounds():
    x = cd.tensor([-2.0, 0.5, 3.0, math.nan])
    assert cd.clamp(x, 0, 1).tolist()[:3] == [0, 0.5, 1]
    assert math.isnan(cd.clamp(x, 0, 1)[3].item())
    assert cd.clamp(x, 1, 0).tolist()[:3] == [0, 0, 0]
    assert cd.clamp(cd.tensor([1, 5]), 2.5).dtype is cd.float32
    with pytest.raises(ValueError, match="min or max"):
        cd.clamp(x)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_share_the_gradient_at_ties(name):
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    y = cd.tensor([1.0, 3.0], requires_grad=True)
    getattr(cd, name)(x, y).sum().backward()
    first = 0.0 if name == "maximum" else 1.0
    assert x.grad.tolist() == [0.5, first]
    assert y.grad.tolist() == [0.5, 1 - first]


def test_where():
    c = cd.tensor([True, False])
    x = cd.tensor([1, 2])
    assert cd.where(c, x, 0).tolist() == [1, 0]
    assert cd.where(c, x, 0.5).dtype is cd.float32
    assert cd.where(c, 1.0, 0).dtype is cd.float32
    assert cd.where(c, x, cd.tensor([0.5, 0.5])).dtype is cd.float32
    # A branch that is not chosen may be NaN without harm to the gradient.
    y = cd.tensor([0.0, 4.0], requires_grad=True)
    cd.where(y > 0, cd.log(cd.where(y > 0, y, 1)), 0).sum().backward()
    assert y.grad.tolist() == [0, 0.25]


def test_whole_tensor_comparisons():
    x = cd.tensor([1.0, 2.0, math.nan])
    assert cd.equal(x[:2], cd.tensor([1, 2]))
    assert not x.equal(x)
    assert not cd.equal(x, x[:2])
    assert cd.allclose(x[:2], x[:2] + 1e-7)
    assert not x.allclose(x)
    assert x.allclose(x, equal_nan=True)
    assert x.where(x > 1, 0).tolist() == [0, 2, 0]
    assert cd.broadcast_shapes((2, 1), (3,), 1) == (2, 3)


def test_where_refuses_a_floating_condition():
    with pytest.raises(TypeError, match="must be bool"):
        cd.where(cd.tensor([1.0]), cd.tensor([1.0]), cd.tensor([2.0]))


def test_shapes_that_do_not_broadcast():
    with pytest.raises(RuntimeError, match=r"add\(.*they have 3 and 4 elements along dimension -1"):
        cd.ones(2, 3) + cd.ones(4)


def test_pow_of_integers():
    x = cd.tensor([2, 1, -1, 0])
    assert cd.pow(x, cd.tensor([-1, -2, -3, -1])).tolist() == [0, 1, -1, 0]
    with pytest.raises(ValueError, match="negative integer powers"):
        x**-1
    assert (2**x).tolist()[:2] == [4, 2]


def test_pow_of_bools_is_bool():
    """0 to the power of 0 is 1; in place as well."""
    x = cd.tensor([True, False])
    for answer in (x.pow(True), x.clone().pow_(True), x ** cd.tensor([True, True])):
        assert answer.dtype is cd.bool and answer.tolist() == [True, False]
    assert x.pow(False).tolist() == [True, True]
    assert cd.pow(False, x).tolist() == [False, True]
    assert cd.tensor(True).pow(True).dtype is cd.bool


def test_zero_gradients_where_pow_is_constant():
    x = cd.tensor([0.0, 2.0], requires_grad=True)
    (x**0).sum().backward()
    assert x.grad.tolist() == [0, 0]
    y = cd.tensor([0.0, 1.0], requires_grad=True)
    (0.0**y).sum().backward()
    assert y.grad.tolist() == [0, 0]


def test_complex_views_share_memory():
    z = cd.tensor([1 + 2j, 3 - 1j])
    parts = cd.view_as_real(z)
    parts[0, 0] = 7.0
    assert z.tolist() == [7 + 2j, 3 - 1j]
    assert cd.real(z).tolist() == [7, 3]
    assert cd.imag(z).tolist() == [2, -1]
    with pytest.raises(TypeError, match="complex"):
        cd.imag(cd.tensor([1.0]))


def test_polygamma_in_both_argument_orders():
    x = cd.tensor([1.5, 2.5])
    assert cd.polygamma(1, x).tolist() == x.polygamma(1).tolist()
    special = pytest.importorskip("scipy.special")
    np.testing.assert_allclose(
        cd.polygamma(2, x.double()).numpy(), special.polygamma(2, [1.5, 2.5]), rtol=1e-12
    )


SCIPY = {
    "erfinv": (-0.999, 0.999), "ndtr": (-30, 10), "ndtri": (1e-6, 1 - 1e-6), "log_ndtr": (-40, 10),
    "entr": (0, 5), "i0": (-40, 40), "i0e": (-80, 80), "i1": (-40, 40), "i1e": (-80, 80),
    "digamma": (-5.2, 30), "gammaln": (0.01, 200), "erfc": (-5, 26), "erf": (-5, 5),
    "expit": (-50, 50),
}  # fmt: skip


def test_digamma_keeps_its_digits_beside_the_root():
    x = cd.tensor([1.4545024127087525, 1.4616, 1.4617], dtype=cd.float64)
    wanted = [-0.006921845154341296, -3.110625123034165e-05, 6.56593922936765e-05]
    np.testing.assert_allclose(cd.digamma(x).numpy(), wanted, rtol=1e-14)


@pytest.mark.parametrize("name", SCIPY)
def test_special_functions_against_scipy(name):
    special = pytest.importorskip("scipy.special")
    low, high = SCIPY[name]
    x = np.linspace(low, high, 2003)
    mine = getattr(cd.special, name)(cd.from_numpy(x)).numpy()
    np.testing.assert_allclose(mine, getattr(special, name)(x), rtol=2e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("ndtr", [-30.3, -12.7, -5.1, -2.3, 7.2],
         [5.731723503315496e-202, 2.95648536485205e-37, 1.6982674071476014e-07,
          0.01072411002167581, 0.9999999999996989]),
        ("log_ndtr", [-30.3, -12.7, -5.1, -2.3, 7.2],
         [-463.37617251337866, -84.11164725467316, -15.588487091871466, -4.535260799273154,
          -3.010627981117887e-13]),
        ("i0", [0.3, 7.9, 23.3, 140.7],
         [1.022626879351597, 389.406283282158, 1093140129.0432944, 4.28927445494795e59]),
        ("i1", [0.3, 7.9, 23.3, 140.7],
         [0.15169384000359276, 363.8539440845084, 1069418891.997322, 4.274004552514544e59]),
    ],
)  # fmt: skip
def test_special_functions_are_exact_where_rounding_errors_grow(name, x, want):
    """The values were computed with 40 digits; in the tails SciPy is 1900 units off."""
    got = getattr(cd.special, name)(cd.tensor(x, dtype=cd.float64)).numpy()
    assert (np.abs(got - want) <= 8 * np.spacing(np.abs(want))).all()


def test_ldexp_of_a_power_that_overflows():
    x, exponent = cd.tensor([0.0, 1e-30, 3.0]), cd.tensor([1000.0, 150.0, -130.0])
    want = np.ldexp(x.numpy(), [1000, 150, -130])
    np.testing.assert_array_equal(cd.ldexp(x, exponent).numpy(), want)


def test_erf_in_float32_is_within_three_ulp():
    special = pytest.importorskip("scipy.special")
    x = np.linspace(-6, 6, 100_001, dtype=np.float32)
    want = special.erf(x.astype(np.float64))
    got = cd.erf(cd.from_numpy(x)).numpy()
    units = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))
    assert units.max() < 3


# ---- in place, out=, warnings -----------------------------------------------------------------


def test_in_place_writes_into_self():
    x = cd.ones(3)
    y = x
    x += 2
    cd.Tensor.mul_(x, cd.tensor([1.0, 2.0, 3.0]))
    x.sqrt_().neg_()
    np.testing.assert_allclose(y.numpy(), -np.sqrt([3.0, 6.0, 9.0]), rtol=1e-6)
    with pytest.raises(RuntimeError, match="cannot be written into"):
        cd.tensor([1, 2]).div_(2)


def test_out_receives_the_result():
    out = cd.empty(2)
    result = cd.mul(cd.tensor([1.0, 2.0]), 3, out=out)
    assert result is out
    assert out.tolist() == [3, 6]


def test_numpys_warnings_and_settings_stay_out():
    # The test run turns warnings into errors.
    x = cd.from_numpy(SPECIAL.astype(np.float32))
    with np.errstate(all="raise"):
        for result in (x - x, x * x, x / 0, cd.log(x), cd.exp(x), x.sum(), cd.softmax(x, 0)):
            assert result.dtype is cd.float32
        assert np.geterr()["divide"] == "raise"


def test_bfloat16_stays_bfloat16_beside_numbers():
    x = cd.tensor([1.0, 2.0], dtype=cd.bfloat16)
    for y in (x + 1, x * 2.5, 1 / x, x**2, cd.clamp(x, 0, 1.5), cd.where(x > 1, x, 0)):
        assert y.dtype is cd.bfloat16
    x += 0.5
    assert x.dtype is cd.bfloat16
    assert x.tolist() == [1.5, 2.5]


floats = st.floats(-1e3, 1e3, width=32)


@given(
    hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4),
    st.sampled_from(["add", "sub", "mul", "maximum", "atan2"]),
    st.randoms(use_true_random=False),
)
def test_broadcasting_is_numpys(shapes, name, random):
    rng = np.random.default_rng(random.randint(0, 2**31))
    a, b = (rng.normal(size=s).astype(np.float32) for s in shapes.input_shapes)
    reference = {"sub": np.subtract, "mul": np.multiply}.get(name) or getattr(np, name)
    mine = getattr(cd, name)(cd.from_numpy(a), cd.from_numpy(b))
    assert tuple(mine.shape) == shapes.result_shape
    np.testing.assert_allclose(mine.numpy(), reference(a, b), rtol=1e-6)


def test_zeta_at_its_poles_and_of_numbers() -> None:
    zeta = cd.special.zeta
    assert zeta(cd.tensor(3.0), 0.0).item() == math.inf
    assert zeta(3.0, cd.tensor([0.0, -1.0, -0.5])).tolist() == pytest.approx(
        [math.inf, math.inf, math.nan], nan_ok=True
    )
    assert zeta(cd.tensor([1.0, 0.5, 2.0]), 1).tolist() == pytest.approx(
        [math.inf, math.nan, math.pi**2 / 6], nan_ok=True
    )
    with pytest.raises(cd.DTypeError, match="there is no tensor"):
        zeta(3.0, 0.0)


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16, cd.float32, cd.float64])
def test_the_number_after_a_zero_is_the_zero_asked_for(dtype) -> None:
    zeros = cd.tensor([0.0, -0.0], dtype=dtype)
    assert str(cd.nextafter(zeros, -zeros).tolist()) == "[-0.0, 0.0]"
    written = -zeros
    cd.nextafter(zeros, written, out=written)
    assert str(written.tolist()) == "[-0.0, 0.0]"
