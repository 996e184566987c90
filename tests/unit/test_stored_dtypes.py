"""What is written into a tensor must fit its elements: nothing is cut off silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd

INDEX = cd.tensor([0, 2])
MASK = cd.tensor([True, False, True])

#: writes the two elements of a tensor to places 0 and 2
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "scatter": lambda x, src: x.scatter(0, INDEX.to(x.device), src),
    "scatter_": lambda x, src: x.scatter_(0, INDEX.to(x.device), src),
    "scatter_add": lambda x, src: x.scatter_add(0, INDEX.to(x.device), src),
    "scatter_reduce": lambda x, src: x.scatter_reduce(0, INDEX.to(x.device), src, "sum"),
    "index_put": lambda x, src: x.index_put((INDEX.to(x.device),), src),
    "index_put_": lambda x, src: x.index_put_((INDEX.to(x.device),), src, True),
    "setitem": lambda x, src: x.__setitem__(INDEX.to(x.device), src),
    "index_add": lambda x, src: x.index_add(0, INDEX.to(x.device), src),
    "index_copy": lambda x, src: x.index_copy(0, INDEX.to(x.device), src),
    "index_reduce_": lambda x, src: x.index_reduce_(0, INDEX.to(x.device), src, "prod"),
    "put_": lambda x, src: x.put_(INDEX.to(x.device), src),
    "masked_scatter": lambda x, src: x.masked_scatter(MASK.to(x.device), src),
}
SOURCES = {
    "complex into real": (cd.float64, [1 + 2j, 3]),
    "fractions into integers": (cd.int64, [2.7, 1.0]),
    "numbers into bool": (cd.bool, [2, 0]),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("dtype", "values"), SOURCES.values(), ids=list(SOURCES))
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_elements_that_do_not_fit_are_refused(
    write: Callable[[Any, Any], Any], dtype: cd.dtype, values: list[Any], device: str
) -> None:
    target = cd.zeros(3, dtype=dtype, device=device)
    with pytest.raises(cd.DTypeError) as caught:
        write(target, cd.tensor(values).to(device))
    assert isinstance(caught.value, RuntimeError) and caught.value.fix
    if device == "cpu":
        assert not target.any()


#: what returns nothing, and what takes one dtype alone, as in PyTorch
OTHERS = ("index_reduce_", "setitem", "masked_scatter")


@pytest.mark.parametrize("name", [n for n in WRITES if n not in OTHERS])
def test_elements_of_another_dtype_that_fit_are_written(name: str) -> None:
    found = WRITES[name](cd.zeros(3), cd.tensor([2, 3], dtype=cd.int16))
    assert found.tolist() == [2.0, 0.0, 3.0] and found.dtype is cd.float32


def test_a_tensor_in_the_place_of_a_number() -> None:
    ones = cd.ones(3)
    for fill in (
        lambda x, value: x.masked_fill(MASK, value),
        lambda x, value: x.index_fill(0, INDEX, value),
    ):
        with pytest.raises(cd.DTypeError, match="complex64"):
            fill(ones, cd.tensor(1 + 2j))
        assert fill(ones.long(), cd.tensor(2.7)).tolist() == [2, 1, 2]  # as the number 2.7
        assert fill(ones > 1, cd.tensor(2j)).tolist() == [True, False, True]


def test_a_tensor_without_dimensions_is_a_source_of_scatter() -> None:
    with pytest.raises(cd.DTypeError, match="float32"):
        cd.zeros(3, dtype=cd.int64).scatter(0, INDEX, cd.tensor(2.7))
    assert cd.zeros(3).scatter(0, INDEX, value=2).tolist() == [2, 0, 2]
    assert cd.ones(3).scatter(0, INDEX, value=2, reduce="multiply").tolist() == [2, 1, 2]


def test_an_in_place_function_has_no_out() -> None:
    x, y = cd.ones(2), cd.zeros(2)
    for call in (lambda: cd.abs_(x, out=y), lambda: x.exp_(out=y)):
        with pytest.raises(TypeError, match="out"):
            call()
    assert y.tolist() == [0, 0] and x.tolist() == [1, 1]


def test_what_is_written_to_a_view_is_converted() -> None:
    whole = cd.zeros(3, dtype=cd.int64)
    whole[:2] = cd.tensor([2.7, 1.2])
    whole[MASK] = cd.tensor(4.5)
    assert whole.tolist() == [4, 1, 4]
    assert whole.slice_scatter(cd.tensor([7.5, 8.5]), 0, 0, 2).tolist() == [7, 8, 4]
    assert whole.select_scatter(cd.tensor(7.5), 0, 1).tolist() == [4, 7, 4]
    assert cd.zeros(2, 2).bool().diagonal_scatter(cd.tensor([0.5, 0])).tolist() == [
        [True, False],
        [False, False],
    ]


def test_an_imaginary_number_is_true() -> None:
    flags = cd.zeros(2, dtype=cd.bool)
    assert cd.full_like(flags, 1j).tolist() == cd.full((2,), 1j, dtype=cd.bool).tolist()
    assert flags.clone().fill_(1j).tolist() == [True, True]
    assert flags.clone().fill_(0j).tolist() == [False, False]
    assert flags.clone().copy_(cd.tensor([1j, 0])).tolist() == [True, False]
    assert flags.masked_fill(cd.tensor([True, False]), 2j).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [cd.uint8, cd.uint16, cd.int8, cd.int64, cd.bool])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_negative_powers_of_integers_are_refused(dtype: cd.dtype, device: str) -> None:
    x = cd.tensor([1, 1], device=device).to(dtype)
    for power in (lambda: x**-1, lambda: cd.pow(x, -2)):
        with pytest.raises(RuntimeError, match="exponent=-") as caught:
            power()
        assert isinstance(caught.value, cd.NumberRangeError)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_complex_numbers_have_no_greatest(reduce: str, device: str) -> None:
    x = cd.ones(3, dtype=cd.complex64, device=device)
    index = cd.tensor([0, 2], device=device)
    with pytest.raises(NotImplementedError):
        x.scatter_reduce(0, index, x[:2], reduce)
    with pytest.raises(NotImplementedError):
        x.index_reduce(0, index, x[:2], reduce)


def test_a_reduction_that_index_reduce_has_not() -> None:
    with pytest.raises(ValueError, match="sum"):
        cd.ones(3).index_reduce(0, INDEX, cd.ones(2), "sum")
