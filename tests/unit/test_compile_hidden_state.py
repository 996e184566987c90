"""State that a compiled program reaches where nobody would look: it counts as it does eagerly."""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

F = cd.nn.functional


def agrees(make: Callable[[], tuple[Callable[[Any], Any], Callable[[], Any]]]) -> None:
    """Four calls of a program and of its compiled twin: the same results, and the same state."""
    found = []
    for compiled in (False, True):
        program, state = make()
        call = cd.compile(program) if compiled else program
        results = [call(cd.full((1,), float(i))).tolist() for i in (1, 1, 2, 3)]
        found.append((results, state()))
    assert found[0] == found[1]


# ---- functions that are kept in odd places --------------------------------------------------


def counting() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    calls = [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        return x * calls[0]

    return function, lambda: calls[0]


def in_mapping_proxy() -> Any:
    function, state = counting()
    proxy = types.MappingProxyType({"f": function})
    return lambda x: proxy["f"](x), state


def in_array_of_objects() -> Any:
    function, state = counting()
    array = np.empty(1, object)
    array[0] = function
    return lambda x: array[0](x), state


def named_as_a_function_of_the_library() -> Any:
    function, state = counting()
    wrapped = functools.wraps(F.relu)(lambda x: function(x))
    return lambda x: wrapped(x), state


def in_a_context_manager_that_decorates() -> Any:
    calls = [0]

    @contextlib.contextmanager
    def timer() -> Any:
        calls[0] += 1
        yield

    return timer()(lambda x: x * 2), lambda: calls[0]


def as_default_factory() -> Any:
    numbers = itertools.count(1)

    @dataclasses.dataclass
    class Request:
        number: int = dataclasses.field(default_factory=numbers.__next__)

    return lambda x: x * Request().number, lambda: next(numbers)


def as_function_of_arrays() -> Any:
    function, state = counting()
    ufunc = np.frompyfunc(lambda k: function(k), 1, 1)
    return lambda x: x * ufunc(2), state


def on_builtins() -> Any:
    function, state = counting()
    builtins.hidden_for_a_test = function  # type: ignore[attr-defined]
    return lambda x: hidden_for_a_test(x), state  # type: ignore[name-defined]  # noqa: F821


def as_hook_of_every_module() -> Any:
    seen: list[Any] = []
    handle = cd.nn.modules.module.register_module_forward_hook(
        lambda module, args, output: seen.append(output.tolist())
    )
    relu = cd.nn.ReLU()

    def state() -> Any:
        handle.remove()
        return seen

    return lambda x: relu(x - 2), state


def as_hook_of_every_optimizer() -> Any:
    steps = [0]

    def count(*_: Any) -> None:
        steps[0] += 1

    handle = cd.optim.optimizer.register_optimizer_step_pre_hook(count)
    weight = cd.nn.Parameter(cd.ones(1))
    optimizer = cd.optim.SGD([weight], lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        return weight.detach().clone()

    def state() -> Any:
        handle.remove()
        return steps[0]

    return step, state


def as_hook_of_several_gradients() -> Any:
    seen = []
    a, b = (cd.ones(1, requires_grad=True) for _ in range(2))
    hook: Any = lambda grads: seen.append([g is None for g in grads])  # noqa: E731
    cd.autograd.graph.register_multi_grad_hook((a, b), hook)

    def step(x: Any) -> Any:
        (a * x + b).sum().backward()
        return x

    return step, lambda: len(seen)


@pytest.mark.parametrize(
    "make",
    [
        in_mapping_proxy,
        in_array_of_objects,
        named_as_a_function_of_the_library,
        in_a_context_manager_that_decorates,
        as_default_factory,
        as_function_of_arrays,
        on_builtins,
        as_hook_of_every_module,
        as_hook_of_every_optimizer,
        as_hook_of_several_gradients,
    ],
)
def test_functions_in_odd_places(make: Any) -> None:
    try:
        agrees(make)
    finally:
        vars(builtins).pop("hidden_for_a_test", None)


# ---- attributes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", [dict, collections.OrderedDict, collections.Counter, str, int, float, bytes, tuple]
)
def test_attributes_of_values_that_are_dicts_and_numbers(base: type) -> None:
    def make() -> Any:
        class Own(base):  # type: ignore[misc]
            pass

        own: Any = Own()
        own.calls = 0

        def program(x: Any) -> Any:
            own.calls += 1
            return x * own.calls

        return program, lambda: own.calls

    agrees(make)


class Plain:
    pass


def attribute_of_a_given_name() -> Any:
    own, name = Plain(), "last"

    def program(x: Any) -> Any:
        setattr(own, name, x.sum())
        return x

    return program, lambda: own.last.item()  # type: ignore[attr-defined]


def attributes_of_made_names() -> Any:
    own = Plain()

    def program(x: Any) -> Any:
        for i in range(2):
            setattr(own, f"part{i}", x * i)
        return x

    return program, lambda: (own.part0.item(), own.part1.item())  # type: ignore[attr-defined]


def attribute_past_a_class_of_its_own() -> Any:
    class Guarded:
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__("_" + name, value)

    own = Guarded()

    def program(x: Any) -> Any:
        own.total = getattr(own, "_total", 0) + x.sum()
        return x

    return program, lambda: vars(own)["_total"].item()


@pytest.mark.parametrize(
    "make",
    [attribute_of_a_given_name, attributes_of_made_names, attribute_past_a_class_of_its_own],
)
def test_attributes_by_computed_names_are_written(make: Any) -> None:
    agrees(make)


def changing(read: Callable[[Any, Any], Any], change: Callable[[Any], None]) -> None:
    """The compiled program sees, between two calls, what changed."""
    own = Plain()
    compiled = cd.compile(lambda x: read(x, own))
    x = cd.ones(1)
    before = [compiled(x).item(), compiled(x).item()]
    assert before == [read(x, own).item()] * 2
    change(own)
    after = compiled(x).item()
    assert after == read(x, own).item() != before[0]


NAME = "scale"


@pytest.mark.parametrize(
    "read",
    [
        lambda x, own: x * getattr(own, NAME, 1.0),
        lambda x, own: x * (2.0 if hasattr(own, NAME) else 1.0),
        lambda x, own: x * (2.0 if NAME in own.__dict__ else 1.0),
        lambda x, own: x * sum(getattr(own, name, 1.0) for name in ("other", NAME)),
    ],
)
def test_attributes_that_were_not_there_are_seen(read: Any) -> None:
    changing(read, lambda own: setattr(own, NAME, 5.0))


# ---- the library itself ---------------------------------------------------------------------


def five(x: Any, *args: Any, **options: Any) -> Any:
    return x * 5


PATCHES = {
    "function": (F, "relu", lambda x: F.relu(x)),
    "function of the package": (cd, "sin", lambda x: cd.sin(x)),
    "utility": (cd.nn.utils, "clip_grad_norm_", lambda x: cd.nn.utils.clip_grad_norm_(x, 1.0)),
}


@pytest.mark.parametrize("name", PATCHES)
def test_patched_functions_of_the_library_are_called(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, attribute, program = PATCHES[name]
    compiled = cd.compile(program)
    for _ in range(2):
        compiled(cd.ones(1))
    function, state = counting()
    monkeypatch.setattr(holder, attribute, lambda x, *args: function(five(x)))
    assert [compiled(cd.ones(1)).item() for _ in range(3)] == [5, 10, 15]
    assert state() == 3
    monkeypatch.undo()
    assert compiled(cd.ones(1)).item() == program(cd.ones(1)).item()


def test_a_patched_step_of_an_optimizer_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = cd.nn.Parameter(cd.ones(1))
    optimizer = cd.optim.SGD([weight], lr=0.5)

    @cd.compile
    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    step()
    step()
    assert weight.item() == 0
    monkeypatch.setattr(cd.optim.SGD, "step", lambda self: None)
    step()
    assert weight.item() == 0


def test_settings_of_the_library_are_seen() -> None:
    linear = cd.nn.Linear(2, 2)
    cd.nn.utils.parametrize.register_parametrization(linear, "weight", cd.nn.Dropout())

    @cd.compile
    def differs() -> Any:
        return (linear.weight - linear.weight).abs().sum()

    assert any(differs().item() for _ in range(4))
    with cd.nn.utils.parametrize.cached():
        assert not any(differs().item() for _ in range(4))
    assert any(differs().item() for _ in range(4))


def test_divergences_that_are_registered_later_are_used() -> None:
    class Own(cd.distributions.Normal):
        pass

    def divergence(mean: Any) -> Any:
        p, q = (Own(m, 1.0, validate_args=False) for m in (mean, mean + 1))
        return cd.distributions.kl_divergence(p, q)

    compiled = cd.compile(divergence)
    assert compiled(cd.zeros(1)).item() == compiled(cd.zeros(1)).item() == 0.5
    cd.distributions.register_kl(Own, Own)(lambda p, q: p.mean - q.mean)
    assert compiled(cd.zeros(1)).item() == -1


# ---- results and draws ----------------------------------------------------------------------


def test_results_and_arguments_that_hold_themselves() -> None:
    def ring(x: Any) -> Any:
        made = Plain()
        made.me, made.x = made, x * 2  # type: ignore[attr-defined]
        return made

    compiled = cd.compile(ring)
    for _ in range(3):
        made = compiled(cd.ones(1))
        assert made.me is made
        assert made.x.item() == 2
    loop: list[Any] = []
    loop.append(loop)
    doubled = cd.compile(lambda x, given: x * 2)
    assert [doubled(cd.ones(1), loop).item() for _ in range(3)] == [2] * 3


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
def test_draws_whose_numbers_nobody_uses(backend: str) -> None:
    def program(x: Any) -> Any:
        cd.rand(6).sum()
        F.dropout(x, 0.5)
        return x * 2

    found = []
    compiled = cd.compile(program, backend=backend)
    for call in (program, compiled, compiled, compiled):
        cd.manual_seed(0)
        call(cd.ones(3))
        found.append(cd.rand(1).item())
    assert len(set(found)) == 1


def test_attributes_of_new_tensors_leave_with_them() -> None:
    def program(x: Any, i: int) -> Any:
        made = x * 2
        made.note = [i, x]
        return {"made": made}

    compiled = cd.compile(program)
    for i in (3, 3, 2, 5):
        made = compiled(cd.ones(2), i)["made"]
        assert made.note[0] == i
        assert made.tolist() == [2.0, 2.0]


def test_frozen_sets_and_slices_have_ordinary_numbers() -> None:
    compiled = cd.compile(lambda x, i: (x * i, frozenset([i]), slice(0, i)))
    for i in range(1, 6):
        _, members, limits = compiled(cd.ones(1), i)
        assert [type(member) for member in members] == [int]
        assert members == {i}
        assert type(limits.stop) is int
        assert limits == slice(0, i)


def test_a_mode_that_sees_operators_sees_them_in_each_call() -> None:
    from coredispatch.utils._python_dispatch import TorchDispatchMode

    class Tenfold(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {})) * 10

    def program(x: Any) -> Any:
        with Tenfold():
            return x + x

    compiled = cd.compile(program)
    assert [compiled(cd.ones(1)).item() for _ in range(3)] == [20, 20, 20]


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
def test_a_block_that_is_run_again_for_its_gradients_writes_as_often(backend: str) -> None:
    norm = cd.nn.BatchNorm1d(3)
    again = cd.utils.checkpoint.checkpoint
    compiled = cd.compile(lambda x: again(norm, x, use_reentrant=False), backend=backend)
    for step in range(4):
        x = cd.arange(12.0).reshape(4, 3).requires_grad_()
        y = compiled(x)
        assert norm.num_batches_tracked.item() == 2 * step + 1
        y.sum().backward()
        assert norm.num_batches_tracked.item() == 2 * step + 2
