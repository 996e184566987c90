"""Compiled programs that cut what has an open size, and recurrent networks over open lengths."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn

PIECES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "chunk": (lambda x: [p * 2 for p in x.chunk(2)], (8, 12, 9, 30, 7)),
    "chunk of the sum": (lambda x: sum(p.sum() for p in x.chunk(3)), (9, 12, 8, 30, 11)),
    "split in halves": (lambda x: [p * 2 for p in x.split(x.shape[0] // 2)], (8, 12, 6, 30)),
    "split at a place": (lambda x: [p * 2 for p in x.split([2, x.shape[0] - 2])], (8, 5, 9, 30)),
    "split by a size": (lambda x: [p.sin() for p in x.split(8)], (20, 18, 23, 24)),
    "tensor_split": (lambda x: [p * 2 for p in x.tensor_split(3)], (9, 12, 8, 30, 11)),
    "unbind": (lambda x: [p * 2 for p in x.unbind(1)], (8, 5, 9, 30)),
    "split_with_sizes": (
        lambda x: cd.split_with_sizes(x, [x.shape[0] - 1, 1])[0] + 1,
        (8, 5, 9, 30),
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_an_open_size_are_one_program(name: str) -> None:
    program, sizes = PIECES[name]
    for grad in (False, True):
        fast: Any = cd.compile(program, backend="eager")
        for n in sizes:
            x = cd.randn(n, 4, requires_grad=grad)
            y = x.detach().clone().requires_grad_(grad)
            found, wanted = fast(x), program(y)
            cd.testing.assert_close(found, wanted)
            if grad:
                for result in (found, wanted):
                    cd.cat([p.flatten() for p in result]).square().sum().backward() if isinstance(
                        result, list
                    ) else result.sum().backward()
                cd.testing.assert_close(x.grad, y.grad)
        assert fast.captures == 2 and not fast.eager_calls, fast.recompilations


def test_another_number_of_pieces_is_another_program() -> None:
    fast: Any = cd.compile(lambda x: [p * 2 for p in x.split(8)], backend="eager", dynamic=True)
    for n in (20, 12, 10, 23, 16, 9):
        x = cd.randn(n, 2)
        cd.testing.assert_close(fast(x), [p * 2 for p in x.split(8)])
    assert fast.captures == 3  # two pieces, three of them, and two where the last is one row


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_recurrent_networks_train_on_any_length_by_one_program(kind: str, options: Any) -> None:
    cd.manual_seed(0)
    net = getattr(nn, kind)(3, 4, batch_first=True, **options)
    plain = copy.deepcopy(net)

    def step_of(model: Any) -> Any:
        optimizer = cd.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x)[0].square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    fast: Any = cd.compile(step_of(net), backend="eager")
    eager = step_of(plain)
    for n in (5, 7, 9, 4, 12, 2, 5):
        x = cd.randn(2, n, 3)
        cd.testing.assert_close(fast(x), eager(x))
        for found, wanted in zip(net.parameters(), plain.parameters()):
            cd.testing.assert_close(found, wanted)
    assert fast.captures == 2 and not fast.eager_calls, fast.recompilations


def test_gradients_of_a_projected_network_for_any_length_and_batch() -> None:
    net = nn.LSTM(3, 4, proj_size=2)
    fast: Any = cd.compile(net, backend="eager")
    for steps, batch in ((5, 2), (6, 3), (9, 4), (4, 7)):
        x = cd.randn(steps, batch, 3)
        grads = []
        for run in (net, fast):
            leaf = x.clone().requires_grad_()
            net.zero_grad()
            out, (h, c) = run(leaf)
            (out.sum() + (h * c.sum(-1, keepdim=True)).sum()).backward()
            grads.append([leaf.grad, *(p.grad for p in net.parameters())])
        cd.testing.assert_close(*grads)
    assert fast._compiled.captures == 2
