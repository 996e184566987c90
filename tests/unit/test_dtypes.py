"""Element types and promotion, against PyTorch's own lattice."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.registry.model.dtypes import (
    ALL_DTYPES,
    STORAGE_DTYPES,
    DType,
    Promotion,
    bool_,
    can_cast,
    complex64,
    complex128,
    default_dtype,
    float16,
    float32,
    float64,
    int8,
    int64,
    promote_types,
    result_type,
    set_default_dtype,
    uint16,
    uint32,
    uint64,
)
from coredispatch.registry.model.errors import DTypeError

# PyTorch refuses to promote these with other integers; ours join, see the module.
EXTENDED = {uint16, uint32, uint64}


class Operand:
    """What promotion looks at in a tensor."""

    def __init__(self, dtype: DType, ndim: int) -> None:
        self.dtype, self.ndim = dtype, ndim

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{self.ndim}d]"


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_dtypes_are_singletons_under_copying(dtype):
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.copy(dtype) is dtype
    assert copy.deepcopy([dtype])[0] is dtype
    assert repr(dtype) == f"cd.{dtype.name}"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        (np.dtype("f4"), "float32"),
        (np.dtype(">f8"), "float64"),
        (np.float16, "float16"),
        (np.longlong, "int64"),
        (np.bool_, "bool"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
        ("half", "float16"),
        ("torch.long", "int64"),
        ("complex64", "complex64"),
    ],
)
def test_of_accepts_every_spelling(spelling, name):
    assert DType.of(spelling).name == name
    assert DType.of(spelling) is DType.of(name)


@pytest.mark.parametrize("wrong", ["float128", object, None, "tensor", 3])
def test_of_refuses_what_is_no_dtype(wrong):
    with pytest.raises(DTypeError, match="not a dtype"):
        DType.of(wrong)


def test_components():
    assert complex64.to_real() is float32
    assert complex128.to_real() is float64
    assert float64.to_complex() is complex128
    assert float16.to_complex() is complex64
    assert int8.to_real() is int8


@pytest.mark.parametrize("a", ALL_DTYPES)
@pytest.mark.parametrize("b", ALL_DTYPES)
def test_promote_types_is_commutative_and_holds_both(a, b):
    if {a, b} & {uint64} and any(d.kind == "i" for d in (a, b)):
        with pytest.raises(DTypeError, match="no integer type holds both"):
            promote_types(a, b)
        return
    joined = promote_types(a, b)
    assert joined is promote_types(b, a)
    assert joined.category == max(a.category, b.category)
    if joined.category == 1:
        for d in (a, b):
            assert np.can_cast(np.dtype(d.name), np.dtype(joined.name), "safe")


@pytest.mark.parametrize("a", ALL_DTYPES)
@pytest.mark.parametrize("b", ALL_DTYPES)
def test_lattice_is_pytorchs(a, b):
    torch = pytest.importorskip("torch")
    mine, theirs = (a, b), (getattr(torch, a.name), getattr(torch, b.name))
    assert can_cast(*mine) == torch.can_cast(*theirs)
    try:
        expected = str(torch.promote_types(*theirs))
    except RuntimeError:
        assert EXTENDED & {a, b}
        return
    assert str(promote_types(*mine)) == expected.replace("torch", "cd")


def _arguments():
    plain = [d for d in ALL_DTYPES if d not in EXTENDED and d is not float16]
    tensors = st.builds(Operand, st.sampled_from(plain), st.integers(0, 2))
    return st.one_of(tensors, st.sampled_from([True, 3, 2.5, 1j]))


@given(_arguments(), _arguments())
def test_result_type_is_pytorchs(a, b):
    torch = pytest.importorskip("torch")

    def theirs(x):
        if isinstance(x, Operand):
            return torch.ones((2,) * x.ndim, dtype=getattr(torch, x.dtype.name))
        return x

    expected = str(torch.result_type(theirs(a), theirs(b)))
    assert str(result_type(a, b)) == expected.replace("torch", "cd")


def test_three_priority_levels():
    dimensioned, zero_dim = Operand(int8, 1), Operand(int64, 0)
    assert result_type(dimensioned, zero_dim, 7) is int8
    assert result_type(dimensioned, Operand(float64, 0)) is float64
    assert result_type(Operand(float32, 1), Operand(float64, 0)) is float32
    assert result_type(Operand(float16, 2), 2.5) is float16
    assert result_type(dimensioned, 2.5) is float32
    assert result_type([Operand(int8, 1), Operand(float16, 1)], None, "x") is float16


def test_result_type_of_nothing():
    with pytest.raises(DTypeError, match="no tensor or number"):
        result_type(None, "sum")


def test_default_dtype_decides_for_python_floats():
    assert default_dtype() is float32
    set_default_dtype(float64)
    try:
        assert result_type(Operand(int8, 1), 2.5) is float64
        assert result_type(Operand(int8, 1), 1j) is complex128
        assert Promotion("p", to_float=True).compute(Operand(bool_, 1)) is float64
    finally:
        set_default_dtype("float32")
    with pytest.raises(DTypeError, match="must be floating"):
        set_default_dtype(int64)


def test_promotion_objects():
    promote, to_float = Promotion("promote"), Promotion("promote_float", to_float=True)
    compare = Promotion("boolean", result=bool_)
    a, b = Operand(int8, 1), Operand(int64, 1)
    assert promote(a, b) is int64
    assert to_float(a, b) is float32
    assert compare.compute(a, b) is int64
    assert compare(a, b) is bool_


def test_the_numpy_dtype_of_every_dtype():
    from coredispatch.backends.dtypes import BFLOAT16, numpy_dtype

    for dtype in ALL_DTYPES:
        native = numpy_dtype(dtype)
        assert DType.of(native) is dtype
        assert native.itemsize == dtype.itemsize
    assert numpy_dtype(DType.of("bfloat16")) is BFLOAT16


def test_every_pair_of_categories_has_a_result():
    for a, b in itertools.product(ALL_DTYPES, ALL_DTYPES):
        if a.category != b.category:
            assert result_type(Operand(a, 1), Operand(b, 1)).category == max(a.category, b.category)


_COMPLEX = [[2 + 1j, 0.5], [0.25j, 1 - 2j]]


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("nn.functional.tanhshrink", ([0.3 - 0.7j, 1 + 2j],)),
        ("nn.functional.pairwise_distance", ([[1, 2], [3, 4]], [[4, 4], [1, 0]])),
        ("nn.functional.pairwise_distance", ([[1j, 2], [3, 4]], [[4, 4], [1, 0j]])),
        ("logdet", (_COMPLEX,)),
        ("cov", ([[1, 2, 4], [3, 1, 5]],)),
        ("corrcoef", ([[1, 2, 4], [3, 1, 5]],)),
        ("heaviside", ([-1, 0, 2], [5, 6, 7])),
        ("heaviside", ([False, True], [True, False])),
    ],
)
def test_results_and_dtypes_of_unusual_inputs_as_in_torch(call: str, arguments: Any) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (cd, torch):
        function = lib
        for name in call.split("."):
            function = getattr(function, name)
        found.append(function(*(lib.tensor(a) for a in arguments)))
    assert found[0].dtype.name == str(found[1].dtype).removeprefix("torch.")
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=2e-5, atol=1e-6)


def test_small_integers_stay_small_in_a_sum_of_products() -> None:
    x = cd.ones(2, 2, 2, dtype=cd.uint8)
    assert cd.addbmm(x[0], x, x).dtype is cd.uint8
    weights = cd.tensor([0.5, 0.5], dtype=cd.float16)
    assert cd.bincount(cd.tensor([0, 1]), weights).dtype is cd.float64


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfc", "erfinv", "i0"])
def test_no_imaginary_part_is_dropped_silently(name: str) -> None:
    with pytest.raises((cd.DTypeError, NotImplementedError, TypeError)) as caught:
        getattr(cd, name)(cd.tensor([1 + 1j]))
    assert name in str(caught.value)


@pytest.mark.parametrize("dtype", STORAGE_DTYPES)
def test_types_for_storage_are_no_part_of_promotion(dtype: Any) -> None:
    assert getattr(cd, dtype.name) is dtype and DType.of(f"torch.{dtype.name}") is dtype
    assert dtype.itemsize == 1 and dtype.is_floating_point
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    if hasattr(ml_dtypes, dtype.name):
        array = np.ones(2, getattr(ml_dtypes, dtype.name))
        assert cd.finfo(dtype).bits == 8 and cd.finfo(dtype).resolution == 1
        for make in (cd.tensor, cd.from_numpy, cd.as_tensor):
            assert make(array).dtype is dtype
    for call in (
        lambda: cd.promote_types(dtype, float32),
        lambda: cd.set_default_dtype(dtype),
    ):
        with pytest.raises(TypeError, match=dtype.name):
            call()
    assert cd.promote_types(dtype, dtype) is dtype


@given(
    st.sampled_from(["int32", "int64", "uint32", "uint64"]).flatmap(
        lambda name: st.tuples(st.just(name), st.integers(np.iinfo(name).min, np.iinfo(name).max))
    ),
    st.integers(8, 60),
    st.integers(-1, 1),
)
def test_wide_integers_become_bfloat16_in_one_rounding(
    drawn: tuple[str, int], power: int, step: int
) -> None:
    name, value = drawn
    middle = 2**power + 2 ** (power - 8) + step  # next to the middle of two numbers
    values = [value, middle if middle <= np.iinfo(name).max else 0]
    x = cd.from_numpy(np.array(values, name))
    wanted = []
    for number in values:
        drop = max(0, abs(number).bit_length() - 8)
        kept, lost = divmod(abs(number), 1 << drop)
        kept += 2 * lost > 1 << drop or (2 * lost == 1 << drop and kept % 2 == 1)
        wanted.append(float((kept << drop) * (-1 if number < 0 else 1)))
    assert x.to(cd.bfloat16).tolist() == wanted
    assert cd.zeros(2, dtype=cd.bfloat16).copy_(x).tolist() == wanted
