"""Views of views of views, some of them written: gradients as of calls that write nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.registry.around.observe import observe


def _viewed(y: Any, kind: int) -> Any:
    """A view of ``y``: one of six, where it has that."""
    if kind == 0:
        return y.transpose(0, -1)
    if kind == 1:
        return y.unsqueeze(0) if y.ndim < 4 else y.squeeze(0)
    if kind == 2 and y.is_contiguous():
        return y.view(-1) if y.ndim > 1 else y.view(2, -1) if y.numel() % 2 == 0 else y
    if kind == 3 and y.shape[0] > 2:
        return y[1:]
    if kind == 4:
        return y.permute(*range(y.ndim)[::-1])
    return y.narrow(-1, 0, y.shape[-1])


def _written(x: Any, seed: int, in_place: bool) -> Any:
    """A program of views and writes; or one of the same value, of selections and sums alone."""
    drawn = random.Random(seed)
    base = x * 1.5
    places = cd.arange(base.numel()).view(base.shape)  # where the view's elements lie in the base
    y, flat = base, base.reshape(-1)
    for step in range(drawn.randrange(12, 40)):
        kind, factor = drawn.randrange(6), drawn.choice([1.0, 1.0 + step / 100])
        shape, places = places.shape, _viewed(places, kind)
        if in_place:
            assert y.shape == shape
            y = _viewed(y, kind)
            y.mul_(factor)
            if step % 7 == 3:
                y.mul_(x.sum() * 0.1)
        else:
            scale = cd.ones(flat.numel(), dtype=x.dtype)
            scale[places.reshape(-1)] = factor
            flat = flat * scale
            if step % 7 == 3:
                chosen = cd.zeros(flat.numel(), dtype=cd.bool)
                chosen[places.reshape(-1)] = True
                flat = cd.where(chosen, flat * (x.sum() * 0.1), flat)
    if not in_place:
        base, y = flat.view(base.shape), flat[places.reshape(-1)].view(places.shape)
    weights = cd.arange(y.numel(), dtype=x.dtype).view(y.shape)
    return (base * base).sum() + (y.sin() * weights).sum()


@pytest.mark.parametrize("seed", range(24))
def test_first_and_second_derivatives(seed: int) -> None:
    found = []
    for in_place in (True, False):
        x = cd.from_numpy(np.random.default_rng(seed).normal(size=(4, 6))).requires_grad_()
        value = _written(x, seed, in_place)
        (first,) = cd.autograd.grad(value, x, create_graph=True)
        (second,) = cd.autograd.grad((first * first).sum(), x)
        found.append([part.detach().numpy() for part in (value, first, second)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


def _calls(length: int) -> int:
    """How many kernels run in a chain of views, each of them written, and its backward."""
    x = cd.ones(4, requires_grad=True)
    y = x * 1
    with observe() as log:
        for _ in range(length):
            y = y.view(2, 2)
            y.mul_(1.0)
        y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0] * 4
    return len(log)


def test_chains_cost_linearly() -> None:
    assert _calls(200) < 2.5 * _calls(100)


def test_a_strided_view_knows_where_it_lies() -> None:
    base = cd.arange(8.0)
    view = base[2:].as_strided((3,), (2,), 1)
    assert view.storage_offset() == 1 and view.tolist() == [1.0, 3.0, 5.0]
    assert view.as_strided((2,), (1,), 0).tolist() == [0.0, 1.0]
    assert view.as_strided((2,), (1,)).tolist() == [1.0, 2.0]
    windows = base[1:].unfold(0, 3, 2)
    assert windows.storage_offset() == 1 and windows[1].storage_offset() == 3
    assert base[2:].as_strided((2, 2), (1, 1)).untyped_storage().data_ptr() == base.data_ptr()
    assert base.bfloat16()[1:].as_strided((2,), (1,), 5).tolist() == [5.0, 6.0]
    for size in ((0, 2), (3, 0)):
        assert base.as_strided(size, (1, 1), 7).shape == size
    with pytest.raises(cd.ArgumentError, match="needs 9 elements, the storage has 8"):
        base.as_strided((2,), (1,), 7)


def test_a_strided_view_that_is_written_saves_no_elements() -> None:
    x = cd.ones(4, dtype=cd.float64, requires_grad=True)
    base = x * 2
    view = base.as_strided((2,), (2,), 1)
    view.mul_(x[0])
    base.mul_(3)
    (first,) = cd.autograd.grad((base * base).sum(), x, create_graph=True)
    assert first.tolist() == [216.0, 72.0, 72.0, 72.0]
    (second,) = cd.autograd.grad(first.sum(), x)
    assert second.shape == (4,)
