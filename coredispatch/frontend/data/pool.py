"""The main process's side of the DataLoader workers: starting, talking to and ending them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from coredispatch.frontend.data.receiver import Receiver, WorkerDied, arrived
from coredispatch.frontend.data.transport import pack, send
from coredispatch.frontend.data.worker import WorkerSetup, run_worker

__all__ = ["WorkerPool"]

_PATIENCE = 5.0  # seconds for the workers to finish a sample before they are terminated


class WorkerPool:
    """Worker processes with one two-way pipe each.

    A pipe per worker rather than a shared queue: a worker that is killed while it writes can
    then spoil nobody else's pipe, and its death is seen at once.

    Args:
        setups: one per worker.
        context: a multiprocessing context, the name of a start method, or None for the default.
        prepare: called with each result in a thread that receives them while the program goes on;
            None: results are received when they are asked for.
        begin: called in that thread first.
    """

    def __init__(
        self,
        setups: list[WorkerSetup],
        context: Any,
        prepare: Callable[[Any], Any] | None = None,
        begin: Callable[[], Any] = lambda: None,
    ) -> None:
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        self.processes: list[Any] = []
        self.connections: list[Connection] = []
        self.receivers: list[Receiver] = []  # at most one
        # Also runs when the interpreter exits; needs no reference to the pool.
        self.close: Callable[[], Any] = weakref.finalize(
            self, _close, self.processes, self.connections, self.receivers, os.getpid()
        )
        try:
            for setup in setups:
                self._start(setup, context)
            if prepare is not None:
                receiver = Receiver(self.processes, self.connections, prepare, begin)
                self.receivers.append(receiver)
        except BaseException:
            self.close()
            raise

    def _start(self, setup: WorkerSetup, context: Any) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self.connections.append(ours)
        try:
            process = context.Process(target=run_worker, args=(setup, theirs), daemon=True)
            process.start()
        finally:
            theirs.close()
        self.processes.append(process)

    @property
    def closed(self) -> bool:
        return not self.connections

    def submit(self, worker: int, message: Any) -> None:
        """Send `message` to one worker."""
        try:
            send(self.connections[worker], pack(message))
        except OSError:
            self._give_up(worker)

    def collect(self, timeout: float) -> list[Any]:
        """Wait for messages of any worker and return them.

        Raises:
            RuntimeError: nothing came for `timeout` seconds (0: wait for ever), or a worker died.
        """
        try:
            if self.receivers:
                messages = self.receivers[0].arrived(timeout or None)
            else:
                messages = arrived(self.processes, self.connections, timeout or None)
        except WorkerDied as died:
            self._give_up(died.args[0])
        except Exception:  # it cannot be unpickled here, so its task stays unanswered
            self.close()
            raise
        if not messages:
            raise RuntimeError(
                f"DataLoader timed out after {timeout} seconds; a sample takes longer than that, "
                "or a worker hangs"
            )
        return messages

    def _give_up(self, worker: int) -> NoReturn:
        process = self.processes[worker]
        process.join(_PATIENCE)
        pid, code = process.pid, process.exitcode
        self.close()
        how = f"was killed by signal {-code}" if code and code < 0 else f"exited with code {code}"
        raise RuntimeError(
            f"DataLoader worker {worker} (pid {pid}) {how} without an answer; with num_workers=0 "
            "the same sample fails in this process, where it can be debugged"
        )


def _close(
    processes: list[Any], connections: list[Connection], receivers: list[Receiver], owner: int
) -> None:
    """Ask the workers to stop, then make them. Does nothing in a forked copy of the owner."""
    if os.getpid() != owner:
        return
    for receiver in receivers:
        receiver.stop()
    for connection in connections:
        # Closing alone would not tell them: a forked worker holds a copy of this end as well.
        with contextlib.suppress(OSError):
            send(connection, pack(None))
        connection.close()
    deadline = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join()
        process.close()
    processes.clear()
    connections.clear()
