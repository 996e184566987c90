"""The user's classes in compiled programs and their files: enumerations, objects, constants."""

from __future__ import annotations

import copy
import enum
from typing import Any, Final

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
