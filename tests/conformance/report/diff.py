"""What changed between two runs: cases that came, went or changed, and operators near the bound."""

from __future__ import annotations

from typing import Any

__all__ = ["difference"]

#: share of the bound that an operator must have come to for its margin to be worth a line
NEAR = 0.5


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """``added``, ``deleted``, ``changed``, ``worse_margins``, and whether anything ``regressed``.

    Margins are compared by operator and check, the largest of its cases: that of a single case
    moves with every library. One is worse where it doubled, and came past half of the bound. Runs
    of other seeds have other values: their margins are not compared.
    """
    before = {r["case"]: r for r in old["results"]}
    after = {r["case"]: r for r in new["results"]}
    both = before.keys() & after.keys()
    changed = [
        {"case": case, "from": before[case]["status"], "to": after[case]["status"]}
        for case in both
        if before[case]["status"] != after[case]["status"]
    ]
    changed.sort(key=lambda c: (c["to"] == "pass", c["case"]))
    same_values = old["options"]["fresh"] == new["options"]["fresh"]
    return {
        "added": sorted(after.keys() - before.keys()),
        "deleted": sorted(before.keys() - after.keys()),
        "changed": changed,
        "worse_margins": _worse(before, after, both) if same_values else [],
        "regressed": any(c["from"] == "pass" for c in changed)
        or any(before[c]["status"] == "pass" for c in before.keys() - after.keys()),
    }


def _worse(before: dict[str, Any], after: dict[str, Any], both: Any) -> list[dict[str, Any]]:
    """Operators and checks whose largest margin came near the bound, the nearest first."""
    largest: dict[tuple[str, int], list[Any]] = {}
    for case in both:
        a, b = before[case], after[case]
        if a["margin"] is None or b["margin"] is None:
            continue
        found = largest.setdefault((b["op"], b["check"]), [0.0, 0.0, case])
        found[0] = max(found[0], a["margin"])
        if b["margin"] > found[1]:
            found[1:] = b["margin"], case
    worse = [
        {"op": op, "check": check, "case": case, "from": x, "to": y}
        for (op, check), (x, y, case) in largest.items()
        if y > NEAR and y > 2 * x
    ]
    return sorted(worse, key=lambda w: -w["to"])
