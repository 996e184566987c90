"""A run as JUnit XML, which most systems that run tests for others can show."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from .causes import blocks

__all__ = ["junit"]

#: what XML 1.0 has no way to write
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(document: dict[str, Any]) -> str:
    """The document as XML: a suite for each operator, a test for each case.

    A blocker is a failure, a crash or a timeout an error; what is not counted is skipped.
    """
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for r in document["results"]:
        suites[r["op"]].append(r)
    name = f"coredispatch conformance of {document['backend']}"
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_quoted(name)} {_counts(document['results'])}>",
    ]
    for op, results in suites.items():
        parts.append(f"<testsuite name={_quoted(op)} {_counts(results)}>")
        parts += [_case(r) for r in results]
        parts.append("</testsuite>")
    return "\n".join([*parts, "</testsuites>"]) + "\n"


def _kind(r: dict[str, Any]) -> str:
    if r["status"] == "pass":
        return ""
    if not blocks(r) or r["status"] == "waived":
        return "skipped"
    return "error" if r["status"] in ("crash", "timeout") else "failure"


def _counts(results: list[dict[str, Any]]) -> str:
    kinds = [_kind(r) for r in results]
    seconds = sum(r["seconds"] for r in results)
    return (
        f'tests="{len(results)}" failures="{kinds.count("failure")}" '
        f'errors="{kinds.count("error")}" skipped="{kinds.count("skipped")}" time="{seconds:.3f}"'
    )


def _case(r: dict[str, Any]) -> str:
    head = (
        f"<testcase classname={_quoted('conformance.' + r['op'])} name={_quoted(r['case'])} "
        f'time="{r["seconds"]:.3f}"'
    )
    kind = _kind(r)
    if not kind:
        return head + "/>"
    message = f"{r['status']}: {r['message']}"
    body = "" if kind == "skipped" else escape(_UNWRITABLE.sub("?", r["message"]))
    return f"{head}><{kind} message={_quoted(message)}>{body}</{kind}></testcase>"


def _quoted(text: str) -> str:
    return quoteattr(_UNWRITABLE.sub("?", text))
