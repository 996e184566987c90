"""The files of a report that are asked for on the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..subject import SuiteError
from .badge import badge
from .junit import junit

__all__ = ["writable", "write_reports"]


def writable(*paths: Path | None) -> None:
    """Refuse paths that cannot be written to before the run, not after it."""
    for path in paths:
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a"):
                pass
        except OSError as error:
            raise SuiteError(f"cannot write {path}: {error.strerror}") from None


def write_reports(options: argparse.Namespace, document: dict[str, Any]) -> None:
    """The forms of a report that need no backend."""
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.junit is not None:
        options.junit.write_text(junit(document))
    if options.badge is not None:
        options.badge.write_text(badge(document))
