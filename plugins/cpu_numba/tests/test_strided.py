"""Arrays in another order than row-major give what they give in order, at nearly the same cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch_cpu_numba.kernels import strided

pytestmark = pytest.mark.once
F = cd.nn.functional


def in_order(array: np.ndarray) -> cd.Tensor:
    return cd.from_numpy(array.copy())


def channels_last(array: np.ndarray) -> cd.Tensor:
    return cd.from_numpy(array.copy()).to(memory_format=cd.channels_last)


def transposed(array: np.ndarray) -> cd.Tensor:
    return cd.from_numpy(array.copy()).transpose(2, 3).contiguous().transpose(2, 3)


def window(array: np.ndarray) -> cd.Tensor:
    whole = cd.zeros(array.shape[0], array.shape[1], array.shape[2] + 3, array.shape[3] + 2)
    whole[:, :, 1:-2, 1:-1] = cd.from_numpy(array.copy())
    return whole[:, :, 1:-2, 1:-1]


ORDERS = [channels_last, transposed, window]
W = np.random.default_rng(1).standard_normal((24, 16, 3, 3)).astype(np.float32)
WIDE = np.random.default_rng(2).standard_normal((16, 8, 4, 4)).astype(np.float32)
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "convolution": lambda x: F.conv2d(x, cd.from_numpy(W), padding=1),
    "strided convolution": lambda x: F.conv2d(x, cd.from_numpy(W), stride=2),
    "transposed convolution": lambda x: F.conv_transpose2d(x, cd.from_numpy(WIDE), stride=2),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 3),
    "group_norm": lambda x: F.group_norm(x, 4),
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "exp": cd.exp,
    "tanh": cd.tanh,
}


@pytest.mark.parametrize("order", ORDERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_and_gradients(name: str, order: Callable[[np.ndarray], cd.Tensor]) -> None:
    array = np.random.default_rng(0).standard_normal((3, 16, 12, 14)).astype(np.float32)
    found = []
    for x in (in_order(array), order(array)):
        x = x.detach().requires_grad_()
        out = OPERATORS[name](x)
        grad = cd.from_numpy(np.random.default_rng(3).standard_normal(out.shape, np.float32))
        last = grad.to(memory_format=cd.channels_last)
        found.append(
            (out, *(cd.autograd.grad(out, x, g, retain_graph=True)[0] for g in (grad, last)))
        )
        found[-1] += (cd.autograd.grad(out.sum(), x)[0],)  # a gradient that is expanded
    for got, want in zip(found[1], found[0], strict=True):
        cd.testing.assert_close(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("order", [channels_last, transposed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["silu", "exp", "relu", "gelu"])
def test_functions_keep_the_order(name: str, order: Callable[[np.ndarray], cd.Tensor]) -> None:
    x = order(np.random.default_rng(0).standard_normal((3, 16, 12, 14)).astype(np.float32))
    assert not x.is_contiguous()
    assert OPERATORS[name](x).stride() == x.stride()


def test_in_place_writes_to_the_array_itself() -> None:
    x = channels_last(np.random.default_rng(0).standard_normal((3, 16, 12, 14)).astype(np.float32))
    view, want = x[1], F.relu(x)
    assert x.relu_() is x
    cd.testing.assert_close(x, want)
    cd.testing.assert_close(view, want[1])


def test_what_is_left_to_numpy() -> None:
    x = np.zeros((4, 6, 8), np.float32)
    takes = strided.WHEN["exp"]
    assert not takes(x)
    assert takes(x.transpose(1, 2, 0))
    assert not takes(x.astype(np.int64).transpose(1, 2, 0))
    assert not takes(x[:, ::2])
    assert strided.KERNELS["threshold_backward"](x.T, x.T.copy(), 0.0) is NotImplemented
    takes = strided.WHEN["convolution"]
    weight = np.zeros((6, 6, 3), np.float32)
    assert not takes(x, weight, None, (1,), (0,), (1,), False, (0,), 1)
    assert takes(x, weight.transpose(1, 0, 2), None, (1,), (0,), (1,), False, (0,), 1)
    assert not takes(x[:, ::2], weight.astype(np.float64), None, (1,), (0,), (1,), False, (0,), 1)
