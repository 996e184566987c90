"""Groups of processes that live and die together: :func:`spawn` and :func:`start_processes`."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any, cast

from coredispatch._warnings import warn

__all__ = [
    "ENV_VAR_PARALLEL_START",
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

#: PyTorch's switch for starting processes of a fork server in parallel; here they start in order
ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"
_PATIENCE = 30.0  # seconds for the others to end after one has failed
_log = logging.getLogger(__name__)


class ProcessException(Exception):
    """One process of a group failed.

    Attributes:
        error_index: which one.
        error_pid: its process id.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The process failed by an exception; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """The process was killed by a signal, or left with an exit code.

    Attributes:
        exit_code: as :attr:`multiprocessing.Process.exitcode`.
        signal_name: such as ``"SIGKILL"``, or None.
    """

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        details = (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)
        return type(self), details


def _die_with_parent(parent: int) -> None:
    """Ask Linux for SIGINT when the parent ends, also when it is killed."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGINT)


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], report: str, parent: int) -> None:
    try:
        _die_with_parent(parent)
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # the parent is ending the group
    except Exception:
        with open(report, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """A group of processes that was started together.

    Attributes:
        processes: in the order of their index.
    """

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.error_files = error_files
        self.processes = processes
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for some process to end; True when all have.

        Args:
            timeout: seconds to wait at most.
            grace_period: seconds that the others get to end by themselves after one has failed,
                before they are terminated, and again before they are killed.

        Raises:
            ProcessRaisedException: a process raised an exception. The others were ended.
            ProcessExitedException: a process was killed or exited with another code than 0.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in multiprocessing.connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(cast(int, sentinel))
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            if not self.sentinels:
                self._remove_reports()
            return not self.sentinels
        self._end_all(grace_period)
        raise self._error(failed)

    def _join_all(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def _end_all(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Terminating process %s via signal SIGTERM", process.pid)
                process.terminate()
        self._join_all(_PATIENCE if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Process %s does not end by SIGTERM: killing it", process.pid)
                process.kill()
            process.join()

    def _error(self, index: int) -> ProcessException:
        process = self.processes[index]
        try:
            with open(self.error_files[index], "rb") as file:
                text = pickle.load(file)
        except (OSError, EOFError):
            code = process.exitcode
            if code >= 0:
                text, name = f"process {index} terminated with exit code {code}", None
            else:
                try:
                    name = signal.Signals(-code).name
                except ValueError:
                    name = f"<Unknown signal {-code}>"
                text = f"process {index} terminated with signal {name}"
            return ProcessExitedException(text, index, process.pid, code, name)
        finally:
            self._remove_reports()
        text = f"\n\n-- Process {index} terminated with the following error:\n{text}"
        return ProcessRaisedException(text, index, process.pid)

    def _remove_reports(self) -> None:
        for file in self.error_files:
            with contextlib.suppress(OSError):
                os.unlink(file)


class SpawnContext(ProcessContext):
    """Older name of :class:`ProcessContext`."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        warn("SpawnContext is renamed to ProcessContext since 1.4 release.")
        super().__init__(processes, error_files)


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Start `nprocs` processes that run ``fn(i, *args)``, i from 0.

    Args:
        fn: a function that the processes can import (with ``"fork"``, any).
        args: its other arguments. Tensors among them are shared.
        nprocs: how many processes.
        join: wait for all, else return the :class:`ProcessContext` at once.
        daemon: end them when this process ends.
        start_method: ``"spawn"``, ``"fork"`` or ``"forkserver"``.

    Raises:
        ProcessException: with `join`, a process failed; the others were ended.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, reports = [], []
    for i in range(nprocs):
        # Made by the process that fails. A queue could block if that process is killed.
        handle, report = tempfile.mkstemp(prefix="coredispatch-errorfile-", suffix=".pickle")
        os.close(handle)
        os.unlink(report)
        process = context.Process(
            target=_run, args=(fn, i, args, report, os.getpid()), daemon=daemon
        )
        process.start()
        processes.append(process)
        reports.append(report)
    group = ProcessContext(processes, reports)
    if not join:
        return group
    while not group.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """:func:`start_processes` with the start method ``"spawn"``.

    Example::

        def train(rank, model):
            ...

        cd.multiprocessing.spawn(train, args=(model,), nprocs=4)
    """
    if start_method != "spawn":
        warn(
            f"This method only supports start_method=spawn (got: {start_method}).\n"
            "To use a different start_method use:\n\t\t multiprocessing.start_processes(...)",
            FutureWarning,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
