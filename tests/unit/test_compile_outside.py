"""What a compiled program depends on, and leaves behind, beside its arguments."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn

BACKENDS: list[dict[str, Any]] = [{}, {"backend": "eager"}]
backends = pytest.mark.parametrize("backend", BACKENDS)


def counted(x: Any) -> Any:
    counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
    return x * counted.calls  # type: ignore[attr-defined]


def scaled(x: Any) -> Any:
    return x * scaled.factor  # type: ignore[attr-defined]


def counting(function: Callable[..., Any]) -> Any:
    def called(*args: Any) -> Any:
        called.calls += 1  # type: ignore[attr-defined]
        return function(*args)

    called.calls = 0  # type: ignore[attr-defined]
    return called


@backends
def test_attributes_of_functions(backend: Any) -> None:
    counted.__dict__.clear()
    compiled = cd.compile(lambda x: counted(x), **backend)
    assert [compiled(cd.ones(1)).item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    assert counted.calls == 4  # type: ignore[attr-defined]
    compiled, found = cd.compile(scaled, **backend), []
    for factor in (2, 3, 2):
        scaled.factor = factor  # type: ignore[attr-defined]
        found.append(compiled(cd.ones(1)).item())
    assert found == [2.0, 3.0, 2.0]
    inner = counting(lambda x: x * 2)
    compiled = cd.compile(lambda x: inner(x) + inner(x), **backend)
    for _ in range(3):
        compiled(cd.ones(1))
    assert inner.calls == 6

    @cd.compile(**backend)
    def itself(x: Any) -> Any:
        itself.calls += 1
        return x * itself.calls

    itself.calls = 0
    assert [itself(cd.ones(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0]


LATE: Any


@backends
def test_names_that_the_call_makes(backend: Any) -> None:
    module = types.ModuleType("made_here")

    def program(x: Any) -> Any:
        global LATE
        LATE = x * 2
        module.last = x + 1  # type: ignore[attr-defined]
        return x

    compiled = cd.compile(program, **backend)
    for i in range(4):
        globals().pop("LATE", None)
        compiled(cd.full((1,), float(i)))
        assert LATE.item() == 2.0 * i
        assert module.last.item() == i + 1  # type: ignore[attr-defined]

    def missing(x: Any) -> Any:
        try:
            return x * LATE
        except NameError:
            return x

    compiled = cd.compile(missing, **backend)
    found = []
    for value in (None, 3, None, 4):
        globals().pop("LATE", None)
        if value is not None:
            globals()["LATE"] = value
        found.append(compiled(cd.ones(1)).item())
    assert found == [1.0, 3.0, 1.0, 4.0]


@cd.library.custom_op("compile_outside::total", mutates_args=())
def total(x: cd.Tensor) -> int:
    return int(x.sum().item())


total.register_fake(lambda x: 0)

OTHER = cd.ones(2)


def approached(x: Any) -> Any:
    steps = 0
    while not cd.allclose(x, cd.zeros(1), atol=0.2):
        x, steps = x / 2, steps + 1
    return x, steps


@backends
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + 1 if x.equal(OTHER) else x - 1,
        lambda x: x + 1 if cd.equal(x, OTHER) else x - 1,
        lambda x: x + 1 if x.shape == OTHER.shape and x.allclose(OTHER) else x - 1,
        lambda x: x * total(x),
        lambda x: (x + 1, repr(x)),
        lambda x: (x + 1, f"{x}", f"{x.sum():.2f}"),
        lambda x: (x + 1, "%s" % x),  # noqa: UP031
        lambda x: x + float(np.from_dlpack(x).sum()),
        lambda x: x + cd.from_dlpack(x),
        approached,
    ],
)
def test_values_that_leave_as_python_values(program: Any, backend: Any) -> None:
    compiled = cd.compile(program, **backend)
    for value in (cd.ones(2), cd.ones(2), cd.zeros(2), cd.ones(2), cd.ones(3), cd.full((2,), 3.0)):
        assert str(compiled(value)) == str(program(value))


@backends
def test_whether_a_tensor_is_a_leaf(backend: Any) -> None:
    def program(x: Any) -> Any:
        return x + 1 if x.is_leaf else x - 1

    compiled = cd.compile(program, **backend)
    leaf = cd.ones(2, requires_grad=True)
    for x in (leaf, leaf * 1, leaf, leaf * 2):
        assert compiled(x).tolist() == program(x).tolist()


@backends
def test_one_tensor_as_several_arguments_has_one_gradient(backend: Any) -> None:
    compiled = cd.compile(lambda a, b: a * b * b, **backend)
    for same in (True, True, False, False, True):
        x = cd.full((1,), 3.0, requires_grad=True)
        y = x if same else cd.full((1,), 5.0, requires_grad=True)
        compiled(x, y).sum().backward()
        assert x.grad.item() == (27.0 if same else 25.0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    compiled = cd.compile(attention, **backend)
    for _ in range(3):
        x, y = (cd.ones(1, 3, 8).cumsum(-1).requires_grad_() for _ in range(2))
        attention(x, x, x)[0].sum().backward()
        compiled(y, y, y)[0].sum().backward()
        assert cd.allclose(x.grad, y.grad, atol=1e-5)


@backends
def test_the_default_device_is_a_mode(backend: Any) -> None:
    compiled = cd.compile(lambda: cd.ones(2) * 2, **backend)
    assert compiled().device.type == compiled().device.type == "cpu"
    with cd.device("meta"):
        assert compiled().device.type == compiled().device.type == "meta"
    assert compiled().tolist() == [2.0, 2.0]


@backends
def test_an_error_between_two_writes_leaves_the_first_alone(backend: Any) -> None:
    written, embedding = cd.zeros(3), nn.Embedding(4, 2)

    def program(place: Any) -> Any:
        written.add_(1)
        found = embedding(place)
        written.add_(10)
        return found

    compiled, found = cd.compile(program, **backend), []
    for place in (0, 1, 9, 2):
        try:
            compiled(cd.tensor([place]))
        except IndexError:
            assert place == 9
        found.append(written[0].item())
    assert found == [11.0, 22.0, 23.0, 34.0]


@backends
@pytest.mark.parametrize(
    "program", [lambda x, n: x.unfold(0, n, 1) * 1, lambda x, n: x.split([n, 6 - n])[1] * 2]
)
def test_views_by_numbers_of_tensors(program: Any, backend: Any) -> None:
    compiled = cd.compile(lambda x, place: program(x, place.item()), **backend)
    x = cd.arange(6.0)
    for n in (2, 2, 3, 2):
        assert cd.equal(compiled(x, cd.tensor(n)), program(x, n))


@backends
def test_a_program_keeps_no_arguments(backend: Any) -> None:
    compiled, kept = cd.compile(lambda x: x * 2 + 1, **backend), []
    for _ in range(3):
        x = cd.ones(100)
        kept.append(weakref.ref(x))
        compiled(x)
    del x
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3


def test_what_the_compiler_computes_again_does_not_warn_again() -> None:
    """It folds constants and asks rules; the program's own call has warned, at its line."""
    compiled = cd.compile(lambda x: x + cd.range(0, 3))
    with pytest.warns(UserWarning, match="range is deprecated") as caught:
        assert compiled(cd.ones(4)).tolist() == [1, 2, 3, 4]
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    with pytest.warns(UserWarning, match="range is deprecated"):
        cd.range(0, 3)
