"""The user's classes in compiled programs and their files: enumerations, objects, constants."""

from __future__ import annotations

import copy
import dataclasses
import enum
from typing import Any, Final, Optional

import pytest
from script_cases import reloaded

import coredispatch as cd


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def members(c: Color, cs: list[Color], n: Level) -> tuple[bool, bool, bool, bool, int, bool, int]:
    one = {Color.RED: 5, Color.BLUE: 6}[c]
    two = {Level.LOW: 7, Level.HIGH: 8}[n]
    return c == Color.RED, Color.BLUE != c, c is Color.BLUE, c in cs, one, n < Level.HIGH, two


def test_members_of_enumerations_are_equal_in_a_loaded_program() -> None:
    scripted = cd.jit.script(members)
    for args in ((Color.RED, [Color.BLUE], Level.LOW), (Color.BLUE, [Color.BLUE], Level.HIGH)):
        for program in (scripted, reloaded(scripted)):
            assert program(*args) == members(*args)


def test_a_member_from_a_loaded_program_is_equal_to_the_users() -> None:
    def other(c: Color) -> Color:
        return Color.RED if c == Color.BLUE else Color.BLUE

    loaded = reloaded(cd.jit.script(other))
    assert loaded(Color.BLUE) == Color.RED != loaded(Color.RED)


class Unread(enum.Enum):
    WHOLE = object()


class Constants(cd.nn.Module):
    __constants__ = ("k", "shared")
    j: Final[int]
    shared = 7

    def __init__(self) -> None:
        super().__init__()
        self.k, self.j, self.classes = 3, 4, ["cat", "dog"]
        self.sizes = {"a": (1, cd.ones(2))}
        self.mode = Unread.WHOLE

    def forward(self, x: Any) -> Any:
        return x + self.j


def test_attributes_that_no_graph_uses_are_loaded() -> None:
    scripted = cd.jit.script(Constants())
    for program in (scripted, reloaded(scripted), copy.deepcopy(reloaded(scripted))):
        assert (program.k, program.j, program.shared) == (3, 4, 7)
        assert program.classes == ["cat", "dog"]
        assert program.sizes["a"][0] == 1 and program.sizes["a"][1].tolist() == [1, 1]
    assert scripted.mode is Unread.WHOLE
    assert not hasattr(reloaded(scripted), "mode")  # no file holds its value
    assert scripted.classes is not reloaded(scripted).classes


def test_the_size_of_a_complex_number_is_a_float() -> None:
    def size(z: complex) -> float:
        return abs(z)

    assert cd.jit.script(size)(3 + 4j) == 5.0
    assert cd.jit.script(size).graph.output_node().meta["type"].name == "float"


# ---- operators of scripted classes ---------------------------------------------------------------


@cd.jit.script
class Size:
    def __init__(self, n: int) -> None:
        self.n = n

    def __bool__(self) -> bool:
        return self.n > 1

    def __int__(self) -> int:
        return self.n * 10

    def __float__(self) -> float:
        return self.n * 0.5

    def __round__(self) -> int:
        return self.n + 7

    def __eq__(self, other: Size) -> bool:  # type: ignore[override]
        return self.n == other.n

    def __lt__(self, other: Size) -> bool:
        return self.n < other.n

    def __gt__(self, other: Size) -> bool:
        return self.n > other.n

    def __lshift__(self, k: int) -> int:
        return self.n << k

    def __pos__(self) -> int:
        return self.n + 100

    def __invert__(self) -> int:
        return self.n + 200

    def __str__(self) -> str:
        return "Size" + str(self.n)


@cd.jit.script
class Row:
    def __init__(self, xs: list[int]) -> None:
        self.xs = xs

    def __len__(self) -> int:
        return len(self.xs)

    def __contains__(self, x: int) -> bool:
        return x in self.xs

    def __getitem__(self, i: int) -> int:
        return self.xs[i]

    def __setitem__(self, i: int, x: int) -> None:
        self.xs[i] = x

    def __delitem__(self, i: int) -> None:
        self.xs.pop(i)

    def __iadd__(self, x: int) -> Row:
        self.xs.append(x)
        return self


@cd.jit.script
class Plain:
    def __init__(self, row: list[Size]) -> None:
        self.row = row

    def __eq__(self, other: Plain) -> bool:  # type: ignore[override]
        return other.row[0] in self.row


@cd.jit.script
@dataclasses.dataclass(order=True)
class Pair:
    name: str
    size: int


def truth(n: int) -> tuple[int, bool, bool, bool, int, int, int, bool]:
    a, some, steps = Size(n), Row([n]), 0
    there: Optional[Size] = None  # noqa: UP045
    if n > 0:
        there = Size(n)
    seen = False
    if there:
        seen = True
    b = Size(n + 1)
    while b:
        b.n -= 1
        steps += 1
    kept = [x.n for x in [a, Size(5)] if x]
    object_itself = 1 if Plain([a]) else 2
    return (
        1 if a else 2,
        not a,
        bool(a and some),
        bool(Row(some.xs[:0]) or a),
        steps,
        len(kept),
        object_itself,
        seen,
    )


def numbers(n: int) -> tuple[int, float, int, int, int, int, str]:
    a = Size(n)
    return int(a), float(a), round(a), a << 2, +a, ~a, f"{a!s:>7}|{str(a)}|" + "{}".format(a)  # noqa: UP032


def elements(n: int) -> tuple[list[int], int, bool, bool]:
    a = Row([n, 2, 3, 4])
    del a[1]
    a[0] = 9
    a += 7
    a[1] += n
    return a.xs, len(a), n in a, 9 not in a


def equality(n: int) -> tuple[bool, bool, bool, bool, bool, int, int, bool]:
    a = Size(n)
    xs = [Size(2), Size(1), a, Size(2)]
    found, counted = xs.index(Size(2)), xs.count(Size(2))
    xs.remove(Size(2))
    return (
        a in [Size(2), Size(1)],
        a not in (Size(2), Size(0)),
        a != Size(1),
        xs == [Size(1), Size(1), Size(2)],
        (a, 1) == (Size(2), 1),
        found,
        counted,
        Plain([a]) in [Plain([Size(2)]), Plain([Size(0), a])],
    )


def order(n: int) -> tuple[list[int], list[int], int, int, bool, bool]:
    xs = [Size(3), Size(n), Size(1), Size(2)]
    up = [x.n for x in sorted(xs)]
    xs.sort(reverse=True)
    return up, [x.n for x in xs], min(xs).n, max(Size(n), Size(1)).n, any(xs), all(xs)


def pairs(n: int) -> tuple[bool, bool, bool, str]:
    a = Pair("a", n)
    return a == Pair("a", 1), a < Pair("b", 0), a in [Pair("a", 2)], f"{a!r}"


@pytest.mark.parametrize("fn", [truth, numbers, elements, equality, order, pairs])
def test_operators_of_objects_are_their_methods(fn: Any) -> None:
    """A loaded program has no methods of its own: they are in the graph."""
    scripted = cd.jit.script(fn)
    loaded = reloaded(scripted)
    for n in (0, 1, 2):
        assert scripted(n) == fn(n) == loaded(n)


def test_operators_that_a_class_does_not_have_are_refused() -> None:
    def whole(n: int) -> int:
        return int(Row([n]))  # type: ignore[call-overload, no-any-return]

    def place(n: int) -> None:
        Size(n)[0] = 3  # type: ignore[index]

    with pytest.raises(RuntimeError, match=r"int\(\) cannot convert Row"):
        cd.jit.script(whole)
    with pytest.raises(
        RuntimeError, match="'Size' object has no attribute or method '__setitem__'"
    ):
        cd.jit.script(place)


def test_annotations_of_local_classes_name_themselves_and_each_other() -> None:
    class Weight:
        def __init__(self, n: int) -> None:
            self.n = n

        def __lt__(self, other: Weight) -> bool:
            return self.n < other.n

    @cd.jit.script
    class Pile:
        top: Weight

        def __init__(self, n: int) -> None:
            self.top = Weight(n)

        def put(self, other: Weight, all_of: list[Pile]) -> Pile | None:
            self.top = other
            return all_of[0]

    def lightest(n: int) -> int:
        weights = [Weight(3), Weight(n)]
        weights.sort()
        return weights[0].n + sorted([Weight(2), Weight(n)])[0].n

    def piled(n: int) -> int:
        pile = Pile(n)
        made = pile.put(Weight(n + 1), [pile])
        return 0 if made is None else made.top.n

    for program in (lightest, piled):
        scripted = cd.jit.script(program)
        assert scripted(1) == program(1) == reloaded(scripted)(1)
