"""Printed tensors beside PyTorch's, to the letter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.registry.model.spelling import SPELLING

torch = pytest.importorskip("torch")

FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64")

KINDS = {
    "normal": lambda r, s: r.normal(size=s),
    "whole": lambda r, s: np.round(r.normal(size=s) * 10),
    "mixed magnitudes": lambda r, s: r.normal(size=s) * 10.0 ** r.integers(-8, 9, size=s),
    "zeros": lambda r, s: np.zeros(s),
    "special": lambda r, s: r.choice([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 0.5], size=s),
    "not finite": lambda r, s: r.choice([np.inf, -np.inf, np.nan], size=s),
    "small": lambda r, s: r.normal(size=s) * 1e-5,
    "large": lambda r, s: r.normal(size=s) * 1e9,
    "borders": lambda r, s: r.choice([1e-4, 1000.0, 0.1, 1e8, 99999999.0, 1e5], size=s),
}

OPTIONS = st.one_of(
    st.just({}),
    st.builds(dict, precision=st.integers(0, 8)),
    st.builds(dict, threshold=st.integers(0, 50)),
    st.builds(dict, threshold=st.just(5), edgeitems=st.integers(0, 4)),
    st.builds(dict, linewidth=st.integers(5, 150)),
    st.builds(dict, profile=st.sampled_from(["default", "short", "full"])),
    st.builds(dict, sci_mode=st.booleans()),
)
SHAPES = st.one_of(
    st.lists(st.integers(0, 4), max_size=5).map(tuple),
    st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
    st.integers(990, 1100).map(lambda n: (n,)),
    st.just((3, 20, 30)),
)


@pytest.fixture(autouse=True, scope="module")
def one_name() -> Iterator[None]:
    """The texts of ``import torch``: names of dtypes have PyTorch's length, which breaks lines."""
    before, SPELLING.package = SPELLING.package, "torch"
    yield
    SPELLING.package = before
    cd.set_printoptions(profile="default")
    torch.set_printoptions(profile="default")


def both(dtype: str, kind: str, shape: tuple[int, ...], seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        array = rng.random(shape) < 0.5
    elif dtype in INTEGERS:
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if kind == "large" else (0, 100)
        array = rng.integers(low, high, size=shape, dtype=dtype, endpoint=True)
    else:
        array = np.asarray(KINDS[kind](rng, shape), float)
        if dtype.startswith("complex"):
            parts = np.stack([array, np.asarray(KINDS[kind](rng, shape), float)], -1)
            array = parts.view(np.complex128)[..., 0]
        theirs = torch.tensor(array).to(getattr(torch, dtype))
        wide = theirs.double() if dtype == "bfloat16" else theirs
        return cd.tensor(wide.numpy()).to(getattr(cd, dtype)), theirs
    array = np.asarray(array)
    return cd.tensor(array), torch.tensor(array)


def shown(tensor: Any) -> str:
    """The text, or the error: PyTorch cannot print everything with ``edgeitems=0``."""
    try:
        return repr(tensor)
    except Exception as error:
        return type(error).__name__


@settings(max_examples=300)
@given(
    st.sampled_from([*FLOATS, *INTEGERS, "bool"]),
    st.sampled_from(sorted(KINDS)),
    SHAPES,
    OPTIONS,
    st.integers(0, 2**32 - 1),
    st.sampled_from(["", "leaf", "result"]),
)
def test_tensors_look_alike(
    dtype: str, kind: str, shape: Any, options: dict[str, Any], seed: int, history: str
) -> None:
    ours, theirs = both(dtype, kind, shape, seed)
    if history and dtype in FLOATS:
        ours.requires_grad_()
        theirs.requires_grad_()
        if history == "result":
            ours, theirs = ours * 1, theirs * 1
    for package in (cd, torch):
        package.set_printoptions(profile="default")
        package.set_printoptions(**options)
    assert shown(ours) == shown(theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.nn.Parameter(t.ones(2, 2)),
        lambda t: t.empty(2, 3, device="meta"),
        lambda t: t.empty(2, 3, device="meta", dtype=t.float16, requires_grad=True),
        lambda t: t.zeros(0),
        lambda t: t.zeros(0, 3),
        lambda t: t.zeros(0, dtype=t.int64),
        lambda t: t.ones(3).t(),
        lambda t: t.arange(6).reshape(2, 3).T,
        lambda t: t.ones(2, 3).expand(4, 2, 3),
        lambda t: t.ones(3, requires_grad=True).sum(),
        lambda t: t.tensor([1 + 2j]).conj(),
        lambda t: t.tensor(3),
        lambda t: t.tensor(True),
        lambda t: [t.tensor(1.0), t.ones(2)],
        lambda t: f"{t.tensor(1.5):.3f} {t.tensor(2)} {t.ones(2)}",
        lambda t: t.ones(2).size(),
        lambda t: t.float32,
        lambda t: t.device("cpu"),
        lambda t: t.device("cuda:1"),
        lambda t: t.finfo(t.float32),
        lambda t: t.iinfo(t.int8),
        lambda t: t.max(t.ones(2, 2), 0),
    ],
)
def test_other_things_look_alike(make: Any) -> None:
    for package in (cd, torch):
        package.set_printoptions(profile="default")
    assert repr(make(cd)) == repr(make(torch))


def test_the_default_dtype_is_left_out() -> None:
    texts = []
    for package in (cd, torch):
        package.set_default_dtype(package.float64)
        try:
            tensors = [package.tensor([1.5], dtype=d) for d in (package.float32, package.float64)]
            texts.append([*map(repr, tensors), repr(package.tensor([1j]))])
        finally:
            package.set_default_dtype(package.float32)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("options", [{"profile": "short"}, {"precision": 2, "sci_mode": True}])
def test_options_are_kept_alike(options: dict[str, Any]) -> None:
    for package in (cd, torch):
        package.set_printoptions(profile="default")
        package.set_printoptions(**options)
    assert cd.get_printoptions() == torch._tensor_str.get_printoptions()
