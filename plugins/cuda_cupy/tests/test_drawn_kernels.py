"""Kernels at shapes that Hypothesis draws, on the host beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import close

import coredispatch as cd

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")
given, assume = hypothesis.given, hypothesis.assume

F = cd.nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def drawing(count: int) -> Any:
    """So many examples, in any time; the fixture is the same for all of them."""
    return hypothesis.settings(
        max_examples=count,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@drawing(25)
@given(st.data())
def test_lines_along_any_dimension(on_host: Any, data: Any) -> None:
    shape = data.draw(shapes)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, g = cd.randn(shape), cd.randn(shape)
    on_host(lambda x: x.softmax(dim), x, **close(cd.float32))
    on_host(
        lambda g, y: cd.ops.log_softmax_backward(g, y, dim),
        g,
        x.log_softmax(dim),
        **close(cd.float32),
    )
    on_host(lambda x: x.cumsum(dim), x, **close(cd.float32))
    on_host(lambda x: F.layer_norm(x, shape[dim:], eps=0.1), x, **close(cd.float32))


@drawing(25)
@given(st.data())
def test_rows_of_any_shape(on_host: Any, data: Any) -> None:
    shape = data.draw(shapes)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[dim]
    index = cd.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=40)))
    x = cd.randn(shape)
    on_host(lambda x, i: x.index_select(dim, i), x, index)
    rows = [*shape]
    rows[dim] = len(index)
    values = cd.randint(-3, 4, rows).float()
    on_host(lambda x, i, v: x.index_add(dim, i, v), x, index, values)


@drawing(30)
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
