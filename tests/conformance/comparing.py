"""The commands that read runs: diff, history, merge and index."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from . import report, shards
from .case import Result, check_name
from .database import DEFAULT, Database
from .inspector import CaseInspector, page_scripts
from .runner import seal
from .subject import Subject, SuiteError

__all__ = ["diff", "history", "index", "merge"]


def _document(text: str, path: Path | None) -> dict[str, Any]:
    """A run by the path of its JSON report, or by its number in a database."""
    if text.isdecimal() and not Path(text).exists():
        with _opened(path) as database:
            return database.document(int(text))
    return report.read(text)


def _opened(path: Path | None) -> Database:
    path = path or DEFAULT
    if not path.exists():
        raise SuiteError(
            f"there is no database {path}", fix="write it with run --database, or name another"
        )
    return Database(path)


#: options that runs of the same cases have in common
_COMMON = ("level", "profiles", "ops", "ops_of", "checks", "fresh")


def _two(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The runs to compare: those that are named, or the last one and that of its cases before."""
    if options.old is not None and options.new is not None:
        path = options.database
        return _document(options.old, path), _document(options.new, path)
    with _opened(options.database) as database:
        rows = database.rows(options.backend)
        if not rows:
            raise SuiteError(f"{database.path} has no run to compare")
        newest = rows[-1]
        new = database.document(newest.run)
        if options.old is not None:
            return _document(options.old, options.database), new
        asked = new["options"]
        for row in reversed(rows[:-1]):
            had = row.document["options"]
            common = all(had.get(n) == asked.get(n) for n in (*_COMMON, "shard"))
            if row.backend == newest.backend and common:
                return database.document(row.run), new
        raise SuiteError(
            f"{database.path} has no run of {newest.backend!r} before run {newest.run} that asked "
            "for the same",
            fix="name two runs: diff 3 5",
        )


def diff(options: argparse.Namespace) -> int:
    found = report.difference(*_two(options))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        kinds = Counter(f"{c['from']} -> {c['to']}" for c in found["changed"])
        print(
            f"{len(found['added'])} added, {len(found['deleted'])} deleted, "
            f"{len(found['changed'])} changed, {len(found['worse_margins'])} operators nearer to "
            "the bound"
        )
        for kind, count in kinds.most_common():
            print(f"  {kind}: {count}")
        for change in found["changed"][:50]:
            print(f"  {change['from']} -> {change['to']}  {change['case']}")
        for change in found["worse_margins"][:20]:
            print(
                f"  {change['op']}, {check_name(change['check'])}: {change['from']:.3g} -> "
                f"{change['to']:.3g} of the bound  {change['case']}"
            )
    return 1 if found["regressed"] else 0


def history(options: argparse.Namespace) -> int:
    report.writable(options.report)
    with _opened(options.database) as database:
        if not database.rows(options.backend):
            whose = f" of {options.backend!r}" if options.backend else ""
            raise SuiteError(f"{database.path} has no runs{whose}")
        print(report.history_lines(database, options.backend))
        if options.report is not None:
            options.report.write_text(report.history_page(database, options.backend))
    return 0


def merge(options: argparse.Namespace) -> int:
    """The verdict of the whole, of which each shard ran a part, on one machine or on several."""
    report.writable(options.json, options.junit, options.badge, options.report)
    documents = [report.read(path) for path in options.parts]
    first = documents[0]
    for path, other in zip(options.parts, documents, strict=True):
        differing = [n for n in ("backend", "coredispatch") if other[n] != first[n]]
        differing += [n for n in _COMMON if other["options"][n] != first["options"][n]]
        if differing:
            raise SuiteError(f"{path} is of another run: its {' and '.join(differing)} differ")
    o = first["options"]
    chosen = shards.Options(
        first["backend"],
        level=o["level"],
        profiles=tuple(o["profiles"]),
        ops=None if o["ops"] is None else tuple(o["ops"]),
        ops_of=None if o["ops_of"] is None else tuple(o["ops_of"]),
        checks=tuple(o["checks"]),
        fresh=o["fresh"],
    )
    seal()
    shards.probe(chosen)
    subject = Subject(chosen.backend)
    cases = [c for some in shards.planned(subject, chosen).values() for c in some]
    run = shards.Run(chosen, cases)
    for part in documents:
        run.results |= {
            r["case"]: Result.from_dict(r)
            for r in part["results"]
            if not (r["status"] == "not_run" and r["case"] in run.results)
        }
        run.memory |= part.get("memory") or {}
        run.seconds += part["seconds"]
    document = report.document(subject, run)
    report.write_reports(options, document)
    print(report.summary(document), flush=True)
    if options.report is not None:
        with CaseInspector(subject, chosen) as inspector:
            options.report.write_text(report.page(document, page_scripts(inspector)))
    return 0 if document["verdict"]["passed"] else 1


def index(options: argparse.Namespace) -> int:
    documents = report.gather(options.folder)
    if not documents:
        raise SuiteError(f"{options.folder} holds no reports", fix="write them with run --json")
    (options.folder / "index.html").write_text(report.overview(documents))
    print(report.listing(documents))
    return 0 if all(d["verdict"]["passed"] for d in documents.values()) else 1
