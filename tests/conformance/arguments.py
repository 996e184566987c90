"""The options of ``coredispatch conformance`` and its commands."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from . import shards
from .database import DEFAULT
from .levels import LEVELS, PROFILES

__all__ = ["COMMANDS", "parser"]

Command = Callable[[argparse.Namespace], int]
COMMANDS = (
    *("run", "list", "explain", "repro", "diff", "history", "merge", "index", "schema"),
    "selftest",
)


def _cores() -> int:
    """Processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def parser(commands_by_name: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The parser; ``commands_by_name`` gives the function of each command."""
    made = argparse.ArgumentParser(
        prog="coredispatch conformance", description="Certify a backend, case by case."
    )
    commands = made.add_subparsers(metavar="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=commands_by_name[name])
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
        added.add_argument(
            "--op",
            "--ops",
            action="append",
            metavar="OP",
            help="only this operator, or those that a pattern fits: --ops 'conv*,softmax'",
        )
        added.add_argument(
            "--ops-of",
            action="append",
            metavar="PLUGIN",
            help="only the operators that a plugin declares (repeatable); ops: coredispatch's own",
        )
        added.add_argument(
            "--check", action="append", default=[], help="only these checks: --check 3,values,grad*"
        )
        added.add_argument("--shard", metavar="K/N", help="only the K-th of N parts: --shard 2/8")
        added.add_argument(
            "--changed-since",
            metavar="REF",
            help="only operators whose definition or kernel is not what it was at a commit",
        )
        added.add_argument("--expectations", type=Path, help="a conformance.toml to use instead")

    def reports(added: argparse.ArgumentParser) -> None:
        added.add_argument("--report", type=Path, help="write an HTML page")
        added.add_argument("--json", type=Path, help="write the results as JSON")
        added.add_argument("--junit", type=Path, help="write the results as JUnit XML")
        added.add_argument("--badge", type=Path, help="write an SVG badge")

    run = command("run", "run the cases of a level and give the verdict")
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
    run.add_argument(
        "--fail-fast", action="store_true", help="end after the first case that does not pass"
    )
    run.add_argument("--database", type=Path, metavar="FILE", help="keep the run in a file of runs")
    run.add_argument(
        "--resume",
        action="store_true",
        help=f"go on where the last run of the same code was ended (file: {DEFAULT})",
    )
    reports(run)
    run.add_argument("--quiet", action="store_true", help="no progress")
    listed = command("list", "print the case ids of a level")
    selection(listed)
    explain = command("explain", "what a case asserts, and what became of it")
    repro = command("repro", "print a self-contained script that repeats a case")
    for single in (explain, repro):
        single.add_argument("case", help="a case id, as `list` and the report print it")
        single.add_argument("--backend", required=True, help="key of the backend")
        single.add_argument("--seed", type=int, default=0, help="the fresh seed of a run")
        single.add_argument("--timeout", type=float, default=shards.LIMIT, help=hang)
        single.add_argument("--expectations", type=Path, help="a conformance.toml to use instead")
    repro.add_argument("--out", type=Path, help="write it to a file")
    diff = command("diff", "compare two runs: JSON reports, or runs in a database")
    diff.add_argument("old", nargs="?", help="a JSON report, or the number of a run")
    diff.add_argument("new", nargs="?", help="another; without both, the last two in the database")
    history = command("history", "how a backend went, run by run")
    for reader in (diff, history):
        reader.add_argument(
            "--database", type=Path, metavar="FILE", help=f"a file of runs (default: {DEFAULT})"
        )
        reader.add_argument("--backend", help="only runs of this backend")
    diff.add_argument("--json", action="store_true")
    history.add_argument("--report", type=Path, help="write an HTML page")
    merge = command("merge", "the verdict of several reports, the shards of one run, together")
    merge.add_argument("parts", nargs="+", type=Path, help="JSON reports of the shards")
    reports(merge)
    index = command("index", "list the JSON reports of a folder, and write its index.html")
    index.add_argument("folder", type=Path)
    command("schema", "print the JSON Schema of the reports")
    selftest = command("selftest", "seed faulty kernels; every one must be caught")
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
    return made
