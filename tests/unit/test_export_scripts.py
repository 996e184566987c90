"""``export`` of compiled programs: branches and loops that depend on values stay in the graph."""

from __future__ import annotations

import inspect
import io
from typing import Any, List  # noqa: UP035

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.graph import GraphError
from tests.unit import scripted_flow_programs as programs

PROGRAMS = {
    name: value
    for name, value in vars(programs).items()
    if inspect.isfunction(value) and value.__module__ == programs.__name__
}


def inputs() -> list[Any]:
    made = cd.Generator().manual_seed(3)
    shapes = [(4, 3), (4, 3), (2, 3), (7, 3)]
    drawn = [cd.randn(*shape, generator=made) for shape in shapes]
    return [*drawn, -cd.rand(4, 3, generator=made), 4 * cd.rand(4, 3, generator=made)]


def exported(program: Any) -> cd.export.ExportedProgram:
    sizes = {"x": {0: cd.Dim("n")}}
    return cd.export.export(cd.jit.script(program), (inputs()[0],), dynamic_shapes=sizes)


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def kinds(graph: Any) -> set[str]:
    return {node.op for node in graph.nodes} & {"if", "loop"}


def agree(form: Any, program: Any) -> None:
    for x in inputs():
        found, wanted = flat(form(x.clone())), flat(program(x.clone()))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            cd.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    made = exported(PROGRAMS[name])
    assert kinds(made.graph)
    file = io.BytesIO()
    cd.export.save(made, file)
    file.seek(0)
    for form in (made, made.run_decompositions(), cd.export.load(file)):
        agree(form.module(), PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_models_of_onnx(name: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = cd.onnx.export(exported(PROGRAMS[name]))
    assert {node.op_type for node in model.model_proto.graph.node} & {"If", "Loop"}
    agree(model, PROGRAMS[name])


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("steps", cd.zeros(()))

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        y = self.linear(x)
        for i in range(x.size(0)):
            if bool(y.sum() > 4):
                y = y.tanh() + self.linear.bias
            else:
                y = self.linear(y) * (i + 1)
                self.steps += 1
        return y


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scripted = cd.jit.script(Inner())

    def forward(self, x: Any) -> Any:
        return self.scripted(x + 1).relu()


@pytest.mark.parametrize("scripted", [False, True])
def test_modules_keep_parameters_gradients_and_buffers(scripted: bool) -> None:
    outer = Outer()
    net = cd.jit.script(outer) if scripted else outer
    made = cd.export.export(net, (inputs()[0],), dynamic_shapes={"x": {0: cd.Dim("n")}})
    assert kinds(made.graph) == {"loop"}
    assert set(made.graph_signature.parameters) == set(dict(outer.named_parameters()))
    module = made.module()
    bias = outer.scripted.linear.bias
    for x in inputs():
        outer.scripted.steps.zero_()
        wanted = outer(x)
        (gradient,) = cd.autograd.grad(wanted.sum(), (bias,))
        steps = outer.scripted.steps.clone()
        outer.scripted.steps.zero_()
        found = module(x)
        cd.testing.assert_close(found, wanted)
        cd.testing.assert_close(cd.autograd.grad(found.sum(), (bias,))[0], gradient)
        assert outer.scripted.steps.equal(steps)


def test_what_is_known_is_decided() -> None:
    def program(x, n: int = 3):  # type: ignore[no-untyped-def]
        if n > 2 and x.dim() == 2:
            for i in range(n):
                x = x + i
        return x

    made = cd.export.export(cd.jit.script(program), (cd.ones(2, 3),))
    assert not kinds(made.graph)
    assert made.module()(cd.ones(2, 3)).equal(cd.full((2, 3), 4.0))


def test_nodes_have_the_line_of_the_source() -> None:
    lines, first = inspect.getsourcelines(programs.early_returns)
    made = exported(programs.early_returns)
    (branch,) = made.graph.find_nodes(op="if")
    file, line, name = branch.meta["source"]
    assert file == programs.__file__ and name == "early_returns"
    assert "if bool(x.sum() > 0)" in lines[line - first]


def grows(x):  # type: ignore[no-untyped-def]
    rows = [x[0]]
    for i in range(x.size(0)):
        rows.append(x[i])
    return cd.stack(rows)


def widens(x):  # type: ignore[no-untyped-def]
    while bool(x.sum() < 50):
        x = cd.cat([x, x])
    return x


def two_shapes(x):  # type: ignore[no-untyped-def]
    if bool(x.sum() > 0):
        return x
    return x.sum()


def raises(x):  # type: ignore[no-untyped-def]
    if bool(x.sum() > 0):
        raise ValueError("no")
    return x


def size_of_a_value(x):  # type: ignore[no-untyped-def]
    return cd.zeros(int(x.sum()))


def number(x):  # type: ignore[no-untyped-def]
    return int(x.sum())


def text(x):  # type: ignore[no-untyped-def]
    return {f"{int(x.sum())}": x}


def of_several(x):  # type: ignore[no-untyped-def]
    if bool(x > 0):
        return x
    return -x


@pytest.mark.parametrize(
    ("program", "message", "line"),
    [
        (grows, r"carries 'rows', which changes its length", "for i in range"),
        (widens, r"carries 'x', which is a tensor of shape \(n, 3\).* and a tensor", "while bool"),
        (two_shapes, r"in one branch and a tensor of shape \(\)", "if bool"),
        (raises, "raises ValueError in a branch", "raise ValueError"),
        (size_of_a_value, "takes? no int|is called with a int", "cd.zeros(int"),
        (number, "returns <int that is computed", ""),
        (text, "is called with", "x.sum()"),
        (of_several, "shape .* is read as one number", "if bool"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_has_no_form(program: Any, message: str, line: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        exported(program)
    assert line in str(caught.value)
    assert not line or __file__ in str(caught.value)


class Counts(nn.Module):
    calls: int

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        if bool(x.sum() > 0):
            self.calls += 1
        return x


def test_attributes_are_not_written_in_branches() -> None:
    with pytest.raises(GraphError, match="attribute 'calls' is assigned") as caught:
        exported(Counts())
    assert "self.calls += 1" in str(caught.value)


class Box:
    def __init__(self) -> None:
        self.rows: List[cd.Tensor] = []  # noqa: UP006
        self.last = 0


def objects(x):  # type: ignore[no-untyped-def]
    box = Box()
    if bool(x.sum() > 0):
        box.rows.append(x)
    return cd.stack(box.rows)


def fields(x):  # type: ignore[no-untyped-def]
    box = Box()
    if bool(x.sum() > 0):
        box.last = 1
    return x * box.last


@pytest.mark.parametrize(
    ("program", "message"),
    [(objects, "list or dict of a module or an object"), (fields, "the field 'last'")],
)
def test_objects_are_not_written_in_branches(program: Any, message: str) -> None:
    cd.jit.script(Box)
    with pytest.raises(GraphError, match=message):
        exported(program)


def _added_to(x):
    y = x.clone()
    for i in range(x.shape[0]):
        y[i].add_(1)
    return y


def _through_a_name(x):
    y = x.clone()
    for i in range(x.shape[0]):
        row = y[i]
        row *= 2
    return y


def _through_a_view(x):
    y = x.clone()
    for i in range(x.shape[0]):
        row = y[i].view(-1)
        if x.sum() > 0:
            row[0] = 5
    return y


def _used_late(x):
    y = x.clone()
    for i in range(x.shape[0]):
        row = y[i]
        y[i] = row * 2
        y[i] = row + 1
    return y


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (_added_to, "written to in place"),
        (_through_a_name, "written to in place"),
        (_through_a_view, "written to in place"),
        (_used_late, "used after a write"),
    ],
)
def test_rows_at_computed_numbers_are_no_views(program: Any, what: str) -> None:
    with pytest.raises(GraphError, match=rf"(?s)a row that was read.* is {what}.*y\[i\]"):
        exported(program)


def _put_back(x):
    y = x.clone()
    for i in range(x.shape[0]):
        y[i] += i
        y[i, 0] *= 3
        before = y[i].clone()
        before.mul_(2)
        y[i] = y[i] + before
        y[i] = before + y[i]
    return y


def test_rows_that_are_assigned_or_copied_are_followed() -> None:
    made = exported(_put_back).module()
    for x in inputs():
        cd.testing.assert_close(made(x), _put_back(x))
