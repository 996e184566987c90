"""What a run gives: verdict, JSON, HTML, badge, and the difference of two runs."""

from __future__ import annotations

from .badge import badge
from .diff import difference
from .document import document, read, schema, verdict
from .html import page
from .index import gather, listing, overview
from .terminal import Progress, summary

__all__ = [
    "Progress",
    "badge",
    "difference",
    "document",
    "gather",
    "listing",
    "overview",
    "page",
    "read",
    "schema",
    "summary",
    "verdict",
]
