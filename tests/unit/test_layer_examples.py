"""The layers of ``examples/layers`` work, and each is as short as it says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.plugin import OpError, Wrapper

pytestmark = pytest.mark.once

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "layers"
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def example() -> Iterator[Callable[[str], ModuleType]]:
    """Load an example as the plugin that it is, for the length of a test."""
    loaded: list[str] = []

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        cd.plugins.load(name, module)
        loaded.append(name)
        return module

    yield load
    for name in loaded:
        cd.plugins.unload(name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_imports_what_any_plugin_may(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    for module in re.findall(r"^\s*(?:from|import) (coredispatch\S*)", text, re.MULTILINE):
        assert module in ("coredispatch", "coredispatch.plugin")


@pytest.mark.parametrize("name", ["trace_layer", "profile_layer"])
def test_an_example_runs_as_a_program(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
    )
    assert done.returncode == 0, done.stderr
    assert "linear(" in done.stdout or "matmul" in done.stdout


# -- trace -----------------------------------------------------------------------------------------


def test_a_training_step_with_adam_is_traced_in_order(example: Any) -> None:
    tracing = example("trace_layer").tracing
    net = cd.nn.Sequential(cd.nn.Linear(4, 8), cd.nn.ReLU(), cd.nn.Linear(8, 3))
    optimizer = cd.optim.Adam(net.parameters(), lr=1e-3)
    x, labels = cd.randn(5, 4), cd.tensor([0, 1, 2, 1, 0])
    with tracing() as trace:
        F.cross_entropy(net(x), labels).backward()
        optimizer.step()
    names = [line.partition("(")[0].rpartition(" ")[2] for line in trace.lines]
    forward = ["linear", "relu", "linear", "cross_entropy"]
    assert names[:4] == forward and names.count("adam_step") == 4
    backward = names[4 : names.index("adam_step")]
    assert "cross_entropy_backward" in backward and "threshold_backward" in backward
    # What one operator makes, later ones take by the same name.
    made: set[str] = set()
    for line in trace.lines:
        result, _, call = line.rpartition(" = ")
        for tensor in re.findall(r"%\d+", call):
            assert tensor in made, line
        made.update(re.findall(r"%\d+", result))


def test_views_and_writes_are_traced(example: Any) -> None:
    tracing = example("trace_layer").tracing
    x = cd.zeros(2, 3)
    with tracing() as trace:
        x.t()[0].add_(1)
    names = [line.partition("(")[0].rpartition(" ")[2] for line in trace.lines]
    assert names[-1] == "add_" and "getitem" in names and len(names) == 3
    assert x.tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


# -- profile ---------------------------------------------------------------------------------------


def test_calls_and_elements_are_counted(example: Any) -> None:
    counting = example("profile_layer").counting
    x = cd.ones(3, 4)
    with counting() as outer:
        x + x
        with counting() as inner:
            x + x
            cd.topk(x, 2, 1)
        (x * x).sum()
    assert outer.calls == {"add": 1, "mul": 1, "sum": 1}
    assert outer.elements == {"add": 12, "mul": 12, "sum": 1}
    assert inner.calls["add"] == 1 and inner.elements["topk"] == 2 * 3 * 2
    assert "add" in outer.table()


# -- vmap ------------------------------------------------------------------------------------------


def looped(function: Any, *tensors: Any) -> Any:
    """What ``vmap(function)`` must give, by a loop."""
    return cd.stack([function(*row) for row in zip(*tensors, strict=True)])


W = np.random.default_rng(0).standard_normal((4, 3))
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "elementwise": (lambda x, y: (x * y).tanh() - x / (y * y + 1), ((3,), (3,))),
    "of different ranks": (lambda x, y: x * y + x.exp(), ((2, 3), (3,))),
    "with a number and a constant": (lambda x: cd.tensor(W) * x + 2, ((3,),)),
    "composite": (lambda x: F.silu(x) + F.softsign(x), ((2, 3),)),
    "matrix times vector": (lambda x: cd.tensor(W) @ x, ((3,),)),
    "vector times matrix": (lambda x: x @ cd.tensor(W), ((4,),)),
    "vectors": (lambda x, y: x @ y, ((3,), (3,))),
    "matrices": (lambda x, y: (x @ y).mT, ((2, 3), (3, 4))),
    "batched matrices": (lambda x, y: x @ y, ((5, 2, 3), (3, 4))),
    "sums": (lambda x: x.sum(0) * x.sum() + x.mean(), ((2, 3),)),
    "linear": (lambda x, w: F.linear(x, w, cd.tensor(W[:, 0])), ((3,), (4, 3))),
    "not of its argument": (lambda x: cd.ones(2, dtype=cd.float64), ((3,),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_a_loop(example: Any, name: str) -> None:
    vmap = example("vmap_layer").vmap
    function, shapes = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    tensors = [cd.tensor(rng.standard_normal((6, *shape))) for shape in shapes]
    found, expected = vmap(function)(*tensors), looped(function, *tensors)
    assert found.shape == expected.shape and found.dtype is expected.dtype
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "not of its argument"])
def test_gradients_flow_through_vmap(example: Any, name: str) -> None:
    vmap = example("vmap_layer").vmap
    function, shapes = FUNCTIONS[name]
    rng = np.random.default_rng(2)
    tensors = [cd.tensor(rng.standard_normal((3, *shape)), requires_grad=True) for shape in shapes]
    assert cd.autograd.gradcheck(vmap(function), tuple(tensors))


def test_gradients_of_what_a_mapped_function_closes_over(example: Any) -> None:
    vmap = example("vmap_layer").vmap
    weight = cd.tensor(W, requires_grad=True)
    x = cd.tensor(np.random.default_rng(3).standard_normal((5, 3)))

    def function(x: Any) -> Any:
        return (weight @ x).tanh()

    (mapped,) = cd.autograd.grad(vmap(function)(x).sum(), weight)
    (loop,) = cd.autograd.grad(looped(function, x).sum(), weight)
    np.testing.assert_allclose(mapped.numpy(), loop.numpy(), rtol=1e-12)


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), seed=st.integers(0, 99))
def test_vmaps_nest(rows: int, columns: int, seed: int) -> None:
    spec = importlib.util.spec_from_file_location("nested", FOLDER / "vmap_layer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cd.plugins.load("nested", module)
    try:
        rng = np.random.default_rng(seed)
        a, b = (
            cd.tensor(rng.standard_normal((rows, 3))),
            cd.tensor(rng.standard_normal((columns, 3))),
        )
        outer = module.vmap(lambda x: module.vmap(lambda y: (x * y).sum() + x @ y)(b))
        np.testing.assert_allclose(
            outer(a).numpy(), 2 * a.numpy() @ b.numpy().T, rtol=1e-9, atol=1e-12
        )
    finally:
        cd.plugins.unload("nested")


def test_vmap_over_weights_of_a_module_records_them(example: Any) -> None:
    vmap = example("vmap_layer").vmap
    layer = cd.nn.Linear(3, 2)
    x = cd.randn(7, 3)
    vmap(layer)(x).sum().backward()
    gradient = layer.weight.grad.clone()
    layer.zero_grad()
    layer(x).sum().backward()
    np.testing.assert_allclose(gradient.numpy(), layer.weight.grad.numpy(), rtol=1e-5, atol=1e-6)


# -- what wrappers say of themselves ---------------------------------------------------------------


@pytest.fixture
def wrapped(example: Any) -> Any:
    return example("vmap_layer").Batched.wrap(cd.ones(3, 2, dtype=cd.float64), level=0)


def test_a_wrapper_forwards_what_can_be_known_of_it(wrapped: Any) -> None:
    assert wrapped.shape == (2,) and wrapped.ndim == 1 and wrapped.numel() == 2
    assert wrapped.dtype is cd.float64 and wrapped.device == cd.device("cpu")
    assert wrapped.layout == "strided" and not wrapped.is_meta
    assert repr(wrapped).startswith("tensor(Batched(tensor([[1., 1.]")
    assert "layer='batch'" in repr(wrapped)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: x.sum().item(),
        lambda x: bool(x.sum()),
        lambda x: np.asarray(x),
        lambda x: x.stride(),
        lambda x: cd.save(x, os.devnull),
        lambda x: x.to("meta"),
        lambda x: cd.cumsum(x, 0),
        lambda x: x.add_(1),
    ],
)
def test_what_a_wrapper_cannot_do_names_its_layer(wrapped: Any, ask: Any) -> None:
    with pytest.raises((OpError, RuntimeError), match="'batch'"):
        ask(wrapped)


def test_a_layer_may_serve_the_reads_of_its_wrappers(load: Any) -> None:
    from coredispatch.plugin import Layer

    class Doubled(Wrapper):
        layer = "doubled"

    def to_host(call: Any, x: Any) -> Any:
        return 2 * call.again(Doubled.of(x).value)

    load("doubled", lambda r: r.layer(Layer("doubled", kernels={"to_host": to_host}, wraps=True)))
    x = Doubled.wrap(cd.tensor([1.5, 2.0]))
    assert x.tolist() == [3.0, 4.0] and np.asarray(x).tolist() == [3.0, 4.0]
    assert Doubled.wrap(cd.tensor(1.5)).item() == 3.0 and bool(Doubled.wrap(cd.tensor(1)))
    with pytest.raises(OpError, match="'doubled'"):
        x.stride()


@pytest.mark.parametrize("method", ["again", "redispatch"])
def test_a_layer_that_passes_on_other_than_all_arguments_is_told_so(load: Any, method: str) -> None:
    from coredispatch.plugin import Layer

    class Careless(Wrapper):
        layer = "careless"

    def multiply(call: Any, a: Any, b: Any) -> Any:
        return getattr(call, method)(Careless.of(a).value, b, 1)  # one too many

    def total(call: Any, x: Any, *options: Any) -> Any:
        return getattr(call, method)(Careless.of(x).value)  # without the options

    kernels = {"mul": multiply, "sum": total}
    load("careless", lambda r: r.layer(Layer("careless", kernels=kernels, wraps=True)))
    x = Careless.wrap(cd.ones(2))
    for run, message in (
        (lambda: x * 2, f"call.{method} of 'mul' got 3 arguments, the operator has 2"),
        (lambda: x.sum(), f"call.{method} of 'sum' got 1 arguments, the operator has 4"),
    ):
        with pytest.raises(TypeError, match=message) as caught:
            run()
        # The innermost line of the program's own is the author's.
        own = [entry for entry in caught.traceback if entry.path.name == "test_layer_examples.py"]
        assert own[-1].name in ("multiply", "total")


def test_a_layer_that_passes_its_wrapper_on_is_named(load: Any) -> None:
    from coredispatch.plugin import Layer

    class Forgetful(Wrapper):
        layer = "forgetful"

    load("forgetful", lambda r: r.layer(Layer("forgetful", generic=lambda c, args: c.below(args))))
    x = Forgetful.wrap(cd.ones(2))
    with pytest.raises(OpError, match="'forgetful' passed its own wrapper on") as caught:
        cd.softmax(x, 0)
    assert "Forgetful.of(x).value" in str(caught.value)


def test_a_wrapper_needs_a_layer_and_a_tensor(load: Any) -> None:
    from coredispatch.plugin import Layer, RegistrationError

    class Lost(Wrapper):
        layer = "lost"

    with pytest.raises(RegistrationError, match="'lost', which is no layer"):
        Lost.wrap(cd.ones(2))
    load("lost", lambda r: r.layer(Layer("lost", wraps=True)))
    with pytest.raises(OpError, match="takes a tensor, not float"):
        Lost.wrap(3.0)
    assert Lost.of(cd.ones(2)) is None and Lost.of(3) is None


def test_a_wrapper_of_an_unloaded_layer_says_so(load: Any) -> None:
    from coredispatch.plugin import Layer

    class Gone(Wrapper):
        layer = "gone"

    load("gone", lambda r: r.layer(Layer("gone", wraps=True)))
    x = Gone.wrap(cd.ones(2))
    cd.plugins.unload("gone")
    with pytest.raises(OpError, match="plugin is not loaded: gone"):
        x + 1
    assert "gone not loaded" in repr(x)


# -- rules of an operator for a layer --------------------------------------------------------------


def test_an_operator_states_its_rule_for_a_layer_that_need_not_be_there(
    load: Any, example: Any
) -> None:
    from coredispatch.plugin import composite

    @composite(method=False, namespace=())
    def halve(self: Tensor) -> Tensor:  # noqa: F821
        return self / 2

    @halve.rule("batch")
    def _(call: Any, x: Any) -> Any:
        inside = type(x.raw).of(x)
        return type(x.raw).wrap(call.again(inside.value), level=inside.level + 1)

    load("halve", lambda r: r.op(halve))
    assert halve(cd.ones(2)).tolist() == [0.5, 0.5] and set(halve.rules) == {"batch"}
    module = example("vmap_layer")
    x = module.Batched.wrap(cd.ones(3, 2), level=0)
    out = module.Batched.of(halve(x))
    assert out.level == 1 and out.value.tolist() == [[0.5, 0.5]] * 3
    assert "the operator's own rule" in str(cd.explain(halve, x))


def test_a_rule_names_a_layer_and_is_a_function() -> None:
    from coredispatch.plugin import SchemaError, composite

    @composite(method=False, namespace=())
    def keep(self: Tensor) -> Tensor:  # noqa: F821
        return self

    with pytest.raises(SchemaError, match="does not name a layer"):
        keep.rule(keep)
    with pytest.raises(SchemaError, match="its rule for 'batch' is 3"):
        keep.rule("batch")(3)
    assert keep.rules == {}
