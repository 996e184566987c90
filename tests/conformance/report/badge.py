"""An SVG badge of the verdict, in the usual two-part form."""

from __future__ import annotations

from html import escape
from typing import Any

from .document import standing
from .terminal import asked

__all__ = ["badge"]


def badge(document: dict[str, Any]) -> str:
    """The badge of a report: the level reached, green, or how many cases stand before it, red.

    Grey is a run that was ended before anything failed.
    """
    v = document["verdict"]
    left = f"coredispatch {document['backend']}"
    if v["passed"]:
        right, colour = asked(document) if v["complete"] else "partial", "#3a7d34"
    elif standing(document) == "ended":
        right, colour = "ended early", "#777"
    else:
        right = f"{v['blockers']} blockers" + (f", {v['reached']}" if v["reached"] else "")
        colour = "#b3372c"
    a, b = 10 + 7 * len(left), 10 + 7 * len(right)
    title = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{a + b}" height="20" role="img" '
        f'aria-label="{title}"><title>{title}</title>'
        f'<rect width="{a}" height="20" fill="#555"/>'
        f'<rect x="{a}" width="{b}" height="20" fill="{colour}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="{a / 2}" y="14">{escape(left)}</text>'
        f'<text x="{a + b / 2}" y="14">{escape(right)}</text></g></svg>\n'
    )
