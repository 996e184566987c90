"""How objects and exceptions travel between a DataLoader and its worker processes.

Objects are pickled with protocol 5: array buffers follow the pickle as they are instead of being
copied into it, and arrive in memory that the arrays then own.
"""

from __future__ import annotations

import io
import pickle
import struct
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import numpy as np

from coredispatch.frontend.serialization import reduce_tensor
from coredispatch.frontend.tensor import Tensor

__all__ = ["Failure", "RemoteTraceback", "pack", "receive", "send"]

Packed = list[Any]  # header, pickle, buffers: each a bytes-like object


class _Pickler(ForkingPickler):
    """Also knows locks, queues and connections, and sends of a slice its own elements only."""

    def reducer_override(self, obj: Any) -> Any:
        return reduce_tensor(obj, share=False) if isinstance(obj, Tensor) else NotImplemented


def pack(message: Any, copy: bool = False) -> Packed:
    """Pickle `message` into the parts that :func:`send` writes. Raises what pickling raises.

    The parts share memory with the arrays in the message; with `copy` they do not, for arrays
    that may be written to before the parts are sent.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    _Pickler(body, 5, True, buffers.append).dump(message)
    views = [memoryview(bytes(b.raw())) if copy else b.raw() for b in buffers]
    header = struct.pack(f"<{len(views)}q", *(view.nbytes for view in views))
    return [header, body.getvalue(), *views]


def send(connection: Connection, parts: Packed) -> None:
    """Write what :func:`pack` made. Blocks while the pipe is full."""
    for part in parts:
        connection.send_bytes(part)


def receive(connection: Connection) -> Any:
    """The next object sent to this end. Raises EOFError when the other end is closed."""
    header = connection.recv_bytes()
    body = connection.recv_bytes()
    buffers = []
    for size in struct.unpack(f"<{len(header) // 8}q", header):
        buffer = np.empty(size, np.uint8)  # writable, as the arrays over it must be
        connection.recv_bytes_into(buffer)
        buffers.append(buffer)
    return pickle.loads(body, buffers=buffers)


class RemoteTraceback(Exception):
    """The text of a worker's traceback, as the cause of the exception raised for it."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class Failure:
    """An exception on its way from a worker to the main process."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.where = where
        self.text = "".join(traceback.format_exception(error))
        self.summary = "".join(traceback.format_exception_only(error)).strip()
        self.error: BaseException | None = error.with_traceback(None)
        try:
            # Some exceptions pickle but do not unpickle (required constructor arguments).
            pickle.loads(pickle.dumps(error))
        except Exception:
            self.error = None

    def reraise(self) -> NoReturn:
        """Raise the same exception here, with the worker's traceback as its cause.

        An exception that cannot be pickled becomes a RuntimeError that quotes it.
        """
        error = self.error or RuntimeError(self.summary)
        error.add_note(f"(raised in {self.where}; its traceback is above)")
        raise error from RemoteTraceback(self.text)
