"""The dtype that a call computes in is worked out once and remembered: later calls agree with it.

Each call is made twice, beside PyTorch: the first works the dtype out, the second finds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32")
NUMBERS = (0, 1, 2, 3, 7, True, False, 0.0, -0.0, 0.5, 1.0, 2.0, 2.5, -1.5, math.inf)
TWO = ("add", "mul", "maximum", "div", "eq", "lt", "pow", "remainder", "atan2", "copysign")


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    yield
    cd.set_default_dtype(cd.float32)
    torch.set_default_dtype(torch.float32)


def _same(ours: Any, theirs: Any) -> None:
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    left, right = ours.to(cd.float64).numpy(), theirs.to(torch.float64).numpy()
    assert left.shape == right.shape
    for a, b in zip(left.ravel().tolist(), right.ravel().tolist()):
        assert a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=2e-2), (ours, theirs)


def _call(library: Any, name: str, *args: Any) -> Any:
    if name in ("maximum", "atan2", "copysign"):
        args = tuple(a if isinstance(a, library.Tensor) else library.tensor(a) for a in args)
    try:
        return getattr(library, name)(*args)
    except (RuntimeError, ValueError, TypeError):
        return None


def _both(name: str, dtype: str, make: Any) -> None:
    first = None
    for _ in range(3):
        ours = _call(cd, name, *make(cd, getattr(cd, dtype)))
        theirs = _call(torch, name, *make(torch, getattr(torch, dtype)))
        if theirs is None or ours is None:
            continue
        _same(ours, theirs)
        first = ours if first is None else first
        assert ours.numpy().tobytes() == first.numpy().tobytes()  # zeros have their signs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TWO)
def test_a_number_beside_a_tensor_twice(name: str, dtype: str) -> None:
    for number in NUMBERS:
        if name in ("remainder", "pow") and not number:
            continue  # integers by zero
        _both(name, dtype, lambda L, d, n=number: (L.tensor([0, 1, 3]).to(d), n))
        _both(name, dtype, lambda L, d, n=number: (L.tensor(2).to(d), n))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_on_the_left(dtype: str) -> None:
    for number in NUMBERS:
        for _ in range(2):
            ours = cd.tensor([1, 2, 3]).to(getattr(cd, dtype))
            theirs = torch.tensor([1, 2, 3]).to(getattr(torch, dtype))
            _same(number / ours, number / theirs)
            _same(number * ours, number * theirs)
            if dtype != "bool" and type(number) is not bool:
                _same(number - ours, number - theirs)


@given(
    dtype=st.sampled_from(DTYPES[1:]),
    low=st.sampled_from([None, 0, 1, 1.0, 0.5]),
    high=st.sampled_from([None, 2, 3, 2.0, 2.5]),
    twice=st.integers(1, 3),
)
def test_bounds_of_clamp(dtype: str, low: Any, high: Any, twice: int) -> None:
    if low is None and high is None:
        return
    for _ in range(twice):
        ours = cd.tensor([0, 1, 2, 3, 5]).to(getattr(cd, dtype))
        theirs = torch.tensor([0, 1, 2, 3, 5]).to(getattr(torch, dtype))
        _same(ours.clamp(low, high), theirs.clamp(low, high))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_where_of_tensors_and_numbers(dtype: str, other: str) -> None:
    for _ in range(2):
        made = []
        for library in (cd, torch):
            mask = library.tensor([True, False])
            x = library.tensor([1, 2]).to(getattr(library, dtype))
            y = library.tensor([3, 4]).to(getattr(library, other))
            last = library.tensor(1).to(getattr(library, other))
            made.append([library.where(mask, x, v) for v in (0, 1.5, True, y, last)])
        for ours, theirs in zip(*made):
            _same(ours, theirs)


def test_the_default_dtype_is_asked_each_time() -> None:
    for default in ("float32", "float64", "bfloat16", "float32"):
        for library in (cd, torch):
            library.set_default_dtype(getattr(library, default))
        for _ in range(2):
            _same(cd.tensor([1, 2]) * 0.5, torch.tensor([1, 2]) * 0.5)
            _same(0.5 - cd.tensor([1, 2]), 0.5 - torch.tensor([1, 2]))
            _same(cd.tensor([1, 2]) / 2, torch.tensor([1, 2]) / 2)
            _same(cd.tensor([1, 2]).clamp(0.5, 2), torch.tensor([1, 2]).clamp(0.5, 2))


def test_a_number_out_of_range_is_refused_after_one_that_was_not() -> None:
    x = cd.tensor([1, 2], dtype=cd.uint8)
    for _ in range(2):
        assert (x + 1).tolist() == [2, 3]
        assert (x + 300).tolist() == [45, 46]  # wraps, as PyTorch's
        with pytest.raises(cd.CoreDispatchError, match="64 bits"):
            x + (1 << 70)
        assert x.clamp(0, 1).tolist() == [1, 1]
        with pytest.raises(cd.CoreDispatchError, match="uint8"):
            x.clamp(0, 300)


def test_zeros_of_either_sign_are_two_numbers() -> None:
    x = cd.tensor([0.0], dtype=cd.bfloat16)
    zero, minus = 0.0, -0.0
    for _ in range(2):
        assert math.copysign(1, (x * -1 + minus).item()) == -1
        assert math.copysign(1, (x * -1 + zero).item()) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "uint8", "int16", "float16"])
def test_writing_in_place(dtype: str) -> None:
    for _ in range(3):
        ours = cd.tensor([1, 2, 3]).to(getattr(cd, dtype))
        theirs = torch.tensor([1, 2, 3]).to(getattr(torch, dtype))
        version = ours._version
        _same(ours.add_(2), theirs.add_(2))
        _same(ours.mul_(3), theirs.mul_(3))
        assert ours._version == version + 2
        view = ours[1:]
        _same(view.add_(1), theirs[1:].add_(1))
        _same(ours, theirs)
        if "float" not in dtype:
            with pytest.raises(cd.CoreDispatchError):
                ours.mul_(0.5)
            _same(ours, theirs)
