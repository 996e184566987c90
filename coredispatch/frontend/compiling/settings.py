"""Settings and counters of the compiler, which every compiled function reads."""

from __future__ import annotations

import collections
import sys
from typing import Any

__all__ = ["COUNTERS", "SETTINGS", "STANCE", "is_compiling", "recorder"]


class Settings:
    """``cd._dynamo.config``.

    Attributes:
        recompile_limit: how many programs one function may have; then its calls run eagerly.
        branch_limit: how many answers to a look at values one program may know.
        disable: run everything eagerly.
    """

    def __init__(self) -> None:
        self.recompile_limit = 8
        self.branch_limit = 16
        self.disable = False
        self.suppress_errors = False
        self.verbose = False
        self.fail_on_recompile_limit_hit = False
        self.generation = 0

    @property
    def cache_size_limit(self) -> int:
        """The older name of ``recompile_limit``."""
        return self.recompile_limit

    @cache_size_limit.setter
    def cache_size_limit(self, value: int) -> None:
        self.recompile_limit = value

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


class Stance:
    """What :class:`set_stance` says."""

    def __init__(self) -> None:
        self.name = "default"


SETTINGS = Settings()
STANCE = Stance()


def recorder() -> Any:
    """The recorder of the capture that runs in this thread, or None."""
    module = sys.modules.get("coredispatch.frontend.compiling.switches")
    mode = None if module is None else module.capturing.current()
    return mode.recorder if mode is not None and mode.recorder.alive else None


def is_compiling() -> bool:
    """Whether the call that runs is being captured."""
    found = recorder()
    return found is not None and found.problem is None


COUNTERS: collections.Counter[str] = collections.Counter()
