"""``coredispatch conformance``: run, list, explain, repro, diff, index, selftest."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coredispatch.registry import CoreDispatchError

from . import report, shards
from .case import CHECKS, DRAWN
from .checks.drawn import require_hypothesis
from .inspector import CaseInspector, page_scripts
from .levels import LEVELS, PROFILES
from .runner import seal
from .subject import Subject, SuiteError

__all__ = ["main"]

COMMANDS = ("run", "list", "explain", "repro", "diff", "index", "schema", "selftest")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 conforms, 1 does not, 2 for a request that cannot be served."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # `coredispatch conformance --backend cpu` is `... run --backend cpu`
    if arguments and arguments[0] not in COMMANDS and arguments[0] not in ("-h", "--help"):
        arguments = ["run", *arguments]
    options = _parser().parse_args(arguments)
    options.arguments = arguments
    try:
        return int(options.command(options))
    except CoreDispatchError as error:
        print(f"coredispatch conformance: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `... list | head`
        sys.stderr.close()
        return 0


def _cores() -> int:
    """Processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coredispatch conformance", description="Certify a backend, case by case."
    )
    commands = parser.add_subparsers(metavar="command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=run)
        return added

    def selection(added: argparse.ArgumentParser) -> None:
        added.add_argument("--backend", required=True, help="key of the backend")
        added.add_argument("--level", choices=None, help=f"one of {', '.join(LEVELS)}")
        added.add_argument(
            "--profile",
            action="append",
            default=[],
            help=f"{', '.join(PROFILES)}, or a layout or the plugin that brings it (repeatable)",
        )
        added.add_argument("--op", action="append", help="only this operator (repeatable)")
        added.add_argument(
            "--ops-of",
            action="append",
            metavar="PLUGIN",
            help="only the operators that a plugin declares (repeatable); ops: coredispatch's own",
        )
        added.add_argument("--check", action="append", type=int, default=[], help="only this check")
        added.add_argument("--expectations", type=Path, help="a conformance.toml to use instead")

    run = command("run", _run, "run the cases of a level and give the verdict")
    selection(run)
    run.add_argument(
        "--jobs", type=int, default=_cores(), help="worker processes (default: one per core)"
    )
    hang = "seconds without progress after which a case counts as hanging"
    run.add_argument("--timeout", type=float, default=shards.LIMIT, help=hang)
    run.add_argument(
        "--fresh-seed",
        type=int,
        nargs="?",
        const=secrets.randbelow(2**31 - 1) + 1,
        metavar="SEED",
        help="other values than usual, and calls drawn by Hypothesis; SEED repeats a run",
    )
    run.add_argument("--report", type=Path, help="write an HTML page")
    run.add_argument("--json", type=Path, help="write the results as JSON")
    run.add_argument("--badge", type=Path, help="write an SVG badge")
    run.add_argument("--quiet", action="store_true", help="no progress")
    listed = command("list", _list, "print the case ids of a level")
    selection(listed)
    explain = command("explain", _explain, "what a case asserts, and what became of it")
    repro = command("repro", _repro, "print a self-contained script that repeats a case")
    for single in (explain, repro):
        single.add_argument("case", help="a case id, as `list` and the report print it")
        single.add_argument("--backend", required=True, help="key of the backend")
        single.add_argument("--seed", type=int, default=0, help="the fresh seed of a run")
        single.add_argument("--timeout", type=float, default=shards.LIMIT, help=hang)
        single.add_argument("--expectations", type=Path, help="a conformance.toml to use instead")
    repro.add_argument("--out", type=Path, help="write it to a file")
    diff = command("diff", _diff, "compare two JSON reports")
    diff.add_argument("old", type=Path)
    diff.add_argument("new", type=Path)
    diff.add_argument("--json", action="store_true")
    index = command("index", _index, "list the JSON reports of a folder, and write its index.html")
    index.add_argument("folder", type=Path)
    command("schema", _schema, "print the JSON Schema of the reports")
    selftest = command("selftest", _selftest, "seed faulty kernels; every one must be caught")
    selftest.add_argument("--op", action="append", help="generated mutants of this operator only")
    selftest.add_argument("--all", action="store_true", help="generated mutants of every operator")
    selftest.add_argument(
        "--kind",
        action="append",
        choices=("curated", "exploits", "controls", "generated"),
        help="only these (repeatable)",
    )
    selftest.add_argument("--jobs", type=int, default=1, help="worker processes")
    selftest.add_argument("--json", type=Path, help="write what became of every mutant")
    selftest.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def _options(options: argparse.Namespace) -> shards.Options:
    level = options.level
    if level is None and not options.profile:
        level = "training"
    for number in options.check:
        if number not in CHECKS:
            raise SuiteError(f"there is no check {number}", fix="checks are numbered 1 to 29")
    return shards.Options(
        backend=options.backend,
        level=level,
        profiles=tuple(options.profile),
        ops=tuple(options.op) if options.op else None,
        ops_of=tuple(options.ops_of) if options.ops_of else None,
        checks=tuple(options.check),
        expectations=options.expectations,
    )


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


def _run(options: argparse.Namespace) -> int:
    chosen = _options(options)
    if options.jobs < 1 or options.timeout <= 0:
        raise SuiteError("--jobs and --timeout must be positive")
    chosen.jobs, chosen.limit = options.jobs, options.timeout
    if options.fresh_seed is not None:
        require_hypothesis()
        if options.fresh_seed < 1:
            raise SuiteError("a fresh seed is a positive number")
        chosen.fresh = options.fresh_seed
    subject = _subject(options, chosen)
    total = sum(len(cases) for cases in shards.planned(subject, chosen).values())
    if total == 0:
        raise SuiteError("no case fits the request: a run of nothing certifies nothing")
    _writable(options.json, options.badge, options.report)
    progress = None if options.quiet else report.Progress(total)
    start = time.perf_counter()
    run = shards.run(subject, chosen, progress)
    run.seconds = time.perf_counter() - start
    document = report.document(subject, run)
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.badge is not None:
        options.badge.write_text(report.badge(document))
    print(report.summary(document), flush=True)
    if run.interrupted:
        print(f"interrupted after {len(run.results)} of {total} cases", file=sys.stderr)
    if options.report is not None:
        with CaseInspector(subject, chosen) as inspector:
            options.report.write_text(report.page(document, page_scripts(inspector)))
    return 130 if run.interrupted else 0 if document["verdict"]["passed"] else 1


def _list(options: argparse.Namespace) -> int:
    chosen = _options(options)
    subject = _subject(options, chosen)
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


def _diff(options: argparse.Namespace) -> int:
    found = report.difference(report.read(options.old), report.read(options.new))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        kinds = Counter(f"{c['from']} -> {c['to']}" for c in found["changed"])
        print(
            f"{len(found['added'])} added, {len(found['deleted'])} deleted, "
            f"{len(found['changed'])} changed, {len(found['worse_margins'])} worse margins"
        )
        for kind, count in kinds.most_common():
            print(f"  {kind}: {count}")
        for change in found["changed"][:50]:
            print(f"  {change['from']} -> {change['to']}  {change['case']}")
        for change in found["worse_margins"][:20]:
            print(f"  margin {change['from']:.3g} -> {change['to']:.3g}  {change['case']}")
    return 1 if found["regressed"] else 0


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


if __name__ == "__main__":
    sys.exit(main())
