"""``cd.save``: an object's structure becomes JSON, its tensors become records and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coredispatch.frontend.serialization import safetensors_files
from coredispatch.frontend.serialization.atomic import Target, open_for_writing
from coredispatch.frontend.serialization.container import write_archive
from coredispatch.frontend.serialization.encoding import Encoder
from coredispatch.frontend.serialization.tensor_writer import TensorWriter
from coredispatch.frontend.serialization.torch_writer import write_torch

__all__ = ["save"]

_FORMATS = ("coredispatch", "torch", "safetensors")


def save(
    obj: Any,
    f: Target,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    format: str = "coredispatch",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write an object with tensors to a file.

    Args:
        obj: tensors, numbers, strings and containers of them, such as a ``state_dict``; anything
            else that pickles is written too, but only ``load(weights_only=False)`` reads it.
        f: a path, or a binary file opened for writing. A path is replaced in one step, when
            everything is written, and keeps its permissions.
        pickle_module: only Python's own ``pickle``.
        pickle_protocol: of ``format="torch"``; no other format has a pickle.
        _use_new_zipfile_serialization: False writes the form of PyTorch before 1.6, so that
            ``format`` is ``"torch"``.
        format: ``"torch"`` writes what ``torch.load(weights_only=True)`` reads, ``"safetensors"`` a
            dict from names to tensors for any library. :func:`load` reads all of them.
        metadata: texts for the header of a safetensors file.

    Tensors keep dtype, shape, strides, device, layout, requires_grad and their attributes; those
    that share memory on the CPU are written once and share it again when loaded. The memory of a
    slice that shares with nothing else in the file is written without the rest of the array. A
    safetensors file has dtype, shape and elements only.

    Raises:
        SerializationError: a tensor of a layout whose plugin cannot save it, or that the format
            does not have.
        UnsavableObjectError: a local function, a lock, or another object that no file can say.
        OSError: the file cannot be written; the one that was there is as it was.

    Example::

        cd.save({"model": model.state_dict(), "epoch": 3}, "checkpoint.cd")
        cd.save(model.state_dict(), "model.pt", format="torch")
    """
    if not _use_new_zipfile_serialization and format == "coredispatch":
        format = "torch"
    if format not in _FORMATS:
        raise ValueError(f"save: format is {format!r}; give one of {', '.join(_FORMATS)}")
    if metadata is not None and format != "safetensors":
        raise ValueError("save: only a safetensors file has metadata")
    if pickle_module is not None and getattr(pickle_module, "__name__", "") != "pickle":
        raise NotImplementedError(f"save(pickle_module={pickle_module!r}): only Python's pickle")
    if format == "coredispatch":
        tensors = TensorWriter()
        structure = Encoder(tensors).encode(obj)
        records, blocks = tensors.finish()
    with open_for_writing(f) as file:
        if format == "torch":
            write_torch(file, obj, pickle_protocol, not _use_new_zipfile_serialization)
        elif format == "safetensors":
            safetensors_files.write(file, obj, metadata)
        else:
            write_archive(file, structure, records, blocks)
