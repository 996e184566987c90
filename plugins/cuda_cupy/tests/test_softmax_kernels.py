"""softmax, log_softmax and their gradients on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import LENGTHS, close

import coredispatch as cd

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
FORWARD, BACKWARD = ["softmax", "log_softmax"], ["softmax_backward", "log_softmax_backward"]


@pytest.mark.parametrize(("length", "dtype"), LENGTHS, ids=str)
def test_rows_and_columns_around_the_borders_of_blocks(
    on_host: Any, length: int, dtype: Any
) -> None:
    rows = (cd.randn(3, length) * 3).to(dtype)
    columns = (cd.randn(2, 5, length) * 3).to(dtype)
    for name in FORWARD:
        op = getattr(cd.ops, name)
        on_host(lambda x, op=op: op(x, 1), rows)
        on_host(lambda x, op=op: op(x, -2), columns)
        on_host(lambda x, op=op: op(x, 0), rows.t().contiguous())
    for name in BACKWARD:
        op = getattr(cd.ops, name)
        for x in (rows, columns):
            on_host(lambda g, y, op=op: op(g, y, 1), x, x.softmax(1), **close(dtype))


@pytest.mark.parametrize("name", FORWARD)
def test_special_values_strides_and_dtypes(on_host: Any, name: str) -> None:
    op, inf, nan = getattr(cd.ops, name), float("inf"), float("nan")
    x = cd.tensor([[1.0, nan, 2], [inf, 0, 1], [-inf, 0, 1], [-inf] * 3, [3e38, -3e38, 0]])
    on_host(lambda x: op(x, 1), x)
    on_host(lambda x: op(x, 0), x)
    on_host(lambda x: op(x, 1), cd.randn(6, 10)[::2, 1::3].t())
    on_host(lambda x: op(x, 1), cd.zeros(0, 3), launches=0)
    on_host(lambda x: op(x, 1), cd.zeros(3, 0), launches=0)
    got = op(cd.arange(6).view(2, 3).to("cuda"), 1, dtype=cd.float64)
    cd.testing.assert_close(got.cpu(), op(cd.arange(6.0, dtype=cd.float64).view(2, 3), 1))


def test_what_is_left_to_other_kernels(on_host: Any) -> None:
    on_host(lambda x: cd.softmax(x, 0), cd.tensor(3.0), launches=0)
    with pytest.raises(cd.DimError):
        cd.softmax(cd.ones(2, 3, device="cuda"), 2)
    with pytest.raises(cd.DTypeError):
        cd.softmax(cd.ones(2, 3, dtype=cd.int64, device="cuda"), 1)


def test_gradients_take_the_kernels(on_host: Any) -> None:
    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (cd.softmax(x, 1) * cd.log_softmax(x, 0)).sum().backward()
        return x.grad

    on_host(gradient, cd.randn(5, 40), launches=4)


def test_explain_shows_both_kernels(on_host: Any) -> None:
    text = str(cd.explain("softmax", cd.ones(2, 3, device="cuda"), 1))
    assert "cuda/softmax.py" in text
