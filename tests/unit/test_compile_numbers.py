"""Numbers among the arguments of a compiled program that say what shape things have."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd

X = cd.arange(64.0) / 7
F = cd.nn.functional


def largest(x: Any, k: int) -> Any:
    y = (x.topk(k)[0] / 7).exp()
    return y * y.shape[0]


def window(x: Any, k: int) -> Any:
    return x[k : k + 2] * 2


PROGRAMS = [
    largest,
    window,
    lambda x, k: cd.full((k,), 2.0).sum() * x * cd.ones(k).shape[0],
    lambda x, k: (x.repeat(k) * 2).sin() * x.repeat(k).numel(),
    lambda x, k: F.pad(x, (k, k)).sin() * F.pad(x, (k, k)).shape[0],
    lambda x, k: x.roll(k) * x[k] + x.narrow(0, k, 2).sum(),
    lambda x, k: x.unsqueeze(0).expand(k, 64).cos() * 2,
    lambda x, k: x.view(64 // (2 if k % 2 else 4), -1).sum(0),
]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_shapes_follow_the_numbers(program: Any, fullgraph: bool) -> None:
    fast = cd.compile(program, fullgraph=fullgraph)
    x = X.clone().requires_grad_()
    for k in (1, 2, 3, 4, 3, 2, 5):
        got, wanted = fast(x, k), program(x, k)
        cd.testing.assert_close(got, wanted)
        for a, b in zip(*(cd.autograd.grad(y.sum(), x) for y in (got, wanted)), strict=True):
            cd.testing.assert_close(a, b)


def test_a_window_that_moves_is_one_program() -> None:
    fast = cd.compile(window, fullgraph=True)
    for k in range(1, 60):
        assert cd.equal(fast(X, k), window(X, k))
    assert fast.captures == 2  # one for the first number, one for all
    assert cd.equal(fast(X, 63), window(X, 63))  # shorter
    assert fast.captures == 3


def test_numbers_ask_before_anything_is_written() -> None:
    def program(x: Any, k: int) -> Any:
        x.add_(1)
        return x[:k].sum() if k > 3 else x[k:].sum()

    fast, x, y = cd.compile(program), cd.zeros(8), cd.zeros(8)
    for k in (1, 2, 3, 4, 5, 2):
        cd.testing.assert_close(fast(x, k), program(y, k))
        cd.testing.assert_close(x, y)


def test_what_numbers_decide_splits_no_graph() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    fast = cd.compile(largest, backend=backend)
    for k in (1, 2, 3, 3):
        fast(X, k)
    assert len(graphs) == 3
    assert all(any(n.target is cd.ops.exp for n in g.graph.nodes) for g in graphs)
