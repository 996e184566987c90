"""Convolution: every stride, padding, dilation and grouping, against PyTorch and by itself."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.registry.dispatch.table import TABLE

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def leaf(x: Any) -> Any:
    return cd.from_numpy(x.copy()).requires_grad_()


def close(mine: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(
        mine.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


OPTIONS = list(product((1, 2, 3), (1, 2), (0, 1), (1, 2), (1, 2)))


@pytest.mark.parametrize(("n", "stride", "padding", "dilation", "groups"), OPTIONS)
def test_against_torch(n: int, stride: int, padding: int, dilation: int, groups: int) -> None:
    torch = pytest.importorskip("torch")
    x = array(2, 4, *(7, 6, 5)[:n])
    w, b = array(6, 4 // groups, *(3, 2, 2)[:n]), array(6)
    mine, theirs = (
        [leaf(a) for a in (x, w, b)],
        [torch.tensor(a).requires_grad_() for a in (x, w, b)],
    )
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    y = getattr(F, f"conv{n}d")(*mine, **options)
    expected = getattr(torch.nn.functional, f"conv{n}d")(*theirs, **options)
    close(y, expected)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for a, b in zip(mine, theirs):
        close(a.grad, b.grad, 1e-9)


@pytest.mark.parametrize(("n", "stride", "padding", "dilation", "groups"), OPTIONS)
def test_transposed_against_torch(
    n: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    torch = pytest.importorskip("torch")
    x = array(2, 4, *(4, 3, 5)[:n])
    w, b = array(4, 6 // groups, *(3, 2, 2)[:n]), array(6)
    mine, theirs = (
        [leaf(a) for a in (x, w, b)],
        [torch.tensor(a).requires_grad_() for a in (x, w, b)],
    )
    extra = max(stride, dilation) - 1
    options = {
        "stride": stride,
        "padding": padding,
        "output_padding": extra,
        "groups": groups,
        "dilation": dilation,
    }
    y = getattr(F, f"conv_transpose{n}d")(*mine, **options)
    expected = getattr(torch.nn.functional, f"conv_transpose{n}d")(*theirs, **options)
    close(y, expected)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for a, b in zip(mine, theirs):
        close(a.grad, b.grad, 1e-9)


@pytest.mark.parametrize("transposed", [False, True])
def test_second_derivatives(transposed: bool) -> None:
    x = leaf(array(1, 2, 4, 4))
    w = leaf(array(2, 2, 3, 2))
    b = leaf(array(2))
    op = F.conv_transpose2d if transposed else F.conv2d

    def f(x: Any, w: Any, b: Any) -> Any:
        return op(x, w, b, stride=2, padding=1)

    # BLAS may sum in another order the second time.
    assert gradcheck(f, (x, w, b), nondet_tol=1e-11)
    assert gradgradcheck(f, (x, w, b), nondet_tol=1e-11)


def test_kernel_agrees_with_the_body() -> None:
    op = TABLE.operator("convolution")
    x, w, b = (cd.from_numpy(a) for a in (array(2, 4, 7, 6), array(6, 2, 3, 2), array(6)))
    args = (x, w, b, (2, 1), (1, 0), (1, 2), False, (0, 0), 2)
    close(op(*args), op.decomposition(*args))
    for name, first in (("conv_input_grad", w), ("conv_weight_grad", x)):
        shape = x.shape if first is w else w.shape
        grad = cd.from_numpy(array(*op(*args).shape))
        inner = (grad, first, tuple(shape), (2, 1), (1, 0), (1, 2), 2)
        other = TABLE.operator(name)
        close(other(*inner), other.decomposition(*inner))


def test_the_batch_is_cut_where_columns_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    from coredispatch.backends.numpy import conv

    x, w = cd.from_numpy(array(5, 4, 8, 8)), cd.from_numpy(array(6, 4, 3, 3))
    whole = F.conv2d(x, w, padding=1)
    monkeypatch.setattr(conv, "_COLUMN_BYTES", 40_000)
    close(F.conv2d(x, w, padding=1), whole)


def test_unbatched_and_string_padding() -> None:
    x, w = cd.from_numpy(array(2, 6, 5)), cd.from_numpy(array(3, 2, 3, 2))
    assert F.conv2d(x, w).shape == (3, 4, 4)
    close(F.conv2d(x, w), F.conv2d(x.unsqueeze(0), w)[0])
    assert F.conv2d(x, w, padding="same").shape == (3, 6, 5)
    close(F.conv2d(x, w, padding="valid"), F.conv2d(x, w))
    close(F.conv2d(x, w, padding="same"), F.conv2d(F.pad(x, (0, 1, 1, 1)), w))


def test_half_precision_accumulates_in_single() -> None:
    x = cd.from_numpy(array(1, 64, 8, 8).astype(np.float32))
    w = cd.from_numpy(array(8, 64, 3, 3).astype(np.float32))
    y = F.conv2d(x.bfloat16(), w.bfloat16())
    assert y.dtype is cd.bfloat16
    exact = F.conv2d(x.bfloat16().double(), w.bfloat16().double())
    assert float((y.double() - exact).abs().max() / exact.abs().max()) < 2**-8


def test_empty_batch() -> None:
    y = F.conv2d(cd.zeros(0, 2, 5, 5), cd.zeros(3, 2, 3, 3))
    assert y.shape == (0, 3, 3, 3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x": (1, 3, 5, 5)}, "channels"),
        ({"w": (4, 2, 6, 6)}, "does not fit"),
        ({"b": (1,)}, "bias of shape"),
        ({"x": (5, 5)}, "spatial dimensions"),
        ({"groups": 3}, "groups"),
        ({"padding": -1}, "padding"),
        ({"stride": 0}, "stride"),
        ({"padding": "full"}, "padding"),
    ],
)
def test_errors_name_the_fault(arguments: dict[str, Any], text: str) -> None:
    options = {"x": (1, 2, 5, 5), "w": (4, 2, 3, 3), "b": None, **arguments}
    x, w = cd.zeros(options.pop("x")), cd.zeros(options.pop("w"))
    b = options.pop("b")
    with pytest.raises(RuntimeError, match=text):
        F.conv2d(x, w, None if b is None else cd.zeros(b), **options)


def test_meta() -> None:
    x, w = cd.zeros(2, 3, 8, 8, device="meta"), cd.zeros(4, 3, 3, 3, device="meta")
    assert F.conv2d(x, w, stride=2).shape == (2, 4, 3, 3)


def test_a_window_may_lie_wholly_outside() -> None:
    # The first window's products are all cropped, and output_padding gives zeros in their place.
    grad, weight = cd.from_numpy(array(1, 2, 9, 1)), cd.from_numpy(array(2, 2, 3, 3))
    op = TABLE.operator("conv_input_grad")
    options = ((1, 2, 9, 1), (1, 1), (2, 2), (2, 2), 1)
    close(op(grad, weight, *options), op.decomposition(grad, weight, *options))


def test_gradients_as_functions_compute_no_convolution_forward() -> None:
    torch = pytest.importorskip("torch")
    options = (2, 1), (1, 0), (1, 2), 2
    x, w = array(2, 4, 7, 6), array(6, 2, 3, 2)
    given = array(2, 6, 4, 4)
    found = []
    for library in (cd, torch):
        t, weight, g = (library.from_numpy(a).requires_grad_() for a in (x, w, given))
        first = library.nn.grad.conv2d_input(t.shape, weight, g, *options)
        second = library.nn.grad.conv2d_weight(t, weight.shape, g, *options)
        loss = first.square().sum() + second.square().sum()
        found.append([first, second, *library.autograd.grad(loss, [t, weight, g])])
    for mine, theirs in zip(*found):
        close(mine, theirs)

    from coredispatch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        names: list[str] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    with Calls(), cd.no_grad():
        cd.nn.grad.conv2d_input(x.shape, cd.from_numpy(w), cd.from_numpy(given), *options)
        cd.nn.grad.conv2d_weight(cd.from_numpy(x), w.shape, cd.from_numpy(given), *options)
    assert Calls.names and not [name for name in Calls.names if "convolution." in name]
    with pytest.raises(RuntimeError, match="does not fit a convolution"):
        cd.nn.grad.conv2d_input(x.shape, cd.from_numpy(w), cd.from_numpy(given[:1]), *options)
