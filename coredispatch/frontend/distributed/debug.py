"""``DISTRIBUTED_DEBUG``: whether all ranks call the same collective with the same tensors."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from coredispatch.frontend.distributed.errors import DistBackendError

if TYPE_CHECKING:
    from coredispatch.frontend.distributed.process_group import ProcessGroup

__all__ = [
    "DebugLevel",
    "get_debug_level",
    "read_debug_level",
    "set_debug_level",
    "set_debug_level_from_env",
]

_WIDTH = 512  # bytes that a rank says about its call


class DebugLevel(Enum):
    """``OFF``; ``INFO``; ``DETAIL``: every collective is checked before it begins."""

    OFF = 0
    INFO = 1
    DETAIL = 2


_level: DebugLevel | None = None
_by_program = False  # what a program said counts for groups that it makes later


def set_debug_level_from_env() -> None:
    """Take the level from ``DISTRIBUTED_DEBUG``, or PyTorch's ``TORCH_DISTRIBUTED_DEBUG``.

    Raises ValueError for a text that names no level.
    """
    global _level, _by_program
    text = os.environ.get("DISTRIBUTED_DEBUG") or os.environ.get("TORCH_DISTRIBUTED_DEBUG") or "OFF"
    found = DebugLevel.__members__.get(text.upper())
    if found is None:
        raise ValueError(
            f"The value of DISTRIBUTED_DEBUG is {text!r}\n  fix: use OFF, INFO or DETAIL"
        )
    _level, _by_program = found, False


def read_debug_level() -> None:
    """The level of the environment, unless the program has set one."""
    if not _by_program:
        set_debug_level_from_env()


def set_debug_level(level: DebugLevel) -> None:
    """Set the level of this process."""
    global _level, _by_program
    _level, _by_program = level, True


def get_debug_level() -> DebugLevel:
    """The level of this process."""
    if _level is None:
        set_debug_level_from_env()
    assert _level is not None
    return _level


def check_agreement(group: ProcessGroup, call: str, number: int) -> None:
    """Raise DistBackendError on every rank where the ranks are about to do different things."""
    from coredispatch.frontend.distributed.work import Work

    shadow = group.shadow()
    own = np.frombuffer(call.encode()[:_WIDTH].ljust(_WIDTH, b"\0"), np.uint8)
    calls = np.empty(_WIDTH * group.size(), np.uint8)
    request = shadow.call("all_gather", (calls, own, [_WIDTH] * group.size()), False, group.seconds)
    Work(group, request, f"the check of {call}", number, []).wait()
    texts = [bytes(row).rstrip(b"\0").decode() for row in calls.reshape(group.size(), _WIDTH)]
    differing = [rank for rank, text in enumerate(texts) if text != texts[0]]
    if not differing:
        return
    other = group.rank() if group.rank() in differing else differing[0]
    raise DistBackendError(
        f"[rank {group.rank()}] the ranks disagree in call {number} of group "
        f"{group.group_name!r}:\n"
        f"  rank 0 calls {texts[0]}\n  rank {other} calls {texts[other]}\n"
        "  fix: all ranks must call the same collectives, in the same order, with the same shapes "
        "and dtypes"
    )
