"""Layers of 8-bit integers on the host: by our products, and by cuBLASLt's stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cublaslt_stand_in
import pytest

import coredispatch as cd

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
PAIRS = [(a, b) for a in (cd.uint8, cd.int8) for b in (cd.uint8, cd.int8)]


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Iterator[cublaslt_stand_in.CublasLt]:
    """The library, found when the kernels are registered: before ``on_host``."""
    yield from cublaslt_stand_in.installed(monkeypatch)


def drawn(dtype: Any, *shape: int) -> Any:
    ends = cd.iinfo(dtype)
    return cd.randint(ends.min, ends.max + 1, shape).to(dtype)


def channels(count: int, depth: int, dtype: Any) -> tuple[Any, ...]:
    """Zero points, bias, multipliers and shifts that make use of the range of the result."""
    shift = int(float(depth) ** 0.5 * 80).bit_length()
    zeros = drawn(dtype, count).to(cd.int64)
    bias = cd.randint(-1000, 1000, (count,))
    multiplier = cd.randint(1 << 30, (1 << 31) - 1, (count,))
    return zeros, bias, multiplier, cd.randint(shift - 1, shift + 2, (count,))


def ending(dtype: Any) -> tuple[int, int, int, int]:
    """Zero points of input and result, and the limits of the result."""
    ends = cd.iinfo(dtype)
    return ends.min + 100, ends.min + 120, ends.min, ends.max


@pytest.mark.parametrize(("dtype", "weight_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize(("lead", "depth", "columns"), [((5,), 7, 6), ((), 9, 1), ((2, 3), 64, 33)])
def test_linear(on_host, lead, depth, columns, dtype, weight_dtype):
    given = drawn(dtype, *lead, depth), drawn(weight_dtype, columns, depth)
    rest = channels(columns, depth, weight_dtype)
    on_host(
        lambda *a: cd.ops.requantized_linear(*a, *ending(dtype)),
        *(*given, *rest),
        launches=4,
        rtol=0,
        atol=0,
    )


CONVOLUTIONS = [
    ((1, 1), (1, 0), (1, 1), 1, (2, 2, 4, 3), 3),
    ((2, 1), (1, 2), (1, 1), 1, (1, 4, 7, 6), 34),
    ((1, 1), (2, 1), (2, 1), 2, (2, 4, 7, 6), 18),
    ((1, 2), (1, 1), (1, 1), 6, (1, 6, 6, 7), 6),
]


@pytest.mark.parametrize("dtype", [cd.uint8, cd.int8], ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(on_host, case, dtype):
    stride, padding, dilation, groups, shape, columns = case
    x, w = drawn(dtype, *shape), drawn(cd.int8, columns, shape[1] // groups, 3, 2)
    rest = channels(columns, w[0].numel(), cd.int8)
    options = (stride, padding, dilation, groups)
    on_host(
        lambda *a: cd.ops.requantized_conv2d(*a, *ending(dtype), *options),
        *(x, w, *rest),
        launches=4,
        rtol=0,
        atol=0,
    )


def test_products_are_the_library_s_where_it_takes_them(lt, on_host):
    x, w = drawn(cd.uint8, 5, 70), drawn(cd.int8, 18, 70)
    rest = channels(18, 70, cd.int8)
    call = lambda *a: cd.ops.requantized_linear(*a, *ending(cd.uint8))  # noqa: E731
    on_host(call, x, w, *rest, launches=3, rtol=0, atol=0)
    assert [call["types"] for call in lt.calls] == [(72, 10)]
    image, kernel = drawn(cd.uint8, 2, 4, 6, 6), drawn(cd.int8, 16, 2, 3, 3)
    rest = channels(16, 18, cd.int8)
    on_host(
        lambda *a: cd.ops.requantized_conv2d(*a, *ending(cd.uint8), (1, 1), (1, 1), (1, 1), 2),
        *(image, kernel, *rest),
        launches=3,
        rtol=0,
        atol=0,
    )
    assert lt.calls[-1]["batch"] == 2


def test_what_is_made_of_a_weight_is_kept(on_host):
    x, w = drawn(cd.uint8, 5, 24).to("cuda"), drawn(cd.int8, 18, 24).to("cuda")
    rest, kept = [c.to("cuda") for c in channels(18, 24, cd.int8)], {}
    results = []
    for launches in (4, 3):
        before = on_host.library.launches
        results.append(cd.ops.requantized_linear(x, w, *rest, *ending(cd.uint8), kept).cpu())
        assert on_host.library.launches - before == launches
    cd.testing.assert_close(*results, rtol=0, atol=0)


def test_what_does_not_fit_is_refused(on_host):
    x, w = drawn(cd.uint8, 5, 24).to("cuda"), drawn(cd.int8, 18, 23).to("cuda")
    rest = [c.to("cuda") for c in channels(18, 24, cd.int8)]
    with pytest.raises(cd.ShapeError):
        cd.ops.requantized_linear(x, w, *rest, *ending(cd.uint8))
