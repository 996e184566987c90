"""PyTorch's module of this name: the functions of ``cd.distributed``, and what programs look up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.distributed import (
    availability,
    backend_names,
    collectives,
    groups,
    objects,
    point_to_point,
    process_group,
    reductions,
    work,
)
from coredispatch.frontend.distributed.availability import *  # noqa: F403
from coredispatch.frontend.distributed.backend_names import *  # noqa: F403
from coredispatch.frontend.distributed.collectives import *  # noqa: F403
from coredispatch.frontend.distributed.debug import DebugLevel, get_debug_level
from coredispatch.frontend.distributed.groups import *  # noqa: F403
from coredispatch.frontend.distributed.groups import default_group
from coredispatch.frontend.distributed.objects import *  # noqa: F403
from coredispatch.frontend.distributed.point_to_point import *  # noqa: F403
from coredispatch.frontend.distributed.process_group import *  # noqa: F403
from coredispatch.frontend.distributed.reductions import *  # noqa: F403
from coredispatch.frontend.distributed.stores import PrefixStore, Store
from coredispatch.frontend.distributed.tcp_store import TCPStore
from coredispatch.frontend.distributed.work import *  # noqa: F403
from coredispatch.frontend.distributed.world import GroupMember, group, world

__all__ = [
    *availability.__all__,
    *backend_names.__all__,
    *collectives.__all__,
    *groups.__all__,
    *objects.__all__,
    *point_to_point.__all__,
    *process_group.__all__,
    *reductions.__all__,
    *work.__all__,
    "DebugLevel",
    "GroupMember",
    "PrefixStore",
    "Store",
    "get_debug_level",
    "group",
]


def _get_default_group() -> Any:
    """The default group. ValueError before ``init_process_group``."""
    return default_group()


def _get_default_store() -> Any:
    """The store by which the default group met.

    MPI needs none: it is then made at MASTER_ADDR and MASTER_PORT, where rank 0 serves it as soon
    as that rank calls this. RuntimeError where these are not set.
    """
    found, state = default_group(), world()
    if state.store is None:
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        if not host or not port:
            raise RuntimeError(
                "the default group met by MPI, without a store\n"
                "  fix: set MASTER_ADDR and MASTER_PORT, as coredispatch launch does"
            )
        first = found.rank() == 0
        state.store = TCPStore(
            host,
            int(port),
            is_master=first,
            timeout=found.timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
    return state.store


def _rank_not_in_group(group: Any) -> bool:
    return bool(group == GroupMember.NON_GROUP_MEMBER)


class _CoalescingManager:
    """The calls of a block of :func:`_coalescing_manager` that are under way."""

    def __init__(self) -> None:
        self.works: list[Any] = []

    def append(self, work: Any = None) -> None:
        if work:
            self.works.append(work)

    def wait(self) -> None:
        for call in self.works:
            call.wait()


@contextlib.contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool = False
) -> Iterator[_CoalescingManager]:
    """Collectives that may be joined into one message; ``wait()`` of what it gives waits for all.

    Here each travels by itself: what joining saves is the start of a kernel on a device, and a
    message of MPI starts in microseconds.
    """
    found, manager = groups.resolved(group), _CoalescingManager()
    outer, found.coalescing = found.coalescing, manager.works
    try:
        yield manager
    finally:
        found.coalescing = outer
    if not async_ops:
        manager.wait()


def _older(name: str, now: str) -> None:
    warn(
        f"`coredispatch.distributed.{name}` is a private function and will be deprecated. "
        f"Please use `coredispatch.distributed.{now}` instead.",
        FutureWarning,
    )


def _all_gather_base(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Any:
    _older("_all_gather_base", "all_gather_into_tensor")
    return collectives.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def _reduce_scatter_base(
    output: Any,
    input: Any,
    op: Any = reductions.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    _older("_reduce_scatter_base", "reduce_scatter_tensor")
    return collectives.reduce_scatter_tensor(output, input, op, group, async_op)
