"""Max pooling and its gradient inside compiled graphs, against eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd

pytestmark = pytest.mark.once

F = cd.nn.functional


def compiled(program: Any, *inputs: Any) -> Any:
    """The compiled graph of operators that need no gradient."""
    from coredispatch_cpu_numba.graphs import compile_graph

    with cd.no_grad():
        return compile_graph(cd.jit.trace(program, inputs, check_trace=False).graph, inputs)


def without_python(made: Any) -> bool:
    return not any(hasattr(part, "graph") for part in made.ready[0].plan.work)


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 4, 11, 11), (3, 5, 6), (2, 2, 5)])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(2, 2, 1), (2, 1, 1), (3, 2, 1), (2, 2, 2)]
)
def test_pooling_and_its_gradient(
    shape: tuple[int, ...], kernel: int, stride: int, dilation: int, dtype: Any
) -> None:
    """Ties go to the first, NaN is the largest; overlapping windows add up."""
    n = 1 if shape[-2] < 4 else 2
    options = [[size] * n for size in (kernel, stride, 0, dilation)]
    values = np.random.default_rng(0).integers(-2, 3, shape).astype(str(dtype).split(".")[-1])
    values.flat[[3, 7, 8]] = np.nan, np.inf, -np.inf
    x = cd.from_numpy(values)
    pool = cd.ops.max_pool
    grad = cd.randn_like(pool(x, *options, False))

    def program(x: Any, grad: Any) -> Any:
        doubled = x * 2
        return pool(doubled, *options, False) + 1, cd.ops.max_pool_backward(
            grad * 2, doubled, *options, False
        )

    made = compiled(program, x, grad)
    assert without_python(made)
    for _ in range(2):
        for got, wanted in zip(made(x, grad), program(x, grad), strict=True):
            # Where windows overlap, gradients that cancel add up in another order.
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.max_pool2d(x * 2, 3, 2, 1),
        lambda x: F.max_pool2d(x * 2, 2, 2, ceil_mode=True),
        lambda x: F.max_pool2d((x * 2).transpose(-1, -2), 2),
        lambda x: F.max_pool2d(x.expand(64, 32, 7, 7) * 2, 2),
        lambda x: F.max_pool3d(x.expand(3, 4, 7, 7) * 2, 2),
        lambda x: F.max_pool2d((x * 2).to(cd.int64), 2),
    ],
)
def test_what_other_windows_and_layouts_give(call: Any) -> None:
    x = cd.randn(1, 1, 7, 7)
    made = compiled(call, x)
    for _ in range(2):
        np.testing.assert_array_equal(made(x).numpy(), call(x).numpy())
