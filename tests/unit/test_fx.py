"""``fx``: tracing with proxies, generated modules, rewriting; beside torch.fx where it is there."""

from __future__ import annotations

import copy
import importlib
import io
import math
import operator
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import coredispatch as cd
from coredispatch import fx, nn
from coredispatch.fx.passes.shape_prop import ShapeProp


class Program(nn.Module):
    """Leaves, containers, parameters, methods, attributes, operators, unpacking, constants."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(cd.ones(3))
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.register_buffer("offset", cd.full((3,), 2.0))

    def forward(self, x: Any, factor: Any = 2) -> Any:
        rows = x.size(0)
        _, columns = x.shape
        y = self.inner(self.linear(x) + self.weight) * factor - self.offset
        y = nn.functional.relu(y.view(rows, -1))
        y = cd.cat([y, x], dim=1) + cd.ones(1)
        y[:, 0] = 0
        y += 1
        return {"y": y.softmax(-1)[:, :2], "s": math.sqrt(columns), "z": (-y, abs(y))}


def same(a: Any, b: Any) -> None:
    cd.testing.assert_close(a["y"], b["y"])
    assert a["s"] == b["s"]
    for left, right in zip(a["z"], b["z"], strict=True):
        cd.testing.assert_close(left, right)


@fx.wrap
def halved(x: Any) -> Any:
    """Recorded whole."""
    return x / 2 if x.sum() > 0 else x


def test_the_generated_module_does_what_the_program_does() -> None:
    program = Program()
    traced = fx.symbolic_trace(program)
    traced.graph.lint()
    x = cd.randn(2, 3)
    same(traced(x), program(x))
    same(traced(x, factor=3), program(x, 3))
    assert traced.linear is program.linear
    assert set(traced.state_dict()) == {*program.state_dict(), "_tensor_constant0"}
    traced(x)["y"].sum().backward()
    assert program.weight.grad is not None


def test_the_text() -> None:
    traced = fx.symbolic_trace(lambda x, y: (cd.relu(x) + y).sum(dim=1))
    assert traced.code == (
        "\ndef forward(self, x, y):\n"
        "    relu = cd.relu(x);  x = None\n"
        "    add = relu + y;  relu = y = None\n"
        "    sum_1 = add.sum(dim = 1);  add = None\n"
        "    return sum_1\n"
    )
    assert str(traced.graph).splitlines()[1:4] == [
        "    %x : [num_users=1] = placeholder[target=x]",
        "    %y : [num_users=1] = placeholder[target=y]",
        "    %relu : [num_users=1] = call_function[target=cd.relu](args = (%x,), kwargs = {})",
    ]


def pickled(module: Any) -> Any:
    return pickle.loads(pickle.dumps(module))


@pytest.mark.parametrize("remake", [copy.deepcopy, copy.copy, pickled])
def test_copies_and_pickles(remake: Any) -> None:
    traced = fx.symbolic_trace(Program())
    other = remake(traced)
    x = cd.randn(2, 3)
    same(other(x), traced(x))
    assert other.code == traced.code


def test_editing_and_recompiling() -> None:
    traced = fx.symbolic_trace(lambda x, y: cd.add(x, y) * x)
    for node in traced.graph.nodes:
        if node.target is cd.add:
            node.target = cd.sub
    assert traced(cd.ones(1) * 3, cd.ones(1)).item() == 12.0
    traced.recompile()
    assert traced(cd.ones(1) * 3, cd.ones(1)).item() == 6.0


def test_values_that_only_a_tensor_has() -> None:
    with pytest.raises(fx.TraceError, match=r"control flow \(at .*test_fx.py:\d+ in <lambda>"):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(fx.TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: list(x))
    with pytest.raises(RuntimeError, match="'len' is not supported"):
        fx.symbolic_trace(lambda x: len(x))
    with pytest.raises(fx.proxy.TraceError, match="iterated"):
        fx.symbolic_trace(lambda *x: sum(x))
    # nothing stays patched
    assert nn.Linear(2, 2)(cd.ones(1, 2)).shape == (1, 2)
    assert math.sqrt(4) == 2.0


def test_wrap_and_concrete_args() -> None:
    def program(x: Any, doubled: bool) -> Any:
        y = halved(x)
        return y * 2 if doubled else y

    traced = fx.symbolic_trace(program, concrete_args={"doubled": True})
    assert [n.target for n in traced.graph.find_nodes(op="placeholder")] == ["x", "doubled_1"]
    assert traced(cd.ones(1), True).item() == 1.0
    assert traced(-cd.ones(1), True).item() == -2.0
    refused = "doubled has been specialized to have value True but got another value"
    with pytest.raises(AssertionError, match=refused):
        traced(cd.ones(1), False)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    with pytest.raises(AssertionError, match=refused):
        traced(cd.ones(1), doubled_1=False)


def test_a_wrapped_function_stays_whole_when_its_graph_is_traced_again() -> None:
    traced = fx.symbolic_trace(lambda x: halved(x) + 1)
    for module in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        for program in (module, nn.Sequential(module, nn.ReLU())):
            again = fx.symbolic_trace(program)
            assert halved in [node.target for node in again.graph.nodes]
        assert module(cd.ones(1)).item() == 1.5
        assert module.forward.__globals__["halved_1"] is halved


def test_concrete_args_of_every_kind() -> None:
    def scaled(x: Any, factor: Any = None) -> Any:
        return x if factor is None else x * factor

    plain = fx.symbolic_trace(scaled, concrete_args={"factor": None})
    assert plain(3) == 3
    with pytest.raises(AssertionError, match="to have value None"):
        plain(3, 2)
    with pytest.warns(UserWarning, match="correct input factor"):
        known = fx.symbolic_trace(scaled, concrete_args={"factor": cd.tensor(2.0)})
    assert known(3, cd.tensor(5.0)).item() == 6.0
    all_of_them = fx.symbolic_trace(scaled, concrete_args=(fx.PH, 2))
    assert all_of_them(5, 2) == 10
    with pytest.raises(RuntimeError, match="expected 2 arguments but got 1 concrete"):
        fx.symbolic_trace(scaled, concrete_args=(fx.PH,))

    marked = fx._symbolic_trace.PHWithMeta("first")
    graph = fx.Tracer().trace(lambda *args: args[0] - args[1], (marked, fx.PH))
    one, two = graph.find_nodes(op="placeholder")
    assert (one.target, two.target, one.ph_key) == ("input_0", "input_1", "first")
    assert not hasattr(two, "ph_key")


class _Pair(NamedTuple):
    a: Any
    b: Any


def test_concrete_args_with_parts() -> None:
    """The whole is one input; what is known of its parts is checked."""

    def program(x: Any, y: Any = 3) -> Any:
        first, rest = x
        total = first.a - first.b
        for value in rest["some"]:
            total = total + value * y
        return {"total": total, "flag": rest["flag"]}

    shape = [_Pair(fx.PH, fx.PH), {"some": (fx.PH, fx.PH), "flag": True}]
    traced = fx.symbolic_trace(program, concrete_args={"x": shape, "y": 2})
    assert [n.target for n in traced.graph.find_nodes(op="placeholder")] == ["x", "y"]
    given = [_Pair(5, 1), {"some": (10, 20), "flag": True}]
    for made in (traced, pickle.loads(pickle.dumps(traced)), fx.Interpreter(traced).run):
        assert made(given, 2) == {"total": 64, "flag": True}
    given[1]["flag"] = False
    with pytest.raises(AssertionError, match="x has been specialized to have value True"):
        traced(given, 2)


class _Rest(nn.Module):
    def forward(self, x: Any, y: Any = 2, *args: Any, k: Any, j: Any = 3, **named: Any) -> Any:
        return x * y + args[0] * k + named["m"] * j


def test_any_number_of_arguments_is_one_input() -> None:
    """What ``*args`` and ``**kwargs`` take is indexed, and stays as it is in the code."""
    program = _Rest()
    traced = fx.symbolic_trace(program)
    places = [node.target for node in traced.graph.nodes if node.op == "placeholder"]
    assert places == ["x", "y", "*args", "k", "j", "**named"]
    assert "forward(self, x, y = 2, *args, k, j = 3, **named)" in traced.code
    values = [cd.tensor(float(n)) for n in range(1, 6)]
    for made in (traced, pickle.loads(pickle.dumps(traced))):
        assert made(*values[:3], k=values[3], m=values[4]) == program(
            *values[:3], k=values[3], m=values[4]
        )

    def added(x: Any, *args: Any) -> Any:
        return x + args[0] * args[1]

    assert fx.Interpreter(fx.symbolic_trace(added)).run(*values[:3]).item() == 7.0
    known = fx.symbolic_trace(added, concrete_args={"args": (2, 3)})
    assert known(values[0]).item() == 7.0


def test_a_tracer_that_opens_everything_and_one_that_opens_nothing() -> None:
    class Open(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return False

    class Shut(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return True

    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 1)))
    x = cd.randn(3, 2)
    opened, shut = (fx.GraphModule(net, kind().trace(net)) for kind in (Open, Shut))
    assert not opened.graph.find_nodes(op="call_module")
    assert [n.target for n in shut.graph.find_nodes(op="call_module")] == ["0", "1"]
    cd.testing.assert_close(opened(x), net(x))
    cd.testing.assert_close(shut(x), net(x))


def test_interpreter_and_transformer() -> None:
    class Swap(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is cd.sigmoid:
                return cd.neg(*args, **kwargs)
            return super().call_function(target, args, kwargs)

        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target == "neg":
                return args[0].sigmoid(**kwargs)
            return super().call_method(target, args, kwargs)

    traced = fx.symbolic_trace(lambda x: cd.sigmoid(x) + x.neg())
    x = cd.randn(4)
    cd.testing.assert_close(fx.Interpreter(traced).run(x), cd.sigmoid(x) - x)
    cd.testing.assert_close(Swap(traced).transform()(x), -x + x.sigmoid())


def test_replace_pattern() -> None:
    def program(x: Any, w1: Any, w2: Any) -> Any:
        m1 = cd.cat([w1, w2]).sum()
        m2 = cd.cat([w1, w2]).sum()
        return x + cd.max(m1) + cd.max(m2)

    traced = fx.symbolic_trace(program)
    found = fx.replace_pattern(
        traced, lambda w1, w2: cd.cat([w1, w2]).sum(), lambda w1, w2: cd.stack([w1, w2]).mean()
    )
    assert len(found) == 2
    traced.graph.lint()
    a, b = cd.randn(3), cd.randn(3)
    wanted = cd.stack([a, b]).mean()
    cd.testing.assert_close(traced(cd.ones(()), a, b), 1 + wanted + wanted)


def test_a_pattern_whose_inner_value_is_used_elsewhere_stays() -> None:
    def program(x: Any) -> Any:
        y = cd.relu(x)
        return cd.neg(y) + y

    traced = fx.symbolic_trace(program)
    assert fx.replace_pattern(traced, lambda x: cd.neg(cd.relu(x)), lambda x: x) == []
    assert traced(cd.ones(1)).item() == 0.0


def test_shapes_of_every_value() -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 5), nn.ReLU()))
    ShapeProp(traced).propagate(cd.ones(2, 3))
    shapes = [tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes if n.op != "output"]
    assert shapes == [(2, 3), (2, 5), (2, 5)]


def test_a_graph_made_by_hand() -> None:
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    graph.output((x.relu() @ x.t() + 1).node)
    module = fx.GraphModule({}, graph)
    v = cd.randn(2, 2)
    cd.testing.assert_close(module(v), v.relu() @ v.t() + 1)


def test_unused_submodules_are_deleted() -> None:
    traced = fx.symbolic_trace(Program())
    traced.add_submodule("extra.deep", nn.Linear(1, 1))
    traced.delete_all_unused_submodules()
    assert not hasattr(traced, "extra")
    assert hasattr(traced.inner, "0")


class TestBesideTorch:
    """The same program gives the same graph, but for the name of the package."""

    @pytest.mark.parametrize("number", range(6))
    def test_graphs(self, number: int) -> None:
        torch = pytest.importorskip("torch")
        programs: list[Any] = [
            lambda t: lambda x, y: t.relu(x) + y * 2,
            lambda t: lambda x: x.view(x.size(0), -1).sum(dim=1, keepdim=True),
            lambda t: lambda x, k=3: t.cat([x, x], dim=1)[:, :k],
            lambda t: lambda x: (-x, abs(x), x.shape[0] + 1, x**2 / 3 // 2),
            lambda t: lambda x: t.softmax(x, dim=-1).argmax(-1),
            lambda t: t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.Dropout(0.1)),
        ]

        def lines(package: Any, traced: Any) -> list[str]:
            text = str(traced.graph).replace("torch.", "cd.")
            return [line.rstrip() for line in text.splitlines()]

        from torch import fx as theirs

        ours = lines(cd, fx.symbolic_trace(programs[number](cd)))
        assert ours == lines(torch, theirs.symbolic_trace(programs[number](torch)))


def test_targets_are_the_public_functions() -> None:
    traced = fx.symbolic_trace(lambda x: operator.add(nn.functional.relu(x), cd.exp(x)))
    targets = [n.target for n in traced.graph.find_nodes(op="call_function")]
    assert targets == [nn.functional.relu, cd.exp, operator.add]


def test_what_is_computed_of_parameters_alone_is_computed_anew() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.g = nn.Parameter(cd.randn(5, 7)), nn.Parameter(cd.rand(5))

        def forward(self, x: Any) -> Any:
            zeros = cd.zeros(len(self.w), device=self.w.device)
            w = self.w * (self.g / self.w.norm(dim=1)).unsqueeze(1)
            return x @ w.t() + zeros if self.w.ndim == 2 and self.w.shape[1] == 7 else x

    module, x = Normed(), cd.randn(3, 7)
    made = fx.symbolic_trace(module)
    for _ in range(2):  # twice: nothing of the first backward pass is left in the graph
        with cd.no_grad():
            module.w.mul_(-2)
        cd.testing.assert_close(made(x), module(x))
        made(x).sum().backward()
    assert module.w.grad is not None and module.g.grad is not None


@pytest.mark.parametrize(
    "program",
    [lambda x: range(x.shape[0]), lambda x: x[int(x.sum())], lambda x: 3 in x, len],
    ids=["range", "index", "in", "len"],
)
def test_what_asks_for_a_number_is_told_with_its_line(program: Any) -> None:
    with pytest.raises((fx.TraceError, RuntimeError), match=r"\(at .*\.py:\d+ in "):
        fx.symbolic_trace(lambda x: program(x))


class Branched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.register_buffer("shift", cd.ones(3))

    def forward(self, x: Any) -> Any:
        y = self.body(x).view(x.shape[0], -1)[:, :2]
        return cd.cat([y, y * 2], dim=1).sum(-1, keepdim=True) + self.shift


def test_a_scripted_graph_module_is_saved_and_loaded() -> None:
    x = cd.randn(2, 3)
    for net in (Branched(), nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 2)):
        graphed = cd.fx.symbolic_trace(net)
        file = io.BytesIO()
        cd.jit.save(cd.jit.script(nn.Sequential(graphed)), file)
        file.seek(0)
        loaded = cd.jit.load(file)
        cd.testing.assert_close(loaded(x), net(x))
        assert [name[2:] for name in loaded.state_dict()] == list(graphed.state_dict())


def test_writes_that_an_argument_asks_for_are_no_dead_code() -> None:
    kept = cd.zeros(2)

    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any, y: Any, z: Any) -> Any:
            cd.add(x, 1, out=kept)
            nn.functional.relu(y, inplace=True)
            self.relu(z)
            return x * 1

    graphed = fx.symbolic_trace(Writing())
    graphed.graph.eliminate_dead_code()
    graphed.recompile()
    x, y, z = (cd.full((2,), -3.0) for _ in range(3))
    graphed(x, y, z)
    assert kept.tolist() == [-2.0, -2.0] and y.tolist() == z.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: cd.zeros(x.size(0)) + cd.zeros((x.size(0),)) + cd.ones(x.shape[0]),
        lambda x: cd.zeros(x.shape) + cd.full(x.size(), 1.0),
        lambda x: cd.arange(x.size(0)) + cd.arange(0, x.size(0), 1),
        lambda x: cd.full((x.size(0),), 2.0) + cd.linspace(0, 1, x.size(0)),
        lambda x: cd.eye(x.size(0)) + cd.tril(cd.ones(x.size(0), x.size(0))),
        lambda x: cd.reshape(x, (x.size(1), x.size(0))),
        lambda x: cd.nn.functional.pad(x, (x.size(0), 0)),
        lambda x: cd.nn.functional.layer_norm(x, x.shape[1:]),
        lambda x: cd.nn.functional.group_norm(x[..., None], x.size(1)),
        lambda x: cd.roll(x, x.size(0)),
        lambda x: cd.broadcast_to(x, (2, x.size(0), x.size(1))),
    ],
)
def test_sizes_that_are_proxies_are_written_into_calls(program: Any) -> None:
    traced = fx.symbolic_trace(program)
    traced.graph.lint()
    for shape in ((2, 3), (4, 5)):
        x = cd.arange(float(shape[0] * shape[1])).view(shape)
        assert cd.equal(traced(x), program(x))


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy"])
def test_what_a_user_gave_a_graph_module_stays(how: str) -> None:
    made = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval())
    made.note, made.meta["seen"] = {"a": 1}, True
    made.extra = nn.Linear(2, 3)
    made.register_buffer("count", cd.ones(1))
    again: Any = {
        "pickle": lambda: pickle.loads(pickle.dumps(made)),
        "deepcopy": lambda: copy.deepcopy(made),
        "copy": lambda: copy.copy(made),
    }[how]()
    assert again.note == {"a": 1} and again.meta == {"seen": True} and not again.training
    assert again.state_dict().keys() == made.state_dict().keys()
    assert (again.extra is made.extra) == (how == "copy")
    x = cd.randn(1, 2)
    assert cd.equal(again(x), made(x)) and cd.equal(again.extra(x), made.extra(x))


def test_an_assertion_is_a_part_of_the_traced_program() -> None:
    class Asserting(fx.Tracer):
        trace_asserts = True

    scope: dict[str, Any] = {}  # pytest writes other code for the assertions of this file
    text = "def positive(x):\n    assert x.sum() > 0\n    return x + 1\n"
    exec(compile(text, "program.py", "exec"), scope)
    graph = Asserting().trace(scope["positive"])
    graph.eliminate_dead_code()
    traced = fx.GraphModule({}, graph)
    assert traced(cd.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(AssertionError, match="program.py:2 in positive"):
        traced(-cd.ones(2))


class Kept(nn.Module):
    """What a module may hold: submodules, parameters, buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.rest = nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2))
        self.weight = nn.Parameter(cd.full((2,), 2.0), requires_grad=False)
        self.register_buffer("shift", cd.full((2,), 3.0))
        self.register_buffer("mask", cd.tensor([True, False]), persistent=False)

    def forward(self, x: Any) -> Any:
        y = self.rest(self.linear(x)) * self.weight + self.shift
        return y.clamp(-math.inf, 4)[:, :2].to(cd.float64) + self.mask


def test_a_folder_is_a_package_with_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Kept().eval()
    fx.symbolic_trace(module).to_folder(tmp_path / "written_module", "Net")
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("written_module").Net()
    x = cd.randn(4, 3)
    assert made(x).equal(module(x))
    assert set(made.state_dict()) == set(module.state_dict())
    assert not made.weight.requires_grad
    assert not made.training


class Scaled(nn.Module):
    def __init__(self, lib: Any) -> None:
        super().__init__()
        self.inner = lib.nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.inner(x) * 2


def _rewritten(lib: Any, rewriter: Any) -> Any:
    """What is left of a program, and how often each way of replacing took hold."""

    def program(x: Any) -> Any:
        return lib.add(lib.mul(x, 2), 1) + lib.add(lib.mul(x, 3), 1) - lib.add(x, x)

    def pattern(x: Any) -> Any:
        return lib.mul(x, 2)

    def first(match: Any, graph: Any, wanted: Any) -> bool:
        assert match.anchors[0].args[1] == 2 and match.placeholder_nodes[0].op == "placeholder"
        return bool(match.returning_nodes[0].args[1] < 3)

    def halved(match: Any, graph: Any, wanted: Any) -> Any:
        factor = match.nodes_map[match.anchors[0]].args[1]
        return lib.fx.symbolic_trace(lambda x: lib.div(x, factor)).graph

    ways: list[dict[str, Any]] = [
        {"replacement": lambda x: lib.neg(x)},
        {"replacement": lambda x: lib.neg(x), "ignore_literals": True},
        {"replacement": lambda x: lib.neg(x), "ignore_literals": True, "match_filters": [first]},
        {"replacement_callback": halved, "ignore_literals": True},
        {"replacement": lib.fx.symbolic_trace(lambda x: lib.exp(x)), "match_filters": []},
    ]
    x, found = lib.arange(3.0), []
    for way in ways:
        traced = lib.fx.symbolic_trace(program)
        made = rewriter.replace_pattern_with_filters(traced, pattern, **way)
        new = [[node.op for node in one.replacements] for one in made]
        found.append((traced(x).tolist(), new, [len(one.nodes_map) for one in made]))
    return found


def test_patterns_are_replaced_where_filters_agree() -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.fx.subgraph_rewriter")
    mine = _rewritten(cd, fx.subgraph_rewriter)
    for (value, new, _), (wanted, made, _) in zip(mine, _rewritten(torch, theirs), strict=True):
        assert value == pytest.approx(wanted)
        assert new == made
    with pytest.raises(AssertionError, match="Must provide"):
        traced = fx.symbolic_trace(lambda x: x + 1)
        fx.subgraph_rewriter.replace_pattern_with_filters(traced, lambda x: x + 1)


def test_a_replacement_brings_its_submodules() -> None:
    traced = fx.symbolic_trace(lambda x: cd.sigmoid(x) + 1)
    fx.replace_pattern(traced, lambda x: cd.sigmoid(x), fx.symbolic_trace(Scaled(cd)))
    assert traced(cd.tensor([-1.0, 3.0])).tolist() == [1.0, 7.0]
    assert isinstance(traced.inner, nn.ReLU)
