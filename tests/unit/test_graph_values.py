"""``meta["value"]`` of every node: calls of modules, branches and loops too."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
from coredispatch import fx, nn
from coredispatch.graph import ValueInfo
from coredispatch.graph.passes.inference import infer_values


@cd.jit.script
def flow(x):  # type: ignore[no-untyped-def]
    y = x * 2
    if bool(x.sum() > 0):
        y = y.relu()
    else:
        y = y - 1
    for i in range(x.size(0)):
        y = y + x[i] * i
        if bool(y.sum() > 9):
            break
    return y.double()


class Branching(nn.Module):
    def forward(self, x: cd.Tensor) -> cd.Tensor:
        if bool(x.sum() > 0):
            return x.sin()
        return x.cos()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.recurrent = nn.LSTM(4, 5, batch_first=True)
        self.scripted = cd.jit.script(Branching())

    def forward(self, x: Any) -> Any:
        y = self.norm(self.linear(x))
        z, (h, c) = self.recurrent(y.unsqueeze(0))
        return z.sum() + self.scripted(x), h, c


class Traced(Net):
    def forward(self, x: Any) -> Any:
        out, h, c = super().forward(x)
        return out + flow(x), h, c


def walk(graph: Any) -> Any:
    for node in graph.nodes:
        yield node
        for inner in node.graphs:
            yield from walk(inner)


def tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in tensors(item)]
    return [value] if isinstance(value, (cd.Tensor, ValueInfo)) else []


class Checked(fx.Interpreter):
    """Compares what each node gives with what was said of it."""

    seen: set[str] = set()

    def run_node(self, n: Any) -> Any:
        result = super().run_node(n)
        if "value" in n.meta:
            found, wanted = tensors(result), tensors(n.meta["value"])
            assert [tuple(t.shape) for t in found] == [info.shape for info in wanted], n
            assert [t.dtype for t in found] == [info.dtype for info in wanted], n
            for tensor, info in zip(found, wanted):
                assert info.strides is None or 1 in tensor.shape or tensor.stride() == info.strides
            self.seen.add(n.op)
        return result


X = cd.arange(6.0).view(2, 3)


class Leaves(fx.Tracer):
    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return True


def test_calls_of_modules_of_symbolic_traces() -> None:
    net = Net()
    module = fx.GraphModule(net, Leaves().trace(net))
    before = {name: tensor.clone() for name, tensor in net.named_buffers()}
    made = infer_values(module.graph, (X,))
    assert all("value" in node.meta for node in made.nodes if node.op != "output")
    for name, tensor in net.named_buffers():
        assert tensor.equal(before[name]), name
    Checked(module, graph=made).run(X)
    assert "call_module" in Checked.seen


def test_calls_of_modules_branches_and_loops_of_traces() -> None:
    traced = cd.jit.trace(Traced(), X)
    called = {n.target: n.meta.get("value") for n in traced.graph.nodes if n.op == "call_module"}
    assert set(called) == {"linear", "norm", "recurrent", "scripted"}
    assert all(len(tensors(value)) >= 1 for value in called.values())
    loop = next(node for node in traced.graph.nodes if node.op == "loop")
    inside = {n.name: n.meta["value"] for n in walk(loop.graphs[0]) if "value" in n.meta}
    assert inside["y"].shape == (2, 3) and inside["mul"].shape == (3,)
    assert "i" not in inside
    (branch,) = traced.graph.find_nodes(op="if")
    (result,) = tensors(branch.meta["value"])
    assert result.shape == (2, 3) and result.dtype is cd.float32
    double = [n for n in traced.graph.nodes if tensors(n.meta.get("value"))]
    assert double[-1].meta["value"].dtype is cd.float64
    assert not any(type(n.meta.get("value")) is int for n in walk(traced.graph))
    Checked(traced).run(X)
    assert {"if", "call_module"} <= Checked.seen


@pytest.mark.parametrize("width", [3, 5])
def test_compiled_programs(width: int) -> None:
    made = infer_values(flow.graph, (cd.ones(4, width),))
    known = {n.name: n.meta["value"] for n in walk(made) if "value" in n.meta}
    assert known["double"] == ValueInfo((4, width), cd.float64, cd.device("cpu"), None)
    assert "value" not in made.find_nodes(op="loop")[0].graphs[0].placeholders[0].meta


def test_what_changes_from_turn_to_turn_is_not_known() -> None:
    def program(x):  # type: ignore[no-untyped-def]
        y = x
        n = 1
        z = x.sum(0)
        for i in range(x.size(0)):
            y = cd.cat([y, x])
            n = n * 2
            z = z + x[:i].sum(0)
        return y, x.expand(n, 2, 3), z.exp()

    made = infer_values(cd.jit.script(program).graph, (X,))
    known = {n.name: n.meta["value"] for n in walk(made) if "value" in n.meta}
    assert "expand" not in known and "cat" not in known
    (loop,) = made.find_nodes(op="loop")
    slices = [n for n in walk(loop.graphs[0]) if n.name.startswith("getitem")]
    assert slices and all("value" not in node.meta for node in slices)
