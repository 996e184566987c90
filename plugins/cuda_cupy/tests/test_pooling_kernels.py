"""Pooling and its gradients on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
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
