"""Indexing: every block, and agreement with torch in reading, writing and refusing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.ops.indexing.rules import indexed

pytestmark = pytest.mark.once

FAMILY = ("indexing",)


def test_samples_agree_with_reference_and_body(sampled: Any) -> None:
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_derivatives(derivable: Any) -> None:
    family, name = derivable
    assert family.check_gradients(name)


def test_error_inputs(refusing: Any) -> None:
    family, name = refusing
    family.check_errors(name)


# -- x[index] against torch ----------------------------------------------------------------------

SIDES = st.integers(1, 4)
KINDS = ("int", "slice", "none", "dots", "array", "list", "bool", "mask")
BOUND = st.none() | st.integers(-5, 5)


@st.composite
def subscripts(draw: Any) -> tuple[tuple[int, ...], list[Any]]:
    """A shape and an index for it, right most of the time."""
    shape = tuple(draw(st.lists(SIDES, max_size=4)))
    items: list[Any] = []
    dim = 0
    for _ in range(draw(st.integers(1, len(shape) + 2))):
        size = shape[dim] if dim < len(shape) else 2
        kind = draw(
            st.sampled_from(["int", "slice", "none", "dots", "array", "list", "bool", "mask"])
        )
        if kind == "dots":
            if Ellipsis in [i for i in items if not isinstance(i, np.ndarray)]:
                continue
            items.append(Ellipsis)
            dim += draw(st.integers(0, max(len(shape) - dim, 0)))
            continue
        if kind == "mask":
            sides = shape[dim : dim + draw(st.integers(1, 2))]
            count = int(np.prod(sides))
            bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
            items.append(np.array(bits, dtype=bool).reshape(sides))
            dim += len(sides)
            continue
        if kind == "none":
            items.append(None)
            continue
        if kind == "bool":
            items.append(draw(st.booleans()))
            continue
        if kind == "int":
            items.append(draw(st.integers(-size - 1, size)))
        elif kind == "slice":
            items.append(slice(draw(BOUND), draw(BOUND), draw(st.none() | st.integers(1, 3))))
        elif kind == "list":
            items.append(draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3)))
        else:
            sides = tuple(draw(st.sampled_from([(), (1,), (2,), (2, 3)])))
            count = int(np.prod(sides))
            numbers = st.lists(st.integers(-size, size - 1), min_size=count, max_size=count)
            items.append(np.array(draw(numbers), dtype=np.int64).reshape(sides))
        dim += 1
    assume(items)
    return shape, items


def _both(shape: tuple[int, ...], items: list[Any]) -> tuple[Any, Any, Any, Any]:
    torch = pytest.importorskip("torch")
    array = np.arange(float(np.prod(shape))).reshape(shape)
    ours = tuple(cd.from_numpy(i.copy()) if isinstance(i, np.ndarray) else i for i in items)
    theirs = tuple(torch.from_numpy(i.copy()) if isinstance(i, np.ndarray) else i for i in items)
    return cd.from_numpy(array.copy()), torch.from_numpy(array.copy()), ours, theirs


def _outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (IndexError, ValueError, RuntimeError, TypeError) as error:
        return error


@given(subscripts())
@settings(max_examples=600)
def test_reading_agrees_with_torch(case: tuple[tuple[int, ...], list[Any]]) -> None:
    shape, items = case
    x, t, ours, theirs = _both(shape, items)
    wanted, got = _outcome(lambda: t[theirs]), _outcome(lambda: x[ours])
    if isinstance(wanted, Exception):
        assert isinstance(got, type(wanted)), (items, wanted, got)
        return
    if isinstance(got, Exception):
        # torch does not look at indices into an empty result
        assert isinstance(got, IndexError) and wanted.numel() == 0
        return
    assert got.shape == tuple(wanted.shape) and got.tolist() == wanted.tolist()
    assert indexed(shape, ours) == got.shape
    if got.numel():
        aliases = wanted.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
        assert np.shares_memory(got.numpy(), x.numpy()) == aliases


@given(subscripts(), st.sampled_from(["number", "one", "full", "more"]))
@settings(max_examples=600)
def test_writing_agrees_with_torch(case: tuple[tuple[int, ...], list[Any]], kind: str) -> None:
    torch = pytest.importorskip("torch")
    shape, items = case
    x, t, ours, theirs = _both(shape, items)
    slot = _outcome(lambda: t[theirs])
    assume(not isinstance(slot, Exception) and slot.numel())
    # What several values for one place leave behind is not defined.
    if any(isinstance(i, (list, np.ndarray)) for i in items):
        where = torch.arange(t.numel()).reshape(t.shape)[theirs]
        assume(where.unique().numel() == where.numel())
    sizes = {"number": (), "one": (1,), "full": slot.shape, "more": (1, *slot.shape)}[kind]
    value = np.asarray(-np.arange(1.0, float(np.prod(sizes)) + 1).reshape(sizes))
    x[ours] = cd.from_numpy(value) if kind != "number" else float(value)
    t[theirs] = torch.from_numpy(value) if kind != "number" else float(value)
    assert x.tolist() == t.tolist()


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (3, IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
        ((0, -5), IndexError, "index -5 is out of bounds for dimension 1 with size 4"),
        ((0, 0, 0), IndexError, "3 indices, too many"),
        (slice(None, None, -1), ValueError, "greater than zero"),
        ([0, 3], IndexError, "3.*size 3"),
        (cd.tensor([True, False]), IndexError, "mask|boolean"),
        (cd.tensor([0.5]), IndexError, "int64, int32 or bool"),
        ("a", IndexError, "no index"),
        (1.5, IndexError, "no index"),
    ],
)
def test_refusals_name_index_and_size(index: Any, error: type[Exception], text: str) -> None:
    x = cd.zeros(3, 4)
    with pytest.raises(error, match=text):
        x[index]
    with pytest.raises(error, match=text):
        x[index] = 0.0
    assert not x.any()


def test_a_value_that_does_not_fit_is_refused() -> None:
    x = cd.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"\(3,\)"):
        x[0] = cd.ones(3)
    with pytest.raises(RuntimeError, match=r"\(5,\)"):
        x[[0, 1]] = cd.ones(5)


def test_an_integer_selects_before_tensors_are_looked_at() -> None:
    x = cd.arange(24).view(2, 3, 4)
    assert x[0, :, [0, 1]].shape == (3, 2)  # NumPy would answer (2, 3)
    assert x[:, 0, [0, 1]].shape == (2, 2)


def test_every_way_to_write_a_mask() -> None:
    x = cd.arange(6.0).view(2, 3)
    mask = x > 2
    assert x[mask].tolist() == x[mask.to(cd.uint8)].tolist() == [3, 4, 5]
    assert x[mask.nonzero(as_tuple=True)].tolist() == [3, 4, 5]
    assert x.masked_select(mask).tolist() == [3, 4, 5]
    x[mask] = cd.tensor([9.0, 8.0, 7.0])
    assert x.tolist() == [[0, 1, 2], [9, 8, 7]]
    x[mask] += 1
    assert x.tolist() == [[0, 1, 2], [10, 9, 8]]
    values = cd.ones(1, 1, 3, requires_grad=True)
    y = x * 1
    y[mask] = values
    (y * cd.arange(6.0).view(2, 3)).sum().backward()
    assert values.grad.tolist() == [[[3, 4, 5]]]


def test_assigned_values_are_converted() -> None:
    x = cd.zeros(3, dtype=cd.int32)
    x[0] = 2.9
    x[1:] = cd.tensor([1.5, -1.5])
    assert x.tolist() == [2, 1, -1]
    x[...] = [4, 5, 6]
    assert x.tolist() == [4, 5, 6]


def test_overlapping_assignment_reads_before_it_writes() -> None:
    x = cd.arange(5)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]


# -- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [0, slice(1, 3), (..., 1), [0, 0, 2], (slice(None), [1, 1]), ([0, 1], [2, 2]), (None, 1, [0])],
    ids=str,
)
def test_gradients_of_reading_and_writing(index: Any) -> None:
    x = cd.randn(3, 4, dtype=cd.float64, requires_grad=True)
    assert cd.autograd.gradcheck(lambda x: x[index], (x,))
    assert cd.autograd.gradgradcheck(lambda x: x[index] ** 2, (x,))
    if isinstance(index, (list, tuple)) and index not in ((..., 1),):
        return  # repeated places: which value stays is not defined
    values = cd.randn(*x[index].shape, dtype=cd.float64, requires_grad=True)

    def write(x: Any, values: Any) -> Any:
        out = x * 1
        out[index] = values
        return out

    assert cd.autograd.gradcheck(write, (x, values))


def test_repeated_indices_add_up() -> None:
    x = cd.zeros(3, requires_grad=True)
    x[[0, 0, 2]].sum().backward()
    assert x.grad.tolist() == [2, 0, 1]
    y = cd.zeros(3)
    y.index_put_(([0, 0, 2],), cd.tensor([1.0, 2.0, 4.0]), accumulate=True)
    assert y.tolist() == [3, 0, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_adds_up_in_float32(dtype: str) -> None:
    kind = getattr(cd, dtype)
    index = cd.zeros(4096, dtype=cd.int64)
    out = cd.zeros(2, dtype=kind).index_add(0, index, cd.ones(4096, dtype=kind))
    assert out.to(cd.float32).tolist() == [4096, 0]
    rows = cd.zeros(2, 3, dtype=kind).scatter_add(
        0, cd.zeros(4096, 3, dtype=cd.int64), cd.ones(4096, 3, dtype=kind)
    )
    assert rows[0].to(cd.float32).tolist() == [4096] * 3


# -- gather, scatter, rows -----------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=200)
def test_gather_and_scatter_agree_with_torch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    shape = tuple(data.draw(st.lists(SIDES, min_size=1, max_size=3)))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    sides = [data.draw(st.integers(1, n)) for n in shape]
    sides[dim] = data.draw(st.integers(1, 5))
    rng = np.random.default_rng(0)
    x, src = rng.random(shape), rng.random(sides)
    index = rng.integers(0, shape[dim], sides)
    ours = [cd.from_numpy(a) for a in (x, index, src)]
    theirs = [torch.from_numpy(a) for a in (x, index, src)]
    np.testing.assert_array_equal(
        ours[0].gather(dim, ours[1]).numpy(), theirs[0].gather(dim, theirs[1]).numpy()
    )
    np.testing.assert_allclose(
        ours[0].scatter_add(dim, ours[1], ours[2]).numpy(),
        theirs[0].scatter_add(dim, theirs[1], theirs[2]).numpy(),
    )
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            np.testing.assert_allclose(
                ours[0].scatter_reduce(dim, ours[1], ours[2], reduce, include_self=own).numpy(),
                theirs[0].scatter_reduce(dim, theirs[1], theirs[2], reduce, include_self=own),
            )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int64", "uint8"])
def test_an_extreme_is_taken_of_what_goes_to_its_place_alone(dtype: str) -> None:
    x = cd.tensor([1, 2, 3]).to(getattr(cd, dtype))
    index = cd.tensor([0, 0, 2])
    extreme = float("nan") if x.dtype.is_floating_point else 127
    source = cd.tensor([5, 4, extreme]).to(x.dtype)
    for reduce, wanted in (("amax", 5), ("amin", 4)):
        for own in (True, False):
            found = x.scatter_reduce(0, index, source, reduce, include_self=own).tolist()
            best = max(wanted, 1) if reduce == "amax" else min(wanted, 1)
            assert found[:2] == [best if own else wanted, 2]


def test_scatter_takes_numbers_and_reductions() -> None:
    x, index = cd.ones(4), cd.tensor([1, 1, 3])
    assert x.scatter(0, index, 5.0).tolist() == [1, 5, 1, 5]
    assert x.scatter(0, index, value=5.0).tolist() == [1, 5, 1, 5]
    assert x.scatter(0, index, 2.0, reduce="add").tolist() == [1, 5, 1, 3]
    assert x.scatter(0, index, 2.0, reduce="multiply").tolist() == [1, 4, 1, 2]
    x.scatter_(0, index, cd.tensor([7.0, 7.0, 8.0]))
    assert x.tolist() == [1, 7, 1, 8]


def test_in_place_rows() -> None:
    x, index = cd.zeros(3, 2), cd.tensor([2, 0])
    x.index_copy_(0, index, cd.tensor([[1.0, 2.0], [3.0, 4.0]]))
    x.index_add_(0, index, cd.ones(2, 2), alpha=10)
    x.index_fill_(1, cd.tensor([1]), -1.0)
    assert x.tolist() == [[13, -1], [0, -1], [11, -1]]
    x.masked_fill_(x < 0, 0)
    assert x.tolist() == [[13, 0], [0, 0], [11, 0]]


@pytest.mark.parametrize("wrong", [[5], [-1]])
def test_rows_out_of_range_are_refused(wrong: list[int]) -> None:
    x, index = cd.zeros(3, 2), cd.tensor(wrong)
    calls = [
        lambda: x.index_select(0, index),
        lambda: x.index_add(0, index, cd.ones(1, 2)),
        lambda: x.index_copy(0, index, cd.ones(1, 2)),
        lambda: x.gather(0, index.view(1, 1)),
        lambda: x.scatter(0, index.view(1, 1), 1.0),
        lambda: cd.nn.functional.one_hot(cd.tensor(wrong), 2),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=str(wrong[0])):
            call()


def test_nonzero_of_every_rank() -> None:
    for shape in ((), (3,), (2, 3), (2, 3, 4), (0, 3)):
        array = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 2)
        assert cd.from_numpy(array).nonzero().tolist() == np.argwhere(array).tolist()


def test_one_hot_counts_the_classes() -> None:
    hot = cd.nn.functional.one_hot(cd.tensor([0, 2]))
    assert hot.tolist() == [[1, 0, 0], [0, 0, 1]] and hot.dtype is cd.int64


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("value", [0, 1, -2, float("-inf"), float("nan")])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int64", "bfloat16", "float32", "float64", "complex128"]
)
def test_masks_select_bit_by_bit(dtype: str, value: Any, size: int) -> None:
    kind = getattr(cd, dtype)
    if kind.category < 2 and not np.isfinite(value) or dtype in ("bool", "uint8") and value < 0:
        return
    rng = np.random.default_rng(0)
    x = cd.from_numpy(rng.normal(size=(size, 2)) * 10).abs().to(kind)
    x[::3] = 0
    for mask in (rng.random((size, 2)) > 0.5, rng.random((size, 1)) > 0.5, rng.random(2) > 0.5):
        got = x.masked_fill(cd.from_numpy(mask), value)
        wanted = np.where(mask, np.asarray(value).astype(x.numpy().dtype), x.numpy())
        assert got.dtype is kind and got.numpy().tobytes() == wanted.tobytes()
    strided = x.t()[:, ::2]
    mask = rng.random(strided.shape) > 0.5
    got = strided.masked_fill(cd.from_numpy(mask), 1).numpy()
    assert got.tobytes() == np.where(mask, np.ones((), got.dtype), strided.numpy()).tobytes()


class Unread:
    """A raw array of a device that computes later: its elements are not there yet."""

    def __init__(self, *shape: int, dtype: str = "float32") -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(dtype), len(shape)

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("the device had to be waited for")


@pytest.mark.parametrize(
    "values", [0.5, Unread(), Unread(4), Unread(1, 4), Unread(1, 1), Unread(1, 1, 4)]
)
def test_writing_one_value_through_a_mask_reads_no_mask(values: Any) -> None:
    rule = cd.plugin.operator("index_put").out_rule
    x, mask = Unread(3, 4), Unread(3, dtype="bool")
    assert rule(x, (mask,), values, False) == (3, 4)
    assert rule(x, (mask, slice(1, 3)), 1.0, False) == (3, 4)
    with pytest.raises(AssertionError, match="waited for"):
        rule(x, (mask,), Unread(2, 4), False)  # two rows fit two places
    with pytest.raises(cd.DimError, match="does not fit"):
        rule(x, (Unread(2, dtype="bool"),), values, False)


@pytest.mark.parametrize("size", [6, 300])
def test_what_is_read_by_index_lies_in_order(size: int) -> None:
    """NumPy keeps what is indexed outermost in memory; a view of other sizes would not fit."""
    x = cd.arange(4 * 5 * size).reshape(4, 5, size)
    i, j = cd.tensor([0, -1, 0]), cd.tensor([[1, 2, 3]])
    for index in ((slice(None), i), (slice(None), slice(None), i), (slice(None), i, j)):
        plain = tuple(np.asarray(item) if isinstance(item, cd.Tensor) else item for item in index)
        found = x[index]
        assert found.is_contiguous() and found.view(-1).shape == (found.numel(),)
        np.testing.assert_array_equal(found.numpy(), x.numpy()[plain])
    with pytest.raises(IndexError):
        x[:, cd.tensor([5])]
    with pytest.raises(IndexError):
        cd.zeros(0, 0)[:, cd.tensor([3])]
