"""Operators that a library defines, in every kind of graph; beside torch where it is there."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import fx, nn


@cd.library.custom_op("captured::twice", mutates_args=())
def twice(a: cd.Tensor, by: float = 2.0) -> cd.Tensor:
    """A function as an operator."""
    return a * by


@twice.register_fake
def _(a: cd.Tensor, by: float = 2.0) -> cd.Tensor:
    return cd.empty_like(a)


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    """Operators of a library: of two overloads, and one that writes."""
    made = cd.library.Library("captured_lib", "DEF")
    made.define("plus(Tensor a) -> Tensor")
    made.define("plus.Scalar(Tensor a, float b) -> Tensor")
    made.define("both.Tensor(Tensor a, Tensor b) -> Tensor")
    made.define("both.Scalar(Tensor a, Scalar b) -> Tensor")
    made.define("fill_(Tensor(a!) a) -> ()")
    made.impl("plus", lambda a: a + 1, "CompositeExplicitAutograd")
    made.impl("plus.Scalar", lambda a, b: a + b, "CompositeExplicitAutograd")
    made.impl("fill_", lambda a: (a.fill_(5), None)[1], "CompositeExplicitAutograd")
    yield
    made._destroy()


class Decorated(nn.Module):
    def forward(self, a: cd.Tensor) -> Any:
        return twice(a) + twice(a, by=3.0)


class Named(nn.Module):
    def forward(self, a: cd.Tensor) -> Any:
        return cd.ops.captured.twice(a) + cd.ops.captured.twice.default(a, 3.0)


class Overloads(nn.Module):
    def forward(self, a: cd.Tensor) -> Any:
        return cd.ops.captured_lib.plus(a) * cd.ops.captured_lib.plus(a, 0.5)


def script(module: nn.Module, x: Any) -> Any:
    return cd.jit.script(module)


def trace(module: nn.Module, x: Any) -> Any:
    return cd.jit.trace(module, x)


def symbolic(module: nn.Module, x: Any) -> Any:
    return fx.symbolic_trace(module)


def export(module: nn.Module, x: Any) -> Any:
    return cd.export.export(module, (x,)).module()


def compiled(module: nn.Module, x: Any) -> Any:
    return cd.compile(module)


@pytest.mark.parametrize("capture", [script, trace, symbolic, export, compiled])
@pytest.mark.parametrize("module", [Decorated, Named, Overloads])
def test_a_defined_operator_is_captured(
    module: type[nn.Module], capture: Callable[..., Any]
) -> None:
    x = cd.randn(2, 3)
    got = capture(module(), x)
    cd.testing.assert_close(got(x + 1), module()(x + 1))


@pytest.mark.parametrize("capture", [script, trace])
def test_a_saved_program_names_the_operator(capture: Callable[..., Any]) -> None:
    x, file = cd.randn(2, 3), io.BytesIO()
    cd.jit.save(capture(Named(), x), file)
    file.seek(0)
    cd.testing.assert_close(cd.jit.load(file)(x), 5 * x)


@pytest.mark.parametrize("capture", [script, trace])
def test_a_program_whose_operator_is_gone_says_so(capture: Callable[..., Any]) -> None:
    made = cd.library.Library("captured_gone", "DEF")
    made.define("f(Tensor a) -> Tensor")
    made.impl("f", lambda a: a + 1, "CompositeExplicitAutograd")

    class Gone(nn.Module):
        def forward(self, a: cd.Tensor) -> Any:
            return cd.ops.captured_gone.f(a)

    file = io.BytesIO()
    cd.jit.save(capture(Gone(), cd.ones(2)), file)
    made._destroy()
    file.seek(0)
    with pytest.raises(Exception, match="captured_gone::f.*\n.*define it first"):
        cd.jit.load(file)


def test_the_text_of_a_graph_runs() -> None:
    traced = fx.symbolic_trace(Overloads())
    assert "cd.ops.captured_lib.plus.default(a)" in traced.code
    assert "cd.ops.captured_lib.plus.Scalar(a, 0.5)" in traced.code
    x = cd.randn(2)
    for again in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        cd.testing.assert_close(again(x), Overloads()(x))


def test_a_pass_finds_the_operator_under_its_public_names() -> None:
    graph = fx.symbolic_trace(Named()).graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    assert [node.name for node in calls] == ["twice", "twice_1", "add"]
    for name in (cd.ops.captured.twice, cd.ops.captured.twice.default):
        assert [node.target == name for node in calls] == [True, True, False]
        assert {name: 1}.get(calls[0].target) == 1
    plus = fx.symbolic_trace(Overloads()).graph
    scalar = cd.ops.captured_lib.plus.Scalar
    assert [node.target == scalar for node in plus.nodes] == [False, False, True, False, False]


def test_a_write_of_a_defined_operator_is_kept() -> None:
    def program(a: Any) -> Any:
        b = a.clone()
        cd.ops.captured_lib.fill_(b)
        return b

    traced = cd.jit.trace(program, cd.ones(2))
    assert traced(cd.zeros(2)).tolist() == [5.0, 5.0]


def test_fx_asks_for_the_overload_where_it_cannot_tell() -> None:
    traced = fx.symbolic_trace(lambda a: cd.ops.captured_lib.both(a, 2))
    assert "captured_lib.both.Scalar(a, 2)" in traced.code
    with pytest.raises(ValueError, match=r"Tensor, Scalar.*\n.*captured_lib.both.Tensor\("):
        fx.symbolic_trace(lambda a, b: cd.ops.captured_lib.both(a, b))
