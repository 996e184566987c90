"""What the launcher starts in each rank: sets the environment, the streams, and runs the script.

``python rank.py SPECIFICATION``, a file of JSON that all ranks of a round share.

Under ``mpiexec`` the rank is a child of the process that mpiexec started, its supervisor. mpiexec
kills the other ranks when one ends, and then names the first in its own order as the one that
failed. The supervisor sees its rank end before mpiexec can, and leaves a note of how.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

__all__ = ["end_with_parent", "leave", "main", "report"]

_LAUNCHER_RANK = "COREDISPATCH_LOCAL_RANK"
_MPI_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def _own_rank() -> int:
    """The local rank: from the launcher, or from MPI's."""
    for name in (_LAUNCHER_RANK, *_MPI_RANKS):
        if name in os.environ:
            return int(os.environ[name])
    raise RuntimeError("no launcher started this process")


def _set_environment(details: dict[str, Any], local: int) -> int:
    size: int = details["local_size"]
    rank: int = details["first_rank"] + local
    os.environ.update(details["environment"])
    os.environ.update(
        LOCAL_RANK=str(local),
        RANK=str(rank),
        ROLE_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        TORCHELASTIC_ERROR_FILE=str(Path(details["folder"]) / f"{rank}.error"),
    )
    return rank


def _supervise(folder: Path, rank: int) -> None:
    """Go on in a child; what is left here waits for it, leaves how it ended, and ends so too."""
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        end_with_parent(supervisor)
        return

    def hand_on(number: int, frame: Any) -> None:
        with contextlib.suppress(ProcessLookupError):  # the rank has just ended
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hand_on)
    _, ended = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(ended)
    if code and not (folder / f"{rank}.error").exists():
        leave(folder / f"{rank}.end", rank=rank, code=code)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(supervisor, -code)
    os._exit(code if 0 <= code < 256 else 1)


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Get the signal `number` when the process `parent` is killed: nobody else may know of both."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
        ctypes.CDLL(None).prctl(set_death_signal, number)
        if os.getppid() != parent:  # it was killed before
            os._exit(1)


def leave(path: Path, **content: Any) -> None:
    """Write a note for the launcher, which never sees a part of one."""
    path.with_suffix(".part").write_text(json.dumps({"time": time.time()} | content))
    path.with_suffix(".part").rename(path)


def _redirect(folder: Path, local: int) -> None:
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        path = folder / str(local) / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)


def _run(details: dict[str, Any], local: int) -> None:
    script, *arguments = details["command"]
    if details["pass_local_rank"]:
        arguments.insert(0, f"--local-rank={local}")
    if details["no_python"]:
        os.execvp(script, [script, *arguments])
    sys.argv = [script, *arguments]
    if details["module"]:
        sys.path[0] = os.getcwd()
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        runpy.run_path(script, run_name="__main__")


def report(error: BaseException, rank: int, path: Path) -> None:
    """Leave the error in the file `path`; the launcher shows the first one of all ranks."""
    shown = _words_of(error)
    # That another rank is gone is what follows from a failure there.
    follows = type(error).__name__ == "DistBackendError"
    leave(path, rank=rank, follows=follows, status=_exit_status(error), text=shown)


def _words_of(error: BaseException) -> str:
    """What Python says of `error` at the end of a program: of ``sys.exit`` the message alone."""
    if isinstance(error, SystemExit):
        return "" if isinstance(error.code, int) else f"{error.code}\n"
    text = "".join(traceback.format_exception(error))
    return text if f'File "{__file__}"' not in text else _without_launcher(text)


def _exit_status(error: BaseException) -> int:
    """What a program that ends with `error` exits with; never 0."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _without_launcher(text: str) -> str:
    """A traceback without the lines of this file and of runpy."""
    kept, skip = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith("  File "):
            skip = __file__ in line or "<frozen runpy>" in line
        elif not line.startswith("    "):
            skip = False
        if not skip:
            kept.append(line)
    if not any(line.startswith("  File ") for line in kept):  # the script itself is not there
        kept = [line for line in kept if not line.startswith("Traceback ")]
    return "".join(kept)


def main() -> None:
    """Run one rank."""
    details = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(details["folder"])
    local = _own_rank()
    rank = _set_environment(details, local)
    if _LAUNCHER_RANK not in os.environ:
        _supervise(folder, rank)
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    _redirect(folder, local)
    path = folder / f"{rank}.error"
    failed: BaseException | None = None
    try:
        _run(details, local)
    except BaseException as error:
        if not (isinstance(error, SystemExit) and error.code in (0, None)):
            report(error, rank, path)
            failed = error
    sys.stdout.flush()
    sys.stderr.flush()
    if failed is not None:
        # No finalizers: MPI's would wait for ranks that wait for this one.
        os._exit(_exit_status(failed))


if __name__ == "__main__":
    main()
