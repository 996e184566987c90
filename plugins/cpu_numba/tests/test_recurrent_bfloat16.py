"""The LSTM in bfloat16 against the operator's decomposition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch_cpu_numba.kernels.nn import recurrent_bfloat16 as recurrent

pytestmark = pytest.mark.once

BFLOAT16 = recurrent.BFLOAT16
KERNELS = recurrent.KERNELS
SERVED = recurrent.has_pairs()
SIZES = st.lists(st.integers(1, 19), min_size=1, max_size=5).map(
    lambda n: [max(4, *n), *sorted(n)[::-1]]
)


def drawn(sizes: list[int], n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    shapes = (sum(sizes), 4 * n), (sizes[0], n), (sizes[0], n), (4 * n, n)
    gates, h, c, w = (rng.normal(size=shape) for shape in shapes)
    return tuple(x.astype(BFLOAT16) for x in (gates, h, c, w / np.sqrt(n)))


def close(name: str, *args: Any) -> tuple[np.ndarray, ...]:
    """Within a few roundings to bfloat16 of the definition in float64, of the largest numbers."""
    found = KERNELS[name](*args)
    wide = [cd.from_numpy(a.astype(np.float64)) if isinstance(a, np.ndarray) else a for a in args]
    wanted = [x.numpy() for x in getattr(cd.ops, name).decomposition(*wide)]
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == BFLOAT16
        assert mine.shape == other.shape
        if mine.size:
            scale = max(1.0, float(np.abs(other).max()))
            np.testing.assert_allclose(mine.astype(np.float64), other, 0, 2.0**-5 * scale)
    return found


@pytest.mark.skipif(not SERVED, reason="the processor has no AVX512-BF16")
@settings(max_examples=15)
@given(
    SIZES,
    st.sampled_from([2, 4, 8, 34]),
    st.booleans(),
    st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
    st.integers(0, 9),
)
def test_lstm(sizes, n, reverse, arriving, seed) -> None:
    gates, h, c, w = drawn(sizes, n, seed)
    steps = tuple(sizes), reverse
    out, cells, kept = close("lstm_sequence", gates, h, c, w, None, *steps)
    grads = np.random.default_rng(seed + 1).normal(size=(2, *out.shape)).astype(BFLOAT16)
    given = [grad if there else None for grad, there in zip(grads, arriving, strict=True)]
    close("lstm_sequence_backward", *given, None, cells, kept, c, w, None, *steps)


@pytest.mark.skipif(not SERVED, reason="the processor has no AVX512-BF16")
def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    sizes = (70,) * 9 + (33,) * 4 + (1,)
    gates, h, c, w = drawn(list(sizes), 48)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            forward = KERNELS["lstm_sequence"](gates, h, c, w, None, sizes, False)
            arguments = (forward[0], None, None, *forward[1:], c, w, None, sizes, False)
            found.append([*forward, *KERNELS["lstm_sequence_backward"](*arguments)])
    finally:
        cd.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))


@pytest.mark.skipif(not SERVED, reason="the processor has no AVX512-BF16")
def test_what_is_no_number_stays_in_its_sequence() -> None:
    gates, h, c, w = drawn([6] * 3, 8)
    gates[0, 5] = np.nan
    out, _, _ = KERNELS["lstm_sequence"](gates, h, c, w, None, (6,) * 3, False)
    lost = np.isnan(out.astype(np.float32)).any(1)
    assert lost[0]
    assert not lost[1:6].any()


def test_what_the_loops_do_not_take_is_left_to_others() -> None:
    gates, h, c, w = drawn([4, 4], 8)
    kernel = KERNELS["lstm_sequence"]
    assert kernel(gates, h, c, w, w[:5], (4, 4), False) is NotImplemented  # projected
    assert kernel(gates, h, c.astype(np.float32), w, None, (4, 4), False) is NotImplemented
    assert kernel(gates[:, ::-1], h, c, w, None, (4, 4), False) is NotImplemented
    assert kernel(gates, h, c, w, None, (5, 3), False) is NotImplemented
    gates, h, c, w = drawn([4, 4], 7)
    assert kernel(gates, h, c, w, None, (4, 4), False) is NotImplemented  # no pairs
