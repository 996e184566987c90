"""Numbers that float16 does not hold, beside float16 tensors: they count as they are written."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd

BEYOND = [65536.0, 70000, 1e5, -1e9, 3e38, 2.0**-15, 1e-9, -(2.0**-30), float(2**15 + 2**15 + 1)]
FORMS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "rsub": lambda x, n: n - x,
    "rmul": lambda x, n: n * x,
    "rdiv": lambda x, n: n / x,
}
VALUES = [0.0, -0.0, 1.0, 0.0009765625, -3.0, 100.0, 65504.0, -65504.0, 2.0**-24, np.inf]


def expected(form: Callable[..., Any], x: np.ndarray, number: float) -> np.ndarray:
    """Computed in float32 and rounded once."""
    with np.errstate(all="ignore"):
        return form(x.astype(np.float32), np.float32(number)).astype(np.float16)


@pytest.mark.parametrize("count", [10, 5000])  # a kernel pack has kernels of its own for many
@pytest.mark.parametrize("name", FORMS)
def test_the_number_counts_as_it_is_written(name: str, count: int) -> None:
    x = np.resize(np.array(VALUES, np.float16), count)
    for number in BEYOND:
        found = FORMS[name](cd.tensor(x), number)
        assert found.dtype is cd.float16
        np.testing.assert_array_equal(found.numpy(), expected(FORMS[name], x, number), str(number))


# PyTorch rounds the number of a sum, and that over a tensor it multiplies with a rounded inverse.
@pytest.mark.parametrize("name", ["mul", "div", "rmul"])
def test_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.array(VALUES, np.float16)
    for number in BEYOND:
        found = FORMS[name](cd.tensor(x), number)
        wanted = FORMS[name](torch.tensor(x), number)
        np.testing.assert_array_equal(found.numpy(), wanted.numpy(), str(number))


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_in_place(name: str) -> None:
    form = FORMS[name[:-1]]
    x = np.array(VALUES, np.float16)
    for number in BEYOND:
        target = cd.tensor(x)
        with np.errstate(all="ignore"):
            assert getattr(target, name)(number) is target
        np.testing.assert_array_equal(target.numpy(), expected(form, x, number), str(number))


def test_the_gradient_is_not_lost() -> None:
    """2**16 is beyond float16, and its inverse is not."""
    x = cd.tensor([0.5, 2.0], dtype=cd.float16, requires_grad=True)
    (x / 65536.0).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(2, 1 / 65536.0, np.float16))


def test_a_mask_by_a_large_number() -> None:
    """Attention scores are masked so: 0 times the number must stay 0."""
    keep = cd.tensor([1.0, 0.0], dtype=cd.float16)
    bias = (1.0 - keep) * -1e9
    assert bias.tolist() == [0.0, -np.inf]
    assert cd.softmax(cd.tensor([1.0, 5.0], dtype=cd.float16) + bias, 0).tolist() == [1.0, 0.0]


@given(
    st.floats(width=16, allow_nan=False),
    st.one_of(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(-(2**40), 2**40)),
    st.sampled_from(sorted(FORMS)),
)
def test_any_number(value: float, number: float, name: str) -> None:
    """One that float16 holds is rounded to it, if it must be: half an ulp more."""
    x = np.array([value], np.float16)
    found = FORMS[name](cd.tensor(x), number).numpy()
    wanted = expected(FORMS[name], x, number)
    if not np.array_equal(found, wanted, equal_nan=True):
        near = FORMS[name](x.astype(np.float64), float(np.float16(number)))
        assert abs(number) <= 65504 and np.array_equal(found, near.astype(np.float16))


@pytest.mark.parametrize("scalar", [np.float32, np.float64, np.int64])
def test_scalars_of_numpy(scalar: Any) -> None:
    x = np.array(VALUES, np.float16)
    for number in (65536, 70000, 3):
        found = cd.tensor(x) * scalar(number)
        np.testing.assert_array_equal(found.numpy(), expected(operator.mul, x, number))


def test_lists_transforms_and_programs() -> None:
    x = cd.tensor(np.array(VALUES, np.float16))
    wanted = (x * 65536.0).tolist()

    def program(x: Any) -> Any:
        return x * 65536.0

    assert cd._foreach_mul([x], 65536.0)[0].tolist() == wanted
    assert cd.func.vmap(program)(x).tolist() == wanted
    assert cd.jit.trace(program, (x,))(x).tolist() == wanted
    assert cd.compile(program)(x).tolist() == wanted
    assert cd.func.jvp(program, (x,), (x,))[1].tolist() == wanted


@pytest.mark.parametrize("shape", [(), (0,), (1, 0, 2), (1, 1)], ids=str)
def test_few_elements(shape: tuple[int, ...]) -> None:
    x = cd.full(shape, 3.0, dtype=cd.float16)
    for form in FORMS.values():
        found = form(x, 1e-5)
        assert found.shape == shape and found.dtype is cd.float16
        np.testing.assert_array_equal(found.numpy(), expected(form, x.numpy(), 1e-5))


def test_numbers_after_others() -> None:
    """What a call leaves for the next one of its kind does not change what counts."""
    x = cd.tensor([2.0], dtype=cd.float16)
    for number in (3.0, 65536.0, 3.0, 1e-6, 65536.0, 0.5):
        wanted = expected(operator.mul, np.array([2.0], np.float16), number)
        assert (x * number).numpy() == wanted
        assert x.clone().mul_(number).numpy() == wanted
