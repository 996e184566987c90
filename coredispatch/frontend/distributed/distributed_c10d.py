"""PyTorch's module of this name: the functions of ``cd.distributed``, and what programs look up."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed import (
    backend_names,
    collectives,
    groups,
    objects,
    point_to_point,
    process_group,
    reductions,
    work,
)
from coredispatch.frontend.distributed.backend_names import *  # noqa: F403
from coredispatch.frontend.distributed.collectives import *  # noqa: F403
from coredispatch.frontend.distributed.groups import *  # noqa: F403
from coredispatch.frontend.distributed.groups import default_group
from coredispatch.frontend.distributed.objects import *  # noqa: F403
from coredispatch.frontend.distributed.point_to_point import *  # noqa: F403
from coredispatch.frontend.distributed.process_group import *  # noqa: F403
from coredispatch.frontend.distributed.reductions import *  # noqa: F403
from coredispatch.frontend.distributed.work import *  # noqa: F403
from coredispatch.frontend.distributed.world import GroupMember, group, world

__all__ = [
    *backend_names.__all__,
    *collectives.__all__,
    *groups.__all__,
    *objects.__all__,
    *point_to_point.__all__,
    *process_group.__all__,
    *reductions.__all__,
    *work.__all__,
    "GroupMember",
    "group",
]


def _get_default_group() -> Any:
    """The default group. ValueError before ``init_process_group``."""
    return default_group()


def _get_default_store() -> Any:
    """The store by which the default group met. RuntimeError where MPI needed none."""
    default_group()
    store = world().store
    if store is None:
        raise RuntimeError(
            "the default group met by MPI, without a store\n"
            "  fix: make a TCPStore at MASTER_ADDR and MASTER_PORT"
        )
    return store


def _rank_not_in_group(group: Any) -> bool:
    return bool(group == GroupMember.NON_GROUP_MEMBER)
