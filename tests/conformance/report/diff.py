"""What changed between two runs: cases that came, went, changed, and margins that got worse."""

from __future__ import annotations

from typing import Any

__all__ = ["difference"]


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """``added``, ``deleted``, ``changed``, ``worse_margins``, and whether anything ``regressed``.

    A margin is worse when it grew by half and above a tenth of the bound.
    """
    before = {r["case"]: r for r in old["results"]}
    after = {r["case"]: r for r in new["results"]}
    changed, worse = [], []
    for case in before.keys() & after.keys():
        a, b = before[case], after[case]
        if a["status"] != b["status"]:
            changed.append({"case": case, "from": a["status"], "to": b["status"]})
        x, y = a["margin"], b["margin"]
        if x is not None and y is not None and y > 0.1 and y > 1.5 * x:
            worse.append({"case": case, "from": x, "to": y})
    changed.sort(key=lambda c: (c["to"] == "pass", c["case"]))
    worse.sort(key=lambda c: -c["to"])
    return {
        "added": sorted(after.keys() - before.keys()),
        "deleted": sorted(before.keys() - after.keys()),
        "changed": changed,
        "worse_margins": worse,
        "regressed": any(c["from"] == "pass" for c in changed)
        or any(before[c]["status"] == "pass" for c in before.keys() - after.keys()),
    }
