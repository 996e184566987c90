"""Programs in which an operator fails: they go on, or leave behind, what Python does."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F

BACKENDS: list[dict[str, Any]] = [{}, {"backend": "eager"}]


def shown(value: Any) -> Any:
    if isinstance(value, cd.Tensor):
        return ("tensor", tuple(value.shape), value.tolist())
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return (type(value).__name__, value)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
    except Exception as error:
        result = type(error).__name__
    return shown((result, args))


def as_python(make: Callable[[], Any], calls: list[Callable[[], Any]], backend: Any) -> None:
    plain, compiled = make(), cd.compile(make(), **backend)
    for call in calls:
        assert outcome(compiled, *call()) == outcome(plain, *call())


def a_try() -> Any:
    def program(matrix: Any, x: Any) -> Any:
        x.add_(1)
        try:
            factor = cd.linalg.cholesky(matrix)
        except RuntimeError:
            return "singular"
        x.mul_(3)
        return factor

    return program


def a_finally() -> Any:
    def program(matrix: Any, x: Any) -> Any:
        try:
            return cd.linalg.cholesky(matrix)
        finally:
            x.add_(1)

    return program


def suppressed() -> Any:
    def program(matrix: Any, x: Any) -> Any:
        with contextlib.suppress(RuntimeError):
            x.add_(1)
            return cd.linalg.cholesky(matrix)
        return x.mul_(2)

    return program


def by_a_callee() -> Any:
    def factor(matrix: Any) -> Any:
        try:
            return cd.linalg.cholesky(matrix)
        except RuntimeError:
            return None

    def program(matrix: Any, x: Any) -> Any:
        x.copy_(cd.rand(1))
        return factor(matrix)

    return program


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [a_try, a_finally, suppressed, by_a_callee])
def test_an_error_that_depends_on_values(make: Any, backend: Any) -> None:
    calls = [lambda s=sign: (s * cd.eye(2), cd.zeros(1)) for sign in (1, 1, -1, 1, -1)]
    if make is by_a_callee:
        plain, compiled = make(), cd.compile(make(), **backend)
        found = []
        for function in (plain, compiled):
            cd.manual_seed(3)
            found.append([outcome(function, *call()) for call in calls])
        assert found[0] == found[1]
    else:
        as_python(make, calls, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["before", "after", "finally", "else"])
def test_an_error_that_depends_on_sizes(place: str, backend: Any) -> None:
    def make() -> Any:
        def program(x: Any, n: int) -> Any:
            if place == "before":
                x += 1
            try:
                y = x.view(n, -1)
            except RuntimeError:
                return "does not divide"
            else:
                if place == "else":
                    x *= 2
            finally:
                if place == "finally":
                    x += 1
            if place == "after":
                x += 1
            return y

        return program

    as_python(make, [lambda n=n: (cd.ones(12), n) for n in (1, 2, 3, 4, 5, 6, 7)], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_leaves_what_python_did_before_it(backend: Any) -> None:
    events: list[str] = []
    count = {"calls": 0}
    written = cd.zeros(1)

    class Noted:
        def __enter__(self) -> None:
            events.append("in")

        def __exit__(self, kind: Any, *rest: Any) -> None:
            events.append("out" if kind is None else kind.__name__)

    @cd.compile(**backend)
    def program(rows: Any, places: Any) -> Any:
        written.add_(1)
        count["calls"] += 1
        with Noted():
            return F.embedding(places, rows)

    rows = cd.ones(3, 2)
    for number, place in enumerate((0, 1, 2, 9, 1)):
        events.clear()
        with contextlib.suppress(RuntimeError, IndexError):
            program(rows, cd.tensor([place]))
        assert events[0] == "in" and (events[1] == "out") == (place != 9)
        assert count["calls"] == number + 1 == written.item()


# ---- what captures leave behind -----------------------------------------------------------------


@pytest.mark.parametrize("container", [list, deque])
def test_numbers_that_the_program_keeps_are_ordinary(container: Any) -> None:
    def program(x: Any, kept: Any) -> Any:
        total = x.sum().item()
        kept.append(total)
        kept.append({"mean": x.mean().item(), "place": x.argmax().item(), "size": x.shape[0]})
        kept[0] += 1

        def ask() -> Any:
            return total

        ask.total = total  # type: ignore[attr-defined]
        kept.append(ask)
        return x * 2

    compiled = cd.compile(program, backend="eager")
    for i in range(5):
        kept: Any = container()
        compiled(cd.ones(2 + i % 3), kept)
        numbers, ask = [*kept][:2], kept[2]
        assert json.loads(json.dumps([*numbers, ask(), ask.total])) == [
            3.0 + i % 3,
            {"mean": 1.0, "place": 0, "size": 2 + i % 3},
            2.0 + i % 3,
            2.0 + i % 3,
        ]


def test_a_derivative_of_the_users_runs_when_gradients_are_asked_for() -> None:
    seen: list[float] = []

    class Double(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(grad.sum().item())
            return grad * 2

    compiled = cd.compile(lambda x: Double.apply(x).sin().sum(), backend="eager")
    for i in range(4):
        x = (cd.ones(3) * i).requires_grad_()
        y = compiled(x)
        assert len(seen) == i
        y.backward()
        assert len(seen) == i + 1


def test_a_kernel_of_the_users_leaves_behind_what_it_does_once() -> None:
    seen: list[float] = []

    @cd.library.custom_op("errors_in_programs::doubled", mutates_args=())
    def doubled(x: cd.Tensor) -> cd.Tensor:
        seen.append(x.sum().item())
        return x * 2

    doubled.register_fake(cd.empty_like)
    compiled = cd.compile(lambda x: doubled(x) + 1, backend="eager")
    for i in range(4):
        assert compiled(cd.ones(2) * i).tolist() == [2 * i + 1] * 2
        assert seen == [2.0 * j for j in range(i + 1)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_among_the_results_have_their_gradients_where_the_base_was_written(
    backend: Any,
) -> None:
    def program(x: Any) -> Any:
        base = x * 1
        view, other = base[0], base.t()
        base.mul_(2)
        other[1].add_(x[0])
        return base, view, other, view[1:]

    compiled = cd.compile(program, **backend)
    found = []
    for function in (program, compiled, compiled, compiled):
        x = cd.arange(4.0).view(2, 2).requires_grad_()
        results = function(x)
        sum((result * result).sum() for result in results).backward()
        found.append(x.grad.tolist())
    assert found[1:] == found[:1] * 3


def test_arithmetic_that_fails_in_a_compiler_is_the_compilers_error() -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        return 1 // 0

    fast = cd.compile(lambda x: x * 2, backend=broken)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fast(cd.ones(1))


def test_arithmetic_that_fails_in_a_later_call_goes_on_where_the_program_catches_it() -> None:
    def rate(x: Any, n: float) -> Any:
        try:
            y = 10 / n
        except ZeroDivisionError:
            y = 5.0
        return x * y

    fast = cd.compile(rate)
    for n in (1.0, 2.0, 4.0, 0.0, 5.0, 0.0):
        assert fast(cd.ones(1), n).item() == rate(cd.ones(1), n).item()
