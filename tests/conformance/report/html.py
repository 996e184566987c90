"""One self-contained HTML page of a run: no scripts or styles from elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from html import escape
from typing import Any

from ..case import CHECKS
from .causes import blocks, causes
from .costs import by_check, by_operator, megabytes, suspicious
from .document import certified, sentence, standing
from .terminal import asked

__all__ = ["STYLE", "page"]

STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:1200px;color:#222}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse}td,th{padding:1px 5px;text-align:left;font-size:12px}
.map td.c{width:34px;height:15px;text-align:center;border:1px solid #fff;color:#fff}
.pass{background:#3a7d34}.fail{background:#b3372c}.crash,.timeout{background:#6d1f6b}
.waived,.xpass,.vacuous{background:#c98a1b}.unsupported,.not_run{background:#b9b9b9}
.bar{display:flex;height:22px;border-radius:3px;overflow:hidden;max-width:900px}
.bar div{color:#fff;font-size:12px;padding:2px 6px;white-space:nowrap;overflow:hidden}
pre{background:#f4f4f4;padding:8px;overflow:auto;font-size:12px;max-height:26em}
.good{color:#3a7d34}.bad{color:#b3372c}
"""
_WORST = (
    "crash",
    "timeout",
    "fail",
    "xpass",
    "vacuous",
    "waived",
    "pass",
    "unsupported",
    "not_run",
)
_COLOURS = {
    "native": "#3a7d34",
    "pack": "#2f7f86",
    "composite": "#4a6fa5",
    "plugin": "#c98a1b",
    "fallback": "#c98a1b",
    "missing": "#b3372c",
}


def page(document: dict[str, Any], reproducer: Callable[[str], str] | None = None) -> str:
    """The page; ``reproducer(case id)`` gives the script shown with a failure."""
    v = document["verdict"]
    title = sentence(document, asked(document))
    if standing(document) in ("selection", "ended"):  # which name no backend
        title = f"{document['backend']}: {title}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>",
        f"<style>{STYLE}</style><h1 class={'good' if v['passed'] else 'bad'}>{escape(title)}</h1>",
        _details(document),
        _blockers(document, reproducer),
        _suspicious(document),
        _not_run(document),
        "<h2>How the operators are served</h2>",
        _coverage(document),
        "<h2>Checks</h2>",
        _checks(document),
        "<h2>Error over tolerance</h2>",
        _histogram(document),
        "<h2>Time and memory by operator</h2>",
        _operators(document),
        "<h2>Slowest cases</h2>",
        _slowest(document),
        "<h2>Operator by dtype</h2>",
        _heat_map(document),
    ]
    return "\n".join(parts) + "\n"


def _details(document: dict[str, Any]) -> str:
    v = document["verdict"]
    about = certified(document)
    whole = f"all cases of {about}" if about else "a selection, which certifies nothing"
    rows = {
        "run": f"{len(document['results'])} cases in {document['seconds']} s ({whole})",
        "statuses": ", ".join(f"{n} {s}" for s, n in sorted(document["counts"].items())),
        "level reached": v["reached"] or "-",
        "device": document["device"],
        "policies declared": ", ".join(document.get("policies") or ()) or "none",
        "fresh seed": document["options"]["fresh"] or "-",
        "plugins loaded": ", ".join(document["plugins"]) or "none",
        "versions": f"coredispatch {document['coredispatch']}, NumPy {document['numpy']}, "
        f"Python {document['python']}",
    }
    cells = "".join(f"<tr><th>{k}<td>{escape(str(x))}" for k, x in rows.items())
    return f"<table>{cells}</table>"


#: causes on the page, cases of one cause that are named, and programs among them
_CAUSES, _CASES, _SCRIPTS = 60, 40, 40


def _blockers(document: dict[str, Any], reproducer: Callable[[str], str] | None) -> str:
    """The blockers by cause: what they say, whom they concern, a program, and their cases."""
    bad = [r for r in document["results"] if blocks(r)]
    if not bad:
        return ""
    found = causes(document["results"])
    many = f"{len(found)} causes" if len(found) > 1 else "one cause"
    parts = [f"<h2 class=bad>{len(bad)} blockers, {many}</h2>"]
    for number, cause in enumerate(found[:_CAUSES]):
        first = cause.results[0]
        text = (
            f"<b>{len(cause.results)} {cause.status}</b>: {escape(cause.text)}<br>"
            f"operators: {escape(', '.join(cause.ops[:12]))}"
            f"{f' and {len(cause.ops) - 12} more' if len(cause.ops) > 12 else ''}; "
            f"checks: {escape(', '.join(cause.checks))}<br>"
            f"{escape(first['case'])}: {escape(first['message'])}"
        )
        if reproducer is not None and first["status"] in ("fail", "crash") and number < _SCRIPTS:
            program = escape(first["details"].get("script") or reproducer(first["case"]))
            text += f"<details><summary>reproducer</summary><pre>{program}</pre></details>"
        cases = "<br>".join(escape(r["case"]) for r in cause.results[:_CASES])
        more = len(cause.results) - _CASES
        text += f"<details><summary>cases</summary>{cases}"
        text += f"<br>and {more} more</details>" if more > 0 else "</details>"
        parts.append(f"<p>{text}")
    if len(found) > _CAUSES:
        parts.append(f"<p>and {len(found) - _CAUSES} more causes")
    return "\n".join(parts)


def _suspicious(document: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(case)}<td>{escape(figure)}" for case, figure in suspicious(document)
    )
    return f"<h2>Suspicious, and not judged</h2><table>{rows}</table>" if rows else ""


def _not_run(document: dict[str, Any]) -> str:
    idle: dict[str, list[str]] = defaultdict(list)
    for r in document["results"]:
        if r["status"] == "not_run":
            idle[r["message"]].append(r["case"])
    parts = [f"<p>No case of the profile {escape(p)} ran." for p in document["verdict"]["unproven"]]
    for reason, cases in sorted(idle.items()):
        listed = "<br>".join(map(escape, cases))
        parts.append(
            f"<details><summary>{len(cases)} not run: {escape(reason)}</summary>{listed}</details>"
        )
    return "<h2>Not run, and not counted</h2>" + "\n".join(parts) if parts else ""


def _coverage(document: dict[str, Any]) -> str:
    counts = Counter(
        r["details"]["coverage"] for r in document["results"] if "coverage" in r["details"]
    )
    total = sum(counts.values()) or 1
    bars = "".join(
        f'<div style="background:{_COLOURS.get(kind, "#555")};flex:{n}" title="{kind} {n}">'
        f"{kind} {n} ({100 * n / total:.0f} %)</div>"
        for kind, n in counts.most_common()
    )
    return f"<div class=bar>{bars}</div>" if counts else "<p>not part of this run"


def _checks(document: dict[str, Any]) -> str:
    table: dict[int, Counter[str]] = defaultdict(Counter)
    for r in document["results"]:
        table[r["check"]][r["status"]] += 1
    costs = by_check(document)
    rows = ["<tr><th>check<th><th>pass<th>time<th>others"]
    for number in sorted(CHECKS):
        counts = table.get(number)
        if counts is None:
            rows.append(f"<tr><td>{number}<td>{CHECKS[number]}<td>-<td><td>not part of this run")
            continue
        others = ", ".join(f"{n} {s}" for s, n in counts.items() if s != "pass")
        spent = f"{costs[number][0]:.1f} s"
        rows.append(
            f"<tr><td>{number}<td>{CHECKS[number]}<td>{counts['pass']}<td>{spent}<td>{others}"
        )
    return f"<table>{''.join(rows)}</table>"


def _histogram(document: dict[str, Any]) -> str:
    edges = (0.0, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
    margins = [r["margin"] for r in document["results"] if r["margin"] is not None]
    rows = [("exact", sum(m == 0 for m in margins))]
    for low, high in zip(edges, edges[1:], strict=False):
        rows.append((f"{low:g} to {high:g}", sum(low < m <= high for m in margins)))
    rows.append(("above 1", sum(m > 1 for m in margins)))
    most = max((n for _, n in rows), default=1) or 1
    return (
        "<table>"
        + "".join(
            f'<tr><td>{name}<td>{n}<td><div style="background:#4a6fa5;height:11px;'
            f'width:{500 * n / most:.0f}px"></div>'
            for name, n in rows
        )
        + "</table>"
    )


def _operators(document: dict[str, Any]) -> str:
    """Every operator with its seconds, its cases, and what a worker took for it."""
    memory = document.get("memory") or {}
    rows = ["<tr><th>operator<th>time<th>cases<th>peak<th>kept"]
    for op, (seconds, cases) in by_operator(document).items():
        taken = memory.get(op)
        peak, kept = (megabytes(taken["peak"]), megabytes(taken["kept"])) if taken else ("-", "-")
        rows.append(f"<tr><td>{escape(op)}<td>{seconds:.2f} s<td>{cases}<td>{peak}<td>{kept}")
    shown, rest = rows[:31], rows[31:]
    table = f"<table>{''.join(shown)}</table>"
    if rest:
        table += f"<details><summary>{len(rest)} more</summary><table>{rows[0]}{''.join(rest)}"
        table += "</table></details>"
    return table


def _slowest(document: dict[str, Any]) -> str:
    slow = sorted(document["results"], key=lambda r: -r["seconds"])[:15]
    return (
        "<table>"
        + "".join(f"<tr><td>{1000 * r['seconds']:.0f} ms<td>{escape(r['case'])}" for r in slow)
        + "</table>"
    )


def _heat_map(document: dict[str, Any]) -> str:
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    dtypes: dict[str, None] = {}
    for r in document["results"]:
        cells[r["op"], r["dtype"]][r["status"]] += 1
        dtypes.setdefault(r["dtype"])
    names = sorted({op for op, _ in cells})
    head = "<tr><th>" + "".join(f"<th>{escape(d)}" for d in dtypes)
    rows = [head]
    for op in names:
        row = f"<tr><th>{escape(op)}"
        for dtype in dtypes:
            counts = cells.get((op, dtype))
            if counts is None:
                row += "<td>"
                continue
            worst = next(s for s in _WORST if counts[s])
            total = sum(counts.values())
            share = f"{counts['pass']}/{total}" if worst != "pass" else str(total)
            row += f'<td class="c {worst}" title="{worst}">{share}'
        rows.append(row)
    return f"<table class=map>{''.join(rows)}</table>"
