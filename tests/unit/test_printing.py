"""``repr(tensor)``: PyTorch's layout, compared with PyTorch itself where it is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.frontend import printing
from coredispatch.plugin import Layout, from_raw, hookimpl


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    cd.set_printoptions(profile="default")


EXPECTED = [
    (lambda: cd.tensor([1, -20, 3]), "tensor([  1, -20,   3])"),
    (lambda: cd.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
    (lambda: cd.tensor([1.0, 2.0, -3.0]), "tensor([ 1.,  2., -3.])"),
    (lambda: cd.tensor([True, False]), "tensor([ True, False])"),
    (lambda: cd.tensor(3.25), "tensor(3.2500)"),
    (lambda: cd.tensor([1e-8, 1.0]), "tensor([1.0000e-08, 1.0000e+00])"),
    (lambda: cd.tensor([float("nan"), float("inf"), 1.5]), "tensor([   nan,    inf, 1.5000])"),
    (lambda: cd.tensor([1 + 2j, -0.5j]), "tensor([1.+2.0000j, -0.-0.5000j])"),
    (lambda: cd.tensor([1, 2], dtype=cd.int32), "tensor([1, 2], dtype=cd.int32)"),
    (lambda: cd.tensor([1.0], dtype=cd.float64), "tensor([1.], dtype=cd.float64)"),
    (lambda: cd.tensor([1.0], dtype=cd.bfloat16), "tensor([1.], dtype=cd.bfloat16)"),
    (lambda: cd.tensor([]), "tensor([])"),
    (lambda: cd.zeros(2, 0), "tensor([], size=(2, 0))"),
    (lambda: cd.tensor([], dtype=cd.int64), "tensor([], dtype=cd.int64)"),
    (lambda: cd.ones(2, 2), "tensor([[1., 1.],\n        [1., 1.]])"),
    (lambda: cd.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
    (
        lambda: cd.tensor([1.0], requires_grad=True) + 1,
        "tensor([2.], grad_fn=<AddBackward0>)",
    ),
    (lambda: cd.empty(2, 3, device="meta"), "tensor(..., device='meta', size=(2, 3))"),
]


@pytest.mark.parametrize(("make", "text"), EXPECTED, ids=[text for _, text in EXPECTED])
def test_repr(make: Any, text: str) -> None:
    assert repr(make()) == text


def test_a_large_tensor_is_summarised() -> None:
    assert repr(cd.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    rows = repr(cd.zeros(40, 40)).splitlines()
    assert len(rows) == 7
    assert rows[3].strip() == "...,"


def test_a_suffix_that_does_not_fit_goes_on_a_line_of_its_own() -> None:
    x = cd.arange(24, dtype=cd.float64) + 0.5
    assert repr(x).endswith("\n       dtype=cd.float64)")


def test_options_are_set_and_restored() -> None:
    x = cd.tensor([1.23456, 2.0])
    with cd.printoptions(precision=2):
        assert repr(x) == "tensor([1.23, 2.00])"
        assert printing.get_printoptions()["precision"] == 2
    assert repr(x) == "tensor([1.2346, 2.0000])"
    cd.set_printoptions(sci_mode=True)
    assert repr(x) == "tensor([1.2346e+00, 2.0000e+00])"
    with pytest.raises(ValueError, match="profile should be one of default, short, full"):
        cd.set_printoptions(profile="long")


def test_printing_leaves_no_trace() -> None:
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    before = x._version
    repr(x), str(x), f"{x}"
    assert x._version == before
    assert x.grad_fn is None
    assert f"{cd.tensor(2.5):.3f}" == "2.500"


OPTIONS: list[dict[str, Any]] = [
    {},
    {"precision": 2},
    {"profile": "short"},
    {"profile": "full"},
    {"threshold": 10, "edgeitems": 1},
    {"threshold": 5, "edgeitems": 0},
    {"sci_mode": True},
    {"sci_mode": False},
    {"linewidth": 40},
]
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split() + [
    "complex128"
]


def values(rng: np.random.Generator, dtype: str) -> np.ndarray:
    """An array of a random shape whose values provoke one of the notations."""
    shape = tuple(rng.integers(0, 6, rng.integers(0, 5)))
    if rng.random() < 0.1:
        shape = (1005,)
    elif rng.random() < 0.1:
        shape = (40, 41)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if "int" in dtype:
        return rng.integers(0 if dtype[0] == "u" else -100, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    palette = rng.integers(0, 6)
    if palette == 1:
        x = np.round(x * 10)
    elif palette == 2:
        x = x * 10.0 ** rng.integers(-6, 6, shape)
    elif palette == 3:
        x = x * 1e-6
    elif palette == 4:
        special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
        x = np.where(rng.random(shape) < 0.3, special, x)
    elif palette == 5:
        x = np.round(x) * 1e9
    if "complex" in dtype:
        pair = np.stack([np.asarray(x), np.flip(np.asarray(x))], axis=-1)
        return pair.astype("float32" if dtype == "complex64" else "float64").view(dtype)[..., 0]
    with np.errstate(over="ignore"):
        return np.asarray(x).astype("float32" if dtype == "bfloat16" else dtype)


def one_line_end(text: str) -> str:
    """Without the line breaks before suffixes: "torch." is longer than "cd."."""
    return re.sub(r",\s+(size|dtype)=", r", \1=", text)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_text_as_pytorch(dtype: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(len(dtype) + 7)
    torch.set_printoptions(profile="default")
    try:
        torch.set_printoptions(**options)
        cd.set_printoptions(**options)
        for _ in range(30):
            array = values(rng, dtype)
            theirs = torch.from_numpy(np.array(array)).to(getattr(torch, dtype))
            ours = cd.from_numpy(np.array(array)).to(getattr(cd, dtype))
            assert one_line_end(repr(ours)) == one_line_end(repr(theirs).replace("torch.", "cd."))
    finally:
        torch.set_printoptions(profile="default")


class Pair:
    """The raw data of a layout that says what it is made of, and not how it is printed."""

    ndim = 2

    def __init__(self, values: Any, note: str = "kept") -> None:
        self.values, self.note, self.dtype = values, note, values.dtype
        self.shape = (len(values), len(values))


def test_a_layout_without_a_text_of_its_own_shows_its_parts() -> None:
    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            layout = Layout(
                "paired",
                data_type=Pair,
                pack=lambda raw: {"values": raw.values, "note": raw.note},
                unpack=lambda parts: Pair(parts["values"], parts["note"]),
            )
            registrar.layout(layout)

    cd.plugins.load("paired", Plugin())
    try:
        made = from_raw(Pair(np.array([1.0, 2.5])), backend="cpu", layout="paired")
        assert repr(made) == (
            "tensor(values=tensor([1.0000, 2.5000]),\n"
            "       note=kept, size=(2, 2),\n"
            "       layout=paired, dtype=cd.float64)"
        )
        empty = from_raw(Pair(np.zeros(0, np.float32)), backend="cpu", layout="paired")
        assert "values=tensor([], size=(0,))" in repr(empty)
    finally:
        cd.plugins.unload("paired")
