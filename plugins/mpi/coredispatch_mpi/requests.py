"""Requests of mpi4py as those of a communicator."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import LateError, Request
from coredispatch_mpi.calls import Check
from coredispatch_mpi.waiting import advance, moving, wait_until

__all__ = ["MPIRequest", "Several"]


class Several:
    """Requests of mpi4py that are one call of ours."""

    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests

    def Test(self, status: Any) -> bool:
        """Whether all have ended; each is asked, so that each makes progress."""
        return bool(type(self._requests[0]).Testall(self._requests))


class MPIRequest(Request):
    """One of mpi4py's requests, and the arrays that MPI reads and writes until it is done.

    Args:
        peer: the rank that a message comes from or goes to.
        receives: whether it is a message that comes.
        check: raises ValueError where the other ranks call with what does not fit.
    """

    def __init__(
        self,
        request: Any,
        arrays: tuple[Any, ...],
        MPI: Any,
        peer: int | None = None,
        receives: bool = False,
        check: Check | None = None,
    ) -> None:
        self._request = request
        self._peer, self._receives, self._check = peer, receives, check
        self._error: Exception | None = None
        self._arrays: Any = arrays
        self._status = None if peer is None and not receives else MPI.Status()  # of messages
        self._failure = MPI.Exception

    def done(self) -> bool:
        if self._arrays is None:
            return True
        if moving:
            advance()
        try:
            if not self._request.Test(self._status):
                return False
            self._compare()
        except (self._failure, ValueError) as error:
            self._error = self._explained(error)
        if self._status is not None:
            self.source = self._status.Get_source()
        self._arrays = None
        return True

    def _nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays if array is not None)

    def _compare(self) -> None:
        """Raise ValueError where this rank's arguments and those of the others do not fit."""
        if self._check is not None:
            self._check()
        if self._status is not None and self._receives:
            came, room = self._status.Get_count(), self._nbytes()
            if came != room:
                raise ValueError(
                    f"a message of {came} bytes came for {room} bytes\n"
                    "  fix: send and receive tensors of the same shape and dtype"
                )

    def _explained(self, error: Exception) -> Exception:
        """MPI's error in words: its own say nothing of the ranks' arguments."""
        if isinstance(error, ValueError):
            return error
        try:
            if self._check is not None:
                self._check()
        except ValueError as found:
            return found
        return RuntimeError(
            f"{error}\n  the ranks may call with tensors of different sizes\n"
            "  fix: use the same shape and dtype on all ranks, and see DISTRIBUTED_DEBUG=DETAIL"
        )

    def wait(self, seconds: float) -> None:
        if not self.done() and not wait_until(self.done, seconds, self._nbytes()):
            self._give_up()
        if self._error is not None:
            raise self._error

    def _give_up(self) -> None:
        """A message that has not come is called off; a collective cannot be."""
        if self._status is not None and self._receives:
            self._request.Cancel()
            self._request.Wait(self._status)
            if not self._status.Is_cancelled():  # it came after all
                self.source, self._arrays = self._status.Get_source(), None
                return
        elif self._check is not None:
            self._check()
        raise LateError(() if self._peer is None else (self._peer,))
