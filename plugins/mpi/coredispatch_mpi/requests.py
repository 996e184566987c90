"""Requests of mpi4py as those of a communicator."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import LateError, Request
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
    """One of mpi4py's requests, and the arrays that MPI reads and writes until it is done."""

    def __init__(
        self, request: Any, arrays: tuple[Any, ...], MPI: Any, peer: int | None, receives: bool
    ) -> None:
        self._request = request
        self._peer, self._receives = peer, receives
        self._arrays: Any = arrays
        self._bytes = sum(array.nbytes for array in arrays if array is not None)
        self._status = MPI.Status()
        self._failure = MPI.Exception

    def done(self) -> bool:
        if self._arrays is None:
            return True
        if moving:
            advance()
        if not self._test():
            return False
        self.source = self._status.Get_source()
        self._arrays = None
        return True

    def _test(self) -> bool:
        try:
            return bool(self._request.Test(self._status))
        except self._failure as error:
            raise RuntimeError(
                f"{error}\n  the ranks may call with tensors of different sizes\n"
                "  fix: use the same shape and dtype on all ranks, and see DISTRIBUTED_DEBUG=DETAIL"
            ) from None

    def wait(self, seconds: float) -> None:
        if not wait_until(self.done, seconds, self._bytes):
            self._give_up()

    def _give_up(self) -> None:
        """A message that has not come is called off; a collective cannot be."""
        if self._receives:
            self._request.Cancel()
            self._request.Wait(self._status)
            if not self._status.Is_cancelled():  # it came after all
                self.source, self._arrays = self._status.Get_source(), None
                return
        raise LateError(() if self._peer is None else (self._peer,))
