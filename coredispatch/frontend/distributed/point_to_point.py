"""Messages between two ranks, and barriers that know who is missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed import operators as ops
from coredispatch.frontend.distributed.collectives import _members_only, bare, root, under_way
from coredispatch.frontend.distributed.errors import DistBackendError
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.tensor import Tensor

__all__ = [
    "P2POp",
    "batch_isend_irecv",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "send",
]

_MONITOR = 0x7FFE  # the tag of monitored_barrier


def _send(
    tensor: Any, dst: Any, group: Any, tag: int, group_dst: Any, background: bool
) -> Work | None:
    found = resolved(group)
    target = root("send", "dst", dst, group_dst, found)
    if target == found.rank():
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the "
            "current process."
        )
    ops.send(bare(tensor, "tensor"), target, tag, found, background)
    return under_way(background, [tensor])


def _recv(
    tensor: Any, src: Any, group: Any, tag: int, group_src: Any, background: bool
) -> tuple[Work | None, Any]:
    found = resolved(group)
    source = None
    if src is not None or group_src is not None:
        source = root("recv", "src", src, group_src, found)
    ops.recv_(bare(tensor, "tensor"), source, tag, found, background)
    return under_way(True, [tensor]), found


@_members_only
def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send `tensor` to a rank (of the job; `group_dst` of the group), which calls :func:`recv`.

    Messages of one tag arrive in order.
    """
    _send(tensor, dst, group, tag, group_dst, False)


@_members_only
def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send; `tensor` must not change until the Work is done."""
    return _send(tensor, dst, group, tag, group_dst, True)


@_members_only
def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into `tensor` from a rank, or from any; the rank of the job that sent it."""
    work, found = _recv(tensor, src, group, tag, group_src, False)
    assert work is not None
    return int(found.ranks[work.source_rank()])


@_members_only
def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive; `tensor` has its values when the Work is done."""
    return _recv(tensor, src, group, tag, group_src, True)[0]


class P2POp:
    """``P2POp(isend, tensor, peer)`` or ``P2POp(irecv, tensor, peer)``, for a batch."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                f"Invalid ``op`` {op!r}: expected isend or irecv\n"
                "  fix: pass distributed.isend or distributed.irecv"
            )
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        found = resolved(group)
        self.group_peer = root("P2POp", "peer", peer, group_peer, found)
        self.peer = found.ranks[self.group_peer]

    def __repr__(self) -> str:
        shape = tuple(self.tensor.shape)
        return f"P2POp({self.op.__name__}, peer={self.peer}, {self.tensor.dtype}{shape})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin all messages of the list; their Works."""
    if not p2p_op_list or not all(isinstance(item, P2POp) for item in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``: each entry must be a P2POp\n  fix: pass [P2POp(...), ...]"
        )
    # Receivers first: what arrives then has a place to go.
    begun: dict[int, Any] = {}
    for wanted in (irecv, isend):
        for i, item in enumerate(p2p_op_list):
            if item.op is wanted:
                name = "group_src" if wanted is irecv else "group_dst"
                kwargs: dict[str, Any] = {name: item.group_peer}
                begun[i] = item.op(item.tensor, group=item.group, tag=item.tag, **kwargs)
    return [begun[i] for i in range(len(p2p_op_list))]


@_members_only
def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that says which ranks are missing: all report to rank 0, which answers.

    Args:
        timeout: how long rank 0 waits for each rank; that of the group by default.
        wait_all_ranks: collect all missing ranks, not only the first.

    Raises:
        DistBackendError: (a RuntimeError) on rank 0, naming the ranks that have not come, and on
            the others when rank 0 does not answer.
    """
    found = resolved(group)
    limit = timeout or found.timeout
    token = cd.zeros(1)
    if found.rank():
        send(token, group=found, tag=_MONITOR, group_dst=0)
        work = irecv(token, group=found, tag=_MONITOR, group_src=0)
        assert work is not None
        # Rank 0 may wait as long for another rank first.
        work.wait(limit * 2)
        return
    missing = []
    for peer in range(1, found.size()):
        work = irecv(token, group=found, tag=_MONITOR, group_src=peer)
        assert work is not None
        try:
            work.wait(limit)
        except DistBackendError:
            missing.append(found.ranks[peer])
            if not wait_all_ranks:
                break
    if missing:
        names = ", ".join(map(str, missing))
        raise DistBackendError(
            f"[Rank 0]: Ranks {names} failed to pass monitoredBarrier in "
            f"{limit.total_seconds() * 1000:.0f} ms\n  fix: see what they do"
        )
    for peer in range(1, found.size()):
        send(token, group=found, tag=_MONITOR, group_dst=peer)
