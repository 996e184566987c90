"""What an exported program needs of its open sizes: ranges, guards, contradictions to a ``Dim``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

from coredispatch.frontend.export.dims import DimHint, Shapes
from coredispatch.frontend.export.errors import UserError
from coredispatch.graph.symbols import Guard, Size, SymbolTable

__all__ = ["Specialized", "ValueRange", "constrain"]

#: sizes above the example's that are tried before a range is suggested
_TRIED = 1000


@dataclass(frozen=True)
class ValueRange:
    """The least and the greatest value of a size, inclusive."""

    lower: float
    upper: float

    def __str__(self) -> str:
        return f"VR[{_shown(self.lower)}, {_shown(self.upper)}]"

    __repr__ = __str__


def _shown(bound: float) -> str:
    return "int_oo" if bound == inf else str(int(bound))


class Specialized(Exception):
    """A size that ``Dim.AUTO`` left open is one number, or another size: to be traced again."""

    def __init__(self, name: str, other: str | None = None) -> None:
        super().__init__(name, other)
        self.name, self.other = name, other


def constrain(shapes: Shapes, *, deferred: bool) -> list[Guard]:
    """The guards that a call has to check, after ranges were narrowed by the others.

    Raises :class:`UserError` where a guard contradicts what was promised by a ``Dim``, unless
    ``deferred``, and :class:`Specialized` where it closes a size of ``Dim.AUTO``.
    """
    table = shapes.table
    table.guards = [guard for guard in table.guards if not guard.free]
    kept: list[Guard] = []
    problems: list[str] = []
    fixes: list[str] = []
    for guard in table.guards:
        names = guard.names()
        loose = {n for n in names if _auto(shapes, n)}
        line = _linear(guard)
        if guard.sign == "==" and line is not None:
            if loose:
                raise Specialized(next(iter(loose)))
            (name,) = names
            value = table.variables[name].example
            problems.append(_constant(name, value, guard))
            fixes.append(f"{name} = {value}")
        elif guard.sign == "==" and _two(guard):
            if loose:
                last = sorted(loose)[-1]
                raise Specialized(last, next(iter(names - {last})))
            one, other = (str(guard.left), str(guard.right))
            problems.append(
                f"The values of {other} = {shapes.places.get(other, other)} and {one} = "
                f"{shapes.places.get(one, one)} must always be equal{_where(guard)}."
            )
            fixes.append(f"{other} = {one}")
        elif line is not None and _edge(shapes, guard, line):
            _narrow(
                shapes,
                Guard(">", guard.left, guard.right, guard.where),
                line,
                deferred,
                problems,
                fixes,
                kept,
            )
        elif line is not None and guard.sign != "!=":
            _narrow(shapes, guard, line, deferred, problems, fixes, kept)
        elif deferred or loose == names:
            kept.append(guard)
        else:
            problems.append(
                f"Not all values of {', '.join(sorted(names))} satisfy the generated guard "
                f"{guard}{_where(guard)}."
            )
            least = _least(shapes, guard, names)
            if least is not None:
                (name,) = names
                fixes.append(f"{name} = Dim({name!r}, min={least})")
    if problems and not deferred:
        involved = ", ".join(sorted({n for g in table.guards for n in g.names()}))
        raise UserError(
            f"Constraints violated ({involved})!\n  - "
            + "\n  - ".join(dict.fromkeys(problems))
            + ("\nSuggested fixes:\n  " + "\n  ".join(dict.fromkeys(fixes)) if fixes else ""),
            fix="say so in dynamic_shapes, use Dim.AUTO, or write the program for all sizes",
        )
    if deferred:
        kept = list(table.guards)
    return kept


def _least(shapes: Shapes, guard: Guard, names: Collection[str]) -> int | None:
    """From where on a question about one size has its answer, as far as trying it out tells."""
    if len(names) != 1:
        return None
    (name,) = names
    variable = shapes.table.variables[name]
    low, most = int(variable.least), min(variable.greatest, variable.example + _TRIED)
    wrong = [n for n in range(low, int(most) + 1) if not guard.holds({name: n})]
    least = max(wrong, default=low - 1) + 1
    return least if wrong and least <= variable.example else None


def _narrow(
    shapes: Shapes,
    guard: Guard,
    line: tuple[str, int, int],
    deferred: bool,
    problems: list[str],
    fixes: list[str],
    kept: list[Guard],
) -> None:
    """An inequality of one symbol: a range."""
    name, factor, offset = line
    variable = shapes.table.variables[name]
    low, high = _bounds(guard.sign, factor, offset)
    least, most = max(variable.least, low), min(variable.greatest, high)
    if (least, most) == (variable.least, variable.greatest):
        return
    hint = shapes.hints.get(name)
    if least == most and isinstance(hint, DimHint) and hint.kind == "DYNAMIC" and not deferred:
        problems.append(_constant(name, int(least), guard))
        fixes.append(f"{name} = {int(least)}")
        return
    if isinstance(hint, DimHint) or deferred:
        variable.least, variable.greatest = least, most
        return
    problems.append(
        f"Not all values of {name} = {shapes.places[name]} in the specified range satisfy the "
        f"generated guard {guard}{_where(guard)}."
    )
    bounds = [f"min={int(least)}"] if least > 0 else []
    bounds += [f"max={int(most)}"] if most != inf else []
    fixes.append(f"{name} = Dim({name!r}, {', '.join(bounds)})")


def _edge(shapes: Shapes, guard: Guard, line: tuple[str, int, int]) -> bool:
    """Whether ``n != edge`` takes the least values of a range away: the example is above them."""
    name, factor, offset = line
    variable = shapes.table.variables[name]
    edge = -offset / factor
    return (
        guard.sign == "!=" and factor > 0 and variable.least >= edge - 1 and edge < variable.example
    )


def _bounds(sign: str, factor: int, offset: int) -> tuple[float, float]:
    """What ``factor * n + offset sign 0`` says of an integer ``n``."""
    if factor < 0:
        sign = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}[sign]
    edge = -offset / factor
    return {
        ">": (floor(edge) + 1, inf),
        ">=": (ceil(edge), inf),
        "<": (-inf, ceil(edge) - 1),
        "<=": (-inf, floor(edge)),
    }[sign]


def _linear(guard: Guard) -> tuple[str, int, int] | None:
    """``(name, factor, offset)`` of ``left - right`` where it is linear in one symbol."""
    difference = guard.left - guard.right
    return difference.linear() if isinstance(difference, Size) else None


def _two(guard: Guard) -> bool:
    return all(isinstance(s, Size) and str(s).isidentifier() for s in (guard.left, guard.right))


def _auto(shapes: Shapes, name: str) -> bool:
    hint = shapes.hints.get(name)
    return isinstance(hint, DimHint) and hint.kind == "AUTO"


def _constant(name: str, value: Any, guard: Guard) -> str:
    return (
        f"You marked {name} as dynamic but your code specialized it to be a constant "
        f"({value}){_where(guard)}."
    )


def _where(guard: Guard) -> str:
    return "" if guard.where is None else " ({}:{} in {})".format(*guard.where)


def ranges(table: SymbolTable) -> dict[str, ValueRange]:
    """Symbol -> range."""
    return {name: ValueRange(v.least, v.greatest) for name, v in table.variables.items()}
