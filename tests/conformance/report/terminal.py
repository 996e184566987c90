"""The terminal: a progress line while the run goes on, and a verdict with the blockers first."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, TextIO

from ..case import Result, Status, check_name
from .document import certified

__all__ = ["Progress", "asked", "summary"]

_SHOWN = 12
_ORDER = (Status.CRASH, Status.TIMEOUT, Status.FAIL, Status.XPASS, Status.VACUOUS)


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
    """What a run asked for: ``training``, ``sparse``, ``inference, sparse``."""
    level = document["verdict"]["level"]
    return ", ".join([*([level] if level else []), *document["options"]["profiles"]])


def summary(document: dict[str, Any]) -> str:
    """The verdict as text, worst news first."""
    v, counts = document["verdict"], document["counts"]
    level, fresh = asked(document), document["options"]["fresh"]
    bad = [r for r in document["results"] if _blocks(r)]
    lines = []
    if bad:
        lines.append(f"{len(bad)} cases stand between {document['backend']!r} and {level!r}:")
        grouped = Counter((r["op"], r["check"]) for r in bad)
        bad.sort(key=lambda r: _ORDER.index(Status(r["status"])) if r["status"] in _ORDER else 9)
        seen: set[tuple[str, int]] = set()
        for r in bad:
            key = (r["op"], r["check"])
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > _SHOWN:
                break
            more = f" (and {grouped[key] - 1} more)" if grouped[key] > 1 else ""
            lines += [f"  {r['status']:<8} {r['case']}{more}", f"           {r['message'][:200]}"]
        rest = len(grouped) - _SHOWN
        if rest > 0:
            lines.append(f"  ... and {rest} more combinations of operator and check")
        example = bad[0]["case"]
        lines += [
            "",
            f"  reproduce: coredispatch conformance repro '{example}' "
            f"--backend {document['backend']}{f' --seed {fresh}' if fresh else ''}",
            "",
        ]
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
    lines += [f"{sum(counts.values())} cases in {document['seconds']:.1f} s"]
    if fresh:
        drawn = [r for r in document["results"] if "examples" in r["facts"]]
        examples = sum(r["facts"]["examples"] for r in drawn)
        redrawn = sum(r["facts"]["redrawn"] for r in drawn)
        lines += [
            f"fresh seed {fresh} (again: --fresh-seed {fresh}): {examples} calls drawn for "
            f"{len(drawn)} operators, {redrawn} of a structure no op block has"
        ]
    whole = certified(document)
    if v["passed"] and whole:
        lines.append(f"VERDICT: {whole} {'conforms' if v['complete'] else 'conform'} to {level!r}")
    elif v["passed"]:
        lines.append("VERDICT: these cases pass (a selection, which certifies no level)")
    else:
        reached = f"; it reaches {v['reached']!r}" if v["reached"] else ""
        does = "do" if whole and not v["complete"] else "does"
        lines.append(
            f"VERDICT: {whole or document['backend']} {does} not conform to {level!r}{reached}"
        )
    return "\n".join(lines)


def _blocks(r: dict[str, Any]) -> bool:
    if r["status"] == "pass":
        return False
    return bool(r["mandatory"]) or r["status"] not in ("unsupported", "not_run")
