"""Blockers by cause: a thousand failures of a backend have three.

Two cases have one cause where a kernel raised or warned at the same line, or where the same check
says the same of the same kernel, numbers aside. What keeps a case from making its tensors is no
operator's. A composite whose case fails as those of a primitive it is made of fails because of that
one: check 21 saw which kernels its calls reached.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..case import check_name

__all__ = ["Cause", "blocks", "causes", "plain"]

_CALL = re.compile(r" \[[\w.]+\(.*\)?\]?$", re.DOTALL)
_BRACKETS = re.compile(r"\[[-+\d., ]*\]|\((?:[-+\d., ]|inf|nan|True|False)*\)")
_NUMBER = re.compile(r"[-+]?(?:\b|(?<=[A-Za-z]))\d+(?:\.\d+)?(?:e[-+]?\d+)?\b|\b(?:nan|inf)\b")
#: "not" stands before words as well: only what begins like a value is one
_VALUES = re.compile(
    r"\b(got|reference|holds|not) [-+(]*(?:\d|#|(?:nan|inf|True|False|dtype)\b)[-+()\w.# ]*?"
    r"(?=[,;\]]|$)"
)
_DTYPE = re.compile(r"\b(?:(?:b?float|u?int|complex)\d+|bool)\b")
#: the call that an error of coredispatch begins with
_OWN_CALL = re.compile(r"^(raised \w+: )\w+\(.*\): ")
#: which function warned says nothing of the line that let it
_WARNING = re.compile(r"^(let a RuntimeWarning through at [^:]+:\d+): .*", re.DOTALL)
#: what no operator is to blame for: the case could not even make, or write, its tensors
_NOBODYS = ("preparation failed", "no tensor of the dtype")
_COPIED, _FILLED = "preparation failed: a write with copy_ ", "preparation failed: fill_"
_PLACE = re.compile(r" at ([\w.-]+\.\w+:\d+)")


@dataclass
class Cause:
    """What stands behind some blockers.

    Attributes:
        text: what they say, numbers aside.
        kernel: the operator whose kernel is to blame; "" for a line that raises in any operator.
        results: the blockers, those of the kernel itself first.
    """

    text: str
    kernel: str
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> str:
        """The worst status among them."""
        return str(min((r["status"] for r in self.results), key=_severity))

    @property
    def ops(self) -> list[str]:
        """The operators, the one with the most blockers first after the kernel's own."""
        counts = Counter(r["op"] for r in self.results)
        return sorted(counts, key=lambda op: (op != self.kernel, -counts[op], op))

    @property
    def checks(self) -> list[str]:
        """The checks, the one with the most blockers first."""
        return [check_name(n) for n, _ in Counter(r["check"] for r in self.results).most_common()]


def _severity(status: str) -> int:
    order = ("crash", "timeout", "fail", "xpass", "vacuous")
    return order.index(status) if status in order else len(order)


def blocks(result: dict[str, Any]) -> bool:
    """Whether a result stands between the backend and the level."""
    if result["status"] == "pass":
        return False
    return bool(result["mandatory"]) or result["status"] not in ("unsupported", "not_run")


def plain(message: str) -> str:
    """A message without the call, dtypes and numbers: what it says of every case."""
    text = _OWN_CALL.sub(r"\1", _CALL.sub("", message.partition("\n")[0]))
    text = _DTYPE.sub("dtype", _WARNING.sub(r"\1", text))
    text = _VALUES.sub(r"\1 #", _BRACKETS.sub("#", text))
    place = _PLACE.search(text)
    kept = place.group(1) if place else ""
    text = _NUMBER.sub("#", text.replace(f" at {kept}", "") if kept else text)
    return text + (f" at {kept}" if kept else "")


def causes(results: Iterable[dict[str, Any]]) -> list[Cause]:
    """The causes of the blockers among ``results``: deaths first, then by the number of cases."""
    listed = list(results)
    bad = [r for r in listed if blocks(r)]
    reached = {
        r["op"]: {entry.partition(":")[0] for entry in r["details"].get("served", ())} - {r["op"]}
        for r in listed
        if r["check"] == 21
    }
    # Where copy_ writes nothing, fill_ does not either: both are the backend's copyto.
    copied = next((t for t in (plain(r["message"]) for r in bad) if t.startswith(_COPIED)), "")
    failing = defaultdict(set)  # primitives by what their own cases say
    for r in bad:
        failing[r["check"], plain(r["message"])].add(r["op"])
    found: dict[tuple[Any, ...], Cause] = {}
    for r in bad:
        text = plain(r["message"])
        if copied and text.startswith(_FILLED):
            text = copied
        if _PLACE.search(r["message"]) or text.startswith(_NOBODYS):
            key: tuple[Any, ...] = (text,)
            kernel = ""
        else:
            kernel = _blamed(r, reached, failing[r["check"], text])
            key = (r["check"], kernel, text)
        cause = found.setdefault(key, Cause(text, kernel))
        cause.results.append(r)
    for cause in found.values():
        cause.results.sort(key=lambda r: (_severity(r["status"]), r["op"] != cause.kernel))
    deaths = ("crash", "timeout")
    return sorted(found.values(), key=lambda c: (c.status not in deaths, -len(c.results), c.text))


def _blamed(result: dict[str, Any], reached: dict[str, set[str]], failing: set[str]) -> str:
    """The operator whose kernel a blocker is about: its own, or one that its decomposition calls.

    ``failing`` have blockers that say the same. Of several that its calls reach, the one that
    itself reaches the fewest is the cause.
    """
    below = reached.get(result["op"], set()) & failing
    if not below:
        return str(result["op"])
    return min(below, key=lambda op: (len(reached.get(op, ())), op))
