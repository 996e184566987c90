"""``record``: the error of a rank, written where the launcher finds it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from coredispatch.frontend.distributed.run.rank import report

__all__ = ["record"]

T = TypeVar("T")


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
