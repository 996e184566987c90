"""Integer and float expressions over names, as data: the algebra under the sizes of a program.

An expression is a sum of products of atoms with integer factors, sorted, so that equal integer
expressions have equal terms. An operation that does not simplify is an atom itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = [
    "OPERATIONS",
    "Atom",
    "Terms",
    "built",
    "fractional",
    "names_of",
    "number_of",
    "product_of",
    "quotient",
    "read_terms",
    "sum_of",
    "terms_data",
    "text_of",
    "value_of",
]


class Atom(NamedTuple):
    """A symbol (``kind`` "symbol", ``of`` its name), a float ("number"), or an operation.

    ``of`` an operation is one expression or two.
    """

    kind: str
    of: Any


#: an expression: products of atoms with their factors, sorted
Terms = tuple[tuple[tuple[Atom, ...], int], ...]
OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "floordiv": ("//", operator.floordiv),
    "mod": ("%", operator.mod),
    "truediv": ("/", operator.truediv),
    "pow": ("**", operator.pow),
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "min": ("min", min),
    "max": ("max", max),
    "floor": ("floor", math.floor),
    "ceil": ("ceil", math.ceil),
    "trunc": ("trunc", math.trunc),
    "round": ("round", round),
}
#: what makes an integer of a float
_WHOLE = ("floor", "ceil", "trunc", "round")
_LEAVES = ("symbol", "number")


def _normal(found: dict[tuple[Atom, ...], int]) -> Terms:
    return tuple(sorted(((m, c) for m, c in found.items() if c), key=repr))


def sum_of(a: Terms, b: Terms, factor: int = 1) -> Terms:
    """``a + factor * b``."""
    found = dict(a)
    for monomial, count in b:
        found[monomial] = found.get(monomial, 0) + factor * count
    return _normal(found)


def product_of(a: Terms, b: Terms) -> Terms:
    """``a * b``, multiplied out."""
    found: dict[tuple[Atom, ...], int] = {}
    for one, m in a:
        for other, n in b:
            key = tuple(sorted((*one, *other), key=repr))
            found[key] = found.get(key, 0) + m * n
    return _normal(found)


def number_of(terms: Terms) -> int | None:
    """The value of an expression without symbols."""
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and not terms[0][0] else None


def quotient(a: Terms, b: Terms) -> Terms | None:
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


def text_of(terms: Terms) -> str:
    """The expression as Python writes it."""
    parts = []
    for monomial, count in terms:
        atoms = [_atom_text(atom) for atom in monomial]
        factors = ([] if count == 1 and atoms else [str(count)]) + atoms
        parts.append("*".join(factors))
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _atom_text(atom: Atom) -> str:
    if atom.kind in _LEAVES:
        return str(atom.of)
    sign = OPERATIONS[atom.kind][0]
    if len(atom.of) == 1:
        return f"{sign}({text_of(atom.of[0])})"
    if atom.kind in ("min", "max"):
        return f"{sign}({', '.join(map(text_of, atom.of))})"
    one, other = map(_side_text, atom.of)
    return f"({one} {sign} {other})"


def _side_text(terms: Terms) -> str:
    simple = len(terms) == 1 and (terms[0][0] == () or terms[0][1] == 1 and len(terms[0][0]) == 1)
    return text_of(terms) if simple or not terms else f"({text_of(terms)})"


def value_of(terms: Terms, values: dict[str, Any]) -> Any:
    """The value for these values of the symbols."""
    total: Any = 0
    for monomial, count in terms:
        product: Any = count
        for atom in monomial:
            if atom.kind == "symbol":
                product *= values[atom.of]
            elif atom.kind == "number":
                product *= atom.of
            else:
                product *= OPERATIONS[atom.kind][1](*(value_of(part, values) for part in atom.of))
        total += product
    return total


def fractional(terms: Terms) -> bool:
    """Whether the expression is a float."""
    return any(
        atom.kind in ("truediv", "number")
        or (atom.kind not in ("symbol", *_WHOLE) and any(map(fractional, atom.of)))
        for monomial, _ in terms
        for atom in monomial
    )


def names_of(terms: Terms) -> Iterable[str]:
    """The symbols in it."""
    for monomial, _ in terms:
        for atom in monomial:
            if atom.kind == "symbol":
                yield atom.of
            elif atom.kind != "number":
                for part in atom.of:
                    yield from names_of(part)


def built(terms: Terms, leaf: Any, apply: Any) -> Any:
    """The expression as calls ``apply(function, *sides)`` over ``leaf(name)`` and numbers."""
    total: Any = None
    for monomial, count in terms:
        product: Any = None
        for atom in monomial:
            if atom.kind == "symbol":
                factor = leaf(atom.of)
            elif atom.kind == "number":
                factor = atom.of
            else:
                sides = [built(part, leaf, apply) for part in atom.of]
                factor = apply(OPERATIONS[atom.kind][1], *sides)
            product = factor if product is None else apply(operator.mul, product, factor)
        if product is None:
            product = count
        elif count != 1:
            product = apply(operator.mul, product, count)
        total = product if total is None else apply(operator.add, total, product)
    return 0 if total is None else total


def terms_data(terms: Terms) -> Any:
    """The expression as lists, text and numbers."""
    return [[[_atom_data(atom) for atom in monomial], count] for monomial, count in terms]


def _atom_data(atom: Atom) -> Any:
    inside = atom.of if atom.kind in _LEAVES else [terms_data(part) for part in atom.of]
    return [atom.kind, inside]


def read_terms(data: Any) -> Terms:
    """What :func:`terms_data` wrote; raises ``KeyError`` for an unknown operation."""
    return _normal({tuple(_read_atom(atom) for atom in monomial): int(n) for monomial, n in data})


def _read_atom(data: Any) -> Atom:
    kind, inside = data
    if kind == "symbol":
        return Atom("symbol", str(inside))
    if kind == "number":
        return Atom("number", float(inside))
    if kind not in OPERATIONS:
        raise KeyError(kind)
    return Atom(kind, tuple(read_terms(part) for part in inside))
