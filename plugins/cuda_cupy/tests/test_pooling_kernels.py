"""Pooling and its gradients on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kernel_fixtures import DTYPES, close

import coredispatch as cd

F = cd.nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pools_of_every_dtype(on_host: Any, dtype: Any) -> None:
    x, row = cd.randn(2, 3, 11, 9, dtype=dtype), cd.randn(2, 3, 40, dtype=dtype)
    near = close(dtype, 0.1)
    on_host(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    on_host(lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0), (2, 1), True), x)
    on_host(lambda x: F.max_pool2d(x, 2, return_indices=True), x)
    on_host(lambda x: F.max_pool1d(x, 4, 3, 1), row)
    on_host(lambda x: F.avg_pool2d(x, 3, 2, 1), x, **near)
    on_host(lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), x, **near)
    on_host(lambda x: F.avg_pool2d(x, (2, 3), divisor_override=4), x, **near)
    on_host(lambda x: F.avg_pool1d(x, 4, 3, 1, True), row, **near)
    on_host(lambda x: F.adaptive_avg_pool2d(x, 1), x, **near)
    on_host(lambda x: F.adaptive_avg_pool2d(x, (4, 13)), x, **near)
    on_host(lambda x: F.adaptive_avg_pool1d(x, 7), row, **near)
    on_host(lambda x: F.max_pool2d(x.permute(0, 1, 3, 2)[0], 3), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients(on_host: Any, dtype: Any) -> None:
    def gradient(pool: Any, launches: int) -> None:
        def program(x: Any, g: Any) -> Any:
            x = x.detach().requires_grad_()
            (pool(x) * g).sum().backward()
            return x.grad

        x = cd.randn(2, 3, 11, 9, dtype=dtype)
        g = cd.randn(pool(x).shape, dtype=dtype)
        on_host(program, x, g, launches=launches, **close(dtype, 0.2))

    gradient(lambda x: F.max_pool2d(x, 3, 2, 1), 3)
    gradient(lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0), (2, 1), True), 3)
    gradient(lambda x: F.avg_pool2d(x, 3, 2, 1), 2)
    gradient(lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), 2)
    gradient(lambda x: F.avg_pool2d(x, (2, 3), divisor_override=4), 2)
    gradient(lambda x: F.adaptive_avg_pool2d(x, 1), 2)
    gradient(lambda x: F.adaptive_avg_pool2d(x, (4, 13)), 2)


def test_special_values(on_host: Any) -> None:
    inf, nan = float("inf"), float("nan")
    x = cd.tensor([[-inf, -inf, 1.0, 1.0, nan, 2.0, nan, inf, 0.0, 0.0]])
    on_host(lambda x: F.max_pool1d(x, 2, return_indices=True), x)
    on_host(lambda x: F.max_pool1d(x, 3, 1, 1, return_indices=True), x)
    on_host(lambda x: F.avg_pool1d(x, 3, 1, 1), x)
    on_host(lambda x: F.max_pool2d(x, 2), cd.zeros(0, 1, 4, 4), launches=0)
    on_host(lambda x: F.max_pool2d(x, 2), cd.randint(0, 9, (1, 1, 4, 4)), launches=0)
    on_host(lambda x: F.max_pool3d(x, 2), cd.randn(1, 1, 4, 4, 4), launches=0)
    with pytest.raises(cd.OpError):
        F.max_pool2d(cd.ones(1, 1, 2, 2, device="cuda"), 3)
    with pytest.raises(cd.OpError):
        F.max_pool2d(cd.ones(1, 1, 9, 9, device="cuda"), 3, padding=2)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_windows_of_any_geometry(on_host: Any, data: Any) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    size, kernel, stride, padding = pair(1, 12), pair(1, 4), pair(1, 4), pair(0, 2)
    ceil, inside = data.draw(st.booleans()), data.draw(st.booleans())
    dilation = pair(1, 2)
    x = cd.randn(2, *size)
    assume(all(2 * p <= k for p, k in zip(padding, kernel, strict=True)))
    try:
        shape = F.avg_pool2d(x, kernel, stride, padding, ceil, inside).shape
    except cd.OpError:
        assume(False)
    options = (kernel, stride, padding, ceil, inside, None)
    on_host(lambda x: cd.ops.avg_pool(x, *options), x, **close(cd.float32))
    g = cd.randn(shape)
    on_host(lambda g: cd.ops.avg_pool_backward(g, (2, *size), *options), g, **close(cd.float32))
    options = (kernel, stride, padding, dilation, ceil)
    try:
        shape = cd.ops.max_pool(x, *options).shape
    except cd.OpError:
        return
    if any(
        all(not 0 <= o * s - p + j * d < n for j in range(k))
        for n, k, s, p, d, c in zip(size, kernel, stride, padding, dilation, shape[1:], strict=True)
        for o in range(c)
    ):  # a window without an element is left to the kernel below
        on_host(lambda x: cd.ops.max_pool(x, *options), x, launches=0)
        return
    on_host(lambda x: cd.ops.max_pool_with_indices(x, *options), x)
    g = cd.randn(shape)
    on_host(
        lambda g, x: cd.ops.max_pool_backward(g, x, *options), g, x, launches=2, **close(cd.float32)
    )
