"""The errors of ranks: written where the launcher finds them, and raised in its program."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from coredispatch.frontend.distributed.run.rank import report

__all__ = ["ChildFailedError", "ProcessFailure", "record"]

T = TypeVar("T")


@dataclass
class ProcessFailure:
    """How a rank ended.

    Attributes:
        local_rank: on its machine.
        pid: its process; 0 where that is not known.
        exitcode: its exit status, negative for a signal.
        error_file: what it left of its error; ``"<N/A>"`` where it left nothing.
        message: what the error says, with its traceback.
        timestamp: when, in seconds.
    """

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    message: str = ""
    timestamp: float = 0.0

    def signal_name(self) -> str:
        """The signal that ended it; ``"<N/A>"`` for none."""
        with contextlib.suppress(ValueError):
            if self.exitcode < 0:
                return signal.Signals(-self.exitcode).name
        return "<N/A>"


class ChildFailedError(Exception):
    """Ranks that a program launched have failed.

    Attributes:
        name: of what was launched.
        failures: rank -> :class:`ProcessFailure`.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        rank = min(self.failures, key=lambda r: self.failures[r].timestamp)
        return rank, self.failures[rank]

    def format_msg(self) -> str:
        """What the error says."""
        first, failure = self.get_first_failure()
        others = ", ".join(str(rank) for rank in self.failures if rank != first)
        how = failure.signal_name() if failure.exitcode < 0 else f"exit status {failure.exitcode}"
        text = f"{self.name} FAILED\nrank {first} failed first ({how})"
        if others:
            text += f", then rank {others}"
        return f"{text}:\n{failure.message.rstrip()}" if failure.message else text


def failures_in(folder: Path, status: int) -> dict[int, ProcessFailure]:
    """The failures of the last round whose output is below `folder`; `status` is the launcher's."""
    rounds = sorted(folder.glob("*/attempt_*"), key=lambda path: int(path.name.split("_")[1]))
    found: dict[int, ProcessFailure] = {}
    if rounds:
        first = json.loads((rounds[-1] / "round.json").read_text())["first_rank"]
        for path in [*rounds[-1].glob("*.end"), *rounds[-1].glob("*.error")]:
            left = json.loads(path.read_text())
            rank = int(left["rank"])
            pid_file = path.with_suffix(".pid")
            pid = int(pid_file.read_text()) if pid_file.exists() else 0
            # What follows from another rank's failure comes after it, whoever was quicker to say.
            when = float(left["time"]) + (1e6 if left.get("follows") else 0.0)
            code = int(left["status"] if "status" in left else left["code"])
            found[rank] = ProcessFailure(
                rank - first, pid, code, str(path), left.get("text", ""), when
            )
    return found or {0: ProcessFailure(0, 0, status, "<N/A>", timestamp=time.time())}


def record(fn: Callable[..., T], error_handler: Any = None) -> Callable[..., T | None]:
    """Let what `fn` raises reach the launcher, which shows it with its rank.

    ``coredispatch launch`` finds the errors of all Python programs that it starts. The decorator
    is for those that something between the two would swallow, and for other launchers that set
    TORCHELASTIC_ERROR_FILE. `error_handler` is PyTorch's and must be None.

    Example::

        @record
        def main(): ...
    """
    if error_handler is not None:
        raise NotImplementedError("record(error_handler=) is not there\n  fix: leave it out")

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> T | None:
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code == 0:
                return None
            raise
        except Exception as error:
            path = os.environ.get("TORCHELASTIC_ERROR_FILE")
            if path and not Path(path).exists():
                report(error, int(os.environ.get("RANK", "0")), Path(path))
            raise

    return call
