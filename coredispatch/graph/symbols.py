"""Sizes that are not known yet: what they are computed from, and what was asked of them.

A :class:`Size` is an integer expression over named symbols, in a normal form: a polynomial whose
atoms are symbols and the quotients and remainders that do not simplify. Two sizes that are equal
for all values have one normal form, so most questions answer themselves. What is left is answered
by the example, and kept as a :class:`Guard`: the program holds where the answer is the same.
"""

from __future__ import annotations

import numbers
import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from coredispatch._frames import in_package
from coredispatch.plugin import Symbol, Value
from coredispatch.registry import TABLE

__all__ = [
    "Expression",
    "Guard",
    "Ratio",
    "Size",
    "SymbolTable",
    "Variable",
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


class _Atom(NamedTuple):
    """A symbol (``kind`` "symbol", ``of`` its name), or an operation on two expressions."""

    kind: str
    of: Any


#: an expression: products of atoms with their factors, sorted
_Terms = tuple[tuple[tuple[_Atom, ...], int], ...]
_OPERATIONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "floordiv": ("//", operator.floordiv),
    "mod": ("%", operator.mod),
    "truediv": ("/", operator.truediv),
    "pow": ("**", operator.pow),
}


def _normal(found: dict[tuple[_Atom, ...], int]) -> _Terms:
    return tuple(sorted(((m, c) for m, c in found.items() if c), key=repr))


def _sum(a: _Terms, b: _Terms, factor: int = 1) -> _Terms:
    found = dict(a)
    for monomial, count in b:
        found[monomial] = found.get(monomial, 0) + factor * count
    return _normal(found)


def _product(a: _Terms, b: _Terms) -> _Terms:
    found: dict[tuple[_Atom, ...], int] = {}
    for one, m in a:
        for other, n in b:
            key = tuple(sorted((*one, *other), key=repr))
            found[key] = found.get(key, 0) + m * n
    return _normal(found)


def _number(terms: _Terms) -> int | None:
    """The value of an expression without symbols."""
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and not terms[0][0] else None


def _quotient(a: _Terms, b: _Terms) -> _Terms | None:
    """``a / b`` where ``b`` is one product that divides every term of ``a``, else None."""
    if len(b) != 1:
        return () if not a else ((((), 1),) if a == b else None)
    ((below, factor),) = b
    found = {}
    for monomial, count in a:
        rest = list(monomial)
        for atom in below:
            if atom not in rest:
                return None
            rest.remove(atom)
        if count % factor:
            return None
        found[tuple(rest)] = count // factor
    return _normal(found)


def _text(terms: _Terms) -> str:
    parts = []
    for monomial, count in terms:
        atoms = [_atom_text(atom) for atom in monomial]
        factors = ([] if count == 1 and atoms else [str(count)]) + atoms
        parts.append("*".join(factors))
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _atom_text(atom: _Atom) -> str:
    if atom.kind == "symbol":
        return str(atom.of)
    sign = _OPERATIONS[atom.kind][0]
    return f"(({_text(atom.of[0])}) {sign} ({_text(atom.of[1])}))"


def _value(terms: _Terms, values: dict[str, Any]) -> Any:
    total: Any = 0
    for monomial, count in terms:
        product: Any = count
        for atom in monomial:
            if atom.kind == "symbol":
                product *= values[atom.of]
            else:
                a, b = (_value(part, values) for part in atom.of)
                product *= _OPERATIONS[atom.kind][1](a, b)
        total += product
    return total


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
    """

    sign: str
    left: Any
    right: Any
    where: tuple[str, int, str] | None = None
    forced: bool = False

    def names(self) -> set[str]:
        """The symbols in it."""
        sides = (self.left, self.right)
        return {name for side in sides for name in _names(_terms(side))}

    def holds(self, values: dict[str, Any]) -> bool:
        """Whether it is so for these values of the symbols."""
        left, right = (_value(_terms(side), values) for side in (self.left, self.right))
        return _ASKED[self.sign](left, right)

    def __str__(self) -> str:
        return f"{_text(_terms(self.left))} {self.sign} {_text(_terms(self.right))}"


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
        return self.size(((((_Atom("symbol", name),), 1)),), self)

    @property
    def examples(self) -> dict[str, Any]:
        """Name -> value in the example."""
        return {name: variable.example for name, variable in self.variables.items()}

    def guard(self, sign: str, left: Any, right: Any, *, forced: bool = False) -> None:
        """Keep that ``left sign right``, once."""
        if not any(
            g.sign == sign and _terms(g.left) == _terms(left) and _terms(g.right) == _terms(right)
            for g in self.guards
        ):
            self.guards.append(Guard(sign, left, right, self.source(), forced))

    def bounds(self, terms: _Terms, floor: float = 2) -> tuple[float, float]:
        """The least and the greatest value that an expression may have.

        Operators take sizes to be at least 2 (``floor``): whether one is 0 or 1 is asked wherever
        shapes broadcast, and such sizes are served like all others.
        """
        low = high = 0.0
        for monomial, count in terms:
            least, most = 1.0, 1.0
            for atom in monomial:
                one, other = self._atom_bounds(atom, floor)
                ends = [_times(a, b) for a in (least, most) for b in (one, other)]
                least, most = min(ends), max(ends)
            ends = [_times(least, count), _times(most, count)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _atom_bounds(self, atom: _Atom, floor: float) -> tuple[float, float]:
        if atom.kind == "symbol":
            variable = self.variables[atom.of]
            return max(variable.least, floor), variable.greatest
        (a, b), (c, d) = (self.bounds(part, floor) for part in atom.of)
        if atom.kind == "mod" and c > 0:
            return 0, d - 1
        if atom.kind == "floordiv" and c > 0 and a >= 0:
            return (a // d if d != inf else 0), (b // c if b != inf else inf)
        return -inf, inf

    def ask(self, sign: str, left: Any, right: Any) -> bool:
        """The answer to ``left sign right``: what always holds, else what the example says."""
        difference = _sum(_terms(left), _terms(right), -1)
        low, high = self.bounds(difference, 0 if _asked_by_program() else 2)
        for answer, certain in ((True, _always(sign, low, high)), (False, _never(sign, low, high))):
            if certain:
                return answer
        held = _ASKED[sign](_value(difference, self.examples), 0)
        self.guard(sign if held else _NEGATED[sign], left, right)
        return held


def _asked_by_program() -> bool:
    """Whether a question comes from the program's own code, and not from an operator."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and not in_package(frame.f_code.co_filename)


def _times(a: float, b: float) -> float:
    return 0.0 if 0 in (a, b) else a * b


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


def _terms(value: Any) -> _Terms:
    if isinstance(value, Expression):
        return value.terms
    return ((((), int(value))),) if value else ()


class Expression(Symbol):
    """An expression over the symbols of a table.

    Arithmetic with ints and expressions of one table gives expressions, or an int where the symbols
    cancel. Comparisons give what always holds, else the answer of the example, which becomes a
    guard. So does ``int(size)``: the program then holds for that number only.
    """

    __slots__ = ("table", "terms")

    def __init__(self, terms: _Terms, table: SymbolTable) -> None:
        self.terms, self.table = terms, table

    @property
    def example(self) -> Any:
        """The value in the example."""
        return _value(self.terms, self.table.examples)

    def value(self, values: dict[str, Any]) -> Any:
        """The value for these values of the symbols."""
        return _value(self.terms, values)

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
        return set(_names(self.terms))

    def build(self, leaf: Callable[[str], Any], apply: Callable[[Any, Any, Any], Any]) -> Any:
        """The expression as calls ``apply(function, a, b)`` over ``leaf(name)`` and ints."""
        return _built(self.terms, leaf, apply)

    def _made(self, terms: _Terms) -> Any:
        number = _number(terms)
        if number is not None:
            return number
        return (self.table.ratio if _fractional(terms) else self.table.size)(terms, self.table)

    def _divided(self, kind: str, a: Any, b: Any) -> Any:
        if not (_operand(a) and _operand(b)):
            return NotImplemented
        above, below = _terms(a), _terms(b)
        if not below:
            raise ZeroDivisionError(f"{_text(above)} divided by 0")
        exact = _quotient(above, below)
        if exact is not None and kind in ("floordiv", "mod"):
            return self._made(exact if kind == "floordiv" else ())
        return self._made((((_Atom(kind, (above, below)),), 1),))

    def __add__(self, other: Any) -> Any:
        return self._made(_sum(self.terms, _terms(other))) if _operand(other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        return self._made(_sum(self.terms, _terms(other), -1))

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        return self._made(_product(self.terms, _terms(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

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
        if type(other) is int and 0 <= other <= 8:
            result: Any = 1
            for _ in range(other):
                result = self * result
            return result
        return self._forced() ** other

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
        return _text(self.terms)

    def __copy__(self) -> Expression:
        return self

    def __deepcopy__(self, memo: Any) -> Expression:
        return self


class Size(Expression):
    """An integer: the length of a dimension, and what is computed from lengths."""

    __slots__ = ()


class Ratio(Expression):
    """A fraction of sizes, a number for operators."""

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
}.items():
    _with_tensors(f"__{_sign}__", _op, False)
    _with_tensors(f"__r{_sign}__", _op, True)
for _sign, _op in {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}.items():
    _with_tensors(f"__{_sign}__", _op, True)  # the size stands on the right

numbers.Integral.register(Size)
numbers.Real.register(Ratio)


def _fractional(terms: _Terms) -> bool:
    return any(
        atom.kind == "truediv" or (atom.kind != "symbol" and any(map(_fractional, atom.of)))
        for monomial, _ in terms
        for atom in monomial
    )


def _operand(value: Any) -> bool:
    return isinstance(value, Expression) or type(value) in (int, bool)


def _names(terms: _Terms) -> Iterable[str]:
    for monomial, _ in terms:
        for atom in monomial:
            if atom.kind == "symbol":
                yield atom.of
            else:
                for part in atom.of:
                    yield from _names(part)


def _built(terms: _Terms, leaf: Any, apply: Any) -> Any:
    total: Any = None
    for monomial, count in terms:
        product: Any = None
        for atom in monomial:
            if atom.kind == "symbol":
                factor = leaf(atom.of)
            else:
                sides = [_built(part, leaf, apply) for part in atom.of]
                factor = apply(_OPERATIONS[atom.kind][1], *sides)
            product = factor if product is None else apply(operator.mul, product, factor)
        if product is None:
            product = count
        elif count != 1:
            product = apply(operator.mul, product, count)
        total = product if total is None else apply(operator.add, total, product)
    return 0 if total is None else total


# ---- as data -------------------------------------------------------------------------------------


def to_data(value: Any) -> Any:
    """An int, or an expression, as lists, text and numbers."""
    if not isinstance(value, Expression):
        return value
    return {"terms": _terms_data(value.terms)}


def _terms_data(terms: _Terms) -> Any:
    return [[[_atom_data(atom) for atom in monomial], count] for monomial, count in terms]


def _atom_data(atom: _Atom) -> Any:
    inside = atom.of if atom.kind == "symbol" else [_terms_data(part) for part in atom.of]
    return [atom.kind, inside]


def from_data(data: Any, table: SymbolTable) -> Any:
    """What :func:`to_data` wrote, over the symbols of ``table``; raises ``KeyError`` for others."""
    if not isinstance(data, dict):
        return data
    terms = _read_terms(data["terms"])
    for name in _names(terms):
        table.variables[name]
    return (Ratio if _fractional(terms) else Size)(terms, table)


def _read_terms(data: Any) -> _Terms:
    return _normal({tuple(_read_atom(atom) for atom in monomial): int(n) for monomial, n in data})


def _read_atom(data: Any) -> _Atom:
    kind, inside = data
    if kind == "symbol":
        return _Atom("symbol", str(inside))
    if kind not in _OPERATIONS:
        raise KeyError(kind)
    return _Atom(kind, tuple(_read_terms(part) for part in inside))
