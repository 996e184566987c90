"""What the launcher starts in each rank: sets the environment, the streams, and runs the script.

``python rank.py SPECIFICATION``, a file of JSON that all ranks of a round share.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

__all__ = ["main", "report"]

_MPI_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def _own_rank() -> int:
    """The local rank: from the launcher, or from MPI's."""
    for name in ("COREDISPATCH_LOCAL_RANK", *_MPI_RANKS):
        if name in os.environ:
            return int(os.environ[name])
    raise RuntimeError("no launcher started this process")


def _set_environment(facts: dict[str, Any], local: int) -> int:
    size: int = facts["local_size"]
    rank: int = facts["first_rank"] + local
    os.environ.update(facts["environment"])
    os.environ.update(
        LOCAL_RANK=str(local),
        RANK=str(rank),
        ROLE_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        TORCHELASTIC_ERROR_FILE=str(Path(facts["folder"]) / f"{rank}.error"),
    )
    return rank


def _redirect(folder: Path, local: int) -> None:
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        path = folder / str(local) / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)


def _run(facts: dict[str, Any], local: int) -> None:
    script, *arguments = facts["command"]
    if facts["pass_local_rank"]:
        arguments.insert(0, f"--local-rank={local}")
    if facts["no_python"]:
        os.execvp(script, [script, *arguments])
    sys.argv = [script, *arguments]
    if facts["module"]:
        sys.path[0] = os.getcwd()
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        runpy.run_path(script, run_name="__main__")


def report(error: BaseException, rank: int, path: Path) -> None:
    """Leave the error in the file `path`; the launcher shows the first one of all ranks."""
    text = "".join(traceback.format_exception(error))
    hidden = f'File "{__file__}"'
    shown = text if hidden not in text else _without_launcher(text)
    # That another rank is gone is what follows from a failure there.
    follows = type(error).__name__ == "DistBackendError"
    content = {"rank": rank, "time": time.time(), "follows": follows, "text": shown}
    path.with_suffix(".part").write_text(json.dumps(content))
    path.with_suffix(".part").rename(path)


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
    return "".join(kept)


def main() -> None:
    """Run one rank."""
    facts = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(facts["folder"])
    local = _own_rank()
    rank = _set_environment(facts, local)
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    _redirect(folder, local)
    path = folder / f"{rank}.error"
    status: Any = 0
    try:
        _run(facts, local)
    except SystemExit as error:
        status = error.code
        if status not in (0, None):
            report(error, rank, path)
    except BaseException as error:
        report(error, rank, path)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if status not in (0, None):
        # No finalizers: MPI's would wait for ranks that wait for this one.
        os._exit(status if isinstance(status, int) and 0 < status < 256 else 1)


if __name__ == "__main__":
    main()
