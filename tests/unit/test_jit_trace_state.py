"""What a module holds after ``jit.trace`` ran it: plain tensors with the values of that call."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", cd.zeros(1))
        self.kept: list[Any] = []

    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        self.last = x * 2
        self.rows = x.shape[0]
        self.kept.append({"view": self.last.view(-1), "sizes": (x.shape[0] * 2,)})
        return x + self.count


def check_plain(net: Any) -> None:
    assert "layer" not in repr([net.count, net.last, net.kept])
    assert type(net.rows) is int and type(net.kept[0]["sizes"][0]) is int
    copy.deepcopy(net)
    assert net.count.tolist() == [1.0] and net.last.tolist() == [2.0, 2.0]


def test_what_a_traced_module_assigned_is_plain() -> None:
    net = Counting()
    traced = cd.jit.trace(net, cd.ones(2))
    check_plain(net)
    # The trace begins with the buffers that the module began with.
    assert traced.count.tolist() == [0.0]
    assert traced(cd.ones(2)).tolist() == [2.0, 2.0]


def test_what_a_module_assigned_before_it_raised_is_plain() -> None:
    class Raising(Counting):
        def forward(self, x: Any) -> Any:
            super().forward(x)
            raise ValueError("no")

    net = Raising()
    with pytest.raises(ValueError, match="no"):
        cd.jit.trace(net, cd.ones(2))
    check_plain(net)


def test_what_a_program_kept_has_its_history_and_its_memory() -> None:
    kept: list[Any] = []

    def program(x: Any) -> Any:
        made = x * 3
        kept.extend([x, made, made[0]])
        made.add_(1)
        return made

    x = cd.ones(2, requires_grad=True)
    cd.jit.trace(program, x, check_trace=False)
    given, made, first = kept
    assert made.tolist() == [4.0, 4.0] and first.item() == 4.0
    (made.sum() + first + given.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [7.0, 4.0]
    with cd.no_grad():
        x.add_(1)
        made.zero_()
    assert given.tolist() == [2.0, 2.0] and first.item() == 0.0


def test_a_traced_method_reads_the_buffers_of_its_module() -> None:
    net = nn.BatchNorm1d(2).eval()
    traced = cd.jit.trace(net.forward, cd.ones(3, 2))
    x = cd.randn(3, 2)
    cd.testing.assert_close(traced(x), net(x))


GRADIENTS: dict[str, Any] = {
    "grad": lambda x: cd.func.grad(lambda v: (v**2).sum())(x),
    "vjp": lambda x: cd.func.vjp(lambda v: v**2, x)[1](x)[0],
    "jacrev": lambda x: cd.func.jacrev(lambda v: v**2)(x),
    "grad of each row": lambda x: cd.func.vmap(cd.func.grad(lambda v: v**2))(x),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_inside_of_a_trace_are_refused(name: str) -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return GRADIENTS[name](x)

    for capture in (cd.jit.trace, lambda f, x: cd.export.export(Net(), (x,))):
        with pytest.raises(RuntimeError, match=r"cannot be part of a trace(.|\n)*  fix: "):
            capture(GRADIENTS[name], cd.ones(2))  # type: ignore[operator]


def test_derivatives_forward_are_part_of_a_trace_and_traces_are_differentiated() -> None:
    x = cd.tensor([1.0, 3.0])
    traced = cd.jit.trace(lambda x: cd.func.jvp(lambda v: v**2, (x,), (x,))[1], cd.ones(2))
    assert traced(x).tolist() == [2.0, 18.0]
    assert cd.func.grad(cd.jit.trace(lambda v: (v**2).sum(), x))(x).tolist() == [2.0, 6.0]
