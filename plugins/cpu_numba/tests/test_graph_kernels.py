"""Convolutions, their gradients and large products inside compiled graphs, against eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_graph_pooling import compiled, without_python

import coredispatch as cd

pytestmark = pytest.mark.once

F = cd.nn.functional

# input, weight, stride, padding, dilation, groups
SHAPES = [
    ((2, 3, 40), (4, 3, 5), [2], [2], [1], 1),
    ((2, 4, 11, 13), (6, 2, 3, 3), [1, 2], [1, 0], [2, 1], 2),
    ((20, 2, 12, 12), (5, 2, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((1, 6, 15, 15), (6, 1, 3, 3), [2, 2], [1, 1], [1, 1], 6),
    ((32, 3, 9, 9), (4, 3, 1, 1), [2, 2], [0, 0], [1, 1], 1),
    ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), [1, 1, 2], [1, 0, 1], [1, 2, 1], 1),
]


def randn(*shape: int, dtype: Any = cd.float64) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return cd.from_numpy(values).to(dtype)


def check(program: Any, *inputs: Any, tolerance: float = 1e-12) -> Any:
    """Compile, run twice, compare with eager."""
    made = compiled(program, *inputs)
    for _ in range(2):
        for got, wanted in zip(made(*inputs), program(*inputs), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), tolerance, tolerance)
    return made


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64], ids=str)
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation", "groups"), SHAPES)
def test_convolution_and_its_gradients(
    shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int, dtype: Any
) -> None:
    """Every option differs in each dimension; several blocks of images are added up."""
    x, weight, bias = (randn(*s, dtype=dtype) for s in (shape, kernel, kernel[:1]))
    options = stride, padding, dilation

    def forward(x: Any, weight: Any, bias: Any) -> Any:
        zeros = [0] * len(stride)
        return cd.ops.convolution(x, weight, bias, *options, False, zeros, groups)

    grad = randn(*forward(x, weight, bias).shape, dtype=dtype)

    def program(x: Any, weight: Any, bias: Any, grad: Any) -> Any:
        y = forward(x * 2, weight, bias)
        input_grad = cd.ops.conv_input_grad(grad * 3, weight, list(shape), *options, groups)
        weight_grad = cd.ops.conv_weight_grad(grad * 3, x, list(kernel), *options, groups)
        return F.relu(y), input_grad + 1, weight_grad

    tolerance = 2e-4 if dtype is cd.float32 else 1e-12
    assert without_python(check(program, x, weight, bias, grad, tolerance=tolerance))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "more"), [(1, 0), (2, 1), (3, 1)])
def test_transposed_convolution(stride: int, more: int, groups: int) -> None:
    """With strides that leave positions without a window: those have the bias alone."""
    x, weight, bias = randn(2, 4, 9, 10), randn(4, 3, 2, 2), randn(3 * groups)

    def program(x: Any, weight: Any, bias: Any) -> Any:
        options = [stride] * 2, [0, 0], [1, 1], True, [more] * 2, groups
        return (cd.ops.convolution(x + 1, weight, bias, *options),)

    assert without_python(check(program, x, weight, bias))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_reaches_only_what_it_is_multiplied_with(value: float) -> None:
    x, weight = randn(2, 3, 8, 8), randn(4, 3, 3, 3)
    grad = randn(2, 4, 8, 8)

    def program(x: Any, weight: Any, grad: Any) -> Any:
        shape, options = list(x.shape), ([1, 1], [1, 1], [1, 1], 1)
        return x.add_(1), cd.ops.conv_input_grad(grad, weight, shape, *options)

    made = compiled(program, x, weight, grad)
    for _ in range(2):
        one, other = x.clone(), x.clone()
        for got, wanted in zip(made(one, weight, grad), program(other, weight, grad), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-12, 1e-12)
        weight = weight.clone()
        weight[1, 2, 0, 0] = value  # the same program meets it in its second turn


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (24, 3, 14, 14)])
def test_infinities_in_the_input_reach_their_own_weights_only(shape: Any) -> None:
    """The gradient of the weight is found to be not finite, and made again exactly."""
    x, grad = randn(*shape), randn(shape[0], 4, *shape[2:])

    def program(x: Any, grad: Any) -> Any:
        options = [4, 3, 3, 3], [1, 1], [1, 1], [1, 1], 1
        return (cd.ops.conv_weight_grad(grad, x, *options),)

    made = check(program, x, grad)
    assert without_python(made)
    x = x.clone()
    x[1, 2, 0, 0] = np.inf
    for got, wanted in zip(made(x, grad), program(x, grad), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-12, 1e-12)
        assert np.isfinite(got.numpy()).any()


def test_a_weight_that_the_program_wrote_is_looked_at_after_that() -> None:
    """It can be infinite then, whatever it was before."""
    weight, grad = randn(4, 3, 3, 3), randn(2, 4, 8, 8)

    def program(weight: Any, grad: Any, factor: Any) -> Any:
        weight.mul_(factor)
        options = [2, 3, 8, 8], [1, 1], [1, 1], [1, 1], 1
        return (cd.ops.conv_input_grad(grad, weight, *options),)

    made = compiled(program, weight, grad, cd.tensor(1.0, dtype=cd.float64))
    for factor in (2.0, np.inf, np.nan):
        one, other = weight.clone(), weight.clone()
        factor = cd.tensor(factor, dtype=cd.float64)
        (got,), (wanted,) = made(one, grad, factor), program(other, grad, factor)
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-12, 1e-12)


def test_weights_that_change_between_calls() -> None:
    """Nothing of the packed weights is kept from one call to the next."""
    x, weight, grad = randn(2, 3, 8, 8), randn(4, 3, 3, 3), randn(2, 4, 6, 6)

    def program(x: Any, weight: Any, grad: Any) -> Any:
        y = F.conv2d(x, weight)
        back = cd.ops.conv_input_grad(grad, weight, list(x.shape), [1, 1], [0, 0], [1, 1], 1)
        return y, back

    made = compiled(program, x, weight, grad)
    for factor in (1, -2, 5):
        changed = weight * factor
        for got, wanted in zip(made(x, changed, grad), program(x, changed, grad), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-12, 1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_products(threads: int) -> None:
    """Worth packing where the plugin's own loops are registered, and by BLAS elsewhere."""
    before = cd.get_num_threads()
    x, weight, bias = randn(2, 300, 130), randn(260, 130), randn(260)
    grad = randn(2, 300, 260)

    def program(x: Any, weight: Any, bias: Any, grad: Any) -> Any:
        y = F.gelu(F.linear(x * 2, weight, bias))
        weight_grad = cd.ops.linear_weight_grad(grad, x)
        flat = grad.view(-1, 260)
        return y, weight_grad, grad @ weight, flat.t() @ x.view(-1, 130), flat @ flat.t()

    try:
        cd.set_num_threads(threads)
        assert without_python(check(program, x, weight, bias, grad))
    finally:
        cd.set_num_threads(before)


@pytest.mark.parametrize("backward", [False, True])
def test_two_threads_give_the_same(backward: bool) -> None:
    x, weight = randn(16, 16, 30, 30, dtype=cd.float32), randn(32, 16, 3, 3, dtype=cd.float32)
    grad = randn(16, 32, 28, 28, dtype=cd.float32)

    def program(x: Any, weight: Any, grad: Any) -> Any:
        if not backward:
            return (F.conv2d(x, weight),)
        options = [1, 1], [0, 0], [1, 1], 1
        return (
            cd.ops.conv_input_grad(grad, weight, list(x.shape), *options),
            cd.ops.conv_weight_grad(grad, x, list(weight.shape), *options),
        )

    made, before, results = compiled(program, x, weight, grad), cd.get_num_threads(), []
    try:
        for threads in (1, 2):
            cd.set_num_threads(threads)
            results.append([result.numpy() for result in made(x, weight, grad)])
    finally:
        cd.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", [cd.bfloat16, cd.float16], ids=str)
def test_half_precision_is_left_to_its_own_kernels(dtype: Any) -> None:
    """Forward, transposed, and both gradients, in a compiled training step."""
    layers = [cd.nn.Conv2d(3, 8, 3), cd.nn.ReLU(), cd.nn.ConvTranspose2d(8, 4, 2, 2)]
    net, x = cd.nn.Sequential(*layers).to(dtype), randn(2, 3, 12, 12, dtype=dtype)

    def step(x: Any) -> Any:
        net.zero_grad()
        loss = net(x).float().square().mean()
        loss.backward()
        return loss.detach()

    fast, wanted = cd.compile(step), step(x)
    grads = [p.grad.float() for p in net.parameters()]
    for _ in range(3):
        cd.testing.assert_close(fast(x), wanted, rtol=1e-2, atol=1e-3)
        for p, grad in zip(net.parameters(), grads, strict=True):
            cd.testing.assert_close(p.grad.float(), grad, rtol=2e-2, atol=2e-3)
