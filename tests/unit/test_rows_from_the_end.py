"""What indices, sources and counts PyTorch takes and refuses: fills, masked writes and repeats."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")
LIBRARIES = (cd, torch)


@pytest.mark.parametrize("index", [[-1, 0], [-3, 2], [0, 0], []])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_fills_count_from_the_end(index: list[int], dtype: str) -> None:
    found = []
    for library in LIBRARIES:
        x = library.arange(12).reshape(3, 4).to(getattr(library, dtype))
        at = library.tensor(index, dtype=library.int64)
        written = x.clone()
        written.index_fill_(0, at, 1)
        filled = library.index_fill(x, 0, at, 1)
        found.append([t.tolist() for t in (filled, written, x.T.index_fill(1, at, 1))])
    assert found[0] == found[1]


def test_the_gradient_of_a_fill_from_the_end() -> None:
    for library in LIBRARIES:
        x = library.ones(3, requires_grad=True)
        out = library.index_fill(x, 0, library.tensor([-1, 2]), 2.0)
        assert library.autograd.grad(out.sum(), x)[0].tolist() == [1.0, 1.0, 0.0]
    # PyTorch selects by the index for the gradient of the value, and refuses it there.
    value = cd.tensor(2.0, requires_grad=True)
    cd.index_fill(cd.ones(3), 0, cd.tensor([-1, 2]), value).sum().backward()
    assert value.grad.item() == 1.0


@pytest.mark.parametrize("index", [3, -4])
def test_fills_out_of_range_write_nothing(index: int) -> None:
    for library in LIBRARIES:
        x = library.zeros(3, 4)
        with pytest.raises(IndexError, match=f"index {index} is out of bounds"):
            x.index_fill_(0, library.tensor([0, index]), 1.0)
    assert not cd.zeros(3, 4).index_fill(0, cd.tensor([0]), 0.0).any()


@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_select", "gather", "scatter"])
def test_its_siblings_count_from_the_front_alone(name: str) -> None:
    for library in LIBRARIES:
        x, index = library.zeros(3, 4), library.tensor([-1])
        more: Any = {
            "index_select": (),
            "gather": (),
            "scatter": (1.0,),
        }.get(name, (library.ones(1, 4),))
        at = index.reshape(1, 1) if name in ("gather", "scatter") else index
        with pytest.raises((IndexError, RuntimeError), match=r"-1 is out of bounds|out of range"):
            getattr(library, name)(x, 0, at, *more)


@pytest.mark.parametrize("dtype", ["float64", "int64", "float16", "bool", "complex64"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_masked_scatter_takes_one_dtype(dtype: str, device: str) -> None:
    for library in LIBRARIES:
        x = library.zeros(3, device=device)
        mask = library.ones(3, dtype=library.bool, device=device)
        source = library.ones(3, dtype=getattr(library, dtype), device=device)
        for name in ("masked_scatter", "masked_scatter_"):
            with pytest.raises((RuntimeError, TypeError), match="dtype"):
                getattr(x, name)(mask, source)
    with pytest.raises(TypeError, match=r"use source.to\(cd.float32\)"):
        cd.zeros(3).masked_scatter(cd.ones(3, dtype=cd.bool), cd.ones(3, dtype=cd.float64))


def test_sizes_of_repeats_without_data() -> None:
    for library in LIBRARIES:
        x = library.ones(3, 2, device="meta")
        three, one = (library.ones(n, dtype=library.int64, device="meta") for n in (3, 1))
        assert tuple(library.repeat_interleave(x, three, 0, output_size=7).shape) == (7, 2)
        assert tuple(library.repeat_interleave(x, one, 1, output_size=4).shape) == (3, 4)
        assert tuple(library.repeat_interleave(three, output_size=5).shape) == (5,)
        assert tuple(x.repeat_interleave(one[0], 1, output_size=6).shape) == (3, 6)
    counts = cd.tensor([0, 2, 1])
    assert cd.repeat_interleave(counts, output_size=3).tolist() == [1, 1, 2]
    assert cd.repeat_interleave(counts.int(), output_size=3).dtype is cd.int32
    with pytest.raises(RuntimeError, match="output_size=4"):
        cd.repeat_interleave(counts, output_size=4)
