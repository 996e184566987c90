"""Factories: every block, dtypes, sizes, and agreement with torch."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd

FAMILY = ("creation.factories", "creation.sequences", "creation.window_functions")


def test_samples_agree_with_reference_and_body(sampled: Any) -> None:
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_error_inputs(refusing: Any) -> None:
    family, name = refusing
    family.check_errors(name)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (3, "int64"), (1.5, "float32"), (1j, "complex64"), (False, "bool")],
)
def test_full_takes_its_dtype_from_the_value(value: Any, dtype: str) -> None:
    x = cd.full((2,), value)
    assert x.dtype.name == dtype and x.tolist() == [value, value]


def test_the_default_dtype_is_asked_at_each_call() -> None:
    before = cd.get_default_dtype()
    try:
        cd.set_default_dtype(cd.float64)
        made = (cd.zeros(1), cd.ones(1), cd.full((1,), 1.0), cd.arange(1.0), cd.eye(1), cd.rand(1))
    finally:
        cd.set_default_dtype(before)
    assert {x.dtype for x in made} == {cd.float64}
    assert cd.zeros(1).dtype is before


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full"])
def test_likes_take_after_their_tensor(name: str) -> None:
    like = getattr(cd, name + "_like")
    x = cd.arange(6, dtype=cd.int16).view(2, 3)
    extra = (7,) if name == "full" else ()
    y = like(x, *extra)
    assert y.shape == (2, 3) and y.dtype is cd.int16 and y.device == x.device
    z = like(x, *extra, dtype=cd.float64, device="cpu", requires_grad=True)
    assert z.dtype is cd.float64 and z.requires_grad and z.is_leaf
    assert not np.shares_memory(x.numpy(), y.numpy())
    new = getattr(x, "new_" + name)((4,), *extra)
    assert new.shape == (4,) and new.dtype is cd.int16


def test_factories_take_pytorchs_keywords() -> None:
    x = cd.zeros(2, 3, dtype=cd.float64, device="cpu", requires_grad=True, pin_memory=False)
    assert x.requires_grad and x.is_leaf and x.shape == (2, 3)
    assert cd.ones(size=(2,)).tolist() == [1, 1]
    out = cd.empty(2)
    assert cd.zeros(2, out=out) is out and out.tolist() == [0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: cd.zeros(2, -1),
        lambda: cd.full((-3,), 1.0),
        lambda: cd.arange(1, 5, -1),
        lambda: cd.arange(0, 1, 0),
        lambda: cd.linspace(0, 1, -1),
        lambda: cd.eye(-1),
        lambda: cd.randperm(-1),
        lambda: cd.randint(3, 3, (1,)),
    ],
)
def test_impossible_sizes_and_steps(call: Any) -> None:
    with pytest.raises(ValueError, match="-1|-3|step|low|negative"):
        call()


NUMBERS = st.integers(-20, 20) | st.floats(-20, 20).map(lambda x: round(x, 2))
STEPS = st.sampled_from([1, 2, 3, -1, -2, 0.5, 0.25, -0.75])


@given(NUMBERS, NUMBERS, STEPS)
@settings(max_examples=300)
def test_arange_agrees_with_torch(start: Any, end: Any, step: Any) -> None:
    torch = pytest.importorskip("torch")
    if (end - start) * step < 0:
        return
    got, wanted = cd.arange(start, end, step), torch.arange(start, end, step)
    assert got.shape == tuple(wanted.shape) and got.dtype.name in str(wanted.dtype)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 100])
def test_linspace_agrees_with_torch(steps: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    got = cd.linspace(-3, 10, steps, dtype=getattr(cd, dtype))
    wanted = torch.linspace(-3, 10, steps, dtype=getattr(torch, dtype))
    assert got.dtype.name == dtype
    slack = {"float16": 1e-2, "bfloat16": 8e-2, "int64": 0}.get(dtype, 1e-6)
    np.testing.assert_allclose(
        got.to(cd.float64).numpy(), wanted.to(torch.float64).numpy(), atol=slack
    )
    if steps > 1:
        assert got[0] == -3 and got[-1] == 10


def test_bounds_may_be_tensors() -> None:
    assert cd.arange(cd.tensor(3)).tolist() == [0, 1, 2]
    assert cd.linspace(cd.tensor(0.0), cd.tensor(1.0), 3).tolist() == [0, 0.5, 1]


def test_triangles_of_indices_select_triangles() -> None:
    x = cd.arange(12).view(3, 4)
    low, high = cd.tril_indices(3, 4, 1), cd.triu_indices(3, 4, -1)
    assert x[low[0], low[1]].tolist() == x.numpy()[np.tril_indices(3, 1, 4)].tolist()
    assert x[high[0], high[1]].tolist() == x.numpy()[np.triu_indices(3, -1, 4)].tolist()


def test_logspace_and_vander() -> None:
    np.testing.assert_allclose(cd.logspace(0, 3, 4).numpy(), [1, 10, 100, 1000], rtol=1e-6)
    np.testing.assert_allclose(cd.logspace(0, 3, 4, 2).numpy(), [1, 2, 4, 8], rtol=1e-6)
    x = cd.tensor([1.0, 2.0, 3.0])
    assert cd.vander(x).tolist() == np.vander(x.numpy()).tolist()
    assert cd.vander(x, 2, increasing=True).tolist() == [[1, 1], [1, 2], [1, 3]]


def test_meta_tensors_have_shape_and_dtype_only() -> None:
    x = cd.empty(1 << 40, 3, device="meta")
    assert x.shape == (1 << 40, 3) and x.t().shape == (3, 1 << 40)
    assert cd.zeros(2, device="meta", dtype=cd.int8).dtype is cd.int8
    assert (x.new_zeros((3, 5)).t() @ x.new_zeros((3, 2))).shape == (5, 2)


@pytest.mark.parametrize("name", ["zeros", "arange", "rand_like", "full_like", "eye"])
def test_a_factory_is_pickled_by_its_public_name(name: str) -> None:
    factory = getattr(cd, name)
    assert pickle.loads(pickle.dumps(factory)) is factory


@pytest.mark.parametrize("number", [2.5, 3, True, 1 + 2j])
def test_full_reads_a_number_from_a_tensor_without_dimensions(number: Any) -> None:
    made = cd.full((2,), cd.tensor(number))
    assert made.dtype is cd.tensor(number).dtype and made.tolist() == [number] * 2
    for shape in ((1,), (2,)):
        with pytest.raises(cd.DTypeError, match=r"'fill_value' must be Scalar, not Tensor"):
            cd.full((2,), cd.ones(shape))
    with pytest.raises(cd.DTypeError, match=r"not Tensor \(tensor\(2., requires_grad=True\)\)"):
        cd.full(
            (2,), cd.tensor(2.0, requires_grad=True)
        )  # as in PyTorch: the history would be lost


def test_ranges_hold_integers_that_doubles_do_not() -> None:
    start, step = 2**53 + 1, 2**53 + 1
    far = cd.arange(start, 3 * step + 1, step)
    assert far.tolist() == [start, 2 * step, 3 * step]
    assert cd.arange(-(2**63), 1, 2**62).tolist() == [-(2**63), -(2**62), 0]
    with pytest.warns(UserWarning, match="deprecated"):
        closed = cd.range(start, start + 2, dtype=cd.int64)
    assert closed.tolist() == [start, start + 1, start + 2]
