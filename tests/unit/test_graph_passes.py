"""Passes over graphs: each gives a graph that means the same, and is better."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import fx
from coredispatch.graph import Graph, run
from coredispatch.graph.passes.common import eliminate_common_nodes, repeatable
from coredispatch.graph.passes.folding import fold_constants


def targets(graph: Graph) -> list[str]:
    return [n.target.name for n in graph.nodes if n.op == "call_function"]


def traced(function: Any, *examples: Any) -> Graph:
    graph: Graph = cd.jit.trace(function, examples, check_trace=False).graph
    graph.owning_module = None  # each test has its own
    return graph


def test_equal_calls_become_one() -> None:
    graph = traced(lambda x: (x.exp() + 1) * (x.exp() + 1) + x.exp().sum(-1, True), cd.ones(3))
    once = eliminate_common_nodes(graph)
    assert targets(once).count("exp") == 1
    assert targets(once).count("add") == 2
    x = cd.randn(3)
    cd.testing.assert_close(run(once, x), run(graph, x), rtol=0, atol=0)


def test_random_numbers_and_written_values_stay_apart() -> None:
    def program(x: Any) -> Any:
        a, b = cd.zeros(2), cd.zeros(2)
        a += x
        noise = cd.rand(2) - cd.rand(2)
        return a * 1, b * 1, noise * 1

    graph = traced(program, cd.ones(2))
    once = eliminate_common_nodes(graph)
    assert targets(once) == targets(graph)
    a, b, noise = run(once, cd.ones(2))
    assert a.tolist() == [1.0, 1.0]
    assert b.tolist() == [0.0, 0.0]
    assert noise.abs().sum() > 0


def _twice(call: Any) -> Any:
    return lambda x: call(x) - call(x)


@pytest.mark.parametrize("trace", [traced, lambda f, *_: fx.symbolic_trace(f).graph])
def test_operators_that_drop_something_where_they_are_asked_to_stay_apart(trace: Any) -> None:
    x = cd.randn(2, 9, 4)
    for p, calls in ((0.5, 2), (0.0, 1)):

        def attend(x: Any) -> Any:
            return F.scaled_dot_product_attention(x, x, x, dropout_p=p)  # noqa: B023

        graph = trace(_twice(attend), x)
        once = eliminate_common_nodes(graph)
        assert sum(n.target is F.scaled_dot_product_attention for n in once.nodes) == calls
        assert bool(run(once, x).abs().sum() > 0) is (p > 0)
        dead = trace(lambda x: (attend(x), x + 1)[1], x)  # the stream goes on
        dead.eliminate_dead_code()
        assert (len(dead) == 4) is (p > 0)


@pytest.mark.parametrize("layer", [cd.lstm, cd.gru, cd.rnn_tanh, cd.rnn_relu])
@pytest.mark.parametrize("packed", [False, True])
def test_layers_with_dropout_between_them_stay_apart(layer: Any, packed: bool) -> None:
    kind = {cd.lstm: "LSTM", cd.gru: "GRU"}.get(layer, "RNN")
    net = getattr(cd.nn, kind)(4, 3, 2, bias=False)
    net.requires_grad_(False)
    states = [cd.zeros(2, 2, 3)] * (1 + (layer is cd.lstm))
    hx = states if layer is cd.lstm else states[0]
    sizes = cd.tensor([2, 2, 2])

    def call(x: Any, dropout: float, train: bool, layers: int) -> Any:
        weights = list(net.parameters())[: 2 * layers]
        given = [s[:layers] for s in states] if layer is cd.lstm else hx[:layers]
        if packed:
            return layer(x, sizes, given, weights, False, layers, dropout, train, False)[0]
        return layer(x, given, weights, False, layers, dropout, train, False, False)[0]

    x = cd.randn(6, 4) if packed else cd.randn(3, 2, 4)
    for dropout, train, layers in ((0.5, True, 2), (0.5, False, 2), (0.0, True, 2), (0.5, True, 1)):
        graph = traced(_twice(lambda x: call(x, dropout, train, layers)), x)  # noqa: B023
        draws = (dropout, train, layers) == (0.5, True, 2)
        calls = [n for n in graph.nodes if n.op == "call_function" and len(n.args) > 5]
        assert [n.is_impure() for n in calls] == [draws] * 2
        assert [repeatable(n) for n in calls] == [not draws] * 2


def test_two_results_do_not_become_one_tensor() -> None:
    once = eliminate_common_nodes(traced(lambda x: (x + 1, x + 1), cd.ones(2)))
    first, second = run(once, cd.ones(2))
    first += 1
    assert second.tolist() == [2.0, 2.0]


def test_what_depends_on_no_input_is_computed_once() -> None:
    kept: dict[str, Any] = {}

    def constant(tensor: Any) -> str:
        kept[f"constant{len(kept)}"] = tensor
        return f"constant{len(kept) - 1}"

    def program(x: Any) -> Any:
        return x * (cd.arange(3) * 2 + 1).float() + cd.rand(3) * 0

    graph = traced(program, cd.ones(3))
    folded = fold_constants(graph, constant)
    assert targets(folded) == ["mul", "rand", "mul", "add"]
    assert kept["constant0"].tolist() == [1.0, 3.0, 5.0]
    root = type("Root", (), kept)()
    cd.testing.assert_close(run(folded, cd.ones(3), root=root), cd.tensor([1.0, 3.0, 5.0]))


def test_a_constant_that_is_written_to_or_returned_is_made_each_time() -> None:
    def program(x: Any) -> Any:
        sums = cd.zeros(2)
        sums += x
        return sums * 1, cd.ones(2)

    graph = traced(program, cd.ones(2))
    folded = fold_constants(graph, lambda t: pytest.fail("nothing may be kept"))
    for _ in range(2):
        assert run(folded, cd.ones(2))[0].tolist() == [1.0, 1.0]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "mul", "exp", "view", "write", "zeros", "row", "neg"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=12,
)


@given(_STEPS)
def test_any_program_means_the_same_after_the_passes(steps: list[tuple[str, int, int]]) -> None:
    def program(x: Any) -> Any:
        values = [x * 1]
        for name, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if name == "add":
                values.append(a + b)
            elif name == "mul":
                values.append(a * 0.5)
            elif name == "exp":
                values.append(a.tanh())
            elif name == "view":
                values.append(a.view(2, 2))
            elif name == "write":
                a.add_(b)
            elif name == "zeros":
                values.append(cd.ones(2, 2))
            elif name == "row":
                a[0] = b[1]
            else:
                values.append(-a)
        return tuple(values)

    kept: dict[str, Any] = {}

    def constant(tensor: Any) -> str:
        kept[f"constant{len(kept)}"] = tensor
        return f"constant{len(kept) - 1}"

    x = cd.tensor([[1.0, 2.0], [3.0, 4.0]])
    graph = traced(program, x)
    after = fold_constants(eliminate_common_nodes(graph), constant)
    root = type("Root", (), kept)()
    for _ in range(2):
        for got, wanted in zip(run(after, x.clone(), root=root), program(x.clone()), strict=True):
            cd.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_a_picture_has_a_box_for_each_node(tmp_path: Path) -> None:
    graph = traced(lambda x, y: (x @ y).relu().sum(), cd.ones(2, 2), cd.ones(2, 2))
    graph.draw(tmp_path / "g.svg")
    root = ElementTree.parse(tmp_path / "g.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == len(graph)
    edges = sum(len(n.all_input_nodes) for n in graph.nodes)
    assert len(root.findall(f"{space}path")) == edges
    boxes = [r for g in root.findall(f"{space}g") for r in g.findall(f"{space}rect")]
    by_row: dict[str, list[tuple[float, float]]] = {}
    for box in boxes:
        left = float(box.get("x", "0"))
        by_row.setdefault(box.get("y", ""), []).append((left, left + float(box.get("width", "0"))))
    for row in by_row.values():
        row.sort()
        assert all(a[1] < b[0] for a, b in zip(row, row[1:]))


def test_equal_calls_on_a_value_that_is_written_between_stay_apart() -> None:
    def program(x: Any) -> Any:
        y = x * 1
        before = y.exp()
        y.add_(1)
        return before + y.exp() * 2

    graph = traced(program, cd.ones(2))
    once = eliminate_common_nodes(graph)
    assert targets(once).count("exp") == 2
    cd.testing.assert_close(run(once, cd.zeros(2)), program(cd.zeros(2)))
