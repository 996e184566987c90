"""Generated mutants of random numbers: what is drawn again, left out, alike or not drawn at all.

Each effect works on the numbers that a correct kernel drew, in the order of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.registry.model.generator import Generator, default_generator

from ..subject import Subject
from .mutants import Mutant, Mutation, drawn
from .size_faults import outputs_of

__all__ = ["OPERATORS", "generate_streams"]

PER_OP = 4
#: operators whose numbers go wrong unless others are asked for
OPERATORS = (
    "random_uniform", "random_normal", "random_integers", "randperm", "exponential", "binomial",
    "poisson", "_standard_gamma", "native_dropout", "bernoulli", "multinomial", "rand_like",
    "randn_like", "randint_like", "normal", "dropout", "rrelu", "gumbel_softmax",
)  # fmt: skip
#: operators that draw from a continuous distribution, and those that choose what to keep
CONTINUOUS = (
    "random_uniform", "random_normal", "exponential", "_standard_gamma", "rand_like", "randn_like",
    "normal", "gumbel_softmax",
)  # fmt: skip
SWITCHES = ("native_dropout", "dropout", "rrelu")
Change = Callable[[Any], Any]


def _period(length: int) -> Change:
    """The numbers start over after so many."""

    def change(flat: Any) -> Any:
        return np.resize(flat[:length], flat.size) if flat.size > length else flat

    return change


def _pairs(flat: Any) -> Any:
    """Every second number is the one before."""
    again = flat.copy()
    again[1::2] = flat[: flat.size - 1 : 2][: again[1::2].size]
    return again


def _no_tail(flat: Any) -> Any:
    """What is left of the last vector of eight is the first number."""
    again = flat.copy()
    if flat.size > 8 and flat.size % 8:
        again[-(flat.size % 8) :] = flat[0]
    return again


def _no_top(flat: Any) -> Any:
    """The largest numbers are drawn as the next smaller ones."""
    values = np.unique(flat)
    return np.where(flat == values[-1], values[-2], flat) if values.size > 2 else flat


def _no_bottom(flat: Any) -> Any:
    """The smallest numbers are drawn as the next larger ones."""
    values = np.unique(flat)
    return np.where(flat == values[0], values[1], flat) if values.size > 2 else flat


def _clipped(flat: Any) -> Any:
    """The hundredth that is largest is the number below it."""
    if flat.size < 200:
        return flat
    return np.minimum(flat, np.sort(flat)[-flat.size // 100])


def _scaled(flat: Any) -> Any:
    """Four percent too wide."""
    return flat * flat.dtype.type(1.04)


def _moved(flat: Any) -> Any:
    """A thirtieth too large."""
    return flat + flat.dtype.type(1 / 30)


def _coarse(flat: Any) -> Any:
    """Two hundred different numbers for each whole one."""
    return (np.round(flat.astype(np.float64) * 200) / 200).astype(flat.dtype)


def _sorted_blocks(flat: Any) -> Any:
    """Each four are in order."""
    again = flat.copy()
    whole = flat.size // 4 * 4
    again[:whole] = np.sort(flat[:whole].reshape(-1, 4), 1).reshape(-1)
    return again


#: of any numbers; a permutation stays one only where the name says so
ANY: dict[str, Change] = {
    "the numbers start over after 64": _period(64),
    "the numbers start over after 512": _period(512),
    "the numbers start over after 30000": _period(30000),
    "every second number is the one before": _pairs,
    "the tail is not drawn": _no_tail,
    "each four are in order": _sorted_blocks,
}
OF_INTEGERS: dict[str, Change] = {
    "the largest number is not drawn": _no_top,
    "the smallest number is not drawn": _no_bottom,
}
OF_REALS: dict[str, Change] = {
    "the largest hundredth is cut": _clipped,
    "four percent too wide": _scaled,
    "a thirtieth too large": _moved,
    "steps of a two-hundredth": _coarse,
}


def _rows(first: Any) -> Any:
    """Every row of a matrix is the first."""
    return np.broadcast_to(first[:1], first.shape).copy() if first.ndim > 1 else first


def _columns(first: Any) -> Any:
    """Every column of a matrix is the first."""
    return np.broadcast_to(first[..., :1], first.shape).copy() if first.ndim > 1 else first


def _effect(change: Callable[[Any], Any], flat: bool) -> Mutation:
    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        parts = outputs_of(result)
        if parts[0].size < 2:
            return result
        first = parts[0]
        wrong = change(first.reshape(-1)).reshape(first.shape) if flat else change(first)
        return wrong if not isinstance(result, (list, tuple)) else (wrong, *parts[1:])

    return mutation


def _masked(change: Callable[[Any], Any], flat: bool) -> Mutation:
    """The same of an operator that keeps some of its elements: of what it keeps."""

    def mutation(correct: Any, raws: Any) -> Any:
        x = raws[0]
        ones = np.ones_like(x)
        result = correct(ones, *raws[1:])
        parts = outputs_of(result)
        if parts[0].size < 2 or parts[0].shape != x.shape:
            return correct(*raws)
        factors = parts[0]
        factors = change(factors.reshape(-1)).reshape(x.shape) if flat else change(factors)
        found = (x * factors).astype(x.dtype)
        if not isinstance(result, (list, tuple)):
            return found
        return (found, (factors != 0).astype(parts[1].dtype), *parts[2:])

    return mutation


def _generator(raws: Any) -> Any:
    own = [r for r in raws if isinstance(r, Generator)]
    return own[0] if own else default_generator()


def _standing(every: int) -> Mutation:
    """At every second (third, ...) call the stream stays where it was."""
    calls = [0]

    def mutation(correct: Any, raws: Any) -> Any:
        generator = _generator(raws)
        before = generator.state_bytes()
        result = correct(*raws)
        calls[0] += 1
        if calls[0] % every == 0:
            generator.load_state_bytes(before)
        return result

    return mutation


def _same_for_a_seed(correct: Any, raws: Any) -> Any:
    """Every call draws the first numbers of its seed."""
    generator = _generator(raws)
    generator.manual_seed(generator.initial_seed())
    return correct(*raws)


class _PartlyBefore:
    """Every third number is that of the call before."""

    def __init__(self) -> None:
        self.before: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        parts = outputs_of(result)
        key = (parts[0].shape, parts[0].dtype.str)
        held, now = self.before.get(key), parts[0].copy()
        self.before[key] = now
        if held is not None:
            parts[0].reshape(-1)[::3] = held.reshape(-1)[::3]
        return parts[0] if not isinstance(result, (list, tuple)) else tuple(parts)


def _others_generator(correct: Any, raws: Any) -> Any:
    """``generator=`` is not seen."""
    return correct(*(None if isinstance(r, Generator) else r for r in raws))


def _faults(name: str, generated: bool) -> dict[str, Callable[[], Mutation]]:
    shaped = _masked if name in SWITCHES else _effect
    changes = dict(ANY)
    if name in CONTINUOUS:
        changes |= OF_REALS
    elif name not in SWITCHES:
        changes |= OF_INTEGERS
    found: dict[str, Callable[[], Mutation]] = {
        what: lambda c=change: shaped(c, True) for what, change in changes.items()
    }
    if name not in ("randperm", "gumbel_softmax"):
        found["every row is the first"] = lambda: shaped(_rows, False)
        found["every column is the first"] = lambda: shaped(_columns, False)
    found["the stream stands at every call"] = lambda: _standing(1)
    found["the stream stands at every second call"] = lambda: _standing(2)
    found["every call draws the first numbers of its seed"] = lambda: _same_for_a_seed
    if name not in SWITCHES and name != "randperm":
        found["every third number is that of the call before"] = _PartlyBefore
    if generated:
        found["generator= is not seen"] = lambda: _others_generator
    return found


def generate_streams(subject: Subject, name: str, count: int = PER_OP) -> list[Mutant]:
    """``count`` mutants of what one operator draws, or all of them for -1."""
    op = subject.metadata(name).op
    if not op.random or op.samples is None or op.mutates:
        return []
    own = any(p.kind == "Generator" for p in op.schema.params)
    made = []
    for what, make in drawn(name, [*_faults(name, own).items()], count):
        mutant = Mutant(f"{name}: {what}", name, make(), ops=(name, "backend"), checks=(11,))
        mutant.details.update(trigger=what)
        made.append(mutant)
    return made
