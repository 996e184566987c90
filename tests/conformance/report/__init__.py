"""What a run gives: verdict, JSON, HTML, badge, and the difference of two runs."""

from __future__ import annotations

from .badge import badge
from .causes import causes
from .diff import difference
from .document import document, read, schema, verdict
from .files import writable, write_reports
from .history import history_lines, history_page
from .html import page
from .index import gather, listing, overview
from .junit import junit
from .terminal import Progress, summary

__all__ = [
    "Progress",
    "badge",
    "causes",
    "difference",
    "document",
    "gather",
    "history_lines",
    "history_page",
    "junit",
    "listing",
    "overview",
    "page",
    "read",
    "schema",
    "summary",
    "verdict",
    "writable",
    "write_reports",
]
