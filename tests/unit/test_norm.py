"""Normalization against PyTorch: values, gradients, running statistics, edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import nn
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.registry.dispatch.table import TABLE

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def compare(mine: Any, theirs: Any, inputs: list[Any]) -> None:
    """Both functions on the same float64 arrays: results and all gradients."""
    torch = pytest.importorskip("torch")
    a = [None if x is None else cd.from_numpy(x.copy()).requires_grad_() for x in inputs]
    b = [None if x is None else torch.tensor(x).requires_grad_() for x in inputs]
    y, expected = mine(*a), theirs(torch.nn.functional, *b)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-9)
    weight = RNG.standard_normal(tuple(y.shape))
    (y * cd.from_numpy(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for x, z in zip(a, b):
        if x is not None:
            np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), 1e-8, 1e-8)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("shape", "n"), [((3, 5), 1), ((8, 8), 1), ((2, 3, 4), 2), ((5,), 1), ((4, 300), 1)]
)
def test_layer_and_rms_norm(shape: Any, n: int, affine: bool) -> None:
    last = shape[-n:]
    weight, bias = (array(*last), array(*last)) if affine else (None, None)
    compare(
        lambda x, w, b: F.layer_norm(x, last, w, b),
        lambda f, x, w, b: f.layer_norm(x, last, w, b),
        [array(*shape), weight, bias],
    )
    compare(
        lambda x, w: F.rms_norm(x, last, w),
        lambda f, x, w: f.rms_norm(x, last, w),
        [array(*shape), weight],
    )


@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_instance_and_batch_norm(shape: Any, affine: bool) -> None:
    weight, bias = (array(4), array(4)) if affine else (None, None)
    inputs = [array(*shape), weight, bias]
    compare(
        lambda x, w, b: F.group_norm(x, 2, w, b),
        lambda f, x, w, b: f.group_norm(x, 2, w, b),
        inputs,
    )
    compare(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda f, x, w, b: f.batch_norm(x, None, None, w, b, True),
        inputs,
    )
    if len(shape) > 2:
        compare(
            lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
            lambda f, x, w, b: f.instance_norm(x, weight=w, bias=b),
            inputs,
        )


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
@pytest.mark.parametrize("kind", ["BatchNorm2d", "InstanceNorm2d"])
def test_running_statistics(kind: str, momentum: float | None) -> None:
    torch = pytest.importorskip("torch")
    if kind == "InstanceNorm2d" and momentum is None:
        return
    options = {"momentum": momentum, "affine": True, "track_running_stats": True}
    mine = getattr(nn, kind)(3, **options).double()
    theirs = getattr(torch.nn, kind)(3, **options).double()
    for _ in range(3):
        x = array(4, 3, 2, 5) * 2 + 1
        y, expected = mine(cd.from_numpy(x)), theirs(torch.tensor(x))
        np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-9)
        for name in ("running_mean", "running_var"):
            a, b = getattr(mine, name), getattr(theirs, name)
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-12)
    if kind == "BatchNorm2d":
        assert int(mine.num_batches_tracked) == 3
    mine.eval(), theirs.eval()
    x = array(2, 3, 2, 2)
    y, expected = mine(cd.from_numpy(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-9)


def test_inference_gradients_against_torch() -> None:
    mean, var = array(4), array(4) ** 2 + 0.1
    torch = pytest.importorskip("torch")
    compare(
        lambda x, w, b: F.batch_norm(x, cd.from_numpy(mean), cd.from_numpy(var), w, b),
        lambda f, x, w, b: f.batch_norm(x, torch.tensor(mean), torch.tensor(var), w, b),
        [array(2, 4, 3, 2), array(4), array(4)],
    )


def test_second_derivatives() -> None:
    x, w, b = (cd.from_numpy(a).requires_grad_() for a in (array(4, 3), array(3), array(3)))
    for f in (
        lambda x, w, b: F.layer_norm(x, (3,), w, b),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: F.group_norm(x, 1, w, b),
    ):
        # BLAS may sum in another order the second time.
        assert gradcheck(f, (x, w, b), nondet_tol=1e-11)
        assert gradgradcheck(f, (x, w, b), nondet_tol=1e-11)
    # The batch statistics are results, with derivatives of their own.
    assert gradcheck(lambda x, w, b: TABLE.operator("batch_norm_train")(x, w, b, 1e-5), (x, w, b))


def test_large_mean_small_spread() -> None:
    x = (1e4 + RNG.standard_normal((8, 64))).astype(np.float32)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    y = F.layer_norm(cd.from_numpy(x), (64,))
    assert np.abs(y.numpy() - exact).max() < 2e-3
    columns = F.batch_norm(cd.from_numpy(np.ascontiguousarray(x.T)), None, None, training=True)
    assert np.abs(columns.numpy().T - exact).max() < 2e-3


def test_constant_rows_give_zero() -> None:
    for n in (3, 8, 300):
        y = F.layer_norm(cd.full((2, n), 1000.1), (n,))
        assert float(y.abs().max()) < 0.1


def test_half_precision_keeps_float32_statistics() -> None:
    x = cd.from_numpy(array(16, 4, 3).astype(np.float32)).half()
    layer = nn.BatchNorm1d(4)
    y = layer(x)
    assert y.dtype is cd.float16 or y.dtype is cd.float32
    assert layer.running_mean.dtype is cd.float32
    assert F.layer_norm(x, (3,)).dtype is cd.float16


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: F.layer_norm(cd.zeros(3, 4), (3,)), "normalized_shape"),
        (lambda: F.layer_norm(cd.zeros(3, 4), (4,), cd.ones(1)), "weight or bias"),
        (lambda: F.group_norm(cd.zeros(2, 3, 4), 2), "groups"),
        (lambda: F.batch_norm(cd.zeros(1, 3), None, None, training=True), "one value per channel"),
        (lambda: F.batch_norm(cd.zeros(2, 3), cd.zeros(2), cd.ones(2)), "channels"),
        (lambda: F.batch_norm(cd.zeros(2, 3), None, None), "training=True"),
    ],
)
def test_errors_name_the_fault(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


def test_a_cosine_with_a_zero_vector_has_a_finite_gradient() -> None:
    x = cd.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    cd.cosine_similarity(x, cd.ones(2, 2)).sum().backward()
    assert cd.isfinite(x.grad).all() and x.grad[1].abs().max() > 0


def test_no_channels_are_normalized_to_none() -> None:
    assert cd.nn.functional.instance_norm(cd.ones(2, 0, 3)).shape == (2, 0, 3)
