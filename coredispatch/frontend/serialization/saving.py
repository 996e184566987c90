"""``cd.save``: an object's structure becomes JSON, its tensors become records and blocks."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.serialization.atomic import Target, open_for_writing
from coredispatch.frontend.serialization.container import write_archive
from coredispatch.frontend.serialization.encoding import Encoder
from coredispatch.frontend.serialization.tensor_writer import TensorWriter

__all__ = ["save"]


def save(obj: Any, f: Target) -> None:
    """Write an object with tensors to a file.

    Args:
        obj: tensors, numbers, strings and containers of them, such as a ``state_dict``; anything
            else that pickles is written too, but only ``load(weights_only=False)`` reads it.
        f: a path, or a binary file opened for writing. A path is replaced in one step, when
            everything is written, and keeps its permissions.

    Tensors keep dtype, shape, strides, device, layout, requires_grad and their attributes; those
    that share memory on the CPU are written once and share it again when loaded. The memory of a
    slice that shares with nothing else in the file is written without the rest of the array.

    Raises:
        SerializationError: a tensor of a layout whose plugin cannot save it.
        UnsavableObjectError: a local function, a lock, or another object that no file can say.
        OSError: the file cannot be written; the one that was there is as it was.

    Example::

        cd.save({"model": model.state_dict(), "epoch": 3}, "checkpoint.cd")
    """
    tensors = TensorWriter()
    structure = Encoder(tensors).encode(obj)
    records, blocks = tensors.finish()
    with open_for_writing(f) as file:
        write_archive(file, structure, records, blocks)
