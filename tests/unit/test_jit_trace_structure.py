"""``jit.trace``: arguments of another structure than the example's are refused, by name."""

from __future__ import annotations

import collections
import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn

Pair = collections.namedtuple("Pair", "left right")


def again(traced: Any) -> Any:
    """The trace from a file."""
    file = io.BytesIO()
    cd.jit.save(traced, file)
    file.seek(0)
    return cd.jit.load(file)


WAYS: list[Callable[[Any], Any]] = [lambda traced: traced, again]


def x() -> Any:
    return cd.ones(2, 3)


def with_none(a: Any, b: Any) -> Any:
    return a if b is None else a + b


def added(a: Any) -> Any:
    return sum(a)


def of_values(a: Any) -> Any:
    return sum(a.values())


def named(a: Any, kind: Any) -> Any:
    return a * 2 if kind == "s" else a


def viewed(a: Any, shape: Any) -> Any:
    return a.view(shape)


def nested(a: Any) -> Any:
    return a["pair"].left + a["rest"][1]


NESTED = {"pair": Pair(cd.ones(2, 3), None), "rest": [2, cd.ones(2, 3)]}


@pytest.mark.parametrize("way", WAYS, ids=["made", "loaded"])
@pytest.mark.parametrize(
    ("program", "example", "other", "place"),
    [
        (with_none, (x(), None), (x(), x()), "b"),
        (with_none, (x(), x()), (x(), None), "b"),
        (with_none, (x(), x()), (x(), 2.0), "b"),
        (added, ([x(), x()],), ([x(), x(), x()],), "a"),
        (added, ([x(), x()],), ((x(), 1.0),), r"a\[1\]"),
        (added, ((x(), x()),), (x(),), "a"),
        (of_values, ({"a": x(), "b": x()},), ({"a": x(), "b": x(), "c": x()},), "a"),
        (of_values, ({"a": x(), "b": x()},), ({"b": x(), "a": x()},), "a"),
        (of_values, ({"a": x()},), ([x()],), "a"),
        (named, (x(), "s"), (x(), "zz"), "kind"),
        (named, (x(), True), (x(), 1), "kind"),
        (named, (x(), cd.float32), (x(), cd.float64), "kind"),
        (named, (x(), 2), (x(), "s"), "kind"),
        (viewed, (x(), (3, 2)), (x(), (6, 1)), r"shape\[0\]"),
        (nested, (NESTED,), ({**NESTED, "rest": [3, x()]},), r"a\['rest'\]\[0\]"),
        (nested, (NESTED,), ({**NESTED, "pair": (x(), None)},), r"a\['pair'\]"),
    ],
)
def test_another_structure_is_refused(
    way: Any, program: Any, example: Any, other: Any, place: str
) -> None:
    traced = way(cd.jit.trace(program, copy.copy(example)))
    assert cd.equal(traced(*example), program(*example))
    with pytest.raises(RuntimeError, match=rf"for argument '{place}', as in the example") as error:
        traced(*other)
    assert "trace with another example" in str(error.value)


def test_what_the_trace_leaves_open_may_differ() -> None:
    def program(a: Any, pair: Any, n: Any, scale: Any) -> Any:
        return (a + pair[0])[:n] * scale

    traced = cd.jit.trace(program, (x(), [x(), 2], 1, 2.0))
    given = (cd.randn(5, 3), (cd.randn(5, 3), 2), 4, 3)
    assert cd.equal(traced(*given), program(*given))
    assert cd.equal(again(traced)(*given), program(*given))


class Masked(nn.Module):
    """An optional argument, by name."""

    def forward(self, a: Any, mask: Any = None) -> Any:
        return a if mask is None else a * mask


@pytest.mark.parametrize(
    "way",
    [
        lambda traced: traced,
        again,
        copy.deepcopy,
        lambda traced: pickle.loads(pickle.dumps(traced)),
        lambda traced: cd.jit.freeze(traced.eval()),
    ],
    ids=["made", "loaded", "copied", "pickled", "frozen"],
)
def test_modules_and_what_is_made_of_them(way: Any) -> None:
    net = Masked()
    made = way(cd.jit.trace(net, example_kwarg_inputs={"a": x(), "mask": None}))
    assert cd.equal(made(a=x(), mask=None), x())
    with pytest.raises(RuntimeError, match="Expected None for argument 'mask'"):
        made(a=x(), mask=cd.zeros(2, 3))


def test_methods_of_trace_module() -> None:
    made = cd.jit.trace_module(Masked(), {"forward": (x(), None)})
    with pytest.raises(RuntimeError, match="Expected None for argument 'mask'"):
        made(x(), x())


def test_check_inputs_of_another_structure_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected None for argument 'b'"):
        cd.jit.trace(with_none, (x(), None), check_inputs=[(x(), x())])


def test_a_constant_that_no_file_can_hold_is_not_saved() -> None:
    class Setting:
        factor = 2

    setting = Setting()
    traced = cd.jit.trace(lambda a, setting: a * setting.factor, (x(), setting))
    assert cd.equal(traced(x(), setting), x() * 2)
    with pytest.raises(RuntimeError, match="for argument 'setting'"):
        traced(x(), Setting())
    with pytest.raises(cd.graph.GraphError, match="the input 'setting' of the trace"):
        cd.jit.save(traced, io.BytesIO())


def test_as_pytorch_refuses() -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in (torch, cd):
            ones = package.ones(2, 3)
            sums = package.jit.trace(added, ([ones, ones],))
            pairs = package.jit.trace(added, ((ones, ones),))
            twice = package.jit.trace(lambda a: a * 2, ones)
            assert sums((ones, ones)).tolist() == [[2.0] * 3] * 2  # a tuple for a list
            for traced, other in ((sums, [ones] * 3), (pairs, (ones,) * 3), (twice, 2)):
                with pytest.raises(RuntimeError):
                    traced(other)
