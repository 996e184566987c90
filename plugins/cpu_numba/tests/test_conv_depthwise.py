"""Convolutions of channels that are alone or in small groups: against NumPy's, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import conv_checks
import numpy as np
import pytest
from conv_checks import arrays, check_special_values, check_threads, close
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES, Reference

import coredispatch as cd
import coredispatch_cpu_numba as pack
from coredispatch_cpu_numba.kernels.conv import depthwise, general

pytestmark = pytest.mark.once
KERNELS = depthwise.KERNELS


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loops serve small convolutions, too, and share all but the smallest among threads."""
    monkeypatch.setattr(general, "_SMALL", 0)
    monkeypatch.setattr(depthwise._correlate, "split", 2000)
    monkeypatch.setattr(depthwise._products, "split", 2000)
    before = pack.get_num_threads()
    yield
    pack.set_num_threads(before)


def checked(reference: Reference, dtype: Any, drawn: Any) -> None:
    x_shape, w_shape, stride, padding, groups = drawn
    left = conv_checks.checked(
        KERNELS, reference, dtype, x_shape, w_shape, stride, padding, (1, 1), groups
    )
    assert left <= {"conv_weight_grad"}
    if left:
        assert w_shape[1] * w_shape[0] // groups > 4


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    """Shapes of input and weight, stride, padding, groups."""
    kernel = draw(
        st.one_of(
            st.sampled_from([(3, 3), (5, 5), (7, 7)]),
            st.tuples(st.integers(1, 9), st.integers(2, 9)),
        )
    )
    stride = draw(st.sampled_from([(1, 1), (2, 2), (1, 2), (2, 1)]))
    padding = draw(
        st.one_of(
            st.just(tuple(k // 2 for k in kernel)),
            st.tuples(*(st.integers(0, k + 1) for k in kernel)),
        )
    )
    images, groups = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    given, channels = draw(
        st.sampled_from([(1, 1), (1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 2)])
    )
    low = [max(2, k - 2 * p) for k, p in zip(kernel, padding, strict=True)]
    narrow = st.tuples(st.integers(low[0], low[0] + 15), st.integers(low[1], low[1] + 15))
    wide = st.tuples(st.integers(low[0], low[0] + 40), st.integers(low[1], low[1] + 120))
    spatial = draw(st.one_of(narrow, wide))
    x, w = (images, groups * given, *spatial), (groups * channels, given, *kernel)
    return x, w, stride, padding, groups


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=100)
@given(drawn=convolutions(), threads=st.integers(1, 2))
def test_convolution_and_gradients(
    reference: Reference, dtype: Any, drawn: Any, threads: int
) -> None:
    pack.set_num_threads(threads)
    checked(reference, dtype, drawn)


#: rows and columns of the input, kernel, stride: of networks, and where strips and tiles end
PLANES = [
    ((7, 7), 3, 1), ((7, 7), 5, 1), ((14, 14), 3, 1), ((14, 14), 7, 1), ((28, 28), 5, 1),
    ((28, 28), 3, 2), ((33, 33), 3, 2), ((14, 14), 5, 2), ((113, 112), 3, 2), ((112, 112), 3, 1),
    ((56, 57), 7, 1), ((300, 4), 3, 1), ((3, 3), 3, 1), ((5, 200), 5, 2), ((90, 130), 7, 2),
    ((2, 2), 3, 2), ((60, 60), 11, 1), ((40, 512), 4, 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("spatial", "k", "step"), PLANES)
def test_planes(
    reference: Reference, dtype: Any, spatial: tuple[int, int], k: int, step: int
) -> None:
    drawn = (2, 5, *spatial), (5, 1, k, k), (step, step), (k // 2, k // 2), 5
    checked(reference, dtype, drawn)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("width", [5, 7, 14, 16, 20, 33])
def test_special_values_go_where_they_belong(reference: Reference, width: int, step: int) -> None:
    """Vectors run beyond rows and planes: nothing there may be met, nor multiplied with 0."""
    check_special_values(KERNELS, reference, (2, 6, 9, width), (6, 1, 3, 3), step, 6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_threads(dtype: Any) -> None:
    check_threads(KERNELS, dtype, (3, 24, 15, 15), (24, 1, 3, 3), 24)


def test_nothing_else_is_written(reference: Reference) -> None:
    """Results lie next to each other: parts of one image do not reach into the next."""
    x, w = arrays(np.float32, (5, 4, 7, 7), (4, 1, 3, 3))
    options = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 4)
    want = reference["convolution"](x.astype(np.float64), w.astype(np.float64), *options)
    c = general._described(x.shape, w.shape, (1, 1), (1, 1), (1, 1), 4, None, general.is_worth)
    assert c is not None
    slides = depthwise.forward_slides(c, 4)
    out = np.full((7, 4, 7, 7), 7, np.float32)
    launch, task, _ = depthwise._correlate.compiled[out.dtype]
    zeros = np.zeros(4, np.float32)
    arguments = (x, w, zeros, out[1:6], slides.plan, slides.phases, slides.columns)
    launch(*arguments, slides.units, slides.units, task, 0)
    assert (out[[0, 6]] == 7).all()
    close(out[1:6], want, 9)


@pytest.mark.parametrize(
    ("w_shape", "stride", "dilation", "groups"),
    [
        ((8, 1, 3, 3), (1, 1), (2, 1), 8),
        ((8, 1, 3, 3), (3, 1), (1, 1), 8),
        ((8, 1, 1, 1), (1, 1), (1, 1), 8),
        ((40, 1, 3, 3), (1, 1), (1, 1), 8),
        ((8, 8, 3, 3), (1, 1), (1, 1), 1),
    ],
)
def test_what_is_left_to_the_general_loops(
    w_shape: Any, stride: Any, dilation: Any, groups: int
) -> None:
    x, w = arrays(np.float32, (2, 8, 12, 12), w_shape)
    more = (None, stride, (1, 1), dilation, False, (0, 0), groups)
    assert KERNELS["convolution"](x, w, *more) is NotImplemented


def test_which_calls_are_looked_at() -> None:
    x, w = arrays(np.float32, (2, 8, 12, 12), (8, 1, 3, 3))
    options = ((1, 1), (1, 1), (1, 1))
    more = (None, *options, False, (0, 0))
    takes = depthwise.WHEN["convolution"]
    assert takes(x, w, *more, 8)
    assert not takes(x, np.zeros((8, 8, 3, 3), np.float32), *more, 1)
    assert not takes(x.astype(np.int64), w, *more, 8)
    assert depthwise.WHEN["conv_weight_grad"](x, x, w.shape, *options, 8)
    assert not depthwise.WHEN["conv_weight_grad"](x, x, (8, 8, 3, 3), *options, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_compiled_programs(channels: int) -> None:
    """They run the same loops: forward and both gradients."""
    x, w = (cd.from_numpy(a) for a in arrays(np.float32, (4, 6, 14, 14), (6 * channels, 1, 3, 3)))

    def gradients(x: cd.Tensor, w: cd.Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = cd.nn.functional.conv2d(x, w, padding=1, groups=6)
        (y * y).sum().backward()
        return y, x.grad, w.grad

    for got, want in zip(cd.compile(gradients)(x, w), gradients(x, w), strict=True):
        cd.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
