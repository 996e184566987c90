"""Random programs of views and in-place writes, with NumPy as the judge.

NumPy's views alias as ours are meant to. Beside the array of every tensor stands one of
derivatives, to which the same views and writes are applied (forward mode): what autograd says of
the whole program must agree with it. ``detach`` shares the values and starts with derivatives of
its own; under ``no_grad`` only values are written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd


@dataclass
class Pair:
    """A tensor, and what it has to be."""

    tensor: Any
    value: Any
    tangent: Any
    multi_output: bool = False  # one of the views that split, chunk and unbind return: not writable

    def view(self, function: Callable[[Any], Any], multi_output: bool = False) -> Pair:
        """The same view of all three."""
        return Pair(
            function(self.tensor),
            function(self.value),
            function(self.tangent),
            multi_output or self.multi_output,
        )


# -- views: the same expression for tensors and arrays ---------------------------------------------


def _reversed_dims(x: Any) -> Any:
    order = tuple(reversed(range(x.ndim)))
    return x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)


def _flat(x: Any) -> Any:
    """Row-major memory as one dimension."""
    if isinstance(x, np.ndarray):
        return x.reshape(-1) if x.flags.c_contiguous else x[...]
    return x.view(-1) if x.is_contiguous() else x[...]


def _part(split: str, which: int) -> Callable[[Any], Any]:
    def part(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            if split == "unbind":
                return x[which % len(x), ...]
            size = 1 if split == "split" else -(-len(x) // 2)
            count = -(-len(x) // size)
            start = which % count * size
            return x[start : start + size]
        pieces = {"unbind": x.unbind, "split": lambda: x.split(1), "chunk": lambda: x.chunk(2)}
        found = pieces[split]()
        return found[which % len(found)]

    return part


def views(pair: Pair, kind: int, number: int) -> Pair:
    """A view of ``pair``."""
    if not pair.value.ndim or not len(pair.value):
        return pair.view(lambda x: x[...])
    if pair.multi_output:  # views of views that cannot be written are covered by the rest
        return pair.view(lambda x: x[...])
    size = len(pair.value)
    plain: list[Callable[[Any], Any]] = [
        lambda x: x[number % size, ...],
        lambda x: x[1:],
        lambda x: x[..., ::2],
        lambda x: x[None],
        lambda x: x[...],
        _reversed_dims,
        _flat,
    ]
    if kind % 10 < len(plain):
        return pair.view(plain[kind % 10])
    return pair.view(_part(("unbind", "split", "chunk")[kind % 10 - len(plain)], number), True)


# -- results with memory of their own, and writes: value and tangent by their formulas -------------


def operand(pairs: list[Pair], target: Pair, number: int) -> Pair:
    """A pair that broadcasts to the target, and does not share its memory."""
    shape = target.value.shape
    fitting = [
        p
        for p in pairs
        if p.value.ndim <= len(shape)
        and all(n in (1, m) for n, m in zip(p.value.shape[::-1], shape[::-1], strict=False))
        and not np.may_share_memory(p.value, target.value)
    ]
    fitting.append(Pair(cd.tensor(0.75, dtype=cd.float64), np.array(0.75), np.array(0.0)))
    return fitting[number % len(fitting)]


def fresh(tensor: Any, value: Any, tangent: Any) -> Pair:
    """A pair with memory of its own; NumPy makes numbers of 0-dim arrays."""
    return Pair(tensor, np.asarray(value), np.asarray(tangent))


def computed(pairs: list[Pair], pair: Pair, kind: int, number: int) -> Pair:
    """A new tensor."""
    other = operand(pairs, pair, number)
    x, y = pair, other
    if kind % 4 == 0:
        return fresh(x.tensor * 2.0, x.value * 2, x.tangent * 2)
    if kind % 4 == 1:
        return fresh(
            x.tensor * y.tensor, x.value * y.value, x.tangent * y.value + x.value * y.tangent
        )
    if kind % 4 == 2:
        return fresh(x.tensor.sin(), np.sin(x.value), np.cos(x.value) * x.tangent)
    return fresh(x.tensor.clone(), x.value.copy(), x.tangent.copy())


def write(pairs: list[Pair], pair: Pair, kind: int, number: int, quiet: bool) -> None:
    """An in-place write; ``quiet`` writes values only (no_grad)."""
    t, x, dx = pair.tensor, pair.value, pair.tangent
    other = operand(pairs, pair, number)
    u, y, dy = other.tensor, other.value, other.tangent
    constant = 0.25 * (number % 5) - 0.5
    mask = np.asarray(np.arange(x.size).reshape(x.shape) % 3 == number % 3)
    chosen = cd.from_numpy(mask.copy())
    rows = slice(number % 2, None)
    part = x[rows if x.ndim else ...]
    smooth: list[tuple[Callable[[], Any], Callable[[], tuple[Any, Any]]]] = [
        (lambda: t.mul_(u), lambda: (x * y, dx * y + x * dy)),
        (lambda: t.add_(u), lambda: (x + y, dx + dy)),
        (lambda: t.sub_(u, alpha=0.5), lambda: (x - 0.5 * y, dx - 0.5 * dy)),
        (lambda: t.mul_(constant), lambda: (x * constant, dx * constant)),
        (lambda: t.copy_(u), lambda: (0 * x + y, 0 * x + dy)),
        (lambda: t.fill_(constant), lambda: (0 * x + constant, 0 * x)),
        (lambda: t.zero_(), lambda: (0 * x, 0 * x)),
        (lambda: t.sin_(), lambda: (np.sin(x), np.cos(x) * dx)),
        (lambda: t.sigmoid_(), lambda: (s := 1 / (1 + np.exp(-x)), s * (1 - s) * dx)),
        (lambda: t.square_(), lambda: (x * x, 2 * x * dx)),
        (lambda: t.mul_(t), lambda: (x * x, 2 * x * dx)),
        (lambda: t.addcmul_(u, u, value=0.5), lambda: (x + 0.5 * y * y, dx + y * dy)),
        (
            lambda: t.lerp_(u.expand(t.shape), 0.25),
            lambda: (0.75 * x + 0.25 * y, 0.75 * dx + 0.25 * dy),
        ),
        (
            lambda: t.clamp_min_(constant),
            lambda: (np.maximum(x, constant), np.where(x >= constant, dx, 0)),
        ),
        (
            lambda: t.masked_fill_(chosen, constant),
            lambda: (np.where(mask, constant, x), np.where(mask, 0, dx)),
        ),
        (
            lambda: t.deg2rad_(),
            lambda: (np.deg2rad(x), np.deg2rad(dx)),
        ),
    ]
    index = kind % (len(smooth) + 2)
    if index < len(smooth):
        run, formula = smooth[index]
        value, tangent = formula()
        run()
        pair.value[...] = value
        if not quiet:
            pair.tangent[...] = tangent
    elif index == len(smooth):
        t[rows if x.ndim else ...] = constant
        part[...] = constant
        if not quiet:
            dx[rows if x.ndim else ...] = 0
    else:
        source = operand(pairs, Pair(None, part, None), number)
        t[rows if x.ndim else ...] = source.tensor
        given, slope = source.value.copy(), source.tangent.copy()
        part[...] = given
        if not quiet:
            dx[rows if x.ndim else ...] = slope


STEP = st.tuples(*[st.integers(0, 999) for _ in range(4)])


@settings(max_examples=60)
@given(st.lists(STEP, min_size=1, max_size=14))
def test_a_program_of_views_and_writes_has_the_values_and_gradients_of_numpy(
    steps: list[tuple[int, int, int, int]],
) -> None:
    check(steps)


@pytest.mark.parametrize("seed", range(10))
def test_longer_programs(seed: int) -> None:
    """Hypothesis prefers small numbers, and so the same few views and writes."""
    rng = random.Random(seed)
    for _ in range(30):
        check(
            [
                (rng.randrange(99), rng.randrange(10), rng.randrange(990), rng.randrange(99))
                for _ in range(rng.randrange(4, 14))
            ]
        )


def check(steps: list[tuple[int, int, int, int]]) -> None:
    """Run the program, and compare values after each step and gradients at the end."""
    rng = np.random.default_rng(7)
    leaves, directions, pairs = [], [], []
    for shape in ((2, 3), (3,), (2, 2, 3)):
        leaf = cd.from_numpy(rng.uniform(-1, 1, shape)).requires_grad_()
        direction = rng.uniform(-1, 1, shape)
        leaves.append(leaf)
        directions.append(direction)
        pairs.append(Pair(leaf * 1.0, leaf.detach().numpy().copy(), direction.copy()))
    for shape in ((2, 3), (2, 3), ()):
        array = rng.uniform(-1, 1, shape)
        pairs.append(Pair(cd.from_numpy(array.copy()), array, np.zeros(shape)))
    for which, action, kind, number in steps:
        pair = pairs[which % len(pairs)]
        if action % 10 < 3:
            pairs.append(views(pair, kind, number))
        elif action % 10 == 3:
            pairs.append(Pair(pair.tensor.detach(), pair.value[...], np.zeros_like(pair.tangent)))
        elif action % 10 == 4:
            pairs.append(computed(pairs, pair, kind, number))
        elif not pair.multi_output or action % 10 == 9:
            quiet = action % 10 == 9
            with cd.no_grad() if quiet else nullcontext():
                write(pairs, pair, kind, number, quiet)
        for one in pairs:
            np.testing.assert_allclose(one.tensor.detach().numpy(), one.value, atol=1e-12)
            assert one.tensor.requires_grad or not np.any(one.tangent)
    weights = [rng.uniform(-1, 1, pair.value.shape) for pair in pairs]
    loss, expected = cd.zeros((), dtype=cd.float64), 0.0
    for pair, weight in zip(pairs, weights, strict=True):
        if pair.tensor.requires_grad:
            loss = loss + (pair.tensor * cd.from_numpy(np.asarray(weight))).sum()
            expected += float((pair.tangent * weight).sum())
    try:
        found = cd.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    except cd.AutogradError as error:
        assert "was modified by an in-place operation" in str(error)
        return
    slope = sum(
        float((gradient.numpy() * direction).sum())
        for gradient, direction in zip(found, directions, strict=True)
    )
    np.testing.assert_allclose(slope, expected, rtol=1e-8, atol=1e-8)
