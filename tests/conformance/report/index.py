"""Several reports side by side: one line each on the terminal, and a page that links them."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from .document import read, standing
from .html import STYLE
from .terminal import asked

__all__ = ["gather", "listing", "overview"]

_WORDS = {
    "conforms": "conforms",
    "selection": "selection passes",
    "ended": "ended early",
    "fails": "does not conform",
}


def gather(folder: Path) -> dict[str, dict[str, Any]]:
    """The documents ``*.json`` of a folder by name; raises :class:`SuiteError` for a broken one."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}


def _row(name: str, document: dict[str, Any]) -> tuple[str, str, str, str, str]:
    counts = document["counts"]
    verdict = _WORDS[standing(document)]
    others = ", ".join(f"{n} {s}" for s, n in sorted(counts.items()) if s != "pass")
    shown = f"{counts.get('pass', 0)} pass" + (f", {others}" if others else "")
    return name, asked(document), verdict, shown, f"{document['seconds']:.0f} s"


def listing(documents: dict[str, dict[str, Any]]) -> str:
    """One aligned line per report."""
    rows = [_row(name, document) for name, document in documents.items()]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows)


def overview(documents: dict[str, dict[str, Any]]) -> str:
    """A page with a line and a link per report, ``NAME.html`` in the same folder."""
    rows = []
    for name, document in documents.items():
        cells = _row(name, document)
        good = "good" if cells[2] == "conforms" else "bad"
        link = f'<a href="{escape(name)}.html">{escape(name)}</a>'
        rows.append(f"<tr class={good}><td>{link}<td>" + "<td>".join(map(escape, cells[1:])))
    head = "<tr><th>report<th>asked for<th>verdict<th>cases<th>time"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Conformance</title>"
        f"<style>{STYLE}</style><h1>Conformance reports</h1>"
        f"<table>{head}{''.join(rows)}</table>\n"
    )
