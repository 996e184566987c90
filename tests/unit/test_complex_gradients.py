"""Gradients of complex arguments, by finite differences: each factor of a rule is conjugated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F


def _drawn(*shapes: tuple[int, ...]) -> tuple[cd.Tensor, ...]:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=s) + 1j * rng.normal(size=s) for s in shapes]
    return tuple(cd.from_numpy(p).requires_grad_() for p in parts)


CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (F.linear, ((2, 3), (4, 3), (4,))),
    "linear of a vector": (F.linear, ((2, 3), (3,))),
    "bilinear": (F.bilinear, ((2, 3), (2, 2), (4, 3, 2))),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1), ((2, 2, 5), (3, 2, 3), (3,))),
    "conv2d of groups": (lambda x, w: F.conv2d(x, w, None, groups=2), ((1, 2, 3, 4), (2, 1, 2, 2))),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, None, 2), ((1, 2, 3), (2, 3, 2))),
    "addmm": (lambda c, a, b: cd.addmm(c, a, b, beta=2j, alpha=1 - 3j), ((2, 2), (2, 3), (3, 2))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w, 1.0), ((2, 3), (3,))),
    "logaddexp": (cd.logaddexp, ((2, 3), (3,))),
    "logsumexp": (lambda x: cd.logsumexp(x, 1), ((2, 3),)),
    "logcumsumexp": (lambda x: cd.logcumsumexp(x, 1), ((2, 3),)),
    "ldexp": (lambda x: cd.ldexp(x, cd.tensor([3, -1, 0])), ((2, 3),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_complex_arguments(name: str) -> None:
    call, shapes = CALLS[name]
    assert cd.autograd.gradcheck(call, _drawn(*shapes))


@pytest.mark.parametrize("name", ["linear", "conv1d", "conv_transpose1d", "addmm"])
def test_second_gradients_of_complex_arguments(name: str) -> None:
    call, shapes = CALLS[name]
    assert cd.autograd.gradgradcheck(call, _drawn(*shapes))
