"""``coredispatch conformance``: run, list, explain, repro, diff and more."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coredispatch.registry import CoreDispatchError

from . import report, shards
from .arguments import COMMANDS, parser
from .case import DRAWN, Result
from .changes import narrowed
from .checks.drawn import require_hypothesis
from .comparing import diff, history, index, merge
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
    os.environ.setdefault("COREDISPATCH_BACKGROUND", "0")  # judge compiled kernels, not stand-ins
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


@contextlib.contextmanager
def _stoppable() -> Iterator[list[int]]:
    """A block that SIGTERM ends as an interrupt does; gives the signals that came.

    Who cancels a job sends it, and means to have the report of what was done. Only the main
    thread is told of signals.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

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
    report.writable(options.json, options.junit, options.badge, options.report)
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
    report.write_reports(options, document)
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


def _list(options: argparse.Namespace) -> int:
    chosen = _options(options)
    with contextlib.redirect_stdout(sys.stderr):  # nothing is lost where loading it ends this
        subject = Subject(options.backend, options.expectations)
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
    report.writable(options.json)
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
    "diff": diff,
    "history": history,
    "merge": merge,
    "index": index,
    "schema": _schema,
    "selftest": _selftest,
}

if __name__ == "__main__":
    sys.exit(main())
