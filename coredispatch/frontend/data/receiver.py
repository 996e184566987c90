"""Receiving what DataLoader workers send: here, or in a thread that also prepares it."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from coredispatch.frontend.data.transport import Failure, receive

__all__ = ["Receiver", "WorkerDied", "arrived"]


class WorkerDied(Exception):
    """A worker ended without an answer; the one argument is its number."""


def arrived(
    processes: list[Any], connections: list[Connection], timeout: float | None, wake: Any = None
) -> list[Any]:
    """Wait for messages of any worker and return them; none after `timeout` seconds.

    `wake` is a file descriptor that ends the waiting as well.

    Raises :class:`WorkerDied`, and what a message raises that cannot be unpickled here.
    """
    sentinels = [process.sentinel for process in processes]
    others = [] if wake is None else [wake]
    ready = wait([*connections, *sentinels, *others], timeout)
    messages = []
    for worker, connection in enumerate(connections):
        # A worker that has died may have left complete messages behind: those count.
        if connection in ready or (ready and connection.poll()):
            try:
                messages.append(receive(connection))
            except (EOFError, OSError) as error:
                raise WorkerDied(worker) from error
        elif sentinels[worker] in ready:
            raise WorkerDied(worker)
    return messages


class Receiver:
    """A thread that receives the workers' messages and prepares them while the program goes on.

    It is started after the workers, which may be forked. It keeps neither the pool nor the loader
    alive: an abandoned pass ends.

    Args:
        processes, connections: the workers and this side of their pipes.
        prepare: called in the thread with each result, for what is handed out instead. What it
            raises is raised where that result is asked for.
        begin: called in the thread before everything else.
    """

    def __init__(
        self,
        processes: list[Any],
        connections: list[Connection],
        prepare: Callable[[Any], Any],
        begin: Callable[[], Any],
    ) -> None:
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._wake, self._signal = os.pipe()
        self._thread = threading.Thread(
            target=_run,
            args=(processes, connections, self._wake, self._messages, prepare, begin),
            name="DataLoader receiver",
            daemon=True,
        )
        self._thread.start()

    def arrived(self, timeout: float | None) -> list[Any]:
        """As :func:`arrived`, of what the thread has received and prepared."""
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            return []
        if isinstance(message, BaseException):
            raise message
        return [message]

    def stop(self) -> None:
        """End the thread; pipes and workers may be closed then."""
        if self._signal < 0:
            return
        signal, self._signal = self._signal, -1
        os.close(signal)  # the other end becomes readable
        if threading.current_thread() is not self._thread:  # garbage is collected anywhere
            self._thread.join()


def _run(
    processes: list[Any],
    connections: list[Connection],
    wake: int,
    messages: queue.SimpleQueue[Any],
    prepare: Callable[[Any], Any],
    begin: Callable[[], Any],
) -> None:
    try:
        begin()
        while not wait([wake], 0):
            for epoch, index, result in arrived(processes, connections, None, wake):
                try:
                    ready = prepare(result)
                except Exception as error:
                    ready = Failure(error, "the DataLoader's thread that pins memory")
                messages.put((epoch, index, ready))
    except BaseException as error:
        messages.put(error)
    finally:
        os.close(wake)
