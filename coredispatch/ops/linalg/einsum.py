"""``einsum``: sums of products in Einstein's notation, by permuting, reshaping and ``bmm``.

The operands are contracted pair by pair, always the pair whose result is smallest first, as in
opt_einsum's greedy order (Smith and Gray, JOSS 2018).
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.linalg.products import NUMBERS, matmul
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Index, Tensor
from coredispatch.ops.support.rules import dot
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import ArgumentError, ShapeError

__all__ = ["einsum"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NUMBERED = _LETTERS[26:] + _LETTERS[:26]  # the letters of 0, 1, ...: in alphabetical order


@lru_cache(512)
def parse(equation: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The labels of every operand and of the result; ``...`` becomes labels of its own.

    Raises :class:`ArgumentError` for an equation that is none, or does not fit the operands.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(
            f"equation {equation!r} has {len(terms)} operands, {len(ndims)} were given",
            fix="give one tensor for each term of the equation",
        )
    free = [c for c in _LETTERS if c not in text]
    hidden = 0
    for term, ndim in zip(terms, ndims):
        named = len(term.replace("...", ""))
        if "..." not in term and named != ndim or named > ndim:
            raise ArgumentError(
                f"{term!r} does not fit an operand with {ndim} dimensions",
                fix="name each dimension with a letter, or use '...'",
            )
        hidden = max(hidden, ndim - named)
    dots = "".join(free[:hidden])
    labels = []
    for term, ndim in zip(terms, ndims):
        own = ndim - len(term.replace("...", ""))
        labels.append(term.replace("...", dots[len(dots) - own :], 1))
    if arrow:
        result = right.replace("...", dots, 1)
    else:
        joined = "".join(labels)
        once = sorted(c for c in set(joined) - set(dots) if joined.count(c) == 1)
        result = dots + "".join(once)
    if any(c not in _LETTERS for c in "".join(labels) + result):
        raise ArgumentError(
            f"equation {equation!r} holds more than letters, ',', '->' and '...'",
            fix="use letters, for example 'ij,jk->ik'",
        )
    if len(set(result)) != len(result) or not set(result) <= set("".join(labels)):
        raise ArgumentError(
            f"the result {right!r} of {equation!r} repeats or invents a label",
            fix="name each label of the operands at most once behind '->'",
        )
    return tuple(labels), result


def _diagonals(x: Any, labels: str) -> tuple[Any, str]:
    """Repeated labels of one operand stand for its diagonal."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            x = lazy.diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + c
    return x, labels


def _sum_out(x: Any, labels: str, keep: set[str]) -> tuple[Any, str]:
    dims = [i for i, c in enumerate(labels) if c not in keep]
    if not dims:
        return x, labels
    return lazy.sum(x, tuple(dims)), "".join(c for c in labels if c in keep)


def _contract(a: Any, la: str, b: Any, lb: str, keep: set[str]) -> tuple[Any, str]:
    """One matrix product: shared kept labels are the stack, shared others are summed over."""
    a, la = _sum_out(a, la, keep | set(lb))
    b, lb = _sum_out(b, lb, keep | set(la))
    size = dict(zip(la, a.shape))
    for c, n in zip(lb, b.shape):
        size[c] = max(size.get(c, 1), n) if n != 0 and size.get(c, 1) != 0 else 0
    stack = [c for c in la if c in lb and c in keep]
    inner = [c for c in la if c in lb and c not in keep]
    rows, columns = [c for c in la if c not in lb], [c for c in lb if c not in la]

    if not inner and not rows and not columns:
        return _arranged(a, la, stack, size) * _arranged(b, lb, stack, size), "".join(stack)
    left = _merged(_arranged(a, la, stack + rows + inner, size), len(stack), len(rows))
    right = _merged(_arranged(b, lb, stack + inner + columns, size), len(stack), len(inner))
    out = matmul(left, right)
    order = stack + rows + columns
    if len(rows) != 1 or len(columns) != 1:
        out = shape.reshape(out, tuple(size[c] for c in order))
    return out, "".join(order)


def _arranged(x: Any, labels: str, order: list[str], size: dict[str, int]) -> Any:
    """``x`` with its dimensions in ``order``, those of length 1 expanded."""
    if list(labels) != order:
        x = lazy.permute(x, tuple(labels.index(c) for c in order))
    sizes = tuple(size[c] for c in order)
    return x if tuple(x.shape) == sizes else shape.expand(x, sizes)


def _merged(x: Any, stack: int, first: int) -> Any:
    """The ``first`` dimensions after the stack as one, and the rest as one."""
    if first == 1 and x.ndim == stack + 2:
        return x
    rows, columns = x.shape[stack : stack + first], x.shape[stack + first :]
    return shape.reshape(x, (*x.shape[:stack], prod(rows), prod(columns)))


def _next_pair(labels: list[str], sizes: dict[str, int], result: str) -> tuple[int, int]:
    """The pair whose product is smallest compared with the two it replaces."""
    best: tuple[int, int, int] | None = None
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            others = set(result).union(*(labels[:i] + labels[i + 1 : j] + labels[j + 1 :]))
            kept = (set(labels[i]) | set(labels[j])) & others
            before = sum(prod(sizes[c] for c in labels[k]) for k in (i, j))
            growth = prod(sizes[c] for c in kept) - before
            if best is None or growth < best[0]:
                best = (growth, i, j)
    assert best is not None
    return best[1], best[2]


@lru_cache(512)
def _steps(equation: str, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """For one operand of differing labels: dims to sum over, and an order of what is left."""
    (term,), result = parse(equation, (ndim,))
    kept = [c for c in term if c in result]
    order = tuple(kept.index(c) for c in result)
    dims = tuple(i for i, c in enumerate(term) if c not in result)
    return dims, None if order == tuple(range(len(order))) else order


def _alone(equation: str, x: Any) -> Any:
    """Sums, diagonals and another order of the dimensions of one operand."""
    (term,), _ = parse(equation, (x.ndim,))
    own = x
    if len(set(term)) < len(term):
        for i, c in enumerate(term):
            if x.shape[i] != x.shape[term.index(c)]:
                raise ShapeError(
                    f"label {c!r} of {equation!r} has lengths {x.shape[term.index(c)]} and "
                    f"{x.shape[i]}",
                    fix="give dimensions of one label one length",
                )
        x, term = _diagonals(x, term)
        equation = f"{term}->{parse(equation, (own.ndim,))[1]}"
    dims, order = _steps(equation, x.ndim)
    if dims:
        x = lazy.sum(x, dims)
    if order is not None:
        x = lazy.permute(x, order)
    # The result of an operator that is no view has its own memory.
    return x if dims else x.clone()


@composite(
    reference=lambda equation, operands: np.einsum(equation, *operands),
    samples=lambda make: (
        Sample("ij,jk->ik", [make((3, 4)), make((4, 5))]),
        Sample("bij,bjk->bik", [make((2, 3, 4)), make((2, 4, 5))]),
        Sample("ij->ji", [make((3, 4))]),
        Sample("ii->i", [make((4, 4))]),
        Sample("ii", [make((4, 4))]),
        Sample("ij->", [make((3, 4))]),
        Sample("i,j->ij", [make((3,)), make((4,))]),
        Sample("bhid,bhjd->bhij", [make((2, 3, 4, 5)), make((2, 3, 6, 5))]),
        Sample("...ij,...jk->...ik", [make((2, 3, 4)), make((4, 5))]),
        Sample("ij,jk,kl->il", [make((3, 4)), make((4, 2)), make((2, 5))]),
        Sample("i,i,i->i", [make((5,)), make((5,)), make((5,))]),
        Sample("bn,anm,bm->ba", [make((2, 3)), make((4, 3, 5)), make((2, 5))]),
    ),
    errors=lambda make: [
        (Sample("ij,jk", [make((2, 3)), make((2, 3))]), ShapeError),
        (Sample("ij->k", [make((2, 3))]), ArgumentError),
    ],
    cast="lower",
    tolerance=dot,
    dtypes=(int64, *(d for d in NUMBERS if not d.is_integral)),
)
def einsum(equation: str, operands: list[Tensor]) -> Tensor:
    """Sum of products of the operands' elements, written with a label for each dimension.

    ``einsum("bij,bjk->bik", a, b)``: labels that the result does not name are summed over;
    without ``->`` the result has the labels that occur once, in alphabetical order, after those
    of ``...``. A dimension of length 1 broadcasts. Raises :class:`ArgumentError` for an equation
    that does not fit, :class:`ShapeError` for lengths that do not.
    """
    items = list(operands)
    if len(items) == 1:
        return _alone(equation, items[0])
    labels, result = parse(equation, tuple(x.ndim for x in items))
    sizes: dict[str, int] = {}
    for x, term in zip(items, labels):
        for c, n in zip(term, x.shape):
            if sizes.setdefault(c, n) != n:
                if sizes[c] != 1 and n != 1:
                    raise ShapeError(
                        f"label {c!r} of {equation!r} has lengths {sizes[c]} and {n}",
                        fix="give dimensions of one label one length",
                    )
                sizes[c] = max(sizes[c], n) if n else 0
    parts = [_diagonals(x, term) for x, term in zip(items, labels)]
    while len(parts) > 1:
        i, j = _next_pair([term for _, term in parts], sizes, result)
        (b, lb), (a, la) = parts.pop(j), parts.pop(i)
        keep = set(result).union(*(term for _, term in parts))
        parts.append(_contract(a, la, b, lb, keep))
    x, term = _sum_out(*parts[0], set(result))
    return x if term == result else lazy.permute(x, tuple(term.index(c) for c in result))


@einsum.overload
def _(equation: str, operand: Tensor) -> Tensor:
    try:
        return _alone(equation, operand)
    except (ArgumentError, ShapeError):
        return einsum(equation, [operand])  # which puts its name before what is wrong


@einsum.overload
def _(operand: Tensor, subscripts: Index) -> Tensor:
    """``einsum(a, [0, 1], b, [1, 2], [0, 2])``: labels as numbers below 52, after each operand."""
    if not any(isinstance(item, (list, tuple)) for item in subscripts):
        subscripts = (subscripts,)  # of one operand
    given = (operand, *subscripts)
    equation = ",".join(_written(labels) for labels in given[1::2])
    if len(given) % 2:
        equation += "->" + _written(given[-1])
    return einsum(equation, list(given[: len(given) // 2 * 2 : 2]))


def _written(labels: Any) -> str:
    """A list of numbers as letters."""
    if not isinstance(labels, (list, tuple)):
        raise ArgumentError(
            f"einsum: a list of labels should stand for {type(labels).__name__}",
            fix="write einsum(a, [0, 1], b, [1, 2], [0, 2]), or an equation",
        )
    letters = []
    for label in labels:
        if label is not Ellipsis and not (isinstance(label, int) and 0 <= label < 52):
            raise ArgumentError(
                f"einsum: label {label!r} is not in [0, 52)", fix="number the dimensions from 0"
            )
        letters.append("..." if label is Ellipsis else _NUMBERED[label])
    return "".join(letters)
