"""The gates of the self-test, as text and as a verdict."""

from __future__ import annotations

from typing import Any

__all__ = ["GATE", "LEAST", "gates"]

#: share of the generated mutants that must be caught, and how many must count in a whole run
GATE, LEAST = 0.97, 600


def gates(report: dict[str, list[dict[str, Any]]], whole: bool = False) -> tuple[str, bool]:
    """What survived or was refused, the shares, and whether every gate holds.

    A ``whole`` run, of the operators that the self-test chooses, counts enough generated mutants.
    A broken mutant, one that raised itself, fails the self-test whatever its kind. A mutant whose
    operator is absent and one that no input tells from the correct kernel are
    counted apart: they were neither caught nor missed. So is a control that rounds as the embedded
    kernel does on this machine: it was neither accepted nor refused.
    """
    lines: list[str] = []
    passed = True
    for kind, entries in report.items():
        for e in entries:
            silent = kind == "controls" and e["outcome"] == "equivalent"
            passed &= e["outcome"] != "broken"
            if silent or e["outcome"] in ("survived", "refused", "absent", "broken"):
                said = e.get("why") or f"{e.get('by', '')} {e.get('message', '')}".strip()
                lines.append(f"  {kind}: {e['outcome']}: {e['name']}: {said or 'UNEXPLAINED'}")
    for kind, least in (("curated", 1.0), ("exploits", 1.0), ("generated", GATE)):
        entries = report.get(kind, [])
        counted = [e for e in entries if e["outcome"] in ("caught", "survived")]
        if not entries:
            continue
        missed = [e for e in counted if e["outcome"] == "survived"]
        share = 1 - len(missed) / max(len(counted), 1)
        holds = share >= least and bool(counted)
        if kind == "generated":
            holds = holds and all(e.get("why") for e in missed)
            if whole and len(counted) < LEAST:
                holds = False
                lines.append(f"  generated: only {len(counted)} counted, not {LEAST}")
        passed &= holds
        lines.append(
            f"{kind}: {len(counted) - len(missed)} of {len(counted)} caught ({100 * share:.1f} %, "
            f"gate {100 * least:.0f} %), {len(entries) - len(counted)} absent or equivalent"
        )
    controls = report.get("controls", [])
    if controls:
        counted = [e for e in controls if e["outcome"] != "equivalent"]
        accepted = sum(e["outcome"] == "accepted" for e in counted)
        passed &= accepted == len(counted) > 0
        lines.append(
            f"controls: {accepted} of {len(counted)} accepted, "
            f"{len(controls) - len(counted)} with nothing to differ from on this machine"
        )
    lines.append("GATES HOLD" if passed else "GATES DO NOT HOLD")
    return "\n".join(lines), passed
