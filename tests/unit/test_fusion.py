"""Which nodes one loop computes, and where what it makes lies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.graph import Graph, run
from coredispatch.graph.passes.aliasing import Aliases
from coredispatch.graph.passes.fusion import fuse, groups
from coredispatch.graph.passes.inference import infer_values, tensor_info
from coredispatch.graph.passes.memory import plan

# the drawn programs compare shapes, which are those of the example
pytestmark = pytest.mark.filterwarnings("ignore::coredispatch.jit.TracerWarning")


def traced(program: Any, *inputs: Any) -> Graph:
    """The graph of a program, with values."""
    with cd.no_grad():
        graph = cd.jit.trace(program, inputs, check_trace=False).graph
    return infer_values(graph, inputs)


def kinds(graph: Graph) -> list[tuple[str, list[str]]]:
    return [(group.kind, [node.name for node in group.nodes]) for group in groups(graph)]


X, Y = cd.arange(12.0).view(3, 4), cd.arange(4.0)


def test_a_chain_with_a_broadcast_is_one_group():
    graph = fuse(traced(lambda x, y: ((x * 2 + y).tanh() - x).relu(), X, Y))
    assert kinds(graph) == [("point", ["mul", "add", "tanh", "sub", "relu"])]


def test_two_chains_that_meet_are_one_group():
    graph = fuse(traced(lambda x: (x * 2).exp() + (x - 1).tanh(), X))
    assert [kind for kind, _ in kinds(graph)] == ["point"]


def test_long_chains_are_cut():
    def chain(x):
        for _ in range(150):
            x = x * 0.5 + 1
        return x

    fused = fuse(traced(chain, X))
    assert [len(group.nodes) for group in groups(fused)] == [64, 64, 64, 64, 44]
    assert [len(group.nodes) for group in groups(fuse(traced(chain, X), most=200))] == [200, 100]
    assert run(fused, X).equal(chain(X))


def test_a_softmax_written_out_is_one_group():
    def softmax(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    assert kinds(fuse(traced(softmax, X))) == [("row", ["amax", "sub", "exp", "sum_1", "div"])]


def test_what_a_whole_reduction_gives_is_used_after_it():
    graph = fuse(traced(lambda x: x / (x * x).sum(), X))
    assert kinds(graph) == [("full", ["mul", "sum_1"]), ("point", ["div"])]


def test_a_sum_over_rows_takes_what_makes_its_argument():
    graph = fuse(traced(lambda x: (x * x).sum(0), X))
    assert kinds(graph) == [("column", ["mul", "sum_1"])]


def test_a_value_without_its_dimension_lines_up_with_others():
    # x.sum(-1) has shape (3,): in x - x.sum(-1) it stands along the columns, not the rows
    square = cd.arange(9.0).view(3, 3)
    graph = fuse(traced(lambda x: x - x.sum(-1), square))
    assert [names for _, names in kinds(graph)] == [["sum_1"], ["sub"]]


def test_a_product_between_two_chains_keeps_them_apart():
    def program(x):
        a = x + 1
        return (a @ a.t()).sum() + a.exp().sum()

    graph = fuse(traced(program, X))
    for group in groups(graph):
        assert not {"add", "matmul"} <= {node.name for node in group.nodes}
    assert run(graph, X).equal(program(X))


def test_a_write_between_two_reads_keeps_the_order():
    def program(x):
        y = x * 1
        before = y.t() * 2
        y.add_(1)
        return before.t() + y

    graph = fuse(traced(program, X))
    assert run(graph, X.clone()).equal(program(X.clone()))
    position = {node.name: k for k, node in enumerate(graph.nodes)}
    assert position["mul_1"] < position["add_"]


def test_writes_in_the_same_places_are_one_loop():
    def program(p, g):
        p.mul_(0.5)
        p.add_(g)
        return p * 2

    graph = fuse(traced(program, X.clone(), X))
    assert len(groups(graph)) == 1
    p = X.clone()
    assert run(graph, p, X).equal(program(X.clone(), X))


def test_random_numbers_stay_where_they_are():
    def program(x):
        a = x + 1
        noise = cd.nn.functional.dropout(x, 0.5, True)
        return a * noise

    graph = fuse(traced(program, X))
    cd.manual_seed(3)
    wanted = program(X)
    cd.manual_seed(3)
    assert run(graph, X).equal(wanted)


@st.composite
def programs(draw: Any) -> Any:
    """A program over values of a few shapes that broadcast, with views, sums and writes."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 7), st.integers(0, 20), st.integers(0, 20)),
            min_size=1,
            max_size=12,
        )
    )

    def program(x, y):
        values = [x, y, x * 1]
        for kind, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if kind == 0:
                values.append(a + b)
            elif kind == 1:
                values.append(a * 0.5)
            elif kind == 2:
                values.append(a.sum(-1, keepdim=True) if a.ndim == 2 else a.exp() * 1e-3)
            elif kind == 3:
                values.append(a.mean(0))
            elif kind == 4:
                values.append(a.tanh() - b.mean())
            elif kind == 5 and a.ndim == 2 and a.shape == (4, 4):
                values.append(a.t())
            elif kind == 6 and a.shape == (4, 4) and a is not x and b.ndim <= 2:
                a.add_(b)
            elif kind == 7:
                values.append(a.clone())
        return tuple(values[2:])

    return program


@given(programs())
@settings(max_examples=40)
def test_fused_graphs_mean_the_same(program):
    fresh = lambda: (cd.arange(16.0).view(4, 4) / 7, cd.arange(4.0) / 3)  # noqa: E731
    graph = plan(fuse(traced(program, *fresh())))
    for got, wanted in zip(run(graph, *fresh()), program(*fresh()), strict=True):
        assert got.equal(wanted)


@given(programs())
@settings(max_examples=40)
def test_buffers_that_are_needed_at_one_time_lie_apart(program):
    x, y = cd.arange(16.0).view(4, 4), cd.arange(4.0)
    graph = plan(fuse(traced(program, x, y)))
    aliases = Aliases(graph)
    nodes = list(graph.nodes)
    when = {}
    for k, node in enumerate(nodes):
        index = node.meta.get("group", (f"node {k}",))[0]
        group = [j for j, n in enumerate(nodes) if n.meta.get("group", (None,))[0] == index]
        when[node] = min(k, *group, k)
    placed = [node for node in nodes if "buffer" in node.meta]
    last = {}
    for node in placed:
        family = [n for n in nodes if aliases.of(n) is aliases.of(node)]
        last[node] = max(when[user] for n in family for user in (n, *n.users))
    for i, a in enumerate(placed):
        for b in placed[:i]:
            together = when[a] <= last[b] and when[b] <= last[a]
            low, high = sorted([a.meta["buffer"], b.meta["buffer"]])
            assert not together or low.offset + low.size <= high.offset
        assert a.meta["buffer"].offset + a.meta["buffer"].size <= graph.meta["block"]


def test_memory_is_used_again():
    def program(x):
        for _ in range(6):
            x = (x @ x) * 0.1
        return x

    x = cd.ones(16, 16)
    graph = plan(fuse(traced(program, x)))
    assert graph.meta["block"] <= 3 * 16 * 16 * 4


def test_values_are_told_without_running_anything():
    program = lambda x: (x.to(cd.float64) @ x.double().t(), x.argmax(), x.size(0) * 2)  # noqa: E731
    graph = traced(program, X)
    shapes = [info.shape for node in graph.nodes if (info := tensor_info(node)) is not None]
    assert (3, 3) in shapes
    assert () in shapes
