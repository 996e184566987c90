"""Graphs: building, editing, checking, printing, running, and as data."""

from __future__ import annotations

import enum
import json
import operator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.graph import Graph, GraphError, Interpreter, compile_code, run
from coredispatch.graph.storing import from_document, to_document


class Root:
    """What has the attributes that a graph reads."""

    def __init__(self) -> None:
        self.fc = cd.nn.Linear(3, 4)


def sample() -> tuple[Graph, Root]:
    """Attributes, operators, methods, Python's functions, a branch and a loop."""
    graph = Graph()
    x, w = graph.placeholder("x"), graph.get_attr("fc.weight")
    y = graph.call_function(cd.ops.linear, (x, w, None))
    s = graph.call_method("sum", (y,), {"dim": 0})
    part = graph.call_function(operator.getitem, (s, (slice(None, 2),)))
    then, otherwise = Graph(), Graph()
    a = then.placeholder("a")
    then.output(then.call_function(operator.add, (a, 1)))
    a = otherwise.placeholder("a")
    otherwise.output(otherwise.call_function(operator.mul, (a, 2)))
    first = graph.call_function(operator.getitem, (part, 0))
    held = graph.call_function(operator.gt, (first, 0.5))
    chosen = graph.branch(held, then, otherwise, (part,))
    body = Graph()
    body.placeholder("i")
    v = body.placeholder("v")
    body.output((True, body.call_function(operator.mul, (v, v))))
    looped = graph.loop(3, True, body, (chosen,))
    graph.output((looped, {"y": y}))
    return graph, Root()


def meaning(root: Root, x: Any) -> Any:
    y = cd.nn.functional.linear(x, root.fc.weight)
    v = y.sum(dim=0)[:2]
    v = v + 1 if v[0] > 0.5 else v * 2
    return v**8, y


@pytest.mark.parametrize("seed", range(4))
def test_interpreter_and_text_do_what_the_graph_says(seed: int) -> None:
    cd.manual_seed(seed)
    graph, root = sample()
    graph.lint()
    x = cd.randn(2, 3)
    wanted, y = meaning(root, x)
    for got in (run(graph, x, root=root), compile_code(graph.python_code(), "<graph>")(root, x)):
        (looped,), rest = got
        cd.testing.assert_close(looped, wanted)
        cd.testing.assert_close(rest["y"], y)


def test_a_copy_and_a_document_are_the_same_program() -> None:
    graph, root = sample()
    read = from_document(json.loads(json.dumps(to_document(graph))))
    for other in (graph.copy(), read):
        assert other.code == graph.code
        assert str(other) == str(graph)
    x = cd.randn(2, 3)
    cd.testing.assert_close(run(read, x, root=root)[1]["y"], run(graph, x, root=root)[1]["y"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d["nodes"][2].update(target={"function": "builtins.eval"}), "cannot call"),
        (lambda d: d["nodes"][2].update(target={"operator": "no_such_op"}), "no operator"),
        (lambda d: d["nodes"][3].update(target="__class__"), "method"),
        (lambda d: d["nodes"][3].update(target="_apply"), "method"),
        (lambda d: d["nodes"][1].update(target="fc.__dict__"), "no path"),
        (lambda d: d["nodes"][0].update(name="x\n    import os"), "no name"),
        (lambda d: d["nodes"][0].update(target="x=evil()"), "no name"),
        (lambda d: d["nodes"][3].update(kwargs={"dim=1)": 0}), "no name"),
        (lambda d: d["nodes"].pop(0), "no document"),
        (lambda d: d["nodes"].insert(0, d["nodes"].pop()), "no document"),
        (lambda d: d.pop("defaults"), "no document"),
        (lambda d: d["nodes"][1].update(op="exec"), "no op"),
    ],
)
def test_a_forged_document_is_refused(change: Any, problem: str) -> None:
    document = json.loads(json.dumps(to_document(sample()[0])))
    change(document)
    with pytest.raises(cd.CoreDispatchError, match=problem):
        from_document(document)


def test_an_attribute_that_is_no_fact_of_a_tensor_is_not_read() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(getattr, (x, "__class__")))
    with pytest.raises(GraphError, match="attribute"):
        from_document(to_document(graph))


def test_a_default_that_changed_keeps_its_old_meaning() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(cd.ops.leaky_relu, (x,)))
    document = to_document(graph)
    document["defaults"]["leaky_relu"]["negative_slope"] = {"float": "0.5"}
    old = from_document(document)
    assert run(old, cd.tensor([-2.0])).item() == -1.0
    assert run(graph, cd.tensor([-2.0])).item() == pytest.approx(-0.02)


def test_edits_keep_users_and_order() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(cd.ops.relu, (x,))
    b = graph.call_function(cd.ops.neg, (a,))
    graph.output(b)
    with pytest.raises(RuntimeError, match="neg use it"):
        graph.erase_node(a)
    with graph.inserting_after(a):
        c = graph.call_function(cd.ops.exp, (a,))
    a.replace_all_uses_with(c, lambda user: user is not c)
    graph.lint()
    assert [n.name for n in graph.nodes] == ["x", "relu", "exp", "neg", "output"]
    assert list(a.users) == [c]
    assert list(c.users) == [b]
    b.prepend(graph.call_function(cd.ops.sin, (c,)))
    graph.eliminate_dead_code()
    graph.lint()
    assert [n.name for n in graph.nodes] == ["x", "relu", "exp", "neg", "output"]
    assert run(graph, cd.tensor([0.0])).item() == -1.0


def test_dead_code_that_writes_stays() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_function(cd.ops.add_, (x, 1))
    graph.call_method("mul_", (x, 3))
    graph.call_function(cd.ops.exp, (x,))
    graph.output(x)
    graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "add_", "mul_", "output"]
    assert run(graph, cd.ones(1)).item() == 6.0


def test_lint_finds_what_an_edit_broke() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(cd.ops.relu, (x,))
    b = graph.call_function(cd.ops.neg, (a,))
    graph.output(b)
    b.append(a)
    with pytest.raises(GraphError, match="'neg' uses 'relu', which no earlier node makes"):
        graph.lint()
    with pytest.raises(GraphError, match="another graph"):
        Graph().call_function(cd.ops.relu, (x,))


def test_the_text_holds_numbers_of_every_class() -> None:
    class Axis(enum.IntEnum):
        ROWS = 1

    traced = cd.fx.symbolic_trace(lambda x: (x * np.sqrt(2.0)).sum(Axis.ROWS) * np.complex128(2j))
    x = cd.ones(2, 3)
    assert cd.allclose(traced(x), (x * np.sqrt(2.0)).sum(1) * 2j)
    assert "1.4142135623730951" in traced.code


def test_an_interpreter_that_sees_every_node() -> None:
    graph, root = sample()
    seen: list[str] = []

    class Watching(Interpreter):
        def run_node(self, n: Any) -> Any:
            seen.append(n.name)
            return super().run_node(n)

    Watching(root, graph=graph).run(cd.ones(2, 3))
    assert seen[:3] == ["x", "fc_weight", "linear"]
    assert seen.count("v") == 3


def test_an_error_names_the_node() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(cd.ops.reshape, (x, (7,))))
    with pytest.raises(cd.ShapeError) as caught:
        run(graph, cd.ones(2))
    assert "While running the node %reshape" in caught.value.__notes__[0]
