"""The terminal: a progress line while the run goes on, and a verdict with the blockers first."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, TextIO

from ..case import Result, Status, check_name
from .causes import blocks, causes
from .costs import lines as cost_lines
from .document import sentence

__all__ = ["Progress", "asked", "summary"]

_SHOWN = 12


class Progress:
    """A live line on a terminal; one line every ten seconds elsewhere."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.bad = 0
        self.start = self.last = time.monotonic()

    def __call__(self, done: int, result: Result) -> None:
        """Count one result."""
        self.bad += result.status not in (Status.PASS, Status.UNSUPPORTED, Status.NOT_RUN)
        now = time.monotonic()
        if done < self.total and now - self.last < (0.1 if self.live else 10.0):
            return
        self.last = now
        share = done / max(self.total, 1)
        spent = now - self.start
        left = spent / share - spent if share else 0.0
        bar = ("#" * int(24 * share)).ljust(24, ".")
        text = f"[{bar}] {done}/{self.total} {spent:.0f}s, {left:.0f}s left, {self.bad} not passed"
        self.stream.write(f"\r{text} {result.op:<28.28}" if self.live else text + "\n")
        if self.live and done >= self.total:
            self.stream.write("\n")
        self.stream.flush()


def asked(document: dict[str, Any]) -> str:
    """What a run asked for: ``training``, ``diagonal``, ``inference, diagonal``."""
    level = document["verdict"]["level"]
    return ", ".join([*([level] if level else []), *document["options"]["profiles"]])


def summary(document: dict[str, Any]) -> str:
    """The verdict as text, worst news first."""
    v, counts = document["verdict"], document["counts"]
    level, fresh = asked(document), document["options"]["fresh"]
    lines = _standing(document, level)
    for case in v["unmatched"]:
        lines.append(f"expected failure that names no case of the run: {case}")
    for profile in v["unproven"]:
        lines.append(f"no case of the profile {profile!r} could run here: it is not reached")
    idle = Counter(r["message"] for r in document["results"] if r["status"] == "not_run")
    if idle:
        lines.append("not run, and not counted:")
        lines += [f"  {n:>4} {reason}" for reason, n in idle.most_common(_SHOWN)]
    checks = Counter(r["check"] for r in document["results"] if r["status"] == "pass")
    total = Counter(r["check"] for r in document["results"])
    rows = [f"{check_name(n)} {checks[n]}/{total[n]}" for n in sorted(total)]
    lines += ["passed by check: " + ", ".join(rows)]
    lines += ["statuses: " + ", ".join(f"{n} {s}" for s, n in sorted(counts.items()))]
    lines += cost_lines(document)
    if document.get("policies"):
        used = Counter(p for r in document["results"] for p in r["details"].get("policies", ()))
        passed = ", ".join(f"{n} cases by {p}" for p, n in used.items()) or "no case needed one"
        lines.append(f"declared policies: {', '.join(document['policies'])}; {passed}")
    lines += [f"{sum(counts.values())} cases in {document['seconds']:.1f} s"]
    if fresh:
        drawn = [r for r in document["results"] if "examples" in r["details"]]
        examples = sum(r["details"]["examples"] for r in drawn)
        redrawn = sum(r["details"]["redrawn"] for r in drawn)
        lines += [
            f"fresh seed {fresh} (again: --fresh-seed {fresh}): {examples} calls drawn for "
            f"{len(drawn)} operators, {redrawn} of a structure no op definition has"
        ]
    lines.append(f"VERDICT: {sentence(document, level)}")
    return "\n".join(lines)


def _standing(document: dict[str, Any], level: str) -> list[str]:
    """The blockers by cause, and how to look at one."""
    bad = [r for r in document["results"] if blocks(r)]
    missed = [r for r in bad if r["status"] == "not_run"]
    found = causes(r for r in document["results"] if r["status"] != "not_run")
    lines = []
    if missed:
        lines += [f"{len(missed)} cases were not run: {missed[0]['message']}", ""]
    if not found:
        return lines
    many = f"{len(found)} causes" if len(found) > 1 else "one cause"
    number = len(bad) - len(missed)
    lines.append(f"{number} cases stand between {document['backend']!r} and {level!r}: {many}")
    for cause in found[:_SHOWN]:
        first = cause.results[0]
        ops, checks = cause.ops, cause.checks
        lines += [
            f"  {cause.status:<8} {len(cause.results)} x {cause.text[:200]}",
            f"           {_few(ops, 'operators')}; {_few(checks, 'checks')}",
            f"           {first['case']}: {first['message'][:200]}",
        ]
    if len(found) > _SHOWN:
        rest = sum(len(c.results) for c in found[_SHOWN:])
        lines.append(f"  ... and {len(found) - _SHOWN} more causes of {rest} cases")
    fresh = document["options"]["fresh"]
    return [
        *lines,
        "",
        f"  reproduce: coredispatch conformance repro '{found[0].results[0]['case']}' "
        f"--backend {document['backend']}{f' --seed {fresh}' if fresh else ''}",
        "",
    ]


def _few(names: list[str], what: str, limit: int = 5) -> str:
    """``add, mul``; of more than a few how many there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} ... ({len(names)} {what})"
