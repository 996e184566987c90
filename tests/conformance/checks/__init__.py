"""The checks. Each module declares some of them; :data:`PLANS` is all of them.

A check is a *plan*, which yields its cases for one operator (or, for cases about the backend as
a whole, for None), and a *run*, which asserts what one case is about.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..case import Case

__all__ = ["MODULES", "Check", "check", "find", "load", "plans"]

MODULES = (
    "values",
    "no_rows",
    "magnitudes",
    "everywhere",
    "drawn",
    "arguments",
    "view_inputs",
    "view_targets",
    "operands",
    "kernels",
    "promotion",
    "aliasing",
    "writing",
    "absences",
    "repeatability",
    "randomness",
    "streams",
    "sources",
    "certain_draws",
    "gradients",
    "derivatives",
    "derivative_places",
    "derivative_rows",
    "inplace_forms",
    "precision",
    "refusals",
    "threads",
    "interchange",
    "provenance",
    "derived",
    "decompositions",
    "caching",
    "compilers",
    "layouts",
    "layers",
    "hardware",
    "devices",
    "sizes",
    "blocks",
    "planes",
    "each_dtype",
    "state",
    "many_calls",
    "speed",
    "exactness",
    "long_sums",
    "eight_bits",
    "numbers",
    "ends",
)

Plan = Callable[[Any, Any], Iterator[Case]]
Run = Callable[[Any], None]


@dataclass(frozen=True)
class Check:
    """One registered check: which numbers it serves, its cases, and what it asserts."""

    numbers: tuple[int, ...]
    variant: str | None  # None: every variant of the numbers
    plan: Plan
    run: Run


_checks: list[Check] = []


def check(*numbers: int, plan: Plan, variant: str | None = None) -> Callable[[Run], Run]:
    """Register the decorated function as the run of the numbered checks."""

    def register(run: Run) -> Run:
        _checks.append(Check(numbers, variant, plan, run))
        return run

    return register


@cache
def load() -> list[Check]:
    """All checks, in the order of their modules."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
    return _checks


@cache
def plans() -> dict[Plan, frozenset[int]]:
    """Each plan once, in the order of the checks, with the numbers of the checks that it is of."""
    found: dict[Plan, frozenset[int]] = {}
    for each in load():
        found[each.plan] = found.get(each.plan, frozenset()) | set(each.numbers)
    return found


def find(case: Case) -> Check:
    """The check that runs ``case``."""
    fitting = [c for c in load() if case.check in c.numbers]
    for candidate in fitting:
        if candidate.variant is not None and candidate.variant == case.variant.partition("+")[0]:
            return candidate
    return next(c for c in fitting if c.variant is None)
