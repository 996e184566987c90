"""Where the minutes and the memory of a run went: by check, and by operator."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..case import check_name

__all__ = ["by_check", "by_operator", "lines", "megabytes", "suspicious"]

_SHOWN = 6


def by_check(document: dict[str, Any]) -> dict[int, tuple[float, int]]:
    """Seconds and cases of each check, the dearest first."""
    return _summed(document, "check")


def by_operator(document: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Seconds and cases of each operator, the dearest first."""
    return _summed(document, "op")


def _summed(document: dict[str, Any], part: str) -> dict[Any, tuple[float, int]]:
    found: dict[Any, list[float]] = defaultdict(list)
    for r in document["results"]:
        found[r[part]].append(r["seconds"])
    pairs = {key: (sum(seconds), len(seconds)) for key, seconds in found.items()}
    return dict(sorted(pairs.items(), key=lambda item: -item[1][0]))


def suspicious(document: dict[str, Any]) -> list[tuple[str, str]]:
    """``(case, figure)`` of what is slow out of proportion, which is reported and not judged."""
    found = [(r["case"], r["details"].get("suspicious")) for r in document["results"]]
    return [(case, str(figure)) for case, figure in found if figure]


def megabytes(amount: int) -> str:
    """A number of bytes as text."""
    return f"{amount / 2**20:.0f} MiB"


def lines(document: dict[str, Any]) -> list[str]:
    """What the terminal says of them: a line each."""
    total = sum(r["seconds"] for r in document["results"])
    if not total:
        return []
    checks = [
        f"{check_name(n)} {s:.1f} s ({100 * s / total:.0f} %)"
        for n, (s, _) in [*by_check(document).items()][:_SHOWN]
    ]
    ops = [f"{op} {s:.1f} s" for op, (s, _) in [*by_operator(document).items()][:_SHOWN]]
    found = [f"time by check: {', '.join(checks)}", f"time by operator: {', '.join(ops)}"]
    memory = document.get("memory") or {}
    most = sorted(memory, key=lambda op: -memory[op]["peak"])[:_SHOWN]
    if most:
        shown = [f"{op} {megabytes(memory[op]['peak'])}" for op in most]
        found.append(f"most memory beside what was there: {', '.join(shown)}")
    slow = suspicious(document)
    if slow:
        found.append(f"suspicious, and not judged: {len(slow)} kernels")
        found += [f"  {case}: {figure}" for case, figure in slow[:_SHOWN]]
        if len(slow) > _SHOWN:
            found.append(f"  ... and {len(slow) - _SHOWN} more in the report")
    compiled = document.get("compiled") or {}
    if compiled:
        shapes, first, again = (
            sum(c[part] for c in compiled.values()) for part in ("shapes", "first", "again")
        )
        found.append(
            f"compiling: {first:.1f} s in the first calls of {shapes:.0f} shapes, {again:.1f} s in "
            "later ones"
        )
    return found
