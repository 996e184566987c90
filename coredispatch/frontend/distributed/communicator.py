"""What an engine must supply: collectives over contiguous arrays, each with a handle to wait on.

A plugin derives from :class:`Communicator` and registers it with ``registrar.communicator(name,
create)``. It sees flat or shaped C-contiguous arrays of the plain dtypes only: integers, float32,
float64, complex64 and complex128. What else there is (bool, float16, bfloat16, averages, arrays
with strides) is taken care of above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

__all__ = ["Communicator", "Done", "GroupInfo", "LateError", "Request"]


class LateError(Exception):
    """A call has not ended in time; ``ranks`` of the group are late, as far as that is known."""

    def __init__(self, ranks: Sequence[int] = ()) -> None:
        super().__init__(f"late: {list(ranks)}")
        self.ranks = tuple(ranks)


class Request:
    """A call under way."""

    #: the rank that a message came from, once that is known
    source: int = -1
    #: seconds that went by before it could be waited for: an engine may carry out a call at once
    waited: float = 0.0
    #: whether :meth:`wait` lets a stream wait, and the program go on
    queued: bool = False

    def done(self) -> bool:
        """Whether it has ended; makes progress where the engine needs to be asked."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Return when it has ended. Raises LateError after `seconds`, or what went wrong.

        Where the work is a device's it may let the current stream wait instead (`queued`).
        """
        raise NotImplementedError

    def follow(self) -> None:
        """Let the current stream wait once more, which may be another one by now."""

    def settled(self) -> None:
        """More was put on the current stream behind it, which belongs to the call."""

    def end(self, seconds: float) -> None:
        """After :meth:`wait`: return when a device has done it, too. Raises as :meth:`wait`."""


class Done(Request):
    """A call that ended before it returned."""

    def done(self) -> bool:
        return True

    def wait(self, seconds: float) -> None:
        return None


@dataclass(frozen=True)
class GroupInfo:
    """What a communicator of the default group is made from.

    Attributes:
        rank, size: of this process; -1 where only the engine knows.
        store: where the processes find each other; None where only the engine knows.
        timeout: seconds for meeting.
        name: of the group.
        options: what the user passed as ``pg_options``.
    """

    rank: int
    size: int
    store: Any = None
    timeout: float = 1800.0
    name: str = ""
    options: Any = field(default=None)


class Communicator:
    """The processes of one group, and what they can do together.

    The methods begin a collective and return a :class:`Request`. Arrays are NumPy's (or those of
    the device that the communicator serves), C-contiguous; they must stay alive and unwritten until
    the request is done. ``counts`` are numbers of elements, one per rank.

    Attributes:
        name: as the user writes it, such as ``"mpi"``.
        device: the backend key of the tensors it serves.
        operations: their names, and the NumPy function that combines two arrays.
        rank, size: of this process in the group.
    """

    name: ClassVar[str] = ""
    device: ClassVar[str] = "cpu"
    operations: ClassVar[dict[str, Callable[..., Any]]] = {
        "sum": np.add,
        "product": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "band": np.bitwise_and,
        "bor": np.bitwise_or,
        "bxor": np.bitwise_xor,
    }
    rank: int
    size: int

    def call(self, name: str, args: tuple[Any, ...], background: bool, seconds: float) -> Request:
        """Begin the collective `name`; with `background` the caller goes on with other work."""
        request: Request = getattr(self, name)(*args)
        return request

    def all_reduce(self, array: Any, op: str) -> Request:
        """Combine ``array`` of all ranks, in place."""
        raise NotImplementedError(f"{self.name} has no all_reduce")

    def broadcast(self, array: Any, root: int) -> Request:
        """Copy ``array`` of `root` to all, in place."""
        raise NotImplementedError(f"{self.name} has no broadcast")

    def reduce(self, array: Any, root: int, op: str) -> Request:
        """Combine into ``array`` of `root`; that of the others is unspecified after it."""
        raise NotImplementedError(f"{self.name} has no reduce")

    def all_gather(self, out: Any, array: Any, counts: Sequence[int]) -> Request:
        """``out`` becomes the arrays of all ranks, in order, flat."""
        raise NotImplementedError(f"{self.name} has no all_gather")

    def reduce_scatter(self, out: Any, array: Any, counts: Sequence[int], op: str) -> Request:
        """Combine flat ``array`` of all ranks; each keeps its part in ``out``."""
        raise NotImplementedError(f"{self.name} has no reduce_scatter")

    def gather(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        """As :meth:`all_gather`, at `root` only; ``out`` is None elsewhere."""
        raise NotImplementedError(f"{self.name} has no gather")

    def scatter(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        """Each rank gets its part of `root`'s flat ``array``, which is None elsewhere."""
        raise NotImplementedError(f"{self.name} has no scatter")

    def all_to_all(
        self, out: Any, array: Any, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> Request:
        """Send the parts of flat ``array`` to the ranks; ``out`` is what came, in their order."""
        raise NotImplementedError(f"{self.name} has no all_to_all")

    def barrier(self) -> Request:
        """Done when all ranks have called it."""
        raise NotImplementedError(f"{self.name} has no barrier")

    def send(self, array: Any, dst: int, tag: int) -> Request:
        """Send to one rank."""
        raise NotImplementedError(f"{self.name} has no send")

    def recv(self, array: Any, src: int | None, tag: int) -> Request:
        """Receive from one rank, from any where `src` is None; ``request.source`` says which."""
        raise NotImplementedError(f"{self.name} has no recv")

    def split(self, ranks: Sequence[int], name: str) -> Communicator:
        """The communicator of some of the ranks, in that order; only they call it.

        `name` is the same on all of them, and no other group's.
        """
        raise NotImplementedError(f"{self.name} has no split")

    def library(self) -> Any:
        """What computes with the arrays that it takes, under NumPy's names; None for NumPy."""
        return None

    def late(self, number: int) -> Sequence[int] | None:
        """After a timeout in call `number`: the ranks that are not there; None if unknown."""
        return None

    def close(self) -> None:
        """Free what the communicator holds."""

    def abort(self) -> None:
        """Give up what is under way; the communicator is of no use afterwards."""
        self.close()
