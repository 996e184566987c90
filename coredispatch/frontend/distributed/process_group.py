"""``ProcessGroup``: some of the ranks, the communicators that join them, and the order of calls."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from coredispatch.frontend.distributed.communicator import Communicator, Request
from coredispatch.frontend.distributed.debug import DebugLevel, check_agreement, get_debug_level
from coredispatch.frontend.distributed.work import Work

__all__ = ["ProcessGroup"]


class _LastWork(threading.local):
    work: Work | None = None


#: how a kernel, which returns arrays, hands the Work of an ``async_op`` to the function around it
LAST = _LastWork()


class ProcessGroup:
    """Ranks that communicate. Made by ``init_process_group`` and ``new_group``.

    Attributes:
        ranks: the ranks of the job that belong to it, in order of their rank in the group.
        communicators: backend key -> :class:`Communicator`.
        group_name, group_desc: what it is called.
        backends: backend key -> the name by which the user asked for what serves it.
    """

    __module__ = "coredispatch.distributed"

    def __init__(
        self,
        ranks: Sequence[int],
        communicators: dict[str, Communicator],
        name: str,
        timeout: timedelta,
        store: Any = None,
        desc: str = "undefined",
        backends: dict[str, str] | None = None,
    ) -> None:
        self.ranks = list(ranks)
        self.backends = backends or {key: c.name for key, c in communicators.items()}
        self.communicators = communicators
        self.closed = False
        self.group_name, self.group_desc = name, desc
        self.store = store
        self._first = next(iter(communicators.values()))
        self._numbers = itertools.count(1)
        self._shadow: Communicator | None = None  # for checks, beside the calls that they check
        self._children = itertools.count()
        self.set_timeout(timeout)
        if self.size() > 1 and get_debug_level() is DebugLevel.DETAIL:
            self.shadow()  # all ranks are here: later one may hang, and making it has no timeout
        #: seconds this process has spent in collectives, waiting included
        self.waited = 0.0
        #: where calls under way are kept that a block waits for together
        self.coalescing: list[Work] | None = None

    def set_timeout(self, timeout: timedelta) -> None:
        """How long a collective may take."""
        self.timeout = timeout
        self.seconds = timeout.total_seconds()

    def rank(self) -> int:
        """The rank of this process in the group."""
        return self._first.rank

    def size(self) -> int:
        """How many ranks there are."""
        return self._first.size

    def name(self) -> str:
        """The name of the backend, as it was given; ``"undefined"`` of several."""
        names = set(self.backends.values())
        return names.pop() if len(names) == 1 else "undefined"

    def get_group_store(self) -> Any:
        """The store by which its processes met."""
        return self.store

    def communicator(self, device: str) -> Communicator:
        """The communicator for tensors of the backend key `device`."""
        if self.closed:
            raise RuntimeError(
                f"the process group {self.group_name!r} was destroyed\n"
                "  fix: after init_process_group() make groups, and what holds one (as "
                "DistributedDataParallel does), anew"
            )
        found = self.communicators.get(device)
        if found is None:
            raise RuntimeError(
                f"No backend type associated with device type {device}: the group "
                f"{self.group_name!r} serves {', '.join(self.communicators)}\n"
                f"  fix: init_process_group('cpu:gloo,cuda:nccl'), or move the tensor"
            )
        return found

    def late(self, number: int) -> Sequence[int] | None:
        """The ranks that are late in a call that timed out; None where the engine does not know."""
        found = self._first.late(number)
        return None if found is None else [self.ranks[rank] for rank in found]

    def launch(
        self,
        device: str,
        name: str,
        args: tuple[Any, ...],
        what: object,
        *,
        finish: Sequence[Callable[[], None] | None] = (),
        background: bool = False,
        details: Callable[[], str] | None = None,
    ) -> Work | Request:
        """Begin a collective; waits for it unless it shall go on in the background.

        Args:
            name, args: the method of the communicator and its arguments.
            what: the call as an error shows it; ``str(what)`` is asked for where it does.
            finish: called when it is done.
            details: what all ranks must have in common, for DISTRIBUTED_DEBUG=DETAIL.

        Returns:
            The Work of a call in the background; else the request, which is done.
        """
        communicator = self.communicator(device)
        number = next(self._numbers)
        if details is not None and get_debug_level() is DebugLevel.DETAIL:
            check_agreement(self, f"{what}: {details()}", number)
        request: Request | None = None
        failure: BaseException | None = None
        began = time.monotonic()
        try:
            request = communicator.call(name, args, background, self.seconds)
            if not background:  # nobody sees a Work of it, unless it fails
                request.wait(self.seconds)
                for function in finish:
                    if function is not None:
                        function()
        except (ArithmeticError, LookupError, TypeError):
            raise
        except Exception as error:
            failure = error
        took = time.monotonic() - began
        self.waited += took
        if not background and failure is None and request is not None:
            return request
        if failure is not None or request is None:
            request = _Failed(failure, took)
        work = Work(self, request, what, number, [f for f in finish if f])
        if not background:
            work.wait()
        elif self.coalescing is not None:
            self.coalescing.append(work)
        return work

    def shadow(self) -> Communicator:
        """A communicator of the same ranks for messages beside the program's own."""
        if self._shadow is None:
            everybody = range(self.size())
            self._shadow = self._first.split(everybody, f"{self.group_name} checks")
        return self._shadow

    def child_name(self) -> str:
        """A name for the next group made from this one: the same on all of its ranks."""
        return f"{self.group_name}.{next(self._children)}"

    def close(self) -> None:
        """Leave the group."""
        self.closed = True
        if self._shadow is not None:
            self._shadow.close()
        for communicator in self.communicators.values():
            communicator.close()

    def abort(self) -> None:
        """Leave the group without waiting for what is under way."""
        self.closed = True
        for communicator in self.communicators.values():
            communicator.abort()

    def shutdown(self) -> None:
        """:meth:`close`."""
        self.close()

    def __repr__(self) -> str:
        return (
            f"<coredispatch.distributed.ProcessGroup {self.group_name!r}: rank {self.rank()} of "
            f"{self.size()} over {self._first.name}>"
        )


class _Failed(Request):
    """A call that failed before there was something to wait for."""

    def __init__(self, error: BaseException | None, waited: float) -> None:
        self.error, self.waited = error, waited

    def done(self) -> bool:
        return True

    def wait(self, seconds: float) -> None:
        assert self.error is not None
        raise self.error
