"""The pass ``decompose``: composites in the operators they are made of; sizes that stay open."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.graph import Graph, GraphError, ValueInfo, run
from coredispatch.graph.calls import operator_of
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.passes.inference import infer_values
from coredispatch.graph.passes.inlining import inline_modules
from coredispatch.graph.symbols import SymbolTable, extreme

F = cd.nn.functional
STAY = {"reshape", "contiguous"}


def traced(function: Any, *examples: Any) -> Graph:
    graph: Graph = cd.jit.trace(function, examples, check_trace=False, strict=False).graph
    return graph


def composites(graph: Graph) -> set[str]:
    ops = [operator_of(node) for node in graph.nodes]
    return {op.name for op in ops if op is not None and op.kind == "composite"} - STAY


PROGRAMS: dict[str, Any] = {
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "gelu": lambda x: F.gelu(x),
    "silu of a sum": lambda x: F.silu(x + x.sum(0)),
    "logsumexp": lambda x: x.logsumexp(1),
    "var": lambda x: x.var(0) + x.std(0, correction=0),
    "mean": lambda x: x.mean(0, keepdim=True) * x,
    "normalize": lambda x: F.normalize(x, dim=0),
    "cross entropy": lambda x: F.cross_entropy(x, x.argmax(1)),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None], x[None], x[None], is_causal=True
    ),
    "linear": lambda x: F.linear(x, cd.ones(3, 4), cd.ones(3)),
    "einsum": lambda x: cd.einsum("ij,kj->ik", x, x),
    "chunk and cat": lambda x: cd.cat(x.chunk(2, 1)[::-1], 1),
    "stack": lambda x: cd.stack([x, x * 2]).sum(0),
    "positions": lambda x: x + cd.arange(x.shape[0])[:, None],
    "tril": lambda x: x.tril(),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "where": lambda x: cd.where(x > 0, x, 0.0),
    "cumulative": lambda x: x.cumsum(0).clamp(-1, 1),
    "topk": lambda x: x.topk(2, 1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "repeat": lambda x: x.repeat(2, 1),
    "roll": lambda x: x.roll(1, 1),
    "flip": lambda x: x.flip(0),
    "one_hot": lambda x: F.one_hot(x.argmax(1), 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_primitives_are_left_and_the_program_means_the_same(name: str) -> None:
    program = PROGRAMS[name]
    x = cd.randn(3, 4)
    graph = traced(program, x)
    made = decompose(graph)
    assert composites(made) <= set(made.meta.get("kept_whole", ())) | {"index_select"}
    cd.testing.assert_close(run(made, x, root=graph.owning_module), program(x))


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"cross entropy", "tril"}))
def test_sizes_stay_open(name: str) -> None:
    program = PROGRAMS[name]
    graph = traced(program, cd.randn(3, 4))
    table = SymbolTable()
    info = graph.placeholders[0].meta["value"]
    rows = table.symbol("n", 3)
    made = decompose(
        graph, inputs=[dataclasses.replace(info, shape=(rows, 4), strides=None)], symbols=table
    )
    for count in (2, 3, 7):
        x = cd.randn(count, 4)
        if all(guard.holds({"n": count}) for guard in table.guards):
            cd.testing.assert_close(run(made, x, root=graph.owning_module), program(x))
        else:
            assert count != 3
    assert not any(guard.forced for guard in table.guards), table.guards


@given(st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=1, max_size=3), st.integers(2, 5))
def test_chains_of_programs(names: list[str], count: int) -> None:
    def program(x: Any) -> Any:
        for name in names:
            result = PROGRAMS[name](x)
            y = result[0] if isinstance(result, tuple) else result
            x = x + y.float().mean()
        return x

    graph = traced(program, cd.ones(3, 4) / 3)
    made = decompose(graph, inputs=[cd.ones(count, 4)])
    x = cd.randn(count, 4)
    cd.testing.assert_close(run(made, x, root=graph.owning_module), program(x))


def test_a_network_comes_down_to_a_few_operators() -> None:
    net = cd.nn.Sequential(
        cd.nn.Conv2d(3, 4, 3, padding=1),
        cd.nn.BatchNorm2d(4),
        cd.nn.ReLU(),
        cd.nn.MaxPool2d(2),
        cd.nn.Flatten(),
        cd.nn.Linear(16, 5),
        cd.nn.LogSoftmax(-1),
    )
    x = cd.randn(2, 3, 4, 4)
    graph = inline_modules(cd.jit.trace(net, x, check_trace=False).graph)
    made = decompose(functionalize(graph))
    assert composites(made) <= {"copy", "index_select"}
    result, new = run(made, x, root=net)
    before = net[1].running_mean.clone()
    cd.testing.assert_close(result, net(x))
    names = [written.name for written in made.meta["written"]]
    assert not net[1].running_mean.equal(before)
    cd.testing.assert_close(new[names.index("1.running_mean")], net[1].running_mean)


def test_what_keep_names_stays() -> None:
    graph = traced(lambda x: F.gelu(x.softmax(-1)), cd.randn(2, 3))
    made = decompose(graph, keep=["softmax"])
    assert composites(made) == {"softmax"}
    by_function = decompose(graph, keep=lambda op: op.name == "gelu")
    assert composites(by_function) == {"gelu"}


def test_random_programs_keep_their_stream() -> None:
    graph = traced(lambda x: F.dropout(x, 0.5), cd.ones(8, 8))
    made = decompose(graph)
    cd.manual_seed(4)
    wanted = F.dropout(cd.ones(8, 8), 0.5)
    cd.manual_seed(4)
    assert run(made, cd.ones(8, 8)).equal(wanted)


def test_lines_of_the_program_stay_with_its_parts() -> None:
    made = decompose(traced(lambda x: x.softmax(-1), cd.ones(2, 2)))
    files = {node.meta["source"][0] for node in made.nodes if node.op == "call_function"}
    assert files == {__file__}


def test_branches_are_decomposed() -> None:
    def branch(program: Any) -> Graph:
        inner = traced(program, cd.ones(2, 2))
        inner.owning_module = None
        return inner

    graph = Graph()
    x, positive = graph.placeholder("x"), graph.placeholder("positive")
    x.meta["value"] = ValueInfo((2, 2), cd.float32, cd.device("cpu"))
    positive.meta["value"] = True
    first, second = branch(lambda x: x.softmax(-1)), branch(lambda x: x.log_softmax(-1))
    graph.output(graph.branch(positive, first, second, (x,)))
    made = decompose(graph)
    (node,) = made.find_nodes(op="if")
    assert all(composites(inner) == set() for inner in node.graphs)
    value = cd.randn(2, 2)
    cd.testing.assert_close(run(made, value, False), value.log_softmax(-1))


def test_nothing_known_of_an_input_is_an_error() -> None:
    graph = cd.fx.symbolic_trace(lambda x: cd.relu(x)).graph
    with pytest.raises(GraphError, match="nothing is known of the input 'x'"):
        decompose(graph)
    made = decompose(graph, inputs=[cd.ones(2)])
    assert run(made, cd.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]


# ---- symbols -------------------------------------------------------------------------------------


_LEAF = st.sampled_from(["n", "m", 1, 2, 3, 5])
_SIGNS = ["+", "-", "*", "//", "%", "min", "max", "<<", "&"]
_EXPRESSION = st.recursive(_LEAF, lambda e: st.tuples(st.sampled_from(_SIGNS), e, e), max_leaves=6)


def computed(expression: Any, values: dict[str, Any]) -> Any:
    if not isinstance(expression, tuple):
        return values.get(expression, expression)
    sign, a, b = expression
    left, right = computed(a, values), computed(b, values)
    return {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "//": lambda: left // right,
        "%": lambda: left % right,
        "min": lambda: extreme("min", left, right),
        "max": lambda: extreme("max", left, right),
        "<<": lambda: left << 2,
        "&": lambda: left & 7,
    }[sign]()


@given(_EXPRESSION, _EXPRESSION, st.integers(2, 9), st.integers(2, 9))
def test_sizes_compute_as_ints_do(one: Any, other: Any, n: int, m: int) -> None:
    table = SymbolTable()
    symbols = {"n": table.symbol("n", 4), "m": table.symbol("m", 6)}
    try:
        size, second = computed(one, symbols), computed(other, symbols)
        known, wanted = computed(one, {"n": n, "m": m}), computed(other, {"n": n, "m": m})
        answers = [size == second, size < second, size >= second]
    except ZeroDivisionError:
        return
    value = lambda s: s.value({"n": n, "m": m}) if hasattr(s, "value") else s  # noqa: E731
    assert value(size) == known
    assert value(second) == wanted
    # Where all guards hold, the answers are those of the numbers.
    if all(guard.holds({"n": n, "m": m}) for guard in table.guards):
        assert answers == [known == wanted, known < wanted, known >= wanted]


@given(_EXPRESSION, st.integers(0, 3), st.integers(0, 9), st.integers(0, 9))
def test_a_size_is_within_its_bounds(expression: Any, least: int, n: int, more: int) -> None:
    """What is answered without a guard holds for all sizes."""
    n, values = least + n, {"n": least + n, "m": more}
    table = SymbolTable()
    symbols = {"n": table.symbol("n", n, least, least + 9), "m": table.symbol("m", more, 0, 9)}
    try:
        size, known = computed(expression, symbols), computed(expression, values)
        answers = [(size >= bound) for bound in range(known - 2, known + 3)]
    except ZeroDivisionError:
        return
    assert answers == [True, True, True, False, False]
    for other in range(least, least + 10):
        for second in range(10):
            values = {"n": other, "m": second}
            try:
                value = computed(expression, values)
            except ZeroDivisionError:
                continue
            if all(guard.holds(values) for guard in table.guards):
                assert [value >= known + step for step in (-2, 0, 1)] == [True, True, False]


def test_quotients_are_compared_with_what_they_are_made_of() -> None:
    table = SymbolTable()
    n, m = table.symbol("n", 5), table.symbol("m", 7)
    assert n // 2 <= n
    assert -(-n // 2) >= 0
    assert n - n // 2 >= 0
    assert n % (m + 1) <= m
    assert extreme("min", n, m) <= m
    assert extreme("max", n, m) - n >= 0
    assert table.guards == []
    assert str(extreme("max", n - m, 0)) == "max(-1*m + n, 0)"


def test_what_is_so_for_all_sizes_is_no_guard() -> None:
    table = SymbolTable()
    n, m = table.symbol("n", 4, 2), table.symbol("m", 4, 2)
    assert n + m == m + n
    assert (n * 6) % 3 == 0
    assert n * m // m == n
    assert n + 1 > n
    assert n != 1
    assert table.guards == []
    assert n == m
    assert [str(guard) for guard in table.guards] == ["n == m"]
    assert int(n) == 4
    assert table.guards[-1].forced


WRITES: dict[str, Any] = {
    "fill of a view": lambda x: x.t().fill_(2.0),
    "zero": lambda x: x.zero_(),
    "a diagonal": lambda x: x.diagonal().mul_(2),
    "its own tensors": lambda x: x + cd.ones(3, 3).fill_(3) + cd.arange(3),
    "a named device": lambda x: cd.zeros(3, device="cpu").add_(x[0]),
}


@pytest.mark.parametrize("name", WRITES)
def test_values_that_were_inferred_are_on_the_devices_of_the_run(name: str) -> None:
    x, y = cd.randn(3, 3), cd.randn(3, 3)
    graph = infer_values(traced(WRITES[name], x.clone()), (x.clone(),))
    infos = [node.meta["value"] for node in graph.nodes if node.op != "output"]
    assert {info.device.type for info in infos if isinstance(info, ValueInfo)} == {"cpu"}
    wanted = WRITES[name](y.clone())
    cd.testing.assert_close(run(decompose(graph), y.clone()), wanted)


def test_values_of_inputs_without_data_stay_without() -> None:
    graph = infer_values(traced(lambda x: x.sin(), cd.ones(2)), (cd.ones(2, device="meta"),))
    infos = [node.meta["value"] for node in graph.nodes if node.op != "output"]
    assert {info.device.type for info in infos} == {"meta"}
