"""Sizes that are not known yet: what they are computed from, and what was asked of them.

A :class:`Size` is an integer expression over named symbols, in a normal form: a polynomial whose
atoms are symbols and the quotients and remainders that do not simplify. Two sizes that are equal
for all values have one normal form, so most questions answer themselves. What is left is answered
by the example, and kept as a :class:`Guard`: the program holds where the answer is the same.

Fractions and floats make a :class:`Ratio`, which keeps every operation as the program has it: in
floating point another order gives other digits.
"""

from __future__ import annotations

import numbers
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from coredispatch._frames import in_package
from coredispatch.graph.bounds import bounds_of
from coredispatch.graph.terms import (
    OPERATIONS,
    Atom,
    Terms,
    built,
    fractional,
    names_of,
    number_of,
    product_of,
    quotient,
    read_terms,
    sum_of,
    terms_data,
    text_of,
    value_of,
)
from coredispatch.plugin import Symbol, Value
from coredispatch.registry import TABLE

__all__ = [
    "EXTREMES",
    "Expression",
    "Guard",
    "Ratio",
    "Size",
    "SymbolTable",
    "Variable",
    "computed",
    "extreme",
    "from_data",
    "to_data",
]

#: how a question is written, and what it is when it is not so
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_ASKED: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: the functions that choose one of two numbers, and their names
EXTREMES: dict[Any, str] = {OPERATIONS[kind][1]: kind for kind in ("min", "max")}


@dataclass
class Variable:
    """A symbol: its example, the least and the greatest value that it may have."""

    name: str
    example: Any
    least: float = 0
    greatest: float = inf


@dataclass(frozen=True)
class Guard:
    """A question about sizes and its answer: ``left sign right`` holds.

    Attributes:
        where: the user's line that asked, ``(file, line, function)``.
        forced: whether the program needed the number itself.
        free: whether the other answer leads to the same result, another way.
    """

    sign: str
    left: Any
    right: Any
    where: tuple[str, int, str] | None = None
    forced: bool = False
    free: bool = False

    def names(self) -> set[str]:
        """The symbols in it."""
        sides = (self.left, self.right)
        return {name for side in sides for name in names_of(_terms(side))}

    def holds(self, values: dict[str, Any]) -> bool:
        """Whether it is so for these values of the symbols."""
        left, right = (value_of(_terms(side), values) for side in (self.left, self.right))
        return _ASKED[self.sign](left, right)

    def __str__(self) -> str:
        return f"{text_of(_terms(self.left))} {self.sign} {text_of(_terms(self.right))}"


class SymbolTable:
    """The symbols of one program, and what it asked of them.

    Attributes:
        variables: name -> :class:`Variable`.
        guards: the questions whose answers do not follow from the ranges, in order.
        source: gives the user's line that is running.
        size, ratio: the classes of its expressions.
    """

    size: type[Size]
    ratio: type[Ratio]

    def __init__(self, source: Callable[[], Any] | None = None) -> None:
        self.variables: dict[str, Variable] = {}
        self.guards: list[Guard] = []
        self.source = source or (lambda: None)

    def symbol(self, name: str, example: Any, least: float = 0, greatest: float = inf) -> Size:
        """The size ``name``, which is ``example`` in the example."""
        self.variables.setdefault(name, Variable(name, example, least, greatest))
        return self.size(((((Atom("symbol", name),), 1)),), self)

    @property
    def examples(self) -> dict[str, Any]:
        """Name -> value in the example."""
        return {name: variable.example for name, variable in self.variables.items()}

    def guard(
        self, sign: str, left: Any, right: Any, *, forced: bool = False, free: bool = False
    ) -> None:
        """Keep that ``left sign right``, once."""
        for place, known in enumerate(self.guards):
            sides = (_terms(known.left), _terms(known.right))
            if known.sign == sign and sides == (_terms(left), _terms(right)):
                if known.free and not free:
                    self.guards[place] = Guard(sign, left, right, self.source(), forced)
                return
        self.guards.append(Guard(sign, left, right, self.source(), forced, free))

    def bounds(self, terms: Terms, floor: float = 2) -> tuple[float, float]:
        """The least and the greatest value that an expression may have.

        Operators take sizes to be at least 2 (``floor``): whether one is 0 or 1 is asked wherever
        shapes broadcast, and such sizes are served like all others.
        """

        def symbol(name: str) -> tuple[float, float]:
            variable = self.variables[name]
            return max(variable.least, floor), variable.greatest

        return bounds_of(terms, symbol)

    def ask(self, sign: str, left: Any, right: Any, *, free: bool = False) -> bool:
        """The answer to ``left sign right``: what always holds, else what the example says."""
        difference = sum_of(_terms(left), _terms(right), -1)
        low, high = self.bounds(difference, 0 if _asked_by_program() else 2)
        for answer, certain in ((True, _always(sign, low, high)), (False, _never(sign, low, high))):
            if certain:
                return answer
        held = _ASKED[sign](value_of(difference, self.examples), 0)
        self.guard(sign if held else _NEGATED[sign], left, right, free=free)
        return held


def _asked_by_program() -> bool:
    """Whether a question comes from the program's own code, and not from an operator."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and not in_package(frame.f_code.co_filename)


def _always(sign: str, low: float, high: float) -> bool:
    return {
        "==": low == high == 0,
        "!=": low > 0 or high < 0,
        "<": high < 0,
        "<=": high <= 0,
        ">": low > 0,
        ">=": low >= 0,
    }[sign]


def _never(sign: str, low: float, high: float) -> bool:
    return _always(_NEGATED[sign], low, high)


def _terms(value: Any) -> Terms:
    if isinstance(value, Expression):
        return value.terms
    if type(value) is float:
        return (((Atom("number", value),), 1),)
    return ((((), int(value))),) if value else ()


class Expression(Symbol):
    """An expression over the symbols of a table.

    Arithmetic with numbers and expressions of one table gives expressions, or an int where the
    symbols cancel; so do ``math.floor``, ``math.ceil``, ``math.trunc`` and ``round``. Comparisons
    give what always holds, else the answer of the example, which becomes a guard. So does
    ``int(size)``: the program then holds for that number only.
    """

    __slots__ = ("table", "terms")

    def __init__(self, terms: Terms, table: SymbolTable) -> None:
        self.terms, self.table = terms, table

    @property
    def example(self) -> Any:
        """The value in the example."""
        return value_of(self.terms, self.table.examples)

    def value(self, values: dict[str, Any]) -> Any:
        """The value for these values of the symbols."""
        return value_of(self.terms, values)

    def linear(self) -> tuple[str, int, int] | None:
        """``(name, factor, offset)`` where the expression is ``factor * name + offset``."""
        offset = factor = 0
        name = ""
        for monomial, count in self.terms:
            if not monomial:
                offset = count
            elif len(monomial) == 1 and monomial[0].kind == "symbol" and not name:
                name, factor = monomial[0].of, count
            else:
                return None
        return (name, factor, offset) if name else None

    def solve(self, value: int) -> tuple[str, int] | None:
        """``(name, n)`` where the expression is :meth:`linear` and has this value for ``n``.

        None where it is no such expression; ``n`` is rounded down where nothing fits.
        """
        found = self.linear()
        return None if found is None else (found[0], (value - found[2]) // found[1])

    def names(self) -> set[str]:
        """The symbols in it."""
        return set(names_of(self.terms))

    def build(self, leaf: Callable[[str], Any], apply: Callable[..., Any]) -> Any:
        """The expression as calls ``apply(function, *sides)`` over ``leaf(name)`` and numbers."""
        return built(self.terms, leaf, apply)

    def _made(self, terms: Terms) -> Any:
        number = number_of(terms)
        if number is not None:
            return number
        return (self.table.ratio if fractional(terms) else self.table.size)(terms, self.table)

    def _combined(self, kind: str, a: Any, b: Any) -> Any:
        """``a + b``, ``a - b`` or ``a * b``."""
        if not (_operand(a) and _operand(b)):
            return NotImplemented
        if _real(a) or _real(b):
            return self._kept(kind, a, b)
        one, other = _terms(a), _terms(b)
        if kind == "mul":
            return self._made(product_of(one, other))
        return self._made(sum_of(one, other, 1 if kind == "add" else -1))

    def _kept(self, kind: str, *sides: Any) -> Any:
        """The operation as it is."""
        return self._made((((Atom(kind, tuple(map(_terms, sides))),), 1),))

    def lesser(self, other: Any) -> Any:
        """The lesser one, which stays an expression where both may be it."""
        return self._chosen("min", other, 2)

    def at_least(self, bound: Any) -> bool:
        """Whether it is ``bound`` at least, where either answer leads to the same result."""
        return self.table.ask(">=", self, bound, free=True)

    def _chosen(self, kind: str, other: Any, floor: float) -> Any:
        low, high = self.table.bounds(sum_of(self.terms, _terms(other), -1), floor)
        if low >= 0 or high <= 0:
            return self if (high <= 0 if kind == "min" else low >= 0) else other
        # In one order, so that what does not depend on it is one expression.
        return self._kept(kind, *sorted((self, other), key=lambda side: repr(_terms(side))))

    def _divided(self, kind: str, a: Any, b: Any) -> Any:
        if not (_operand(a) and _operand(b)):
            return NotImplemented
        if not isinstance(b, Expression) and not b:
            raise ZeroDivisionError(f"{text_of(_terms(a))} divided by 0")
        exact = None if _real(a) or _real(b) else quotient(_terms(a), _terms(b))
        if exact is not None and kind in ("floordiv", "mod"):
            return self._made(exact if kind == "floordiv" else ())
        return self._kept(kind, a, b)

    def __add__(self, other: Any) -> Any:
        return self._combined("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._combined("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._combined("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combined("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._combined("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._combined("mul", other, self)

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return extreme("max", self, -self)

    def __floordiv__(self, other: Any) -> Any:
        return self._divided("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._divided("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._divided("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._divided("mod", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> Any:
        return self._divided("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._divided("truediv", other, self)

    def __pow__(self, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented if isinstance(other, Value) else self._forced() ** other
        if _real(self) or _real(other):
            return self._kept("pow", self, other)
        if isinstance(other, Expression):
            return self._forced() ** other
        if other < 0:
            return self._kept("pow", self, float(other))
        result: Any = 1
        for _ in range(other if other <= 8 else 0):
            result = self * result
        return result if other <= 8 else self._kept("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented if isinstance(other, Value) else other ** self._forced()
        return self._kept("pow", float(other), self) if _real(other) else other ** self._forced()

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if _places(other) else self._bits(operator.lshift, self, other)

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if _places(other) else self._bits(operator.rshift, self, other)

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other >= 0 and not other & (other + 1):  # the last digits
            return self % (other + 1)
        return self._bits(operator.and_, self, other)

    def __or__(self, other: Any) -> Any:
        return self._bits(operator.or_, self, other)

    def __xor__(self, other: Any) -> Any:
        return self._bits(operator.xor, self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._bits(operator.lshift, other, self)

    def __rrshift__(self, other: Any) -> Any:
        return self._bits(operator.rshift, other, self)

    def __invert__(self) -> Any:
        return self * -1 - 1 if not _real(self) else NotImplemented

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def _bits(self, function: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
        """What no polynomial gives: the program holds for these numbers then."""
        if _real(one) or _real(other) or not (_operand(one) and _operand(other)):
            return NotImplemented
        return function(*(s._forced() if isinstance(s, Expression) else s for s in (one, other)))

    def __floor__(self) -> Any:
        return self._whole("floor")

    def __ceil__(self) -> Any:
        return self._whole("ceil")

    def __trunc__(self) -> Any:
        return self._whole("trunc")

    def __round__(self, digits: int | None = None) -> Any:
        return self._whole("round") if digits is None else round(self._forced(), digits)

    def _whole(self, kind: str) -> Any:
        return self._kept(kind, self) if _real(self) else self

    def __eq__(self, other: object) -> Any:
        return self.table.ask("==", self, other) if _operand(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self.table.ask("!=", self, other) if _operand(other) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.table.ask("<", self, other) if _operand(other) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return self.table.ask("<=", self, other) if _operand(other) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return self.table.ask(">", self, other) if _operand(other) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return self.table.ask(">=", self, other) if _operand(other) else NotImplemented

    def __hash__(self) -> int:
        # A key of a dict is looked at by the program; this package's own dicts tell symbols apart.
        return hash(self._forced() if _asked_by_program() else self.terms)

    def __bool__(self) -> bool:
        return self.table.ask("!=", self, 0)

    def _forced(self) -> Any:
        example = self.example
        self.table.guard("==", self, example, forced=True)
        return example

    def __index__(self) -> int:
        return operator.index(self._forced())

    def __int__(self) -> int:
        return int(self._forced())

    def __float__(self) -> float:
        return float(self._forced())

    def __repr__(self) -> str:
        return text_of(self.terms)

    def __copy__(self) -> Expression:
        return self

    def __deepcopy__(self, memo: Any) -> Expression:
        return self


def extreme(kind: str, one: Any, other: Any) -> Any:
    """What a program gets for ``min(one, other)`` (``kind`` "min") or ``max(one, other)``.

    An expression where one of them is an expression and either may be the result: sizes of 0 and 1
    count here, as in all that a program asks.
    """
    if isinstance(one, Expression):
        return one._chosen(kind, other, 0)
    if isinstance(other, Expression):
        return other._chosen(kind, one, 0)
    return OPERATIONS[kind][1](one, other)


def computed(function: Callable[..., Any], *sides: Any) -> Any:
    """``function(*sides)``: which of two open sizes is the lesser or the greater stays open."""
    kind = EXTREMES.get(function)
    return function(*sides) if kind is None or len(sides) != 2 else extreme(kind, *sides)


class Size(Expression):
    """An integer: the length of a dimension, and what is computed from lengths."""

    __slots__ = ()


class Ratio(Expression):
    """A fraction of sizes, or a float computed from them: a number for operators."""

    __slots__ = ()


SymbolTable.size, SymbolTable.ratio = Size, Ratio


def _with_tensors(method: str, op: str, swapped: bool) -> None:
    """Let ``method`` take tensors: a size is a number of an operator then."""
    plain = getattr(Expression, method)

    def computed(self: Expression, other: Any) -> Any:
        if isinstance(other, Value):
            return TABLE.operator(op)(*((other, self) if swapped else (self, other)))
        return plain(self, other)

    setattr(Expression, method, computed)


for _sign, _op in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}.items():
    _with_tensors(f"__{_sign}__", _op, False)
    _with_tensors(f"__r{_sign}__", _op, True)
for _sign, _op in {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}.items():
    _with_tensors(f"__{_sign}__", _op, True)  # the size stands on the right

numbers.Integral.register(Size)
numbers.Real.register(Ratio)


def _operand(value: Any) -> bool:
    return isinstance(value, Expression) or type(value) in (int, bool, float)


def _places(value: Any) -> bool:
    """Whether a number is shifted by that many places, which is a product or a quotient."""
    return type(value) is int and 0 <= value < 64


def _real(value: Any) -> bool:
    """Whether arithmetic with it is that of floats."""
    return type(value) is float or isinstance(value, Ratio)


# ---- as data -------------------------------------------------------------------------------------


def to_data(value: Any) -> Any:
    """An int, or an expression, as lists, text and numbers."""
    if not isinstance(value, Expression):
        return value
    return {"terms": terms_data(value.terms)}


def from_data(data: Any, table: SymbolTable) -> Any:
    """What :func:`to_data` wrote, over the symbols of ``table``; raises ``KeyError`` for others."""
    if not isinstance(data, dict):
        return data
    terms = read_terms(data["terms"])
    for name in names_of(terms):
        table.variables[name]
    return (Ratio if fractional(terms) else Size)(terms, table)
