"""``coredispatch conformance``: run, list, explain, repro, diff and more."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coredispatch.registry import CoreDispatchError

from . import report, shards
from .arguments import COMMANDS, parser
from .case import DRAWN, Result, check_name
from .changes import narrowed
from .checks.drawn import require_hypothesis
from .database import DEFAULT, Database
from .inspector import CaseInspector, page_scripts
from .runner import seal
from .selection import checks_named, shard_named, split
from .subject import Subject, SuiteError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 conforms, 1 does not, 2 for a request that cannot be served."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # `coredispatch conformance --backend cpu` is `... run --backend cpu`
    if arguments and arguments[0] not in COMMANDS and arguments[0] not in ("-h", "--help"):
        arguments = ["run", *arguments]
    options = parser(_FUNCTIONS).parse_args(arguments)
    options.arguments = arguments
    try:
        return int(options.command(options))
    except CoreDispatchError as error:
        print(f"coredispatch conformance: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `... list | head`
        sys.stderr.close()
        return 0


def _options(options: argparse.Namespace) -> shards.Options:
    level = options.level
    if level is None and not options.profile:
        level = "training"
    return shards.Options(
        backend=options.backend,
        level=level,
        profiles=tuple(options.profile),
        ops=tuple(split(options.op)) or None,
        ops_of=tuple(options.ops_of) if options.ops_of else None,
        checks=checks_named(options.check),
        shard=shard_named(options.shard),
        changed_since=options.changed_since,
        expectations=options.expectations,
    )


def _say_changed(subject: Subject, chosen: shards.Options) -> None:
    why = narrowed(subject, chosen)
    if why:
        print(f"changed since {chosen.changed_since}: {why}", file=sys.stderr)


def _subject(options: argparse.Namespace, chosen: shards.Options | None = None) -> Subject:
    """The backend, once it is known that loading it leaves the interpreter alive.

    What its package prints while it is imported goes to standard error: the output is a report.
    """
    seal()
    shards.probe(chosen or shards.Options(options.backend))
    with contextlib.redirect_stdout(sys.stderr):
        return Subject(options.backend, getattr(options, "expectations", None))


def _writable(*paths: Path | None) -> None:
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


@contextlib.contextmanager
def _stoppable() -> Iterator[list[int]]:
    """A block that SIGTERM ends as an interrupt does; gives the signals that came.

    Who cancels a job sends it, and means to have the report of what was done.
    """
    came: list[int] = []

    def stop(number: int, frame: Any) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(options: argparse.Namespace) -> int:
    chosen = _options(options)
    if options.jobs < 1 or options.timeout <= 0:
        raise SuiteError("--jobs and --timeout must be positive")
    chosen.jobs, chosen.limit, chosen.fail_fast = options.jobs, options.timeout, options.fail_fast
    if options.fresh_seed is not None:
        require_hypothesis()
        if options.fresh_seed < 1:
            raise SuiteError("a fresh seed is a positive number")
        chosen.fresh = options.fresh_seed
    subject = _subject(options, chosen)
    _say_changed(subject, chosen)
    if chosen.ops == ():
        print(f"VERDICT: nothing to run, no operator changed since {chosen.changed_since}")
        return 0
    total = sum(len(cases) for cases in shards.planned(subject, chosen).values())
    if total == 0:
        raise SuiteError("no case fits the request: a run of nothing certifies nothing")
    _writable(options.json, options.junit, options.badge, options.report)
    path = options.database or (DEFAULT if options.resume else None)
    with contextlib.ExitStack() as stack:
        database = None if path is None else stack.enter_context(Database(path))
        known = database.begin(subject, chosen, resume=options.resume) if database else {}
        if known:
            print(f"resumed: {len(known)} results of an earlier run are kept", file=sys.stderr)
        shown = None if options.quiet else report.Progress(total)

        def each(done: int, result: Result) -> None:
            if database is not None:
                database.add(result)
            if shown is not None:
                shown(done, result)

        start = time.perf_counter()
        with _stoppable() as signals:
            run = shards.run(subject, chosen, each, known)
        run.seconds = time.perf_counter() - start
        document = report.document(subject, run)
        if database is not None:
            database.finish(document, finished=run.ended != "interrupted")
    _write(options, document)
    print(report.summary(document), flush=True)
    if run.ended:
        print(f"{run.ended} after {len(run.results)} of {total} cases", file=sys.stderr)
    if options.report is not None and run.ended == "interrupted":  # no time for programs
        options.report.write_text(report.page(document))
    elif options.report is not None:
        with CaseInspector(subject, chosen) as inspector:
            options.report.write_text(report.page(document, page_scripts(inspector)))
    if run.ended == "interrupted":
        return 128 + (signals[0] if signals else signal.SIGINT)
    return 0 if document["verdict"]["passed"] else 1


def _write(options: argparse.Namespace, document: dict[str, Any]) -> None:
    """The forms of a report that need no backend."""
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.junit is not None:
        options.junit.write_text(report.junit(document))
    if options.badge is not None:
        options.badge.write_text(report.badge(document))


def _list(options: argparse.Namespace) -> int:
    chosen = _options(options)
    subject = _subject(options, chosen)
    _say_changed(subject, chosen)
    count = 0
    for cases in shards.planned(subject, chosen).values():
        for case in cases:
            print(case.id)
            count += 1
    print(f"{count} cases", file=sys.stderr)
    return 0


def _single(options: argparse.Namespace) -> CaseInspector:
    chosen = shards.Options(
        options.backend,
        fresh=options.seed,
        limit=options.timeout,
        expectations=options.expectations,
    )
    return CaseInspector(_subject(options, chosen), chosen)


def _drawable(options: argparse.Namespace) -> None:
    """A drawn case is drawn again, with the seed that it had."""
    if f"/{DRAWN}:" in options.case:
        require_hypothesis()


def _explain(options: argparse.Namespace) -> int:
    _drawable(options)
    with _single(options) as inspector:
        text, result = inspector.explain(options.case)
    print(text)
    return 0 if result.status == "pass" else 1


def _repro(options: argparse.Namespace) -> int:
    _drawable(options)
    with _single(options) as inspector:
        text = inspector.script(options.case)
    if options.out is None:
        print(text)
        return 0
    try:
        options.out.write_text(text)
    except OSError as error:
        raise SuiteError(f"cannot write {options.out}: {error.strerror}") from None
    return 0


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


def _two(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The runs to compare: those that are named, or the last two of a backend."""
    if options.old is not None and options.new is not None:
        path = options.database
        return _document(options.old, path), _document(options.new, path)
    with _opened(options.database) as database:
        rows = [row.run for row in database.rows(options.backend)]
        if options.old is not None:
            return _document(options.old, options.database), database.document(rows[-1])
        if len(rows) < 2:
            raise SuiteError(f"{database.path} has {len(rows)} runs to compare, not two")
        newest = database.document(rows[-1])
        same = [r.run for r in database.rows(newest["backend"]) if r.run != rows[-1]]
        if not same:
            raise SuiteError(f"{database.path} has one run of {newest['backend']!r}, not two")
        return database.document(same[-1]), newest


def _diff(options: argparse.Namespace) -> int:
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


def _history(options: argparse.Namespace) -> int:
    _writable(options.report)
    with _opened(options.database) as database:
        if not database.rows(options.backend):
            whose = f" of {options.backend!r}" if options.backend else ""
            raise SuiteError(f"{database.path} has no runs{whose}")
        print(report.history_lines(database, options.backend))
        if options.report is not None:
            options.report.write_text(report.history_page(database, options.backend))
    return 0


#: what reports must have in common to be parts of one run
_COMMON = ("level", "profiles", "ops", "ops_of", "checks", "fresh")


def _merge(options: argparse.Namespace) -> int:
    """The verdict of the whole, of which each shard ran a part, on one machine or on several."""
    _writable(options.json, options.junit, options.badge, options.report)
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
    _write(options, document)
    print(report.summary(document), flush=True)
    if options.report is not None:
        with CaseInspector(subject, chosen) as inspector:
            options.report.write_text(report.page(document, page_scripts(inspector)))
    return 0 if document["verdict"]["passed"] else 1


def _index(options: argparse.Namespace) -> int:
    documents = report.gather(options.folder)
    if not documents:
        raise SuiteError(f"{options.folder} holds no reports", fix="write them with run --json")
    (options.folder / "index.html").write_text(report.overview(documents))
    print(report.listing(documents))
    return 0 if all(d["verdict"]["passed"] for d in documents.values()) else 1


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(report.schema(), indent=2))
    return 0


def _selftest(options: argparse.Namespace) -> int:
    from .selftest import run_selftest, settings

    if options.jobs < 1:
        raise SuiteError("--jobs must be positive")
    wanted = settings(dict(os.environ))
    if wanted != dict(os.environ):  # the modules are loaded already: another process
        program = [sys.executable, "-m", "coredispatch.conformance.cli", *options.arguments]
        return subprocess.call(program, env=wanted)
    _writable(options.json)
    return run_selftest(
        options.op,
        every=options.all,
        kinds=options.kind,
        jobs=options.jobs,
        json_path=options.json,
        quiet=options.quiet,
    )


#: command -> the function that runs it
_FUNCTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "list": _list,
    "explain": _explain,
    "repro": _repro,
    "diff": _diff,
    "history": _history,
    "merge": _merge,
    "index": _index,
    "schema": _schema,
    "selftest": _selftest,
}

if __name__ == "__main__":
    sys.exit(main())
