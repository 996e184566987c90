"""Python numbers beside tensors and in them: what a dtype does not hold is refused, not wrapped.

``PYTORCH`` holds what PyTorch 2.13 answers: a value, or the built-in class of its error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.plugin import NumberRangeError

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
inf, nan = math.inf, math.nan


def t(*data: Any, dtype: str = "int64") -> cd.Tensor:
    return cd.tensor(list(data), dtype=dtype)


def where_true(x: cd.Tensor) -> cd.Tensor:
    return cd.ones(x.shape, dtype="bool")


PYTORCH: list[tuple[Any, Any]] = [
    # operands: 64 bits, wrapping to the dtype
    (lambda: t(0) == 2**64, OverflowError),
    (lambda: t(0) == -(2**63) - 1, OverflowError),
    (lambda: t(0) < 2**64, OverflowError),
    (lambda: t(2) * 2**64, OverflowError),
    (lambda: 2**64 - t(2), OverflowError),
    (lambda: t(2) // 2**64, OverflowError),
    (lambda: t(2) | 2**64, OverflowError),
    (lambda: t(True, dtype="bool") + 2**64, OverflowError),
    (lambda: cd.isin(t(2), 2**64), OverflowError),
    (lambda: t(2, dtype="int8") + 300, [46]),
    (lambda: t(2, dtype="uint8") * -1, [254]),
    (lambda: t(44, dtype="int8") == 300, [True]),
    (lambda: t(0) == -(2**63), [False]),
    # exponents and bounds must fit
    (lambda: t(2) ** (2**63), RuntimeError),
    (lambda: t(3, dtype="int8") ** 300, RuntimeError),
    (lambda: t(2).clamp(max=2**63), RuntimeError),
    (lambda: t(2).clamp(min=2**64), OverflowError),
    (lambda: t(2).clamp_(max=2**63), RuntimeError),
    (lambda: cd.clamp_min(t(2), 2**63), RuntimeError),
    (lambda: t(2, dtype="int8").clamp(max=300), RuntimeError),
    (lambda: t(2, dtype="uint8").clamp(min=-300), RuntimeError),
    (lambda: t(2, dtype="uint8").clamp(max=-3), [2]),
    (lambda: t(2).clamp(max=inf), [2.0]),
    # what is written must fit
    (lambda: cd.full_like(t(2), inf), RuntimeError),
    (lambda: cd.full_like(t(2), nan), RuntimeError),
    (lambda: cd.full_like(t(2), 2**64), OverflowError),
    (lambda: cd.full_like(t(2), 1e30), RuntimeError),
    (lambda: cd.full_like(t(2), 1j), RuntimeError),
    (lambda: cd.full_like(t(2.0, dtype="float32"), 1e39), RuntimeError),
    (lambda: cd.full_like(t(2.0, dtype="float32"), inf), [inf]),
    (lambda: cd.full_like(t(2, dtype="int8"), 300.0), RuntimeError),
    (lambda: cd.full_like(t(2, dtype="uint8"), -1), [255]),
    (lambda: cd.full_like(t(2, dtype="uint8"), -256), RuntimeError),
    (lambda: cd.full_like(t(2, dtype="uint8"), -2.7), RuntimeError),
    (lambda: cd.full_like(t(2), 2.7), [2]),
    (lambda: cd.full((1,), 2**64), OverflowError),
    (lambda: cd.full((1,), 300, dtype="int8"), RuntimeError),
    (lambda: cd.full((1,), -1, dtype="uint8"), [255]),
    (lambda: cd.full((1,), 2**63 - 1), [2**63 - 1]),
    (lambda: t(2).fill_(2**63), RuntimeError),
    (lambda: t(2).fill_(inf), RuntimeError),
    (lambda: t(2, dtype="uint8").fill_(-1), [255]),
    (lambda: t(2).new_full((1,), 2**64), OverflowError),
    (lambda: cd.where(where_true(t(2)), t(2), 2**63), RuntimeError),
    (lambda: cd.where(where_true(t(2)), t(2, dtype="int8"), 300), RuntimeError),
    (lambda: cd.where(~where_true(t(2)), t(2, dtype="uint8"), -1), [255]),
    (lambda: cd.where(where_true(t(2)), t(2), 0.5), [2.0]),
    (lambda: t(2).index_fill(0, t(0), 2**63), RuntimeError),
    (lambda: t(2).index_fill(0, t(0), inf), RuntimeError),
    (lambda: t(2).index_fill(0, t(0), 2.5), [2]),
    (lambda: t(2).masked_fill(where_true(t(2)), 2**63), RuntimeError),
    (lambda: t(2).masked_fill(where_true(t(2)), -inf), RuntimeError),
    (lambda: t(2).masked_fill_(where_true(t(2)), inf), RuntimeError),
    (lambda: t(2, dtype="int8").masked_fill(where_true(t(2)), 300), RuntimeError),
    (lambda: t(2.0, dtype="float16").masked_fill(where_true(t(2)), -1e9), RuntimeError),
    (lambda: t(2.0, dtype="float16").masked_fill(where_true(t(2)), 65504), [65504.0]),
    (lambda: t(2.0, dtype="float32").masked_fill(where_true(t(2)), 1j), RuntimeError),
    (lambda: t(2).scatter(0, t(0), 2**64), OverflowError),
    (lambda: t(2, dtype="uint8").scatter(0, t(0), -1), [255]),
    (lambda: t(2).__setitem__(0, 2**63), ValueError),
    (lambda: t(2).__setitem__(0, inf), RuntimeError),
    (lambda: t(2).__setitem__(where_true(t(2)), 2**64), ValueError),
    (lambda: t(2, dtype="int8").__setitem__(t(0), 300), RuntimeError),
    (lambda: F.threshold(t(2), 2**63, 0), RuntimeError),
    (lambda: F.threshold(t(2), 3, 2**63), RuntimeError),
    (lambda: F.threshold(t(2), 3, 2.5), [2]),
    (lambda: F.pad(t(2, dtype="int8"), (1, 1), value=300), RuntimeError),
    (lambda: F.pad(t(2), (0, 1), value=2.5), [2, 2]),
    # factors
    (lambda: t(2).add(2, alpha=2**64), OverflowError),
    (lambda: t(2).add(t(2), alpha=2.5), RuntimeError),
    (lambda: t(2).sub(t(2), alpha=2.5), RuntimeError),
    (lambda: cd.rsub(t(2), t(2), alpha=2.5), RuntimeError),
    (lambda: t(1.0, dtype="float32").add(t(1.0, dtype="float32"), alpha=1j), RuntimeError),
    (lambda: t(1).add(t(2), alpha=True), RuntimeError),
    (lambda: t(True, dtype="bool").add(t(True, dtype="bool"), alpha=2), [True]),
    (lambda: t(2, dtype="uint8").add(t(1, dtype="uint8"), alpha=-1), [1]),
    (lambda: t(0).add(t(2, dtype="uint8"), alpha=300), [600]),
    (lambda: t(2).addcmul(t(2), t(3), value=2**63), RuntimeError),
    (lambda: t(2).addcmul(t(2), t(3), value=2.5), [14]),
    (lambda: t(2).addmv(t([2]), t(3), alpha=2.5), [14]),
    (lambda: t([2]).addmm(t([2]), t([3]), alpha=2**64), OverflowError),
    (lambda: t([2]).addmm(t([2]), t([3]), beta=2**63), RuntimeError),
    (lambda: t([2]).addmm(t([2]), t([3]), beta=2.5), [[10]]),
    (lambda: t([2]).addbmm(t([[2]]), t([[3]]), beta=2.5), [[10]]),
    (lambda: t([[2]]).baddbmm(t([[2]]), t([[3]]), alpha=2.5), [[[14]]]),
    (lambda: t(2).index_add(0, t(0), t(3), alpha=2.5), [8]),
    (lambda: t(2, dtype="uint8").index_add(0, t(0), t(1, dtype="uint8"), alpha=-1), [1]),
    # data
    (lambda: cd.tensor(2**63), ValueError),
    (lambda: cd.tensor([-(2**63) - 1]), ValueError),
    (lambda: cd.tensor([2**64, 1.0]), [2.0**64, 1.0]),
    (lambda: cd.tensor([2**63], dtype="uint64"), [2**63]),
    (lambda: cd.tensor([2**64], dtype="uint64"), OverflowError),
    (lambda: cd.tensor([2**64], dtype="float32"), [2.0**64]),
    (lambda: cd.tensor([2**64], dtype="bool"), [True]),
    (lambda: cd.tensor([10**400], dtype="float32"), OverflowError),
    (lambda: cd.tensor([300], dtype="int8"), RuntimeError),
    (lambda: cd.tensor([300.0], dtype="int8"), RuntimeError),
    (lambda: cd.tensor([-1], dtype="uint8"), [255]),
    (lambda: cd.tensor([inf], dtype="int64"), RuntimeError),
    (lambda: cd.tensor([nan], dtype="int8"), RuntimeError),
    (lambda: cd.tensor([1e39], dtype="float32"), [inf]),
    (lambda: cd.tensor([2.7], dtype="int64"), [2]),
    (lambda: cd.tensor([1j], dtype="float32"), TypeError),
    (lambda: cd.as_tensor([2**63]), ValueError),
    # ranges
    (lambda: cd.arange(2**64, 2**64 + 2), OverflowError),
    (lambda: cd.arange(2**63 - 2, 2**63 - 1), [2**63 - 2]),
    (lambda: cd.arange(0, 3.1, dtype="int64"), [0, 1, 2]),
    (lambda: cd.arange(0, 3.1, dtype="int32"), [0, 1, 2, 3]),
    (lambda: cd.arange(0.9, 4.9, 1.9, dtype="int32"), [0, 1, 2]),
    (lambda: cd.arange(-1, 2, dtype="uint8"), [255, 0, 1]),
    (lambda: cd.arange(0, inf), RuntimeError),
    (lambda: cd.linspace(0, 300, 3, dtype="int8"), RuntimeError),
    (lambda: cd.linspace(0, 1j, 3), [0j, 0.5j, 1j]),
    (lambda: cd.linspace(t(0.0, dtype="float32"), 4, 3), RuntimeError),
    (lambda: cd.randint(0, 300, (2,), dtype="int8"), RuntimeError),
    (lambda: cd.randint(-1, 3, (2,), dtype="uint8"), RuntimeError),
    (lambda: cd.randint(0, 2**64, (2,)), ValueError),
    (lambda: cd.randint_like(t(2, dtype="int8"), 300), RuntimeError),
    (lambda: t(2, dtype="int8").random_(300), RuntimeError),
]


@pytest.mark.parametrize("case", range(len(PYTORCH)))
def test_answers_are_those_of_pytorch(case: int) -> None:
    call, answer = PYTORCH[case]
    if isinstance(answer, type):
        with pytest.raises(answer) as caught:
            call()
        assert isinstance(caught.value, cd.CoreDispatchError)
        assert "fix:" in str(caught.value)
    else:
        assert call().tolist() == answer


WRITERS = {
    "full": lambda x, n: cd.full(x.shape, n, dtype=x.dtype),
    "full_like": lambda x, n: cd.full_like(x, n),
    "new_full": lambda x, n: x.new_full(tuple(x.shape), n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(where_true(x), n),
    "index_fill": lambda x, n: x.index_fill(0, cd.arange(3), n),
    "scatter": lambda x, n: x.scatter(0, cd.arange(3), n),
    "where": lambda x, n: cd.where(where_true(x), n, x),
    "setitem": lambda x, n: _assigned(x, n),
    "pad": lambda x, n: F.pad(x[:0], (3, 0), value=n),
    "tensor": lambda x, n: cd.tensor([n] * 3, dtype=x.dtype),
    "clamp": lambda x, n: x.clamp(n, n),
    "full on meta": lambda x, n: cd.full(x.shape, n, dtype=x.dtype, device="meta"),
    "masked_fill on meta": lambda x, n: x.to("meta").masked_fill(where_true(x).to("meta"), n),
}


def _assigned(x: cd.Tensor, number: Any) -> cd.Tensor:
    x = x.clone()
    x[:] = number
    return x


# Numbers near the ends of the types are the ones that matter.
ends = st.sampled_from([2**k for k in (7, 8, 15, 16, 31, 32, 63, 64, 65)])
integers = st.builds(
    lambda n, sign, off: sign * n + off, ends, st.sampled_from((-1, 1)), st.integers(-2, 2)
) | st.integers(-(2**70), 2**70)


@settings(max_examples=400)
@given(st.sampled_from(sorted(WRITERS)), st.sampled_from(INTEGERS), integers)
def test_an_integer_is_written_as_it_is_or_refused(name: str, dtype: str, number: int) -> None:
    x = cd.zeros(3, dtype=dtype)
    limits = np.iinfo(dtype)
    wraps = limits.min == 0 and -limits.max <= number < 0
    if limits.min <= number <= limits.max or wraps:
        out = WRITERS[name](x, number)
        assert out.dtype == x.dtype
        if not out.is_meta:
            assert out.tolist() == [number % (limits.max + 1) if wraps else number] * 3
    else:
        with pytest.raises(NumberRangeError) as caught:
            WRITERS[name](x, number)
        assert str(number) in str(caught.value)


@given(st.sampled_from(INTEGERS), integers, st.integers(-100, 100))
def test_an_integer_operand_is_a_64_bit_integer(dtype: str, number: int, element: int) -> None:
    limits = np.iinfo(dtype)
    x = cd.tensor([abs(element) if limits.min == 0 else element], dtype=dtype)
    for other in (lambda: x + number, lambda: number + x, lambda: cd.add(x, number)):
        if -(2**63) <= number < 2**63:
            expected = (x.item() + number - limits.min) % (1 << limits.bits) + limits.min
            assert other().tolist() == [expected]
        else:
            with pytest.raises(OverflowError, match="64 bits"):
                other()


@given(st.integers(-(2**1100), 2**1100))
def test_beside_floats_an_integer_of_any_size_is_a_float(number: int) -> None:
    x = cd.ones(2)
    try:
        with np.errstate(over="ignore"):
            expected = float(np.float32(float(number)))
    except OverflowError:
        for y in (x, x.double(), x.to(cd.bfloat16)):
            with pytest.raises(NumberRangeError, match="beyond every floating-point number"):
                y * number
    else:
        assert (x * number).tolist() == [expected] * 2


def test_random_with_one_bound_starts_at_zero() -> None:
    x = cd.zeros(2000)
    assert sorted(set(x.random_(5).tolist())) == [0, 1, 2, 3, 4]
    assert sorted(set(x.random_(3, 5).tolist())) == [3, 4]
    assert x.random_(**{"from": 5}).min() >= 5
    assert set(cd.randint_like(x, high=2).tolist()) == {0, 1}


def test_a_refused_write_changes_nothing() -> None:
    x = t(1, 2, dtype="int8")
    for write in (lambda: x.fill_(300), lambda: x.__setitem__(0, 300), lambda: x.clamp_(max=300)):
        version = x._version
        with pytest.raises(NumberRangeError):
            write()
        assert x.tolist() == [1, 2]
        assert x._version == version


def test_the_largest_numbers_replace_nan() -> None:
    assert cd.tensor([nan]).nan_to_num(nan=1e39).tolist() == [inf]
    assert cd.tensor([-inf]).nan_to_num(neginf=-1e39).tolist() == [-inf]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: F.layer_norm(x, (3,), eps=n),
        lambda x, n: F.rms_norm(x, (3,), None, n),
        lambda x, n: F.leaky_relu(x, n),
        lambda x, n: F.huber_loss(x, x.flip(0), delta=n),
        lambda x, n: cd.add(x, x, alpha=n),
        lambda x, n: F.threshold(x, n, 2.0),
    ],
)
def test_a_tensor_without_dimensions_serves_for_a_number(call) -> None:
    x = cd.randn(2, 3)
    cd.testing.assert_close(call(x, cd.tensor(0.5)), call(x, 0.5))
    for refused in (cd.tensor([0.5]), cd.tensor(0.5, requires_grad=True)):
        with pytest.raises(cd.DTypeError, match="must be"):
            call(x, refused)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("number", [0, 1, -1, 127, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "eq", "lt", "bitwise_and", "remainder"])
def test_an_operand_is_as_a_tensor_of_it(name: str, number: int, dtype: str) -> None:
    """Out of place and in place, on both sides of what 32 bits hold."""
    if name == "remainder" and not np.int64(number).astype(dtype):
        return
    x = t(-3, 0, 5, 100).to(dtype=dtype)
    beside = cd.tensor(number, dtype="int64").to(dtype=dtype)
    wanted = getattr(cd, name)(x, beside)
    got = getattr(cd, name)(x, number)
    assert got.dtype is wanted.dtype and got.tolist() == wanted.tolist()
    written = getattr(x.clone(), f"{name}_")(number)
    assert written.dtype is x.dtype and written.tolist() == wanted.to(dtype=dtype).tolist()


def test_a_number_is_no_tensor() -> None:
    """Where an operator takes numbers for some arguments, it refuses them for the others."""
    with pytest.raises(TypeError, match=r"'end' must be Tensor"):
        cd.lerp(cd.zeros(3), 2.0, 0.5)
    with pytest.raises(TypeError, match=r"int64"):
        cd.lerp(t(1), t(2), 0.5)
