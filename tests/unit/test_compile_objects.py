"""Objects among the arguments of a compiled program: known by what they hold."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import weakref
from typing import Any

import pytest

import coredispatch as cd


class Plain:
    def __init__(self, x: Any, scale: Any) -> None:
        self.x, self.scale = x, scale

    @property
    def scaled(self) -> Any:
        return self.x * self.scale

    def moved(self, by: float) -> Any:
        return self.scaled + by


@dataclasses.dataclass
class Record:
    x: Any
    scale: Any

    scaled = Plain.scaled
    moved = Plain.moved


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    scale: Any

    scaled = Plain.scaled
    moved = Plain.moved


KINDS = pytest.mark.parametrize("kind", [Plain, Record, Frozen], ids=lambda kind: kind.__name__)
BACKENDS = pytest.mark.parametrize("backend", ["eager", "cpu_numba"])


def graphs(compiled: Any, *args: Any) -> int:
    found: int = cd.compiler.explain(compiled, *args).graph_count
    return found


@BACKENDS
@KINDS
def test_a_new_object_in_each_call_is_served_by_one_graph(kind: Any, backend: str) -> None:
    compiled = cd.compile(lambda b: b.moved(1.0).sum(), backend=backend)
    for i in range(20):
        x = cd.full((3,), float(i), requires_grad=True)
        total = compiled(kind(x, 2.0))
        total.backward()
        assert total.item() == 3 * (2 * i + 1)
        assert x.grad.tolist() == [2.0] * 3
    assert graphs(compiled, kind(cd.ones(3, requires_grad=True), 2.0)) == 1


@KINDS
def test_what_an_object_holds_is_a_guard(kind: Any) -> None:
    compiled = cd.compile(lambda b: b.scaled)
    for scale in (2.0, 2.0, 3.0, True, cd.tensor(4.0), 2.0):
        for size in (2, 3):
            x = cd.ones(size)
            assert compiled(kind(x, scale)).tolist() == [float(scale)] * size


def test_methods_and_class_attributes_are_guards() -> None:
    class Own(Plain):
        factor = 1

        def value(self) -> Any:
            return self.x * self.factor

    compiled = cd.compile(lambda b: b.value())
    assert [compiled(Own(cd.ones(1), 0)).item() for _ in range(4)] == [1] * 4
    Own.factor = 5
    assert [compiled(Own(cd.ones(1), 0)).item() for _ in range(3)] == [5] * 3
    Own.value = lambda self: self.x + 10  # type: ignore[method-assign]
    assert [compiled(Own(cd.ones(1), 0)).item() for _ in range(3)] == [11] * 3


@BACKENDS
def test_what_a_program_writes_to_an_object(backend: str) -> None:
    def program(b: Any) -> Any:
        b.scale += 1
        b.result = b.x * 2
        del b.x
        return b

    compiled = cd.compile(program, backend=backend)
    for i in range(6):
        given = Plain(cd.full((2,), float(i)), 7)
        assert compiled(given) is given
        assert given.scale == 8
        assert given.result.tolist() == [2.0 * i] * 2  # type: ignore[attr-defined]
        assert not hasattr(given, "x")


def test_objects_in_containers_and_in_one_another() -> None:
    compiled = cd.compile(lambda many: sum(b.x.scaled * b.scale for b in many["all"]))
    for i in range(6):
        many = {"all": [Plain(Record(cd.full((1,), float(i + k)), 2.0), 3.0) for k in range(2)]}
        assert compiled(many).item() == 6 * (2 * i + 1)
    assert graphs(compiled, many) == 1


def test_one_object_given_twice_is_another_call_than_two() -> None:
    def program(a: Any, b: Any) -> Any:
        a.scale = 5.0
        return a.x * b.scale

    compiled = cd.compile(program)
    for _ in range(4):
        one, two = Plain(cd.ones(1), 1.0), Plain(cd.ones(1), 1.0)
        assert compiled(one, two).item() == 1
        assert compiled(two, two).item() == 5


def test_objects_that_hold_themselves() -> None:
    compiled = cd.compile(lambda b: b.scale.scale.x * 2)
    for i in range(4):
        given = Plain(cd.full((1,), float(i)), None)
        given.scale = given
        assert compiled(given).item() == 2 * i


def test_an_object_that_the_program_knows_is_told_apart() -> None:
    known = Plain(cd.ones(1), 1.0)
    compiled = cd.compile(lambda b: b.x + (10 if b is known else 0))
    for _ in range(5):
        assert compiled(Plain(cd.ones(1), 1.0)).item() == 1
        assert compiled(known).item() == 11


def test_sizes_of_an_objects_tensors_may_be_open() -> None:
    compiled = cd.compile(lambda b: b.x.sum() * b.scale)
    for n in range(2, 12):
        assert compiled(Plain(cd.ones(n), 2.0)).item() == 2 * n
    assert graphs(compiled, Plain(cd.ones(30), 2.0)) <= 2


def test_objects_are_not_kept_alive() -> None:
    compiled = cd.compile(lambda b: b.scaled)
    held = []
    for _ in range(6):
        given = Plain(cd.ones(1000), 2.0)
        compiled(given)
        held.append(weakref.ref(given))
        del given
    gc.collect()
    assert [reference() for reference in held] == [None] * 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: range(3),
        lambda: cd.device("cpu"),
        lambda: cd.float32,
    ],
    ids=["range", "device", "dtype"],
)
def test_constants_are_known_by_value(make: Any) -> None:
    compiled = cd.compile(lambda x, given: x.to(cd.float64) if given == make() else x)
    for _ in range(6):
        assert compiled(cd.ones(2), make()).dtype is cd.float64
    assert graphs(compiled, cd.ones(2), make()) == 1
    assert compiled(cd.ones(2), range(7)).dtype is cd.float32


def test_other_objects_are_known_by_which_they_are() -> None:
    compiled = cd.compile(lambda x, options: x * options.scale)
    options = argparse.Namespace(scale=2.0)
    assert [compiled(cd.ones(1), options).item() for _ in range(3)] == [2.0] * 3
    options.scale = 3.0
    assert compiled(cd.ones(1), options).item() == 3
    assert compiled(cd.ones(1), argparse.Namespace(scale=4.0)).item() == 4


def test_containers_among_the_arguments_are_returned_themselves() -> None:
    compiled = cd.compile(lambda many: (many, many["x"] * 2))
    for _ in range(3):
        given = {"x": cd.ones(1)}
        again, doubled = compiled(given)
        assert again is given
        assert doubled.item() == 2
