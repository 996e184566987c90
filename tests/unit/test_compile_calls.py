"""Which program serves a call: arguments and state that differ in small ways.

The first call is captured, the second one is served by the general way, and later ones by functions
that were written for the program. All three have to come to the same answer.
"""

from __future__ import annotations

import collections
import copy
import cProfile
import math
import pickle
import sys
import weakref
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn


def compiled(program: Any) -> Any:
    return cd.compile(program, backend="eager")


def calls(fast: Any) -> int:
    """How many graphs there are."""
    return fast.captures


def test_arguments_of_every_kind_choose_their_program() -> None:
    class Setting:
        pass

    one, two = Setting(), Setting()

    def program(x: Any, factor: Any = 1, *, name: str = "a", setting: Any = None) -> Any:
        if setting is two:
            factor = factor + 1
        return x * factor + (10 if name == "a" else 20)

    fast = compiled(program)
    x = cd.arange(3.0)
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x, 2), {}),
        ((x, 2.0), {}),
        ((x, True), {}),
        ((x,), {"name": "b"}),
        ((x, 2), {"name": "b", "setting": one}),
        ((x, 2), {"name": "b", "setting": two}),
        ((x.double(), 2), {}),
    ]
    for _ in range(5):
        for args, kwargs in given:
            wanted, got = program(*args, **kwargs), fast(*args, **kwargs)
            cd.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_negative_zero_is_another_number() -> None:
    fast = compiled(lambda x, y: cd.copysign(x, y))
    x = cd.ones(2)
    for _ in range(4):
        assert fast(x, 0.0).tolist() == [1.0, 1.0]
        assert fast(x, -0.0).tolist() == [-1.0, -1.0]


def test_the_same_tensor_twice_is_another_call_than_two_tensors() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        x += 1
        return x + y + z

    fast = compiled(program)
    for _ in range(4):
        a, b, c = cd.zeros(2), cd.zeros(2), cd.zeros(2)
        assert fast(a, b, c).tolist() == [1.0, 1.0]
        assert fast(a, a, c).tolist() == [4.0, 4.0]
        assert fast(a, b, b).tolist() == [3.0, 3.0]
        whole = cd.zeros(4)
        assert fast(whole[:2], whole[:2], c).tolist() == [2.0, 2.0]


def test_kwargs_in_another_order_reach_the_program_in_that_order() -> None:
    def program(**tensors: Any) -> Any:
        return cd.cat(list(tensors.values()))

    fast = compiled(program)
    a, b = cd.zeros(1), cd.ones(1)
    for _ in range(4):
        assert fast(a=a, b=b).tolist() == [0.0, 1.0]
        assert fast(b=b, a=a).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("value", [0.5, "text", (1, 2.5), 10**20])
def test_an_equal_value_made_anew_is_the_same_value(value: Any) -> None:
    state = {"value": value}

    def program(x: Any) -> Any:
        got = state["value"]
        return x + (sum(got) if isinstance(got, tuple) else 1.0 if got == "text" else got)

    fast = compiled(program)
    x = cd.ones(1)
    for _ in range(5):
        state["value"] = eval(repr(value))  # equal, and another object
        cd.testing.assert_close(fast(x), program(x))
    assert calls(fast) == 1


def test_a_parameter_with_other_data_of_the_same_form_needs_no_other_program() -> None:
    layer = nn.Linear(2, 2)
    fast = compiled(layer)
    x = cd.ones(1, 2)
    for k in range(5):
        layer.weight.data = cd.full((2, 2), float(k))
        cd.testing.assert_close(fast(x), layer(x))
    assert fast._compiled.captures == 1
    layer.weight.data = cd.ones(3, 2)
    layer.bias.data = cd.zeros(3)
    for _ in range(3):
        assert fast(x).tolist() == [[2.0, 2.0, 2.0]]


def test_what_disappears_and_comes_back_is_noticed() -> None:
    state = {"a": 1.0, "b": 2.0}
    kinds = collections.defaultdict(float, {"a": 1.0})

    def program(x: Any) -> Any:
        return x + sum(state.values()) + kinds.get("a", 50.0)

    fast = compiled(program)
    x = cd.zeros(1)

    def agree() -> None:
        for _ in range(3):
            assert fast(x).item() == program(x).item()

    agree()
    del state["a"]
    agree()
    state["a"] = 1.0
    agree()
    del kinds["a"]
    agree()
    assert "a" not in kinds  # looking must not put it there
    kinds["a"] = 3.0
    agree()


def test_modes_that_alternate_find_their_programs_again() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    twin = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    twin.load_state_dict(net.state_dict())
    fast = compiled(net)
    for k in range(12):
        x = cd.randn(4, 3)
        net.train(k % 2 == 0)
        twin.train(k % 2 == 0)
        with cd.set_grad_enabled(k % 3 != 0):
            cd.manual_seed(k)
            wanted = twin(x)
            cd.manual_seed(k)
            got = fast(x)
        cd.testing.assert_close(got, wanted)
        assert got.requires_grad == wanted.requires_grad
    assert fast._compiled.captures == 4


def test_the_gradient_of_an_argument_is_that_of_the_call() -> None:
    fast = compiled(lambda x: x.grad * 2)
    for k in range(5):
        x = cd.zeros(2, requires_grad=True)
        x.grad = cd.full((2,), float(k))
        assert fast(x).tolist() == [2.0 * k, 2.0 * k]


def test_gradients_go_through_a_tuple_of_results_and_through_one_result_twice() -> None:
    def program(x: Any, y: Any) -> Any:
        z = x * y
        return z, z.sum(), x

    fast = compiled(program)
    for k in range(4):
        x = cd.full((2,), float(k), requires_grad=True)
        y = cd.ones(2, requires_grad=True)
        product, total, same = fast(x, y)
        assert same is x
        (product.sum() + total).backward()
        assert x.grad.tolist() == [2.0, 2.0] and y.grad.tolist() == [2.0 * k, 2.0 * k]


def test_a_number_found_late_makes_no_stale_program() -> None:
    """A look at values that comes out otherwise enters another path in a program that is used."""

    def program(x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    fast = compiled(program)
    for sign in (1, 1, 1, -1, -1, 1, -1, 1):
        x = cd.full((2,), float(sign))
        assert fast(x).tolist() == [2.0 * sign] * 2


def test_a_copy_of_a_compiled_module_has_parameters_of_its_own() -> None:
    layer = nn.Linear(2, 2)
    fast = compiled(layer)
    x = cd.ones(1, 2)
    wanted = [fast(x) for _ in range(3)][0]
    for made in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert type(made) is type(fast) and made(x).equal(wanted)
        nn.init.zeros_(made.weight)
        for _ in range(3):
            assert made(x).equal(made.bias.unsqueeze(0)) and fast(x).equal(wanted)


def test_a_compiler_that_gives_too_few_values_is_told_so() -> None:
    fast = cd.compile(lambda x: x + 1, backend=lambda graph, inputs: lambda *given: ())
    fast(cd.ones(1))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="gave 0 values in the place of 1"):
            fast(cd.ones(1))


def test_an_argument_that_the_program_holds_as_well_is_another_call() -> None:
    state = {"w": cd.ones(2), "seen": [cd.zeros(2)]}

    def program(x: Any) -> Any:
        x.add_(1)
        if x is state["w"] or any(x is known for known in state["seen"]):
            return x * 100
        return x + state["w"]

    twins = {key: cd.ones(2) for key in "abc"}
    fast = compiled(program)
    for name in ("a", "b", "w", "a", "seen", "w", "view", "c"):
        results = []
        for run in (program, fast):
            state["w"].fill_(1)
            state["seen"][0].fill_(0)
            x = twins.get(name)
            if x is not None:
                x.fill_(5)
            if name == "view":
                x = state["w"][:]
            elif name in state:
                x = state["w"] if name == "w" else state["seen"][0]
            results.append(run(x).tolist())
        assert results[0] == results[1], name


def test_the_identity_of_an_argument_is_no_part_of_a_program() -> None:
    cache: dict[int, int] = {}

    def program(x: Any) -> Any:
        return x + cache.setdefault(id(x), len(cache))

    fast = compiled(program)
    tensors = [cd.zeros(1) for _ in range(3)]
    assert [fast(tensors[k % 3]).item() for k in range(9)] == [0.0, 1.0, 2.0] * 3


def test_a_profiler_goes_on_after_a_capture() -> None:
    """Before Python 3.12 cProfile is set by C code, and is no function."""
    fast = compiled(lambda x: x.exp() + 1)
    before = sys.getprofile()
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        results = [fast(cd.zeros(2)).tolist() for _ in range(2)]
        math.hypot(3.0, 4.0)
    finally:
        profiler.disable()
        sys.setprofile(before)
    assert results == [[2.0, 2.0]] * 2
    calls = [str(entry.code) for entry in profiler.getstats()]
    assert any("hypot" in call for call in calls)


def test_plain_calls_are_served_by_the_functions_written_for_them() -> None:
    """Also where the bases of tensors are not compiled, so that all they hold is in a dict."""
    fast = compiled(lambda x, k: x * k)
    for x in (cd.ones(3), cd.ones(4)[1:].clone(), cd.ones(3, requires_grad=True).detach()):
        cd.testing.assert_close(fast(x, 2.0), cd.full((3,), 2.0))
    (ready,) = fast.ready
    assert ready.match((cd.zeros(3), 2.0), {}) is not None
    named = cd.zeros(3)
    named.tag = "a"
    assert ready.match((named, 2.0), {}) is None


def test_a_captured_call_keeps_no_values_that_the_program_let_go() -> None:
    alive: list[int] = []

    def program(x: cd.Tensor) -> cd.Tensor:
        seen = []
        for _ in range(6):
            x = x.sin() + 1
            seen.append(weakref.ref(x.raw))
            alive.append(sum(ref() is not None for ref in seen))
        return x

    fast = cd.compile(program, backend="eager")
    x = cd.randn(100)
    cd.testing.assert_close(fast(x), program(x))
    assert alive[:6] == alive[6:]
    cd.testing.assert_close(fast(x), program(x))


def test_values_of_before_a_split_are_there_after_it() -> None:
    def program(x: cd.Tensor) -> tuple[cd.Tensor, cd.Tensor]:
        y, z = x.exp(), x.cos()
        rows = y.view(-1, 2)
        del z
        if y.sum() > 0:
            rows = rows + y[0]
        w = rows.to(cd.bfloat16)
        return (w * 2, y) if w.sum() > 0 else (w, x)

    fast = cd.compile(program, backend="eager")
    for sign in (1, 1, -1, 1):
        x = sign * cd.arange(6.0)
        for got, wanted in zip(fast(x), program(x), strict=True):
            cd.testing.assert_close(got, wanted)
    assert fast.captures == 1


def test_stances_that_compile_nothing_new_hold_for_the_first_call_too() -> None:
    fast = compiled(lambda x: x * 2)
    with cd.compiler.set_stance("eager_on_recompile"):
        assert fast(cd.ones(1)).item() == 2
    assert calls(fast) == 0
    with (
        cd.compiler.set_stance("fail_on_recompile"),
        pytest.raises(RuntimeError, match="Detected recompile"),
    ):
        fast(cd.ones(1))
    fast(cd.ones(1))
    assert calls(fast) == 1
    with cd.compiler.set_stance("fail_on_recompile"):
        assert fast(cd.ones(1)).item() == 2
