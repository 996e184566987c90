"""Which cases of a level are run: operators by pattern, checks by name, one shard of many.

The command line and pytest ask the same way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import coredispatch as cd

from .case import BACKEND, CHECKS, check_name
from .subject import Subject, SuiteError

__all__ = ["checks_named", "operators_named", "shard_named", "shard_of", "split"]

_WILD = "*?["


def split(texts: Iterable[str] | None) -> list[str]:
    """The items of an option that may be given again, and list several with commas between."""
    return [item.strip() for text in texts or () for item in text.split(",") if item.strip()]


def checks_named(texts: Iterable[str] | None) -> tuple[int, ...]:
    """Numbers of checks by number, name or pattern: ``3,7``, ``in-place-and-out``, ``grad*``.

    Raises :class:`SuiteError` for one that there is not, naming close ones.
    """
    names = {check_name(number): number for number in CHECKS}
    found: dict[int, None] = {}
    for item in split(texts):
        text = item.replace(" ", "-")
        if item.isdecimal():
            matching = [int(item)] if int(item) in CHECKS else []
        else:
            matching = [n for name, n in names.items() if fnmatchcase(name, text)]
        if not matching:
            close = difflib.get_close_matches(text, names, 3)
            hint = f"did you mean {' or '.join(close)}?" if close else ", ".join(names)
            raise SuiteError(
                f"there is no check {item}", fix=f"checks are numbered 1 to {max(CHECKS)}: {hint}"
            )
        found.update(dict.fromkeys(matching))
    return tuple(found)


def operators_named(subject: Subject, texts: Iterable[str] | None) -> list[str] | None:
    """Operators by name or pattern (``conv*``), in the suite's order; None where none is named.

    A derived form (``exp_``) stands for the operator it is derived from, whose cases check it.
    Raises :class:`SuiteError` for a pattern that no operator of the backend fits. A plain name that
    there is not is taken as it is: who plans its cases refuses it.
    """
    wanted = split(texts)
    if not wanted:
        return None
    found: dict[str, None] = {}
    for item in wanted:
        if not any(c in item for c in _WILD):
            origin = getattr(getattr(cd.ops, item, None), "derived_from", None)
            found[item if origin is None else origin.name] = None
            continue
        matching = [op for op in (BACKEND, *subject.operators()) if fnmatchcase(op, item)]
        if not matching:
            raise SuiteError(f"no operator fits {item!r}", fix="`coredispatch ops` lists them")
        found.update(dict.fromkeys(matching))
    return list(found)


def shard_named(text: str | None) -> tuple[int, int] | None:
    """``2/8``, the second of eight, as numbers; raises :class:`SuiteError` for anything else."""
    if not text:
        return None
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise SuiteError(f"{text!r} names no shard", fix="write 2/8 for the second of eight")
    return int(number), int(count)


def shard_of(
    planned: Mapping[str, Sequence[Any]], shard: tuple[int, int] | None
) -> dict[str, list[Any]]:
    """The operators of one shard with their cases; all of them where ``shard`` is None.

    Operators stay whole, so that what a backend compiles for one is used again. The one with the
    most cases goes to the shard that has the fewest yet: every machine comes to the same shares.
    """
    if shard is None:
        return {op: list(cases) for op, cases in planned.items()}
    number, count = shard
    loads = [0] * count
    home = {}
    for op in sorted(planned, key=lambda op: (-len(planned[op]), op)):
        home[op] = loads.index(min(loads))
        loads[home[op]] += len(planned[op])
    return {op: list(cases) for op, cases in planned.items() if home[op] == number - 1}
