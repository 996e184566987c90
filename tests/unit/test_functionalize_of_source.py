"""``functionalize``, ``fuse`` and ``decompose`` on graphs of ``fx`` and ``script``.

These keep calls as they are written, with Python's operators and methods, and branches and loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import fx
from coredispatch.graph import Graph, GraphError, run
from coredispatch.graph.calls import operator_of
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.functionalization import Written, functionalize
from coredispatch.graph.passes.fusion import fuse, groups
from coredispatch.graph.passes.inference import infer_values

F = cd.nn.functional
X = cd.arange(12.0).view(3, 4) - 4


def writers(graph: Graph) -> list[str]:
    """The calls that write, in the graph and in those inside."""
    found = []
    for node in graph.nodes:
        op = operator_of(node)
        if (op is not None and op.mutates) or str(node.target).endswith("_"):
            found.append(node.name)
        found += [name for inner in node.graphs for name in writers(inner)]
    return found


def agrees(program: Callable[..., Any], graph: Graph, *inputs: Any, root: Any = None) -> Graph:
    """Both forms of the pass give what the program gives, and tell what it writes."""

    def own() -> list[Any]:
        return [v.clone() if isinstance(v, cd.Tensor) else v for v in inputs]

    pure, back = functionalize(graph), functionalize(graph, write_back=True)
    assert writers(pure) == []
    given, eager, untouched = own(), own(), own()
    wanted = program(*eager)
    result, new = run(pure, *untouched, root=root)
    cd.testing.assert_close(result, wanted, rtol=0, atol=0)
    cd.testing.assert_close(untouched, own(), rtol=0, atol=0)
    names = [node.target for node in pure.placeholders]
    for written, value in zip(pure.meta["written"], new):
        if written.kind == "input":
            cd.testing.assert_close(value, eager[names.index(written.name)], rtol=0, atol=0)
    cd.testing.assert_close(run(back, *given, root=root), wanted, rtol=0, atol=0)
    cd.testing.assert_close(given, eager, rtol=0, atol=0)
    return pure


def python_operators(x):
    y = x * 2
    z = 3 - y
    y.add_(1)
    y /= 2
    y[0] = z[1]
    y[1] *= 3
    w = -y @ z.t()
    w.clamp_(max=5)
    return y, z, abs(w) // 2, (y > 1) & (z <= 2)


def library_functions(x):
    y = F.gelu(x.double()).float()
    z = F.dropout(y, 0.0) * 2
    z.add_(x.size(0))
    return F.normalize(z), F.relu(y, inplace=True), y


@pytest.mark.parametrize("program", [python_operators, library_functions])
@pytest.mark.parametrize("capture", ["fx", "script"])
def test_calls_as_they_are_written(program: Any, capture: str) -> None:
    made = fx.symbolic_trace(program) if capture == "fx" else cd.jit.script(program)
    agrees(program, made.graph, X)
    agrees(program, infer_values(made.graph, (X,)), X)


def writes_in_one_branch(x, n: int):
    if n > 2:
        x.mul_(2)
    return x + 1


def writes_in_both(x, n: int):
    y = x * 1
    if n > 2:
        y[0] += x[1]
    elif n > 1:
        x.t()[0] = 7.0
    else:
        y.zero_()
    return y, x + y


def gives_what_it_wrote(x, n: int):
    if n > 2:
        y = x.mul_(2)
        z = y.sum()
    else:
        y = x.add_(1)
        z = y.mean()
    y.sub_(1)
    return z, y


def writes_in_turns(x, n: int):
    y = x * 2
    y += 3
    for i in range(n):
        y = y - 1
        if bool(y.sum() > 0):
            y.mul_(2)
        else:
            x[0] += 1
        x.t()[1] += i
    return y, x * 2


def writes_what_is_carried(x, n: int):
    y = x * 2
    k = 0
    while k < n:
        y.add_(1)
        y = y * 2
        k += 1
    return y


def loops_in_loops(x, n: int):
    for i in range(n):
        for j in range(i):
            x[j % 3].mul_(2)
            if j > 1:
                x.sub_(j)
    return x.sum()


BRANCHES = [
    writes_in_one_branch,
    writes_in_both,
    gives_what_it_wrote,
    writes_in_turns,
    writes_what_is_carried,
    loops_in_loops,
]


@pytest.mark.parametrize("program", BRANCHES)
def test_writes_in_branches_and_loops_come_back(program: Any) -> None:
    graph = cd.jit.script(program).graph
    for turns in range(5):
        for x in (X, -X):
            pure = agrees(program, graph, x, turns)
    assert set(pure.meta["written"]) <= {Written("input", "x")}


def test_a_builder_of_branches_gets_their_writes_back() -> None:
    def branch(sign: int) -> Graph:
        inner = Graph()
        value = inner.placeholder("value")
        inner.call_function(cd.ops.add_, (value, sign))
        inner.output(1)
        return inner

    graph = Graph()
    x, positive = graph.placeholder("x"), graph.placeholder("positive")
    one = graph.branch(positive, branch(1), branch(-1), (x,))
    graph.output((x, one))
    pure = functionalize(graph)
    assert writers(pure) == []
    for way, wanted in ((True, 1.0), (False, -1.0)):
        (result, number), (new,) = run(pure, cd.zeros(2), way)
        assert result.tolist() == new.tolist() == [wanted] * 2
        assert number == 1


class Counted(cd.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", cd.zeros(4))

    def forward(self, x, n: int):
        self.seen.add_(1)
        for _i in range(n):
            if bool(x.sum() > 0):
                self.seen.add_(x[0])
            x = x - self.seen
        return x


def test_attributes_that_branches_write() -> None:
    for turns in range(4):
        net, other = Counted(), Counted()
        pure = functionalize(cd.jit.script(net).graph)
        assert writers(pure) == []
        result, (new,) = run(pure, X, turns, root=net)
        assert net.seen.tolist() == [0.0] * 4
        cd.testing.assert_close(result, other(X, turns))
        cd.testing.assert_close(new, other.seen)
        back = functionalize(cd.jit.script(net).graph, write_back=True)
        cd.testing.assert_close(run(back, X, turns, root=net), result)
        cd.testing.assert_close(net.seen, other.seen)


def perhaps_the_input(x, n: int):
    y = x
    if n > 2:
        y = x * 2
    y.add_(1)
    return x, y


def two_that_share(x, n: int):
    y = x * 1
    row = y[0]
    if n > 2:
        y.add_(1)
        row.mul_(2)
    return y


def exchanged(x, n: int):
    a = x * 1
    b = x * 2
    for _i in range(n):
        a.add_(1)
        a, b = b, a
    return a, b


def the_same_twice(x, n: int):
    a, b = x * 1, x * 2
    if n > 2:
        a = b
    a.add_(1)
    return a, b


REFUSED = {
    perhaps_the_input: "may be x or another value",
    two_that_share: "shares memory with another value",
    the_same_twice: "may be b or another value|may share memory",
}


@pytest.mark.parametrize("program", REFUSED)
def test_what_depends_on_the_way_is_refused(program: Any) -> None:
    with pytest.raises(GraphError, match=REFUSED[program]):
        functionalize(cd.jit.script(program).graph)


def test_values_that_change_places_in_a_loop() -> None:
    graph = cd.jit.script(exchanged).graph
    for turns in range(4):
        agrees(exchanged, graph, X, turns)


def test_a_list_of_python_is_no_tensor() -> None:
    def program(x):
        pair = [x * 1] * 2
        first = pair[0]
        first.add_(1)
        return pair[1]

    def listed(x):
        pair = [x * 1, x]
        more = pair + [x]
        more[0].add_(1)
        return pair[0]

    agrees(program, fx.symbolic_trace(program).graph, X)  # written out: one tensor, twice
    with pytest.raises(GraphError, match="may share memory"):
        functionalize(cd.jit.script(listed).graph)


def test_groups_do_not_depend_on_how_a_program_was_captured() -> None:
    def chain(x):
        y = (x * 2).tanh() + 1
        y += x
        return 1 - abs(y).amax(-1, keepdim=True)

    captured = (cd.jit.trace(chain, X), fx.symbolic_trace(chain), cd.jit.script(chain))
    found = []
    for module in captured:
        fused = fuse(infer_values(module.graph, (X,)))
        found.append([[node.target.name for node in group.nodes] for group in groups(fused)])
        cd.testing.assert_close(run(fused, X.clone()), chain(X.clone()))
    assert found[0] == found[1] == found[2]
    assert found[0] == [["mul", "tanh", "add", "add_", "abs", "amax", "sub"]]


def condition_of_values(x, n: int):
    for _i in range(n):
        positive = bool(x.sum() > 0)
        if not positive:
            x = x + 2
        else:
            x = x.softmax(0) - 1
    return x


def test_a_condition_of_values_is_kept_by_decompose() -> None:
    pure = functionalize(cd.jit.script(condition_of_values).graph, write_back=True)
    made = decompose(pure, inputs=(X, 3))
    assert "softmax" not in str(made)
    for x in (X, -X, X / 10):
        cd.testing.assert_close(run(made, x, 3), condition_of_values(x, 3))
