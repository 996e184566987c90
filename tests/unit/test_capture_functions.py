"""``autograd.Function`` and ``checkpoint`` in captured programs; beside torch where it is there."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import fx


def functions(lib: Any) -> dict[str, Any]:
    """Functions whose ``backward`` is another derivative than that of their operators."""

    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 100 * ctx.saved_tensors[0]

    class SetUp(lib.autograd.Function):
        @staticmethod
        def forward(a: Any) -> Any:
            return a * a

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 100 * ctx.saved_tensors[0]

    class Times(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, by: int) -> Any:
            return a * by, a + by

        @staticmethod
        def backward(ctx: Any, grad: Any, other: Any) -> Any:
            return grad * 7 + other, None

    return {
        "square": Square.apply,
        "set up": SetUp.apply,
        "times": lambda a: sum(Times.apply(a, 3)),
        "between": lambda a: Square.apply(a + 1).tanh(),
    }


class Checkpointed:
    """A checkpointed part of a module; made for one library."""

    def __new__(cls, lib: Any, reentrant: bool) -> Any:
        nn = lib.nn
        run = importlib.import_module(f"{lib.__name__}.utils.checkpoint").checkpoint

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

            def forward(self, a: Any) -> Any:
                return run(self.inner, a, use_reentrant=reentrant) + 1

        return Module()


def as_module(lib: Any, function: Any) -> Any:
    class Module(lib.nn.Module):
        def forward(self, a: Any) -> Any:
            return function(a)

    return Module()


def value_and_gradient(lib: Any, program: Any) -> tuple[Any, Any]:
    x = lib.full((2, 4), 2.0).requires_grad_()
    y = program(x)
    y.sum().backward()
    return y.tolist(), x.grad.tolist()


@pytest.mark.parametrize("name", ["square", "set up", "times", "between"])
def test_captures_of_a_function_are_as_in_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, cd):
        function, x = functions(lib)[name], lib.ones(2, 4)
        traced = lib.jit.trace(function, x, check_trace=False)
        exported = lib.export.export(as_module(lib, function), (x,)).module()
        found.append([value_and_gradient(lib, p) for p in (traced, exported)])
    for theirs, ours in zip(*found, strict=True):
        for a, b in zip(theirs, ours, strict=True):
            cd.testing.assert_close(cd.tensor(b), cd.tensor(a))


@pytest.mark.parametrize("name", ["square", "set up", "times", "between"])
def test_a_trace_and_a_compiled_program_have_the_gradients_of_backward(name: str) -> None:
    function = functions(cd)[name]
    wanted = value_and_gradient(cd, function)
    assert value_and_gradient(cd, cd.jit.trace(function, cd.ones(2, 4))) == wanted
    assert value_and_gradient(cd, cd.compile(function, dynamic=True)) == wanted


def test_a_function_of_a_parameter_alone() -> None:
    square = functions(cd)["square"]

    class Module(cd.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = cd.nn.Parameter(cd.full((3,), 2.0))

        def forward(self, a: Any) -> Any:
            return square(self.weight) + a

    module, x = Module(), cd.ones(3)
    cd.jit.trace(module, x)(x).sum().backward()
    assert module.weight.grad is not None and module.weight.grad.tolist() == [200.0] * 3
    exported: Any = cd.export.export(module, (x,)).module()
    assert exported(x).tolist() == [5.0] * 3
    module.weight.grad = None
    exported(x).sum().backward()
    assert module.weight.grad is not None and module.weight.grad.tolist() == [4.0] * 3


def test_a_call_in_no_grad_has_no_history_in_the_trace() -> None:
    square = functions(cd)["square"]

    def program(a: Any) -> Any:
        with cd.no_grad():
            b = square(a)
        return a * b

    assert value_and_gradient(cd, cd.jit.trace(program, cd.ones(2))) == value_and_gradient(
        cd, program
    )


def test_a_trace_with_a_function_is_not_saved() -> None:
    traced = cd.jit.trace(functions(cd)["square"], cd.ones(2))
    assert "Square_apply(input_1)" in traced.code
    with pytest.raises(cd.graph.GraphError, match=r"Square.*\n.*custom_op.*register_autograd"):
        cd.jit.save(traced, io.BytesIO())


def test_a_function_that_writes_is_refused_in_a_trace_and_exported() -> None:
    class Tripled(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.mark_dirty(a)
            return a.mul_(3)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3

    def program(a: Any) -> Any:
        return Tripled.apply(a * 1)

    with pytest.raises(RuntimeError, match=r"Tripled.apply\(\) writes.*\n.*Tripled.forward"):
        cd.jit.trace(program, cd.ones(2))
    exported: Any = cd.export.export(as_module(cd, program), (cd.ones(2),)).module()
    assert exported(cd.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_is_captured_as_the_call_of_its_function(reentrant: bool) -> None:
    module, x = Checkpointed(cd, reentrant), cd.ones(2, 4)
    wanted = value_and_gradient(cd, module)
    # The comparison runs the program without gradients, of which the reentrant kind warns.
    traced = cd.jit.trace(module, x, check_trace=not reentrant)
    assert "self.inner(a)" in traced.code
    file = io.BytesIO()
    cd.jit.save(traced, file)
    file.seek(0)
    for program in (traced, cd.jit.load(file), cd.export.export(module, (x,)).module()):
        got: Any = value_and_gradient(cd, program)
        cd.testing.assert_close(cd.tensor(got), cd.tensor(wanted))


def test_backward_hooks_are_refused_by_a_trace_as_in_torch() -> None:
    module = cd.nn.Sequential(cd.nn.Linear(2, 2))
    handle = module[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="Modules that have backward hooks assigned.*'0'"):
        cd.jit.trace(module, cd.ones(1, 2))
    handle.remove()
    cd.jit.trace(module, cd.ones(1, 2))


def test_fx_has_the_operators_of_forward() -> None:
    square = functions(cd)["square"]
    symbolic = fx.symbolic_trace(lambda a: square(a))
    assert "a * a" in symbolic.code
