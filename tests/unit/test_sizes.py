"""Sizes: what a length may be, and how -1 is read, in every operator that takes one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.plugin import ArgumentError, OpError, ShapeError

lengths = st.lists(st.integers(-3, 6), max_size=4).map(tuple)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def _filled(shape: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    """``shape`` with its -1 worked out for ``count`` elements, None where that cannot be."""
    if any(n < -1 for n in shape) or shape.count(-1) > 1:
        return None
    known = math.prod(n for n in shape if n != -1)
    if -1 not in shape:
        return shape if known == count else None
    if known == 0 or count % known:
        return None
    return tuple(count // known if n == -1 else n for n in shape)


@pytest.mark.parametrize("name", ["reshape", "view"])
@given(have=shapes, wanted=lengths)
def test_only_one_minus_one_is_worked_out(name, have, wanted):
    x = cd.arange(math.prod(have)).reshape(have)
    expected = _filled(wanted, math.prod(have))
    if expected is None:
        with pytest.raises(ShapeError, match=name):
            getattr(x, name)(wanted)
    else:
        out = getattr(x, name)(wanted)
        assert tuple(out.shape) == expected
        assert out.reshape(-1).tolist() == list(range(math.prod(have)))


@given(length=st.integers(0, 12), wanted=lengths)
def test_unflatten_reads_lengths_as_reshape_does(length, wanted):
    x = cd.zeros(2, length)
    expected = _filled(wanted, length)
    if expected is None:
        with pytest.raises(ShapeError):
            x.unflatten(1, wanted)
    else:
        assert tuple(x.unflatten(1, wanted).shape) == (2, *expected)


@given(have=shapes, wanted=lengths)
def test_expand_keeps_lengths_at_minus_one_only(have, wanted):
    lead = len(wanted) - len(have)
    x = cd.zeros(have)
    fits = lead >= 0 and all(n >= 0 for n in wanted[:lead])
    if fits:
        fits = all(n in (h, -1) or (h == 1 and n >= 0) for h, n in zip(have, wanted[lead:]))
    if not fits:
        with pytest.raises(ShapeError, match="expand"):
            x.expand(wanted)
    else:
        kept = [h if n == -1 else n for h, n in zip(have, wanted[lead:])]
        assert tuple(x.expand(wanted).shape) == (*wanted[:lead], *kept)


HUGE = 2**63
TAKES_A_LENGTH = {
    "zeros": lambda n: cd.zeros(n),
    "ones": lambda n: cd.ones(2, n),
    "empty": lambda n: cd.empty(n),
    "full": lambda n: cd.full((n,), 1),
    "eye": lambda n: cd.eye(2, n),
    "linspace": lambda n: cd.linspace(0, 1, n),
    "logspace": lambda n: cd.logspace(0, 1, n),
    "randperm": lambda n: cd.randperm(n),
    "rand": lambda n: cd.rand(n),
    "randn": lambda n: cd.randn(3, n),
    "randint": lambda n: cd.randint(3, (n,)),
    "zeros on meta": lambda n: cd.zeros(n, device="meta"),
    "hann_window": lambda n: cd.hann_window(n),
    "tril_indices": lambda n: cd.tril_indices(n, 2),
    "vander": lambda n: cd.vander(cd.ones(2), n),
    "resize_": lambda n: cd.ones(2).resize_(n),
    "resize_ of several": lambda n: cd.ones(2).resize_((1, n)),
    "new_zeros": lambda n: cd.ones(2).new_zeros(n),
    "repeat": lambda n: cd.ones(2).repeat(n),
    "tile": lambda n: cd.ones(2).tile((n,)),
    "repeat_interleave": lambda n: cd.ones(2).repeat_interleave(n),
    "bincount": lambda n: cd.tensor([1]).bincount(minlength=n),
    "histc": lambda n: cd.ones(2).histc(n),
    "combinations": lambda n: cd.combinations(cd.ones(2), n),
    "one_hot": lambda n: F.one_hot(cd.tensor([1]), n),
    "adaptive_avg_pool1d": lambda n: F.adaptive_avg_pool1d(cd.ones(1, 1, 4), n),
    "adaptive_max_pool2d": lambda n: F.adaptive_max_pool2d(cd.ones(1, 4, 4), (2, n)),
    "unravel_index": lambda n: cd.unravel_index(cd.tensor([1]), (2, n)),
    "interpolate": lambda n: F.interpolate(cd.ones(1, 1, 4), size=n),
    "col2im": lambda n: F.fold(cd.ones(1, 4, 4), (3, n), 2),
}


@pytest.mark.parametrize("name", TAKES_A_LENGTH)
def test_a_negative_length_is_refused_by_name(name):
    with pytest.raises((ArgumentError, ShapeError)) as caught:
        TAKES_A_LENGTH[name](-2)
    assert "-2" in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("name", [n for n in TAKES_A_LENGTH if n not in ("interpolate", "col2im")])
@pytest.mark.parametrize("length", [HUGE - 1, HUGE, 2 * HUGE])
def test_a_length_beyond_memory_is_refused_by_name(name, length):
    with pytest.raises(ArgumentError) as caught:
        TAKES_A_LENGTH[name](length)
    assert str(length) in str(caught.value)
    assert "elements" in str(caught.value)


def test_lengths_are_multiplied_as_integers_of_any_size():
    for device in (None, "meta"):
        with pytest.raises(ArgumentError, match="multiplies to"):
            cd.zeros(2**40, 2**40, device=device)  # 2**80 is 0 in 64 bits
    with pytest.raises(ArgumentError):
        cd.zeros(2**62, 0, 4)
    with pytest.raises(ArgumentError):
        cd.ones(1).expand(2**62)


def test_a_refused_resize_changes_nothing():
    x = cd.tensor([1.0, 2.0])
    with pytest.raises(OpError):
        x.resize_(-1)
    assert x.tolist() == [1.0, 2.0]


@given(counts=st.lists(st.integers(-1, 3), max_size=5))
def test_repeats_are_counted_or_refused(counts):
    x = np.arange(len(counts), dtype=np.float32)
    if any(n < 0 for n in counts):
        with pytest.raises(ArgumentError, match="repeats must not be negative, got -1"):
            cd.from_numpy(x).repeat_interleave(cd.tensor(counts, dtype="int64"))
    else:
        out = cd.from_numpy(x).repeat_interleave(cd.tensor(counts, dtype="int64"))
        assert out.tolist() == np.repeat(x, counts).tolist()


def test_repeats_that_are_no_integers_are_refused():
    x = cd.ones(2)
    for repeats in (1.5, [1.5], cd.tensor([1.5])):
        with pytest.raises(TypeError, match="repeats must be integers"):
            x.repeat_interleave(repeats)
    with pytest.raises(ArgumentError, match="output_size=7"):
        x.repeat_interleave(2, output_size=7)
