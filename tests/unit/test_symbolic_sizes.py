"""A size that is not known yet goes through shapes as it is: nothing in the framework forces it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.plugin import Symbol

F = cd.nn.functional
ASKED: list[str] = []


class Length(Symbol):
    """A small symbolic int: what it stands for is known to the test, and who asks is noted."""

    def __init__(self, text: str, value: int) -> None:
        self.text, self.value = text, value
        self.example = value  # which nobody notes: what is decided by it holds for every length

    def _with(self, sign: str, other: Any, value: int) -> Length:
        return Length(f"({self.text} {sign} {getattr(other, 'text', other)})", value)

    def __add__(self, other: Any) -> Length:
        return self._with("+", other, self.value + known(other))

    def __sub__(self, other: Any) -> Length:
        return self._with("-", other, self.value - known(other))

    def __mul__(self, other: Any) -> Length:
        return self._with("*", other, self.value * known(other))

    def __floordiv__(self, other: Any) -> Length:
        return self._with("//", other, self.value // known(other))

    def __rfloordiv__(self, other: Any) -> Length:
        return self._with("\\\\", other, known(other) // self.value)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Length:
        return (self * -1) + other

    def _ask(self, sign: str, other: Any, answer: bool) -> bool:
        ASKED.append(f"{self.text} {sign} {getattr(other, 'text', other)}")
        return answer

    def __eq__(self, other: object) -> bool:
        return self is other or self._ask("==", other, self.value == known(other))

    def __ne__(self, other: object) -> bool:
        return self is not other and self._ask("!=", other, self.value != known(other))

    def __lt__(self, other: Any) -> bool:
        return self._ask("<", other, self.value < known(other))

    def __gt__(self, other: Any) -> bool:
        return self._ask(">", other, self.value > known(other))

    def __le__(self, other: Any) -> bool:
        return self._ask("<=", other, self.value <= known(other))

    def __ge__(self, other: Any) -> bool:
        return self._ask(">=", other, self.value >= known(other))

    def __hash__(self) -> int:
        return id(self)

    def __index__(self) -> int:
        raise AssertionError(f"{self.text} was forced to be an int")

    __int__ = __float__ = __bool__ = __index__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.text


def known(length: Any) -> Any:
    """The number that stands behind a length."""
    return getattr(length, "value", length)


PROGRAMS: dict[str, Callable[[cd.Tensor, Any], cd.Tensor]] = {
    "itself": lambda x, n: x,
    "relu": lambda x, n: x.relu(),
    "add a row": lambda x, n: x + cd.zeros(4, device="meta"),
    "add a column": lambda x, n: x + cd.zeros(n, 1, device="meta"),
    "mul": lambda x, n: x * x,
    "like": lambda x, n: cd.zeros_like(x),
    "new": lambda x, n: x.new_zeros(x.shape),
    "full": lambda x, n: cd.full((n, 2), 1.0, device="meta"),
    "sum": lambda x, n: x.sum(),
    "sum of rows": lambda x, n: x.sum(1),
    "mean of columns": lambda x, n: x.mean(0, keepdim=True),
    "amax": lambda x, n: x.amax(1),
    "softmax": lambda x, n: x.softmax(-1),
    "layer_norm": lambda x, n: F.layer_norm(x, (4,)),
    "transpose": lambda x, n: x.t(),
    "permute": lambda x, n: x.permute(1, 0),
    "unsqueeze": lambda x, n: x.unsqueeze(1),
    "matmul": lambda x, n: x @ cd.zeros(4, 3, device="meta"),
    "gram": lambda x, n: x.t() @ x,
    "linear": lambda x, n: F.linear(x, cd.zeros(3, 4, device="meta")),
    "flatten": lambda x, n: x.reshape(-1),
    "reshape to a symbol": lambda x, n: x.reshape(n, 2, 2),
    "view of the shape": lambda x, n: x.view(x.shape),
    "reshape with the rest": lambda x, n: x.reshape(n, -1),
    "expand": lambda x, n: cd.zeros(4, device="meta").expand(n, 4),
    "expand a one": lambda x, n: cd.zeros(1, 4, device="meta").expand(n, 4),
    "expand as": lambda x, n: cd.zeros(4, device="meta").expand_as(x),
    "stack": lambda x, n: cd.stack([x, x]),
    "cat": lambda x, n: cd.cat([x, x], 1),
    "cat of rows": lambda x, n: cd.cat([x, x]),
    "select": lambda x, n: x.select(1, 0),
    "where": lambda x, n: cd.where(x > 0, x, x * 2),
    "cast": lambda x, n: x.to(cd.float64),
    "computed length": lambda x, n: cd.zeros(n * 2 + 1, device="meta"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_symbol_goes_through(name: str) -> None:
    ASKED.clear()
    n = Length("n", 5)
    program = PROGRAMS[name]
    made = program(cd.empty((n, 4), device="meta"), n)
    plain = program(cd.empty((5, 4), device="meta"), 5)
    assert tuple(map(known, made.shape)) == tuple(plain.shape)
    assert made.dtype == plain.dtype and made.ndim == plain.ndim
    assert known(made.numel()) == plain.numel()
    assert known(made.size(0)) == plain.size(0) if made.ndim else True


def test_sizes_that_must_agree_are_asked_for_and_nothing_else() -> None:
    ASKED.clear()
    n, m = Length("n", 5), Length("m", 5)
    x, y = cd.empty((n, 4), device="meta"), cd.empty((m, 4), device="meta")
    x + x
    x.reshape(n, 2, 2)
    x.sum(1)
    before = list(ASKED)
    x + y  # two symbols: the program depends on their being equal
    assert any("n" in question and "m" in question for question in ASKED[len(before) :])


def test_what_cannot_be_is_still_refused() -> None:
    n = Length("n", 5)
    x = cd.empty((n, 4), device="meta")
    with pytest.raises(cd.ShapeError):
        x + cd.empty((3, 4), device="meta")
    with pytest.raises(cd.ShapeError):
        x @ cd.empty((n * 0 + 3, 3), device="meta")
    with pytest.raises(cd.ShapeError, match="more than one length open"):
        x.reshape(-1, n, -1)


def test_ints_pay_nothing() -> None:
    assert cd.zeros(2, 3).reshape(3, -1).shape == (3, 2)
    with pytest.raises(TypeError):
        cd.zeros(2.5)
