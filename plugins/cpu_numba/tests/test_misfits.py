"""Arrays that do not fit each other: the loops check no index, so the kernels refuse first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


N, STEPS = 3, (2, 2, 2)
LSTM = (floats(6, 4 * N), floats(2, N), floats(2, N), floats(4 * N, N))
BACK = (floats(6, N), floats(6, N), None, floats(6, N), floats(6, 4 * N), floats(2, N), LSTM[3])
LABELS = np.array([[1, 2, 1], [2, 1, 0]])
LENGTHS = np.array([6, 5]), np.array([3, 2])
CTC = (floats(2), floats(6, 2, 4), LABELS, *LENGTHS)
GRID = (floats(2, 3, 3, 2), floats(2, 3, 4, 5), floats(2, 3, 2, 2))
CALLS = [
    ("lstm_sequence", LSTM, (None, STEPS, False)),
    ("lstm_sequence_backward", BACK, (None, STEPS, False)),
    ("ctc_nll_backward", CTC, (0,)),
    ("grid_sample_backward", GRID, ("bilinear", "zeros", False)),
    (
        "conv_weight_grad",
        (floats(2, 3, 3, 3), floats(2, 2, 5, 5)),
        ((3, 2, 3, 3), (1,), (0,), (1,), 1),
    ),
    (
        "cross_entropy_backward",
        (floats(40), floats(40, 50), np.arange(40)),
        (None, -100, "none", 0.0),
    ),
]


def misfits(name: str, arrays: Any) -> Any:
    """The arrays, with one dimension of one of them longer, shorter by far, or empty."""
    for i, array in enumerate(arrays):
        for d in range(0 if array is None else array.ndim):
            for size in (0, array.shape[d] + 1, 5 * array.shape[d] + 7):
                shape = (*array.shape[:d], size, *array.shape[d + 1 :])
                changed = np.resize(array, shape) if array.size else array
                yield i, d, size, [*arrays[:i], changed, *arrays[i + 1 :]]


def outcome(call: Any, arrays: Any, rest: Any) -> Any:
    given = [a if a is None else cd.from_numpy(a.copy()) for a in arrays]
    try:
        found = call(*given, *rest)
    except cd.CoreDispatchError:
        return None
    return [t.numpy() for t in (found if isinstance(found, (list, tuple)) else [found])]


@pytest.mark.parametrize(("name", "arrays", "rest"), CALLS, ids=[c[0] for c in CALLS])
def test_what_does_not_fit_is_refused_or_means_what_the_decomposition_means(
    name: str, arrays: Any, rest: Any
) -> None:
    op = getattr(cd.ops, name)
    assert outcome(op, arrays, rest) is not None
    for i, d, size, changed in misfits(name, arrays):
        found = outcome(op, changed, rest)
        if found is not None:
            wanted = outcome(op.decomposition, changed, rest)
            assert wanted is not None, (i, d, size)
            for mine, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(mine, other, 1e-4, 1e-4, err_msg=f"{i}, {d}, {size}")


@pytest.mark.parametrize("transposed", [False, True])
def test_negative_output_padding_is_refused(transposed: bool) -> None:
    x, weight = (cd.from_numpy(floats(*shape)) for shape in ((2, 3, 8, 8), (3, 3, 3, 3)))
    with pytest.raises(cd.CoreDispatchError, match="output_padding"):
        cd.ops.convolution(x, weight, None, 1, 1, 1, transposed, (-1, -1), 1)
