"""The backend ``local``: the ranks are threads of one process, for tests and notebooks.

Example::

    def program(rank):
        x = cd.ones(3) * rank
        dist.all_reduce(x)
        return x

    results = cd.distributed.threads.spawn(program, nprocs=4)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from coredispatch.frontend.distributed.communicator import GroupInfo
from coredispatch.frontend.distributed.mailboxes import Mailboxes
from coredispatch.frontend.distributed.peers import PeerCommunicator, Transport
from coredispatch.frontend.distributed.stores import HashStore, PrefixStore, Store

__all__ = ["spawn"]

_making = threading.Lock()


class _ThreadTransport(Transport):
    def __init__(self, rank: int, boxes: list[Mailboxes]) -> None:
        self.rank = rank
        self.boxes = boxes

    def post(self, dst: int, channel: str, tag: int, data: memoryview, label: bytes) -> None:
        self.boxes[dst].put(self.rank, channel, tag, bytes(data), label)

    def take(
        self, src: int | None, channel: str, tag: int, seconds: float
    ) -> tuple[int, bytes | bytearray, bytes]:
        return self.boxes[self.rank].take(src, channel, tag, seconds)

    def ready(self, src: int | None, channel: str, tag: int) -> bool:
        return self.boxes[self.rank].ready(src, channel, tag)

    def close(self) -> None:
        for boxes in self.boxes:
            boxes.gone(self.rank, "it has left the process group")


def local_communicator(info: GroupInfo) -> PeerCommunicator:
    """The communicator of one thread; all threads of the group share its store."""
    store: Any = info.store
    name: tuple[Any, ...] = (info.name,)
    while isinstance(store, PrefixStore):
        name, store = (store._prefix, *name), store.underlying_store
    if not isinstance(store, HashStore):
        raise ValueError(
            "the backend 'local' joins threads of one process, which share a HashStore\n"
            "  fix: use cd.distributed.threads.spawn(fn, nprocs=N), or "
            "init_process_group('local', store=store, rank=i, world_size=N) with one HashStore"
        )
    with _making:
        shared = store.threads = store.threads or {}
        boxes = shared.setdefault(name, [Mailboxes() for _ in range(info.size)])
    return PeerCommunicator(
        "local", _ThreadTransport(info.rank, boxes), range(info.size), channel=""
    )


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    timeout: timedelta | None = None,
    store: Store | None = None,
) -> list[Any]:
    """Run ``fn(rank, *args)`` in `nprocs` threads that are the ranks of a process group.

    Each thread has its own default group: ``get_rank()`` says which rank it is. What a rank raises
    is raised here, with its rank in a note, when all have ended; the others see it as gone.

    Returns:
        What the ranks returned, in order.
    """
    from coredispatch.frontend.distributed.groups import (
        destroy_process_group,
        init_process_group,
        is_initialized,
        separate_world,
    )

    shared = HashStore() if store is None else store
    results: list[Any] = [None] * nprocs
    errors: list[tuple[int, BaseException]] = []

    def run(rank: int) -> None:
        with separate_world():
            try:
                init_process_group(
                    "local", store=shared, rank=rank, world_size=nprocs, timeout=timeout
                )
                results[rank] = fn(rank, *args)
            except BaseException as error:
                errors.append((rank, error))
            finally:
                if is_initialized():
                    destroy_process_group()

    threads = [threading.Thread(target=run, args=(i,), name=f"rank {i}") for i in range(nprocs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        rank, error = errors[0]
        error.add_note(f"raised by rank {rank} of {nprocs}")
        raise error
    return results
