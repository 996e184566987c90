"""Activations: samples of the blocks, PyTorch's values, extremes and the inplace flag."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import coredispatch as cd
import coredispatch.nn.functional as F

pytestmark = pytest.mark.once

FAMILY = ("activation",)

CASES = [
    ("relu", {}), ("relu6", {}), ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.2}),
    ("elu", {}), ("elu", {"alpha": 0.5}), ("selu", {}), ("celu", {"alpha": 0.7}), ("gelu", {}),
    ("gelu", {"approximate": "tanh"}), ("silu", {}), ("mish", {}), ("softplus", {}),
    ("softplus", {"beta": 2.0, "threshold": 1.0}), ("logsigmoid", {}), ("sigmoid", {}),
    ("tanh", {}), ("hardsigmoid", {}), ("hardswish", {}), ("hardtanh", {}),
    ("hardtanh", {"min_val": -0.5, "max_val": 0.7}), ("hardshrink", {}), ("softshrink", {}),
    ("tanhshrink", {}), ("softsign", {}), ("softmin", {"dim": 1}), ("softmax", {"dim": 0}),
    ("log_softmax", {"dim": -1}), ("glu", {}), ("threshold", {"threshold": 0.1, "value": 20.0}),
    ("rrelu", {}),
]  # fmt: skip
IDS = [f"{n}-{'-'.join(map(str, k.values()))}".rstrip("-") for n, k in CASES]

INPLACE = [
    ("relu", {}), ("relu6", {}), ("leaky_relu", {}), ("elu", {}), ("selu", {}), ("celu", {}),
    ("silu", {}), ("mish", {}), ("hardtanh", {}), ("hardswish", {}), ("hardsigmoid", {}),
    ("threshold", {"threshold": 0.1, "value": 20.0}), ("rrelu", {}),
]  # fmt: skip


def _values(finite: bool) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=20) * 5
    tail = [0.0, -0.0, 20, -20, 50, -50, 100, -100, 1e-20, 3, -3, 6]
    if not finite:
        tail = [0.0, -0.0, np.inf, -np.inf, np.nan, 20, -20, 50, -50, 100, -100, 1e-20]
    return np.concatenate([x, tail]).reshape(4, 8)


def test_samples_agree_with_reference_and_body(sampled):
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_gradients(derivable):
    family, name = derivable
    assert family.check_gradients(name) > 0


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_values_are_pytorchs(name, options, dtype):
    torch = pytest.importorskip("torch")
    x = _values(finite=False).astype(dtype)
    expected = getattr(torch.nn.functional, name)(torch.from_numpy(x), **options).numpy()
    result = getattr(F, name)(cd.from_numpy(x), **options)
    assert result.dtype.name == dtype
    if name == "gelu":  # PyTorch's vector code gives NaN at infinity, its scalar code infinity
        expected = np.where(np.isposinf(x), np.inf, expected)
    rtol, atol = (4e-2, 1e-3) if dtype == "float16" else (1e-5, 1e-6)
    np.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_gradients_are_pytorchs(name, options):
    torch = pytest.importorskip("torch")
    x = _values(finite=True).astype(np.float32)
    theirs = torch.from_numpy(x.copy()).requires_grad_()
    weights = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    out = getattr(torch.nn.functional, name)(theirs, **options)
    weights = weights[tuple(map(slice, out.shape))].copy()
    out.backward(torch.from_numpy(weights))
    mine = cd.from_numpy(x.copy()).requires_grad_()
    getattr(F, name)(mine, **options).backward(cd.from_numpy(weights))
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "options"), INPLACE, ids=[n for n, _ in INPLACE])
def test_inplace_flag(name, options):
    x = cd.from_numpy(_values(finite=True).astype(np.float32))
    y = x.clone()
    function = getattr(F, name)
    result = function(y, **options, inplace=True)
    assert result is y
    # exp and tanh may have other code for results in the place of arguments.
    np.testing.assert_allclose(y.numpy(), function(x, **options).numpy(), rtol=1e-6)
    assert function(x, **options, inplace=False) is not x


def test_relu_in_place_differentiates():
    x = cd.tensor([-1.0, 2.0], requires_grad=True)
    F.relu(x * 3, inplace=True).sum().backward()
    assert x.grad.tolist() == [0, 3]


def test_second_derivatives_of_fused_backwards():
    x = cd.from_numpy(np.linspace(-2, 2, 7)).requires_grad_()
    for function in (F.silu, F.gelu, F.mish, F.softplus, cd.sigmoid, cd.tanh):
        assert cd.autograd.gradgradcheck(function, (x,))
    assert cd.autograd.gradgradcheck(lambda t: cd.softmax(t, 0), (x,))
    assert cd.autograd.gradgradcheck(lambda t: cd.log_softmax(t, 0), (x,))


def test_prelu_weights():
    torch = pytest.importorskip("torch")
    x = _values(finite=True).astype(np.float32)
    for weight in (np.array([0.3], np.float32), np.linspace(0, 1, 8, dtype=np.float32)):
        expected = torch.nn.functional.prelu(torch.from_numpy(x), torch.from_numpy(weight))
        result = F.prelu(cd.from_numpy(x), cd.from_numpy(weight))
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="3 weights do not fit 8 channels"):
        F.prelu(cd.from_numpy(x), cd.ones(3))


def test_softmax_survives_extremes():
    x = cd.tensor([[1e30, -1e30, 0.0], [-np.inf, 0.0, 0.0]])
    assert cd.softmax(x, 1).tolist() == [[1, 0, 0], [0, 0.5, 0.5]]
    assert cd.log_softmax(cd.tensor([1000.0, 0.0]), 0).tolist() == [0, -1000]
    assert cd.softmax(cd.zeros(0, 3), 1).shape == (0, 3)
    assert cd.softmax(cd.tensor([1, 2]), 0, dtype=cd.float32).dtype is cd.float32


def test_softmax_errors():
    with pytest.raises(TypeError, match="floating dtype"):
        cd.softmax(cd.tensor([1, 2]), 0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        cd.softmax(cd.ones(2), 1)


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_functional_softmax_without_dim():
    x = cd.ones(2, 4)
    assert F.softmax(x).tolist() == [[0.25] * 4] * 2
    assert F.log_softmax(cd.ones(3, 1, 1), _stacklevel=5).shape == (3, 1, 1)


def test_rrelu_in_training_draws_slopes_in_range():
    cd.manual_seed(0)
    out = F.rrelu(-cd.ones(1000), 0.1, 0.3, training=True)
    assert -0.3 <= out.min().item() < -0.28
    assert -0.12 < out.max().item() <= -0.1


def test_gumbel_softmax():
    cd.manual_seed(0)
    logits = cd.zeros(500, 4, requires_grad=True)
    soft = F.gumbel_softmax(logits, tau=0.5)
    np.testing.assert_allclose(soft.sum(1).detach().numpy(), 1, rtol=1e-5)
    hard = F.gumbel_softmax(logits, hard=True)
    assert sorted(set(hard.detach().numpy().round(6).ravel().tolist())) == [0, 1]
    assert hard.sum(0).min().item() > 80
    (hard * cd.arange(4.0)).sum().backward()
    assert logits.grad.abs().max().item() > 0
    with pytest.raises(ValueError, match="tau"):
        F.gumbel_softmax(logits, tau=0)


def test_unknown_options():
    with pytest.raises(ValueError, match="approximate"):
        F.gelu(cd.ones(2), approximate="fast")
    with pytest.raises(ValueError, match="lambd"):
        F.softshrink(cd.ones(2), -1.0)
    with pytest.raises(RuntimeError, match="even size"):
        F.glu(cd.ones(3))


def test_gelu_keeps_its_digits_in_the_tail():
    special = pytest.importorskip("scipy.special")
    x = np.linspace(-12, 4, 4001, dtype=np.float32)
    want = x.astype(np.float64) * special.ndtr(x.astype(np.float64))
    # One unit in the last place of x moves the result by x**2 units.
    allowed = 2.0**-23 * (4 + 4 * x.astype(np.float64) ** 2) * np.abs(want) + 1e-44
    assert (np.abs(F.gelu(cd.from_numpy(x)).numpy() - want) <= allowed).all()


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6),
               elements=st.floats(-50, 50, width=32)),
    st.data(),
)  # fmt: skip
def test_softmax_properties(x, data):
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    t = cd.from_numpy(x)
    y = cd.softmax(t, dim)
    np.testing.assert_allclose(y.sum(dim).numpy(), 1, rtol=1e-5)
    np.testing.assert_allclose(cd.log_softmax(t, dim).exp().numpy(), y.numpy(), atol=1e-6)
    np.testing.assert_allclose(cd.softmax(t + 7, dim).numpy(), y.numpy(), rtol=2e-4, atol=1e-7)


def test_clamping_activations_keep_integers_as_torch_does() -> None:
    x = cd.tensor([-3, 0, 3])
    functional = cd.nn.functional
    for out, expected in (
        (functional.hardtanh(x), [-1, 0, 1]),
        (functional.hardtanh(x, -1.5, 1.5), [-1, 0, 1]),
        (functional.relu6(x), [0, 0, 3]),
        (functional.threshold(x, 0.5, 2.5), [2, 2, 3]),
    ):
        assert out.dtype is cd.int64 and out.tolist() == expected
    assert functional.hardtanh(cd.tensor([-3.0, 0.5])).tolist() == [-1.0, 0.5]


def test_hardswish_overflows_only_where_its_result_does():
    for dtype, x in ((cd.float16, 12232.0), (cd.float32, 1e38)):
        given = cd.tensor([x], dtype=dtype)
        assert F.hardswish(given).tolist() == given.tolist()


def test_gelu_by_tanh_far_from_zero():
    bits = cd.bfloat16
    large = cd.tensor([2.4590717922020944e38], dtype=bits)
    assert F.gelu(large, approximate="tanh") == large
    x = cd.tensor([-70.0, -50.0, 60.0], dtype=cd.float16, requires_grad=True)
    (first,) = cd.autograd.grad(F.gelu(x, approximate="tanh").sum(), x, create_graph=True)
    (second,) = cd.autograd.grad(first.sum(), x)
    assert first.tolist() == [0.0, 0.0, 1.0] and second.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("grad", "size", "told"),
    [(1, 1, "even size, got 1"), (0, 3, "got 3"), (1, 4, "give 2 elements")],
)
def test_the_gradient_of_glu_is_half_of_its_input(grad: int, size: int, told: str) -> None:
    with pytest.raises(cd.ShapeError, match=f"(?s)glu_backward.*{told}"):
        cd.ops.glu_backward(cd.zeros(2, grad), cd.zeros(2, size), 1)
