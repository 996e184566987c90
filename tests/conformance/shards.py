"""Running operators in worker processes, so that a crash or a hang is a status and no lost run.

Each of ``jobs`` workers takes the next operator from the queue. A worker that dies, or makes no
progress within the time limit, costs the one case it was running: it becomes ``crash`` or
``timeout``, and a new worker goes on behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .case import BACKEND, Case, Result, Status
from .runner import plan_op
from .subject import Subject

__all__ = ["Options", "Run", "run"]


@dataclass
class Options:
    """What to run and how.

    Attributes:
        backend: key of the backend.
        level, profiles: what to ask of it; level None for profiles alone.
        ops: operator names, None for all and the backend's own cases.
        checks: numbers of the checks to run, empty for all of the level.
        jobs: worker processes.
        limit: seconds without progress after which a case is a timeout.
        fresh: added to every seed.
        expectations: path of a ``conformance.toml`` other than the backend's own.
    """

    backend: str
    level: str | None = "training"
    profiles: tuple[str, ...] = ()
    ops: tuple[str, ...] | None = None
    checks: tuple[int, ...] = ()
    jobs: int = 1
    limit: float = 60.0
    fresh: int = 0
    expectations: Path | None = None


@dataclass
class Run:
    """Cases that were expected, and what became of each."""

    options: Options
    cases: list[Case]
    results: dict[str, Result] = field(default_factory=dict)
    seconds: float = 0.0

    def ordered(self) -> list[Result]:
        """One result per expected case, in the order of the plan; ``not_run`` where none came."""
        return [
            self.results.get(case.id, Result.of(case, Status.NOT_RUN, "no worker reported it"))
            for case in self.cases
        ]


def planned(subject: Subject, options: Options) -> dict[str, list[Case]]:
    """The expected cases of each operator; raises for unknown operators and levels."""
    names = options.ops or (BACKEND, *subject.operators())
    found = {}
    for op in names:
        cases = plan_op(subject, op, options.level, options.profiles)
        kept = [c for c in cases if not options.checks or c.check in options.checks]
        if kept:
            found[op] = kept
    return found


class _Worker:
    """One worker process and the two pipes to it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.output = tempfile.TemporaryFile()
        read, write = os.pipe()
        settings = {
            "backend": options.backend,
            "level": options.level,
            "profiles": options.profiles,
            "checks": options.checks,
            "fresh": options.fresh,
            "expectations": str(options.expectations) if options.expectations else None,
            "pipe": write,
        }
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coredispatch.conformance.worker", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            pass_fds=(write,),
            env=environment,
        )
        os.close(write)
        self.reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self.reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as pipe, contextlib.suppress(ValueError):
            for line in pipe:
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def ask(self, op: str, done: Iterable[str]) -> None:
        """Send one request; a dead worker shows when its answer is read."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"op": op, "done": list(done)}).encode() + b"\n")
            self.process.stdin.flush()

    def next(self) -> dict[str, Any] | None:
        """The next message; None when the worker is gone. Raises ``queue.Empty`` on a hang."""
        return self.lines.get(timeout=self.options.limit)

    def end(self, kill: bool = False) -> str:
        """Stop the process; how it ended and the last of what it printed."""
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait()
        self.reader.join()
        self.output.seek(0)
        tail = self.output.read()[-400:].decode(errors="replace").strip()
        self.output.close()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how}: {tail.splitlines()[-1] if tail else 'nothing was printed'}"


def run(
    subject: Subject, options: Options, progress: Callable[[int, Result], None] | None = None
) -> Run:
    """Run what ``options`` ask for; ``progress(done, result)`` is called after each case."""
    todo = planned(subject, options)
    outcome = Run(options, [case for cases in todo.values() for case in cases])
    # Long operators first, so that no worker is left with one at the end.
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for op in sorted(todo, key=lambda op: -len(todo[op])):
        waiting.put(op)
    lock = threading.Lock()

    def record(result: Result) -> None:
        with lock:
            outcome.results[result.case] = result
            if progress is not None:
                progress(len(outcome.results), result)

    def serve() -> None:
        worker: _Worker | None = None
        while True:
            try:
                op = waiting.get_nowait()
            except queue.Empty:
                break
            worker = _operator(op, todo[op], worker, options, subject, record)
        if worker is not None:
            worker.end()

    threads = [threading.Thread(target=serve) for _ in range(max(1, options.jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


def _operator(
    op: str,
    cases: list[Case],
    worker: _Worker | None,
    options: Options,
    subject: Subject,
    record: Callable[[Result], None],
) -> _Worker | None:
    """Run one operator's cases to the end, with as many workers as it takes."""
    by_id = {case.id: case for case in cases}
    done: set[str] = set()
    while len(done) < len(by_id):
        if worker is None:
            worker = _Worker(options)
        worker.ask(op, done)
        running: str | None = None
        status: Status | None = None
        while status is None:
            try:
                message = worker.next()
            except queue.Empty:
                status, message = Status.TIMEOUT, {}
            if message is None:
                status = Status.CRASH
            elif "start" in message:
                running = message["start"]
            elif "result" in message:
                result = Result.from_dict(message["result"])
                done.add(result.case)
                record(result)
                running = None
            elif "finished" in message:
                return worker
        how = worker.end(kill=status is Status.TIMEOUT)
        worker = None
        # A worker that dies before its first case costs the first case: the run always ends.
        lost = running or next(i for i in by_id if i not in done)
        text = f"no progress for {options.limit:g} s" if status is Status.TIMEOUT else how
        done.add(lost)
        record(subject.expectations.judge(by_id[lost], Result.of(by_id[lost], status, text)))
    return worker
