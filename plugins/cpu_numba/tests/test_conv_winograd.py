"""Winograd's convolution against NumPy's direct one, in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conv_checks import arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import Reference

import coredispatch_cpu_numba as pack
from coredispatch_cpu_numba.kernels.conv import dense, winograd
from coredispatch_cpu_numba.kernels.conv.plans import Convolution

pytestmark = pytest.mark.once
KERNELS = winograd.KERNELS
ONE = (1, 1)
#: what the docstring of the kernels says, in units of eps and of ``magnitudes``
BOUND = 10


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loops serve few tiles, too, and all stages are shared among threads."""
    monkeypatch.setattr(winograd, "_LEAST_TILES", 1)
    for loop in (dense._lay, dense._pack, winograd._inputs, winograd._columns):
        monkeypatch.setattr(loop, "split", 100)
    before = pack.get_num_threads()
    yield
    pack.set_num_threads(before)


def numbers(kind: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    draw: Callable[..., Any] = {
        "normal": rng.standard_normal,
        "uniform": lambda shape: rng.uniform(-1, 1, shape),
        "positive": rng.random,
    }[kind]
    return [np.asarray(draw(shape), np.float32) for shape in shapes]


def magnitudes(x: np.ndarray, w: np.ndarray, sizes: tuple[int, ...], before: Any) -> np.ndarray:
    """What the error of each of ``sizes`` results is measured in.

    Of each channel, the largest input of a tile's patch times the sum of its weights, summed up.

    Args:
        x: as it is read, with channels of one group
        w: from these channels
        before: zeros in front of ``x``, or if negative, positions that are not read
    """
    tiles = [-(-n // 4) for n in sizes]
    padded = np.zeros(
        (
            *x.shape[:2],
            *(
                max(4 * t + 2, n + abs(b)) + abs(b)
                for t, n, b in zip(tiles, x.shape[2:], before, strict=True)
            ),
        )
    )
    y, z = (max(0, b) for b in before)
    padded[:, :, y : y + x.shape[2], z : z + x.shape[3]] = np.abs(x)
    y, z = (max(0, -b) for b in before)
    windows = np.lib.stride_tricks.sliding_window_view(padded[:, :, y:, z:], (6, 6), (2, 3))
    largest = windows[:, :, : 4 * tiles[0] : 4, : 4 * tiles[1] : 4].max((4, 5))
    found = np.einsum("ncyx,oc->noyx", largest, np.abs(w.astype(np.float64)).sum((2, 3)))
    return found.repeat(4, 2).repeat(4, 3)[:, :, : sizes[0], : sizes[1]]


def compare(reference: Reference, name: str, x: np.ndarray, w: np.ndarray, *more: Any) -> None:
    """The error is within its bound; ``more`` are the arguments that follow."""
    got = KERNELS[name](x, w, *more)
    wide = [m.astype(np.float64) if isinstance(m, np.ndarray) else m for m in more]
    want = reference[name](x.astype(np.float64), w.astype(np.float64), *wide)
    assert got is not NotImplemented
    assert got.shape == want.shape
    assert got.dtype == np.float32
    adjoint, groups, before = name == "conv_input_grad" or more[4], more[-1], more[2]
    if adjoint:
        before = tuple(2 - p for p in before)
    parts = []
    for own, its in zip(np.split(x, groups, 1), np.split(w, groups), strict=True):
        turned = its.swapaxes(0, 1) if adjoint else its
        parts.append(magnitudes(own, turned, got.shape[2:], before))
    sizes = np.concatenate(parts, 1)
    if name == "convolution" and more[0] is not None:
        sizes = sizes + np.abs(more[0]).reshape(-1, 1, 1)
    assert (np.abs(got - want) <= BOUND * np.finfo(np.float32).eps * sizes).all()


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    """Shapes of input and weight, padding, groups."""
    padding, groups = draw(st.tuples(st.integers(0, 2), st.integers(0, 2))), draw(st.integers(1, 2))
    given, channels = draw(st.tuples(st.integers(24, 75), st.integers(24, 75)))
    spatial = tuple(draw(st.integers(max(1, 3 - 2 * p), 40)) for p in padding)
    x = (draw(st.integers(1, 4)), groups * given, *spatial)
    return x, (groups * channels, given, 3, 3), padding, groups


@settings(max_examples=120)
@given(
    drawn=convolutions(),
    kind=st.sampled_from(["normal", "uniform", "positive"]),
    has_bias=st.booleans(),
    threads=st.integers(1, 2),
)
def test_convolution_and_gradient(
    reference: Reference, drawn: Any, kind: str, has_bias: bool, threads: int
) -> None:
    pack.set_num_threads(threads)
    x_shape, w_shape, padding, groups = drawn
    sizes = tuple(n + 2 * p - 2 for n, p in zip(x_shape[2:], padding, strict=True))
    x, w, grad, bias, level = numbers(
        kind, x_shape, w_shape, (x_shape[0], w_shape[0], *sizes), w_shape[:1], x_shape[1:2]
    )
    options, none = (ONE, padding, ONE), (0, 0)
    compare(
        reference, "convolution", x, w, bias if has_bias else None, *options, False, none, groups
    )
    compare(
        reference, "convolution", grad, w, level if has_bias else None, *options, True, none, groups
    )
    compare(reference, "conv_input_grad", grad, w, x_shape, *options, groups)


@pytest.mark.parametrize("kind", ["normal", "uniform", "positive"])
@pytest.mark.parametrize("channels", [24, 100, 512])
def test_error_of_long_sums(reference: Reference, kind: str, channels: int) -> None:
    x, w, bias = numbers(kind, (2, channels, 14, 14), (64, channels, 3, 3), (64,))
    compare(reference, "convolution", x, w, bias, ONE, ONE, ONE, False, (0, 0), 1)


@pytest.mark.parametrize("padding", [3, 5])
def test_wide_padding(reference: Reference, padding: int) -> None:
    """Of the output's gradient, the gradient of the input does not see all."""
    size = 6 + 2 * padding
    x, w, grad = numbers("normal", (2, 30, 8, 8), (40, 30, 3, 3), (2, 40, size, size))
    pads = (padding, padding)
    compare(reference, "convolution", x, w, None, ONE, pads, ONE, False, (0, 0), 1)
    compare(reference, "conv_input_grad", grad, w, x.shape, ONE, pads, ONE, 1)


def test_special_values_go_where_they_belong(reference: Reference) -> None:
    x, w = arrays(np.float32, (2, 26, 9, 11), (24, 26, 3, 3))
    options = (ONE, ONE, ONE)
    more = (None, *options, False, (0, 0), 1)
    (grad,) = arrays(np.float32, (2, 24, 9, 11))

    def agree() -> None:
        wide = x.astype(np.float64), w.astype(np.float64), grad.astype(np.float64)
        got = KERNELS["convolution"](x, w, *more)
        np.testing.assert_allclose(
            got, reference["convolution"](*wide[:2], *more), rtol=1e-5, atol=1e-4
        )
        got = KERNELS["conv_input_grad"](grad, w, x.shape, *options, 1)
        want = reference["conv_input_grad"](wide[2], wide[1], x.shape, *options, 1)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)

    for at in ((0, 1, 4, -1), (0, 2, 0, 0), (1, 3, 8, -1)):
        for value in (np.inf, -np.inf, np.nan):
            before = x[at], grad[at]
            x[at] = grad[at] = value
            agree()
            x[at], grad[at] = before
    w[0, 0, 0, 2], w[3, 0, 1, 1], w[5, 0, 2, 0] = np.inf, np.nan, -np.inf
    got = KERNELS["conv_input_grad"](grad, w, x.shape, *options, 1)
    want = reference["conv_input_grad"](
        grad.astype(np.float64), w.astype(np.float64), x.shape, *options, 1
    )
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_what_overflows_on_the_way(reference: Reference) -> None:
    """Sums of the inputs of a tile are larger than these."""
    x, w = arrays(np.float32, (1, 24, 8, 8), (24, 24, 3, 3))
    x[0, 0, 2, 2] = 3e38
    w[:, 0] = 0
    more = (None, ONE, ONE, ONE, False, (0, 0), 1)
    want = reference["convolution"](x.astype(np.float64), w.astype(np.float64), *more)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(KERNELS["convolution"](x, w, *more), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("images", [2, 9])
@pytest.mark.parametrize("channels", [32, 100, 200])
def test_results_do_not_depend_on_threads(images: int, channels: int) -> None:
    x, w, grad = arrays(
        np.float32, (images, channels, 15, 18), (72, channels, 3, 3), (images, 72, 15, 18)
    )
    found = []
    for threads in (1, 2, 5):
        pack.set_num_threads(threads)
        found.append(
            (
                KERNELS["convolution"](x, w, None, ONE, ONE, ONE, False, (0, 0), 1),
                KERNELS["conv_input_grad"](grad, w, x.shape, ONE, ONE, ONE, 1),
            )
        )
    for one, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("adjoint", [False, True])
def test_loops_can_be_kept_to_be_run_later(adjoint: bool) -> None:
    """Arguments are the arrays that are given, parts of them, and ones made by ``empty``."""
    c = Convolution(
        3, 2, 40, 24, (1, 23, 30), (1, 23, 30), (1, 3, 3), (1,) * 3, (0, 1, 1), (1,) * 3
    )
    assert winograd.takes(c)
    given, made = (48, 80) if adjoint else (80, 48)
    x, w = arrays(np.float32, (3, given, 23, 30), (48, 40, 3, 3))
    tables = (winograd.input_grad_tables if adjoint else winograd.forward_tables)(c)
    want, got = (np.empty((3, made, 23, 30), np.float32) for _ in range(2))
    winograd.correlate(c, tables, x, w, adjoint, None, want)
    kept: list[Callable[[], None]] = []

    def run(loop: Any, *arguments: Any, **more: Any) -> None:
        kept.append(lambda: loop(*arguments, **more))

    checks = winograd.correlate(c, tables, x, w, adjoint, None, got, run)
    for turn in range(2):
        got[:] = turn
        for step in kept:
            step()
        np.testing.assert_array_equal(got, want)
        assert winograd.is_finite(checks)
    x[1, 2, 3, 4] = np.inf
    for step in kept:
        step()
    assert not winograd.is_finite(checks)


def test_what_is_left_to_others() -> None:
    x, w = arrays(np.float32, (2, 64, 12, 12), (64, 64, 3, 3))
    run = lambda x, w, step=ONE, dilation=ONE: KERNELS["convolution"](  # noqa: E731
        x, w, None, step, ONE, dilation, False, (0, 0), 1
    )
    assert run(x, w) is not NotImplemented
    assert run(x.astype(np.float64), w.astype(np.float64)) is NotImplemented
    assert run(x.transpose(0, 1, 3, 2), w) is NotImplemented
    assert run(x, w, (2, 1)) is NotImplemented
    assert run(x, w, ONE, (1, 2)) is NotImplemented
    few, narrow = arrays(np.float32, (2, 20, 12, 12), (64, 20, 3, 3))
    assert run(few, narrow) is NotImplemented
    (wide,) = arrays(np.float32, (64, 64, 3, 5))
    assert run(x, wide) is NotImplemented
    (deep,) = arrays(np.float32, (2, 64, 3, 12, 12))
    weight = np.zeros((64, 64, 1, 3, 3), np.float32)
    options = ((1,) * 3, (0, 1, 1), (1,) * 3)
    assert (
        KERNELS["convolution"](deep, weight, None, *options, False, (0,) * 3, 1) is NotImplemented
    )


_MODELS = {"avx2": ("haswell", "+avx,+avx2,+fma"), "plain": ("x86-64", "+sse2")}


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="x86-64")
@pytest.mark.slow  # each compiles all loops anew
@pytest.mark.parametrize("model", _MODELS)
def test_other_vector_registers(model: str) -> None:
    """The same results with AVX2, and without AVX: squares to transpose are smaller."""
    if model == "avx2" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("no AVX2")
    program = """
import numpy as np
from coredispatch.backends.numpy import NumpyBackend
from coredispatch_cpu_numba.kernels.conv.winograd import KERNELS
from coredispatch_cpu_numba.tiles import vector_bytes
assert vector_bytes() < 64
rng, reference = np.random.default_rng(0), NumpyBackend().kernels
x, w = (rng.standard_normal(s, np.float32) for s in ((2, 74, 14, 19), (54, 37, 3, 3)))
options = ((1, 1), (1, 1), (1, 1))
more = (None, *options, False, (0, 0), 2)
out, want = (k["convolution"](x, w, *more) for k in (KERNELS, reference))
np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)
out, want = (k["conv_input_grad"](out, w, x.shape, *options, 2) for k in (KERNELS, reference))
np.testing.assert_allclose(out, want, rtol=1e-4, atol=2e-3)
"""
    name, features = _MODELS[model]
    environment = os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
