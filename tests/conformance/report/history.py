"""How a backend went from run to run: a line each, and what changed since the one before."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from .html import STYLE
from .terminal import asked

if TYPE_CHECKING:
    from ..database import Database, Row

__all__ = ["history_lines", "history_page"]

#: cases named below a run
_NAMED = 20


def _cells(row: Row) -> list[str]:
    d = row.document
    v, counts = d["verdict"], d["counts"]
    verdict = "conforms" if v["passed"] and v["complete"] else "passes" if v["passed"] else "fails"
    verdict = verdict if row.finished else "interrupted"
    others = ", ".join(f"{n} {s}" for s, n in sorted(counts.items()) if s != "pass")
    shown = f"{counts.get('pass', 0)} pass" + (f", {others}" if others else "")
    whole = "" if v["complete"] else " (a selection)"
    return [
        str(row.run),
        row.started,
        row.backend,
        asked(d) + whole,
        verdict,
        v["reached"] or "-",
        shown,
        f"{d['seconds']:.0f} s",
    ]


_HEAD = ["run", "started", "backend", "asked for", "verdict", "reached", "cases", "time"]


def _changes(database: Database, old: Row | None, new: Row) -> list[tuple[str, str]]:
    """``(from -> to, case)`` of the cases that both runs have, regressions first."""
    if old is None:
        return []
    before, after = database.statuses(old.run), database.statuses(new.run)
    found = [
        (f"{before[case]} -> {status}", case)
        for case, status in after.items()
        if case in before and before[case] != status
    ]
    return sorted(found, key=lambda c: (not c[0].startswith("pass"), c))


def _with_changes(database: Database, backend: str | None) -> list[tuple[Row, list[Any]]]:
    last: dict[str, Row] = {}
    found = []
    for row in database.rows(backend):
        found.append((row, _changes(database, last.get(row.backend), row)))
        last[row.backend] = row
    return found


def history_lines(database: Database, backend: str | None = None) -> str:
    """The runs as aligned text, the newest last."""
    table = [_HEAD]
    notes = [""]
    for row, changes in _with_changes(database, backend):
        table.append(_cells(row))
        kinds = Counter(kind for kind, _ in changes)
        notes.append("".join(f"\n      {n} {kind}" for kind, n in kinds.most_common()))
    widths = [max(len(line[i]) for line in table) for i in range(len(_HEAD))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + note
        for line, note in zip(table, notes, strict=True)
    )


def history_page(database: Database, backend: str | None = None) -> str:
    """The same as one self-contained HTML page, the newest run first."""
    rows = []
    for row, changes in reversed(_with_changes(database, backend)):
        cells = _cells(row)
        good = "good" if cells[4] in ("conforms", "passes") else "bad"
        rows.append(f"<tr class={good}><td>" + "<td>".join(map(escape, cells)))
        if changes:
            named = "<br>".join(escape(f"{kind}  {case}") for kind, case in changes[:_NAMED])
            more = f"<br>and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
            rows.append(
                f"<tr><td><td colspan={len(_HEAD) - 1}><details><summary>{len(changes)} cases "
                f"changed</summary>{named}{more}</details>"
            )
    head = "<tr><th>" + "<th>".join(_HEAD)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Conformance history</title>"
        f"<style>{STYLE}</style><h1>Conformance history</h1><table>{head}{''.join(rows)}</table>\n"
    )
