"""Running operators in worker processes, so that a crash or a hang is a status and no lost run.

Each of ``jobs`` workers takes the next operator from the queue. A worker that dies, or makes no
progress within the time limit, costs the one case it was running: it becomes ``crash`` or
``timeout``, and a new worker goes on behind it. Whatever calls a kernel - running, reproducing,
explaining - does so in a worker; the process that holds the results never does.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .case import Case, Result, Status
from .runner import plan_op, selected
from .selection import shard_of
from .subject import Subject, SuiteError

__all__ = ["Options", "Pool", "Run", "WorkerLost", "planned", "probe", "run"]

#: seconds without progress after which a case hangs: nothing that merely is slow takes so long
LIMIT = 180.0
#: seconds until a worker has imported its backend, and until a finished one has ended
START_LIMIT = 300.0
EXIT_LIMIT = 10.0
#: workers in a row that may die while loading the backend
START_ATTEMPTS = 3


@dataclass
class Options:
    """What to run and how.

    Attributes:
        backend: key of the backend.
        level, profiles: what to ask of it; level None for profiles alone.
        ops: operator names or patterns, None for all and the backend's own cases.
        ops_of: plugins whose operators alone are asked for, None for those of all.
        checks: numbers of the checks to run, empty for all of the level.
        shard: ``(2, 8)`` for the second of eight parts, None for the whole.
        changed_since: a commit; ``ops`` are those that changes since then concern.
        fail_fast: end after the first case that stands against the level.
        jobs: worker processes.
        limit: seconds without progress after which a case is a timeout.
        fresh: added to every seed; other than 0, there are drawn cases as well.
        expectations: path of a ``conformance.toml`` other than the backend's own.
    """

    backend: str
    level: str | None = "training"
    profiles: tuple[str, ...] = ()
    ops: tuple[str, ...] | None = None
    ops_of: tuple[str, ...] | None = None
    checks: tuple[int, ...] = ()
    shard: tuple[int, int] | None = None
    changed_since: str | None = None
    fail_fast: bool = False
    jobs: int = 1
    limit: float = LIMIT
    fresh: int = 0
    expectations: Path | None = None

    @property
    def partial(self) -> bool:
        """Whether less than a level is asked for, which certifies nothing."""
        return bool(self.ops is not None or self.ops_of or self.checks or self.shard)


@dataclass
class Run:
    """Cases that were expected, and what became of each.

    ``ended`` says why results are missing, ``interrupted`` or ``first failure``; "" when all came.
    ``memory`` is what each operator's worker took beside what was there, and kept, in bytes;
    ``compiled`` the seconds of first and later calls of its shapes, where a backend compiles.
    """

    options: Options
    cases: list[Case]
    results: dict[str, Result] = field(default_factory=dict)
    seconds: float = 0.0
    ended: str = ""
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    compiled: dict[str, dict[str, float]] = field(default_factory=dict)

    def ordered(self) -> list[Result]:
        """One result per expected case, in the order of the plan; ``not_run`` where none came."""
        reason = (
            f"the run ended before it ({self.ended})" if self.ended else "no worker reported it"
        )
        return [
            self.results.get(case.id, Result.of(case, Status.NOT_RUN, reason))
            for case in self.cases
        ]


def planned(subject: Subject, options: Options) -> dict[str, list[Case]]:
    """The expected cases of each operator; raises for unknown operators and levels."""
    names = selected(subject, options.ops, options.ops_of)
    found = {}
    for op in names:
        drawn = bool(options.fresh)
        cases = plan_op(subject, op, options.level, options.profiles, drawn, options.checks)
        if cases:
            found[op] = cases
    return shard_of(found, options.shard)


class WorkerLost(Exception):
    """A worker died or made no progress; ``status`` and the text say which."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Worker:
    """One worker process and the two pipes to it.

    The process is the leader of a session, so that what a backend started goes with it.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.output = tempfile.TemporaryFile()
        self.printed = 0  # bytes of it that earlier cases printed
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
            start_new_session=True,
        )
        os.close(write)
        self.reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self.reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as pipe, contextlib.suppress(ValueError, OSError):
            for line in pipe:
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def wait_ready(self) -> None:
        """Wait until the backend is loaded; raises :class:`WorkerLost` where it never is."""
        message = self.receive(max(self.options.limit, START_LIMIT))
        if "refused" in message:
            self.end()
            raise WorkerLost(Status.FAIL, message["refused"])

    def ask(self, **request: Any) -> None:
        """Send one request; a dead worker shows when its answer is read."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self, limit: float | None = None) -> dict[str, Any]:
        """The next message. Raises :class:`WorkerLost` after a death, and after a hang."""
        limit = self.options.limit if limit is None else limit
        try:
            message = self.lines.get(timeout=limit)
        except queue.Empty:
            self.end(kill=True)
            raise WorkerLost(Status.TIMEOUT, f"no progress for {limit:g} s") from None
        if message is None:
            raise WorkerLost(Status.CRASH, self.end())
        self.printed = message.get("printed", self.printed)
        return message

    def kill(self) -> None:
        """End the process and everything it started."""
        if self.process.returncode is None:  # not waited for yet: the number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, kill: bool = False) -> str:
        """Stop the process; how it ended and the last of what it printed in this case."""
        if kill:
            self.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        # A thread that never ends keeps the interpreter up; children may outlive it.
        deadline = time.monotonic() + EXIT_LIMIT
        peek = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self.process.pid, peek) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        self.kill()
        code = self.process.wait()
        self.reader.join(EXIT_LIMIT)
        if self.output.closed:
            return f"exit status {code}"
        self.output.seek(0, os.SEEK_END)
        self.output.seek(max(self.printed, self.output.tell() - 400))
        tail = self.output.read().decode(errors="replace").strip()
        self.output.close()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how}: {tail.splitlines()[-1] if tail else 'nothing was printed'}"


def probe(options: Options) -> None:
    """Load the backend in a process of its own first.

    Raises :class:`SuiteError` where there is none, and where loading it ends the interpreter or
    never returns: the process that has the results must not be the one that finds out.
    """
    worker = _Worker(options)
    try:
        worker.wait_ready()
    except WorkerLost as lost:
        if lost.status is Status.FAIL:
            message, _, fix = str(lost).partition("\n  fix: ")
            raise SuiteError(message, fix=fix or None) from None
        raise SuiteError(
            f"the backends cannot be loaded: {lost.status}, {lost}",
            fix="find the plugin with COREDISPATCH_PLUGINS=NAME, which loads it alone",
        ) from None
    worker.end()


class Pool:
    """One worker that answers single requests, replaced when it dies."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._worker: _Worker | None = None

    def ask(self, **request: Any) -> tuple[Any, str | None, WorkerLost | None]:
        """``(answer, last draft, loss)``; the answer is None where the worker was lost."""
        draft: str | None = None
        try:
            if self._worker is None:
                self._worker = _Worker(self.options)
                self._worker.wait_ready()
            self._worker.ask(**request)
            while True:
                message = self._worker.receive()
                if "draft" in message:
                    draft = message["draft"]
                elif "answer" in message:
                    return message["answer"], draft, None
        except WorkerLost as lost:
            self._worker = None
            return None, draft, lost

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def run(
    subject: Subject,
    options: Options,
    progress: Callable[[int, Result], None] | None = None,
    known: Mapping[str, Result] | None = None,
) -> Run:
    """Run what ``options`` ask for; ``progress(done, result)`` is called after each case.

    ``known`` are results of an earlier run, whose cases are not run again. An interrupt ends the
    workers and gives what there is.
    """
    todo = planned(subject, options)
    outcome = Run(options, [case for cases in todo.values() for case in cases])
    outcome.results = {c.id: known[c.id] for c in outcome.cases if known and c.id in known}
    shift = _Shift(subject, options, todo, outcome, progress)
    threads = [threading.Thread(target=shift.serve) for _ in range(max(1, options.jobs))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt:
        outcome.ended = "interrupted"
        shift.stop()
    for thread in threads:
        thread.join()
    return outcome


class _Shift:
    """The workers of one run: each takes the next operator until none is left."""

    def __init__(
        self,
        subject: Subject,
        options: Options,
        todo: dict[str, list[Case]],
        outcome: Run,
        progress: Callable[[int, Result], None] | None,
    ) -> None:
        self.subject, self.options, self.todo = subject, options, todo
        self.outcome, self.progress = outcome, progress
        self.lock = threading.Lock()
        self.stopped = False
        self.workers: set[_Worker] = set()
        self.dead: WorkerLost | None = None  # why no worker comes up any more
        # Long operators first, so that no worker is left with one at the end.
        self.waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for op in sorted(todo, key=lambda op: -len(todo[op])):
            self.waiting.put(op)

    def stop(self) -> None:
        """End all workers; nothing is recorded any more."""
        with self.lock:
            self.stopped = True
            for worker in self.workers:
                worker.kill()

    def serve(self) -> None:
        """Run operators until none is left."""
        worker: _Worker | None = None
        while not self.stopped:
            try:
                op = self.waiting.get_nowait()
            except queue.Empty:
                break
            worker = self._operator(op, worker)
        if worker is not None:
            worker.end()

    def _record(self, result: Result) -> None:
        with self.lock:
            if self.stopped:
                return
            self.outcome.results[result.case] = result
            if self.progress is not None:
                self.progress(len(self.outcome.results), result)
        if self.options.fail_fast and result.blocks:
            self.outcome.ended = "first failure"
            self.stop()

    def _new_worker(self) -> _Worker:
        """A worker that has the backend loaded; after a few that never had, there are no more."""
        if self.dead is not None:
            raise self.dead
        for attempt in range(START_ATTEMPTS):
            worker = _Worker(self.options)
            with self.lock:
                self.workers.add(worker)
                if self.stopped:
                    worker.kill()
            try:
                worker.wait_ready()
                return worker
            except WorkerLost as lost:
                self._gone(worker)
                if attempt == START_ATTEMPTS - 1 or self.stopped:
                    self.dead = WorkerLost(lost.status, f"no worker comes up: {lost}")
        assert self.dead is not None
        raise self.dead

    def _gone(self, worker: _Worker) -> None:
        with self.lock:
            self.workers.discard(worker)

    def _operator(self, op: str, worker: _Worker | None) -> _Worker | None:
        """Run one operator's cases to the end, with as many workers as it takes."""
        by_id = {case.id: case for case in self.todo[op]}
        done = by_id.keys() & self.outcome.results.keys()
        while len(done) < len(by_id) and not self.stopped:
            running: str | None = None
            used = worker is not None
            try:
                if worker is None:
                    worker = self._new_worker()
                worker.ask(op=op, done=list(done))
                while True:
                    message = worker.receive()
                    if "start" in message:
                        running = message["start"]
                    elif "result" in message:
                        result = Result.from_dict(message["result"])
                        done.add(result.case)
                        self._record(result)
                        running = None
                    elif "finished" in message:
                        if "memory" in message:
                            self.outcome.memory[op] = message["memory"]
                        if "compiled" in message:
                            self.outcome.compiled[op] = message["compiled"]
                        return worker
            except WorkerLost as lost:
                if worker is not None:
                    self._gone(worker)
                    worker = None
                if (
                    running is None and used
                ):  # what an earlier operator did to it; a new one goes on
                    continue
                # A new worker that dies before its first case costs that case: the run ends.
                case = by_id[running or next(i for i in by_id if i not in done)]
                done.add(case.id)
                outcome = Result.of(case, lost.status, str(lost))
                self._record(self.subject.expectations.judge(case, outcome))
        return worker
