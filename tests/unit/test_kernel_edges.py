"""Edges where a kernel and the decomposition of its operator once differed, with PyTorch 2.13's
answers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.plugin import ArgumentError, DimError, ShapeError

ROW = [[1.0, 2.0, 3.0]]

PADS = [
    ((-1, 1), "circular", [[2, 3, 2]]),
    ((-1, 0), "circular", [[2, 3]]),
    ((1, -1), "circular", [[2, 1, 2]]),
    ((2, -1), "circular", [[1, 2, 1, 2]]),
    ((-1, -1), "circular", [[2]]),
    ((-3, 0), "circular", [[]]),
    ((4, 0), "circular", None),
    ((-2, 2), "circular", None),
    ((-1, 2), "reflect", [[2, 3, 2, 1]]),
    ((2, -1), "reflect", [[3, 2, 1, 2]]),
    ((-2, 2), "reflect", [[3, 2, 1]]),
    ((3, 0), "reflect", None),
    ((-2, 4), "replicate", [[3, 3, 3, 3, 3]]),
    ((-4, 5), "replicate", [[3, 3, 3, 3]]),
    ((1, -1), "replicate", [[1, 1, 2]]),
    ((-1, 1), "constant", [[2, 3, 0]]),
    ((-3, 1), "constant", [[0]]),
    ((-4, 5), "constant", None),
    ((1, -4), "constant", None),
]


@pytest.mark.parametrize(("amounts", "mode", "answer"), PADS)
def test_padding_by_negative_amounts(amounts: Any, mode: str, answer: Any) -> None:
    if answer is None:
        with pytest.raises(ShapeError, match=r"crops more|needs more") as caught:
            F.pad(cd.tensor(ROW), amounts, mode)
        assert caught.value.fix
    else:
        assert F.pad(cd.tensor(ROW), amounts, mode).tolist() == answer


@given(
    st.integers(1, 5),
    st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
    st.sampled_from(["reflect", "replicate", "circular"]),
)
def test_padding_reads_the_elements_that_the_mode_names(length, amounts, mode):
    before, after = amounts
    have = list(range(length))
    if mode == "circular":
        have = have[max(-before, 0) : length - max(-after, 0)]
        assume(length + min(before, 0) + min(after, 0) > 0)
        assume(max(before, after) <= len(have))
        places = [i % len(have) for i in range(-max(before, 0), len(have) + max(after, 0))]
    else:
        assume(mode == "replicate" or max(before, after) < length)
        assume(length + before + after >= 0)
        places = list(range(-before, length + after))
        if mode == "replicate":
            places = [min(max(i, 0), length - 1) for i in places]
        else:
            places = [length - 1 - abs(length - 1 - abs(i)) for i in places]
    x = cd.arange(length).reshape(1, length)
    assert F.pad(x, amounts, mode).tolist() == [[have[i] for i in places]]


def test_a_value_is_for_constant_borders() -> None:
    with pytest.raises(ArgumentError, match="value=2"):
        F.pad(cd.tensor(ROW), (1, 1), "reflect", 2)


def test_windows_of_a_0_dim_tensor() -> None:
    x = cd.tensor(5.0)
    assert x.unfold(0, 1, 1).tolist() == [5.0]
    assert x.unfold(-1, 0, 1).tolist() == []
    assert tuple(x.unfold(0, 1, 1).shape) == (1,)
    with pytest.raises(ArgumentError):
        x.unfold(0, 2, 1)
    with pytest.raises(DimError):
        x.unfold(1, 1, 1)


REFUSED = {
    "index_select of a 0-dim tensor, dim": (
        DimError,
        lambda: cd.tensor(5.0).index_select(1, _at(0)),
    ),
    "index_select of a 0-dim tensor, twice": (
        ShapeError,
        lambda: cd.tensor(5.0).index_select(0, _at(0, 0)),
    ),
    "index_select where nothing is read": (DimError, lambda: cd.ones(0, 3).index_select(1, _at(3))),
    "index_select of nothing": (DimError, lambda: cd.ones(0, 0).index_select(1, _at(2))),
    "sum over a dim twice": (DimError, lambda: cd.tensor(5.0).sum((0, -1))),
    "mean over a dim twice": (DimError, lambda: cd.tensor(5.0).mean((0, -1))),
    "var over a dim twice": (DimError, lambda: cd.tensor(5.0).var((0, -1))),
    "squeeze of a dim twice": (DimError, lambda: cd.ones(1, 3, 1).squeeze((1, 1))),
    "squeeze of a 0-dim tensor twice": (DimError, lambda: cd.tensor(5.0).squeeze((0, -1))),
    "topk of less than nothing": (DimError, lambda: cd.tensor(5.0).topk(-1)),
    "softmax of nothing, dim": (DimError, lambda: F.softmax(cd.ones(0), 1)),
    "log_softmax of nothing, dim": (DimError, lambda: F.log_softmax(cd.ones(0, 3), 2)),
    "addmm of vectors": (ShapeError, lambda: cd.ones(1).addmm(cd.ones(1), cd.ones(1), beta=0)),
    "scatter_reduce into nothing": (
        DimError,
        lambda: cd.zeros(0, 5).scatter_reduce(0, _at(2, 2).reshape(1, 2), cd.ones(1, 2), "sum"),
    ),
    "as_strided backwards": (ArgumentError, lambda: cd.ones(4).as_strided((2,), (-1,), 3)),
    "as_strided of unequal lists": (ArgumentError, lambda: cd.ones(4).as_strided((2,), (1, 1))),
    "conv with no stride": (
        ArgumentError,
        lambda: F.conv1d(cd.ones(1, 2, 4), cd.ones(3, 2, 2), stride=0),
    ),
    "multi_margin_loss of other rows": (
        ShapeError,
        lambda: F.multi_margin_loss(cd.ones(2, 3), _at(0)),
    ),
}


def _at(*numbers: int) -> cd.Tensor:
    return cd.tensor(list(numbers))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert caught.value.fix


def test_scatter_reduce_of_other_backends_checks_its_index() -> None:
    from coredispatch.registry import TABLE

    body = TABLE.operator("scatter_reduce").decomposition
    for index in (-1, 3):
        with pytest.raises(DimError, match=str(index)):
            body(cd.zeros(3), 0, _at(index), cd.ones(1), "sum", True)


def test_one_class_for_one_row_without_a_batch() -> None:
    logits = cd.tensor([0.1, 0.8])
    expected = F.cross_entropy(logits, cd.tensor(0)).item()
    assert F.cross_entropy(logits, _at(0)).item() == expected
    assert F.cross_entropy(logits, _at(0), reduction="none").shape == ()
    assert F.nll_loss(logits, _at(1)).item() == pytest.approx(-0.8)
    assert math.isclose(F.multi_margin_loss(logits, _at(0)).item(), 0.85, rel_tol=1e-6)
    assert F.multi_margin_loss(logits, _at(0), reduction="none").shape == (1,)
    with pytest.raises(ShapeError, match="does not fit"):
        F.cross_entropy(logits, _at(0, 1, 1))


def test_repeats_of_a_0_dim_tensor() -> None:
    for dim in (None, 0, -1):
        assert cd.tensor(2.0).repeat_interleave(3, dim).tolist() == np.repeat(2.0, 3).tolist()


# ---- kernels over any array-API namespace -------------------------------------------------------


def _portable(name: str) -> Any:
    from coredispatch.backends.array_api import family_kernels

    return family_kernels(np)[name]


PORTABLE_REFUSES = {
    "unfold beyond the length": ("unfold", (np.ones(3), 0, 4, 1), ArgumentError),
    "unfold by a negative step": ("unfold", (np.ones(3), 0, 1, -1), ArgumentError),
    "unfold of a dim there is not": ("unfold", (np.ones(3), 1, 1, 1), DimError),
    "squeeze of a dim twice": ("squeeze", (np.ones((1, 3, 1)), (1, -2)), DimError),
    "sum over a dim twice": ("sum", (np.ones(()), (0, -1), False, None), DimError),
    "sum over a dim there is not": ("sum", (np.ones(()), (1,), False, None), DimError),
    "tril of a vector": ("tril", (np.ones(3), 0), ShapeError),
    "expand of a new dim by -1": ("expand", (np.ones(3), (-1, 3)), ShapeError),
    "expand by -2": ("expand", (np.ones((1, 3)), (-2, 3)), ShapeError),
    "reshape by -2": ("reshape", (np.ones((3, 2)), (3, -2)), ShapeError),
    "reshape by two -1": ("reshape", (np.ones((3, 2)), (-1, -1)), ShapeError),
    "pad by more than there is": ("constant_pad_nd", (np.ones(3), (-4, 5), 0), ShapeError),
    "full of a negative length": ("full", ((2, -1), 0, None, None), ArgumentError),
    "integers of an empty interval": (
        "random_integers",
        ((2,), 3, 3, None, None, None),
        ArgumentError,
    ),
}


@pytest.mark.parametrize("name", PORTABLE_REFUSES)
def test_portable_kernels_refuse_with_a_fix(name: str) -> None:
    kernel, args, error = PORTABLE_REFUSES[name]
    with pytest.raises(error) as caught:
        _portable(kernel)(*args)
    assert caught.value.fix


def test_portable_windows_of_a_0_dim_array() -> None:
    unfold = _portable("unfold")
    assert unfold(np.array(5.0), 0, 1, 1).tolist() == [5.0]
    assert unfold(np.array(5.0), -1, 0, 1).tolist() == []


def test_averages_of_integers_lose_their_fractions() -> None:
    assert F.avg_pool1d(cd.tensor([[[1, 2, 3, 4]]]), 2).tolist() == [[[1, 3]]]
    assert F.avg_pool1d(cd.tensor([[[-1, -2, -4, -5]]]), 2).tolist() == [[[-1, -4]]]


@pytest.mark.parametrize("dtype", [cd.uint8, cd.int8, cd.int16, cd.int32, cd.int64])
def test_whole_numbers_shifted_left_lose_what_leaves_the_type(dtype: cd.DType) -> None:
    values = np.arange(-128, 128).astype(dtype.name)
    x = cd.from_numpy(values)
    for count in range(8 * dtype.itemsize):
        shifted = np.left_shift(values, np.array(count, values.dtype))
        np.testing.assert_array_equal((x << count).numpy(), shifted, strict=True)


@pytest.mark.parametrize("dtype", [cd.uint8, cd.int8, cd.int64])
@pytest.mark.parametrize("bounds", [(3, 50), (None, 4), (4, None), (50, 3), (0, 127)])
def test_whole_numbers_between_bounds(dtype: cd.DType, bounds: tuple[int | None, ...]) -> None:
    values = np.arange(128).astype(dtype.name)
    low, high = bounds
    raised = values if low is None else np.maximum(values, values.dtype.type(low))
    expected = raised if high is None else np.minimum(raised, values.dtype.type(high))
    for x in (cd.from_numpy(values), cd.from_numpy(np.repeat(values, 2))[::2]):
        np.testing.assert_array_equal(x.clamp(low, high).numpy(), expected, strict=True)


def test_counts_of_whole_numbers() -> None:
    """Weights of single precision are summed in double precision; nothing has a sum, too."""
    x, weights = cd.tensor([1, 1, 4]), cd.tensor([1e8, 3.0, 0.5])
    assert cd.bincount(x).tolist() == [0, 2, 0, 0, 1]
    assert cd.bincount(x.to(cd.uint8), minlength=7).tolist() == [0, 2, 0, 0, 1, 0, 0]
    assert cd.bincount(x, weights).tolist() == [0, np.float32(1e8 + 3), 0, 0, 0.5]
    nothing = cd.bincount(x[:0], weights[:0], 2)
    assert nothing.dtype is cd.float32 and nothing.tolist() == [0, 0]
    with pytest.raises(ValueError, match="non-negative"):
        cd.bincount(cd.tensor([1, -1]))
