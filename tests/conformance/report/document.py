"""A run as plain data: verdict, counts, results. ``schema.json`` describes it."""

from __future__ import annotations

import json
import platform
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

import coredispatch as cd
from coredispatch.registry import plugins

from ..case import Status
from ..levels import LEVELS, belongs, checks_of_profile
from ..runner import unmatched
from ..shards import Run
from ..subject import Subject, SuiteError
from .causes import blocks

__all__ = ["FORMAT", "document", "read", "schema", "sentence", "standing", "verdict"]

FORMAT = "coredispatch-conformance/1"

Standing = Literal["conforms", "selection", "ended", "fails"]


def verdict(subject: Subject, run: Run) -> dict[str, Any]:
    """Whether the level is reached, by conjunction: every mandatory case passes.

    ``complete`` says whether the whole level was run: a run of some operators certifies nothing.
    ``unproven`` names the profiles that were asked for and of which no case passed, as on a
    device without streams: what could not be run is not reached.
    """
    results = run.ordered()
    blockers = [r for r in results if r.blocks]
    missing = [] if run.options.checks else unmatched(subject, run.cases)
    complete = not run.options.partial
    proven = {r.check for r in results if r.status is Status.PASS}
    unproven = [
        p for p in run.options.profiles if complete and not proven & set(checks_of_profile(p))
    ]
    reached = None
    if complete and run.options.level is not None:
        for level in LEVELS:
            if list(LEVELS).index(level) > list(LEVELS).index(run.options.level):
                break
            ids = {c.id for c in run.cases if belongs(c, level, ())}
            if any(r.case in ids for r in blockers):
                break
            reached = level
    return {
        "passed": not blockers and not missing and not unproven and bool(results),
        "complete": complete,
        "level": run.options.level,
        "reached": reached,
        "blockers": len(blockers),
        "unmatched": [e.case for e in missing],
        "unproven": unproven,
    }


def document(subject: Subject, run: Run) -> dict[str, Any]:
    """The whole run as JSON data."""
    results = run.ordered()
    return {
        "format": FORMAT,
        "backend": subject.name,
        "plugin": subject.plugin,
        "plugins": [
            f"{p.name} {p.version}" for p in plugins if p.status == "loaded" and not p.builtin
        ],
        "coredispatch": cd.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": subject.backend.device_name(),
        "options": {
            "level": run.options.level,
            "profiles": list(run.options.profiles),
            "ops": None if run.options.ops is None else list(run.options.ops),
            "ops_of": None if run.options.ops_of is None else list(run.options.ops_of),
            "checks": list(run.options.checks),
            "shard": None if run.options.shard is None else list(run.options.shard),
            "changed_since": run.options.changed_since,
            "jobs": run.options.jobs,
            "fresh": run.options.fresh,
        },
        "seconds": round(run.seconds, 3),
        "verdict": verdict(subject, run),
        "ended": run.ended,
        "memory": run.memory,
        "compiled": run.compiled,
        "policies": subject.expectations.policies.declared,
        "counts": dict(Counter(str(r.status) for r in results)),
        "results": [r.to_dict() for r in results],
    }


def certified(document: dict[str, Any]) -> str:
    """What a run was about as a whole: the backend, or all operators of some plugins.

    Empty for a selection of operators or checks, which certifies nothing.
    """
    options = document["options"]
    if document["verdict"]["complete"]:
        return str(document["backend"])
    plugins = options.get("ops_of")
    if plugins and not (options["ops"] or options["checks"] or options.get("shard")):
        return f"the operators of {', '.join(plugins)} on {document['backend']}"
    return ""


def standing(document: dict[str, Any]) -> Standing:
    """What a run says of the level: a selection, and a run that was ended early, certify none.

    What failed in either stands against the level all the same.
    """
    v = document["verdict"]
    if v["passed"]:
        return "conforms" if certified(document) else "selection"
    failed = any(blocks(r) and r["status"] != Status.NOT_RUN for r in document["results"])
    early = document.get("ended") and not failed and not v["unmatched"]
    return "ended" if early else "fails"


def sentence(document: dict[str, Any], asked: str) -> str:
    """The verdict in words, of a run that asked for ``asked``."""
    v, whole = document["verdict"], certified(document)
    match standing(document):
        case "conforms":
            return f"{whole} {'conforms' if v['complete'] else 'conform'} to {asked!r}"
        case "selection":
            return "these cases pass (a selection, which certifies no level)"
        case "ended":
            return (
                f"the cases that ran pass; the run was ended before the others "
                f"({document['ended']}), which certifies no level"
            )
        case _:
            reached = f"; it reaches {v['reached']!r}" if v["reached"] else ""
            does = "do" if whole and not v["complete"] else "does"
            return f"{whole or document['backend']} {does} not conform to {asked!r}{reached}"


def schema() -> dict[str, Any]:
    """The JSON Schema of :func:`document`."""
    text = resources.files(__package__).joinpath("schema.json").read_text()
    return dict(json.loads(text))


def read(path: str | Path) -> dict[str, Any]:
    """A document from a file; raises :class:`SuiteError` where it is none."""
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise SuiteError(f"{path} is no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise SuiteError(f"{path} is no report of this suite", fix=f"its format is not {FORMAT}")
    return data
