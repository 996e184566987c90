"""Products of bytes bit for bit, by every instruction that this processor has for them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requantized_reference as exact
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch_cpu_numba.kernels.nn import requantized as products

pytestmark = pytest.mark.once

DTYPES = st.sampled_from([np.uint8, np.int8])
DEPTHS = st.sampled_from([1, 3, 4, 63, 64, 65, 128, 257, 2048])
KIND = st.sampled_from(["symmetric", "zero points", "wide"])


def checked_linear(
    rows: int, depth: int, columns: int, of_x: Any, of_weight: Any, kind: str, seed: int
) -> None:
    """One product, compared with 64-bit integers; twice, with what was kept of the weight."""
    rng = np.random.default_rng(seed)
    x, w = exact.drawn(rng, of_x, rows, depth), exact.drawn(rng, of_weight, columns, depth)
    limits, weights = np.iinfo(of_x), np.iinfo(of_weight)
    middle = 0 if of_weight is np.int8 else 128
    zero = rng.integers(weights.min, weights.max + 1, columns) if kind == "zero points" else middle
    channels = exact.channels_of(rng, w, zero, 128 * 128 * depth**0.5, kind == "wide")
    x_zero = int(rng.choice([limits.min, limits.max, limits.min + 77]))
    kept: dict[str, Any] = {}
    for low in (limits.min, limits.min + 90):
        options = *channels, x_zero, limits.min + 90, low, limits.max
        found = products.requantized_linear(x, w, *options, kept)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, exact.linear(x, w, *options))


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size are served."""
    monkeypatch.setattr(products, "_LEAST", 0)


ROWS = st.sampled_from([1, 2, 15, 16, 17, 33, 64, 80, 130])
COLUMNS = st.sampled_from([1, 5, 31, 32, 33, 127, 129, 300])


@settings(max_examples=60)
@given(ROWS, DEPTHS, COLUMNS, DTYPES, DTYPES, KIND, st.integers(0, 2**32 - 1))
def test_linear(
    rows: int, depth: int, columns: int, of_x: Any, of_weight: Any, kind: str, seed: int
) -> None:
    checked_linear(rows, depth, columns, of_x, of_weight, kind, seed)


#: shape of the input, of the weight, stride, padding, dilation, groups
CONVOLUTIONS = [
    ((2, 3, 9, 8), (33, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 16, 7, 11), (5, 16, 2, 3), (2, 1), (0, 2), (1, 2), 1),
    ((2, 5, 6, 6), (40, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 5, 6, 7), (8, 5, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 6, 8, 8), (16, 3, 3, 3), (1, 2), (1, 1), (1, 1), 2),
    ((2, 19, 8, 6), (19, 1, 3, 3), (1, 1), (1, 1), (1, 1), 19),
    ((1, 4, 9, 9), (4, 1, 3, 2), (2, 1), (1, 3), (2, 1), 4),
    ((1, 64, 10, 9), (130, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 3, 20, 70), (9, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    ((1, 4, 7, 139), (34, 4, 3, 2), (1, 2), (2, 1), (2, 1), 1),
    ((1, 130, 8, 11), (130, 1, 3, 3), (1, 2), (1, 1), (1, 1), 130),
    ((2, 70, 7, 9), (70, 1, 5, 2), (2, 1), (2, 0), (1, 2), 70),
    ((1, 130, 9, 70), (130, 1, 3, 3), (1, 1), (1, 1), (1, 1), 130),
    ((1, 70, 9, 13), (70, 1, 4, 3), (2, 2), (1, 2), (1, 2), 70),
    ((2, 64, 12, 14), (64, 1, 3, 3), (3, 3), (1, 1), (1, 1), 64),
]


def checked_conv2d(case: Any, of_x: Any, of_weight: Any, kind: str, seed: int) -> None:
    """One convolution, of images with channels first and last in memory."""
    rng = np.random.default_rng(seed)
    shape, weight_shape, *window = case
    x, w = exact.drawn(rng, of_x, *shape), exact.drawn(rng, of_weight, *weight_shape)
    limits, weights = np.iinfo(of_x), np.iinfo(of_weight)
    middle = 0 if of_weight is np.int8 else 128
    zero = rng.integers(weights.min, weights.max + 1, len(w)) if kind == "zero points" else middle
    channels = exact.channels_of(rng, w, zero, 128 * 128 * w[0].size ** 0.5, kind == "wide")
    x_zero = int(rng.choice([limits.min, limits.max, limits.min + 77]))
    options = *channels, x_zero, limits.min + 90, limits.min, limits.max, *window
    wanted, kept = exact.conv2d(x, w, *options), {}
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for images in (x, last):
        found = products.requantized_conv2d(images, w, *options, kept)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("kind", ["symmetric", "zero points", "wide"])
def test_conv2d(case: Any, kind: str) -> None:
    for seed, (of_x, of_weight) in enumerate(itertools.product((np.uint8, np.int8), repeat=2)):
        checked_conv2d(case, of_x, of_weight, kind, seed)


def test_midpoints_of_either_sign() -> None:
    """Sums on midpoints and beside them: factors that are powers of two, or nearly."""
    rng = np.random.default_rng(8)
    factors = list(itertools.product((1 << 30, (1 << 30) + 1, (1 << 31) - 1, 0), range(10)))
    multiplier, shift = (np.array(v, np.int64) for v in zip(*factors, strict=True))
    n = len(factors)
    channels = np.zeros(n, np.int64), rng.integers(-300, 300, n), multiplier, shift
    for of_x in (np.uint8, np.int8):
        low = np.iinfo(of_x).min
        options = *channels, low + 128, low + 128, low, low + 255
        x, w = exact.drawn(rng, of_x, 400, 3), rng.integers(-9, 9, (n, 3)).astype(np.int8)
        found = products.requantized_linear(x, w, *options, {})
        np.testing.assert_array_equal(found, exact.linear(x, w, *options))
        x, w = exact.drawn(rng, of_x, 1, 2 * n, 20, 20), rng.integers(-9, 9, (2 * n, 1, 3, 1))
        doubled = *(np.concatenate([v, v]) for v in channels), *options[4:]
        window = (1, 1), (1, 0), (1, 1), 2 * n
        for kernel in (w, np.repeat(w, 3, 3)):
            arrays = x, kernel.astype(np.int8)
            found = products.requantized_conv2d(*arrays, *doubled, *window, {})
            np.testing.assert_array_equal(found, exact.conv2d(*arrays, *doubled, *window))


def test_sums_of_every_size() -> None:
    """Up to the largest that fit 32 bits, where those in registers must be left alone."""
    rng = np.random.default_rng(9)
    x, w = exact.drawn(rng, np.uint8, 70, 5), exact.drawn(rng, np.int8, 64, 5)
    reach = 255 * 128 * 5
    for size, shift in itertools.product(
        (1 << 24, 1 << 29, 1 << 30, (1 << 31) - reach - 1), (0, 8, 20, 22, 31)
    ):
        bias = rng.choice([-size, size], 64)
        multiplier = rng.integers(1 << 30, 1 << 31, 64)
        options = np.zeros(64, np.int64), bias, multiplier, np.full(64, shift), 3, 128, 0, 255
        found = products.requantized_linear(x, w, *options, {})
        np.testing.assert_array_equal(found, exact.linear(x, w, *options))


def test_no_sum_saturates() -> None:
    """The largest products of either sign, alone and side by side: 16 bits could not hold them."""
    depth = 256
    x = np.full((4, depth), 255, np.uint8)
    w = np.full((4, depth), -128, np.int8)
    w[1], w[2, ::2], w[3, 1::2] = 127, 127, 127
    x[1, ::2], x[2, 1::2], x[3, 2:] = 0, 0, 0
    multiplier, shift = 2**30, 16  # a factor of 2**-17
    channels = [np.full(4, number) for number in (0, 0, multiplier, shift)]
    for of_x, flip in ((x, 0), ((x ^ 128).view(np.int8), 128)):
        low, high = (0, 255) if flip == 0 else (-128, 127)
        options = *channels, -flip, low + 128, low, high
        found = products.requantized_linear(of_x, w, *options, {})
        np.testing.assert_array_equal(found, exact.linear(of_x, w, *options))
        assert len(np.unique(found)) > 4


def test_raw_sums_wrap_around_and_the_rest_is_exact() -> None:
    """What zero points take away is more than 32 bits hold; what is left is not."""
    depth = 70_000
    x = np.full((3, depth), 255, np.uint8)
    x[1, ::2] = 254
    w = np.full((5, depth), 127, np.int8)
    w[2, ::3] = 126
    zeros = np.array([127, 126, 127, 120, 127])
    channels = [zeros, *(np.full(5, number) for number in (0, 2**30, 9))]
    options = *channels, 255, 128, 0, 255
    found = products.requantized_linear(x, w, *options, {})
    np.testing.assert_array_equal(found, exact.linear(x, w, *options))


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(3)
    x, w = exact.drawn(rng, np.uint8, 300, 130), exact.drawn(rng, np.int8, 520, 130)
    channels = exact.channels_of(rng, w, 3, 1e5)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            for rows in (300, 40):
                options = *channels, 7, 100, 0, 255
                found = products.requantized_linear(x[:rows], w, *options, {})
                np.testing.assert_array_equal(found, exact.linear(x[:rows], w, *options))
    finally:
        cd.set_num_threads(before)


def test_what_is_kept_follows_the_channels() -> None:
    rng = np.random.default_rng(5)
    x, w = exact.drawn(rng, np.uint8, 20, 40), exact.drawn(rng, np.int8, 30, 40)
    kept: dict[str, Any] = {}
    for x_zero in (0, 9):
        for _ in range(2):
            options = *exact.channels_of(rng, w, 0, 1e5), x_zero, 100, 0, 255
            found = products.requantized_linear(x, w, *options, kept)
            np.testing.assert_array_equal(found, exact.linear(x, w, *options))
    assert "cpu_numba.packed" in kept


def test_what_is_kept_follows_the_result() -> None:
    """Zero point, limits and the sizes of the images differ from call to call."""
    rng = np.random.default_rng(10)
    for shape in ((40, 8, 3, 3), (80, 1, 3, 3), (40, 8, 1, 1)):
        w = exact.drawn(rng, np.int8, *shape)
        groups = 80 if shape[1] == 1 else 1
        channels, kept = exact.channels_of(rng, w, 0, 1e5), {}
        for size, zero, low in ((7, 100, 0), (9, 100, 0), (7, 90, 0), (7, 90, 90)):
            x = exact.drawn(rng, np.uint8, 1, shape[1] * groups, size, size)
            options = *channels, 9, zero, low, 250, (1, 1), (1, 1), (1, 1), groups
            found = products.requantized_conv2d(x, w, *options, kept)
            np.testing.assert_array_equal(found, exact.conv2d(x, w, *options))


def test_what_is_kept_follows_the_groups() -> None:
    """A weight is not bound to one number of groups: the images decide."""
    rng = np.random.default_rng(7)
    w = exact.drawn(rng, np.int8, 48, 16, 3, 3)
    kept: dict[str, Any] = {}
    channels = exact.channels_of(rng, w, 0, 1e5)
    for groups in (1, 2, 1, 3):
        x = exact.drawn(rng, np.uint8, 1, 16 * groups, 6, 7)
        options = *channels, 9, 100, 0, 255, (1, 1), (1, 1), (1, 1), groups
        found = products.requantized_conv2d(x, w, *options, kept)
        np.testing.assert_array_equal(found, exact.conv2d(x, w, *options))


def test_what_the_loops_do_not_take_is_left_to_others() -> None:
    rng = np.random.default_rng(6)
    x, w = exact.drawn(rng, np.uint8, 20, 40), exact.drawn(rng, np.int8, 30, 40)
    channels = exact.channels_of(rng, w, 0, 1e5)
    run = products.requantized_linear
    assert run(x[:, ::2], w[:, ::2], *channels, 0, 100, 0, 255, {}) is NotImplemented
    assert run(x.astype(np.int32), w, *channels, 0, 100, 0, 255, {}) is NotImplemented
    assert run(x, w, *(v[:4] for v in channels), 0, 100, 0, 255, {}) is NotImplemented
    assert run(x, w, *(v.astype(np.int32) for v in channels), 0, 100, 0, 255, {}) is NotImplemented
    products._LEAST = 1 << 20
    assert run(x, w, *channels, 0, 100, 0, 255, {}) is NotImplemented


_AVX2 = "+avx,+avx2,+fma"
_AVX512 = _AVX2 + ",+avx512f,+avx512bw,+avx512dq,+avx512vl"
#: what the processor must have; Numba's name and features of one that has no more; numbers in 32
#: bits, columns of a panel, tiles
_MODELS = {
    "AVX-512 VNNI": ("avx512_vnni", "cascadelake", _AVX512 + ",+avx512vnni", (4, 32, False)),
    "AVX-512": ("avx512bw", "skylake-avx512", _AVX512, (2, 32, False)),
    "AVX-VNNI": ("avx_vnni", "haswell", _AVX2 + ",+avxvnni", (4, 16, False)),
    "AVX2": ("avx2", "haswell", _AVX2, (2, 16, False)),
    "SSE2": ("sse2", "x86-64", "+sse2", (2, 8, False)),
    "plain": ("sse2", "generic", "", (2, 8, False)),
}


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="x86-64")
@pytest.mark.slow  # each compiles all loops anew
@pytest.mark.parametrize("model", _MODELS)
def test_every_path(model: str) -> None:
    """The same bits by the instructions of other processors, which ``NUMBA_CPU_*`` choose."""
    needed, name, features, layout = _MODELS[model]
    if needed not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"no {model}")
    program = f"""
import itertools, sys
sys.path.append({str(Path(__file__).parent)!r})
import numpy as np
import test_products_int8 as tests
from coredispatch_cpu_numba.loops.nn import requantized as loops
assert (loops.PER_WORD, loops.PANEL, loops.TILES) == {layout}, (loops.PER_WORD, loops.PANEL)
tests.products._LEAST = 0
kinds = "symmetric", "zero points", "wide"
types = np.uint8, np.int8
for seed, (of_x, of_weight, kind) in enumerate(itertools.product(types, types, kinds)):
    for rows, depth, columns in ((17, 65, 33), (70, 64, 128), (1, 3, 5)):
        tests.checked_linear(rows, depth, columns, of_x, of_weight, kind, seed)
    for case in tests.CONVOLUTIONS:
        tests.checked_conv2d(case, of_x, of_weight, kind, seed)
tests.test_midpoints_of_either_sign()
tests.test_sums_of_every_size()
tests.test_no_sum_saturates()
tests.test_raw_sums_wrap_around_and_the_rest_is_exact()
"""
    environment = os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
