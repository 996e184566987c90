"""Tensors over the memory of a file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.frontend.creation import from_numpy, requiring
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.dtypes import DType, default_dtype
from coredispatch.registry.model.errors import OpError

__all__ = ["from_file"]


def from_file(
    filename: Any,
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """The first ``size`` elements of a file as a vector on the CPU, read when they are used.

    With ``shared`` what is written to the tensor is written to the file, which is made or made
    longer where it is too short. ``dtype`` is the default dtype without one. Raises
    ``RuntimeError`` for a file that cannot be opened or is too short.

    Example:
        >>> cd.from_file("weights.bin", size=100, dtype=cd.float32)  # doctest: +SKIP
    """
    kind = numpy_dtype(default_dtype() if dtype is None else DType.of(dtype))
    needed = size * kind.itemsize
    if shared:
        _lengthen(filename, needed)
    elif not os.path.exists(filename):
        raise OpError(
            f"unable to open file <{filename}> in read-only mode: No such file or directory (2)"
        )
    elif os.path.getsize(filename) < needed:
        raise OpError(
            f"file <{filename}> size <{os.path.getsize(filename)}> is smaller than the required "
            f"mapping size <{needed}>",
            fix="give a smaller size=, or shared=True, which makes the file longer",
        )
    if not size:
        return requiring(from_numpy(np.zeros(0, kind)), requires_grad)
    mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(needed,))
    return requiring(from_numpy(mapped.view(np.ndarray).view(kind)), requires_grad)


def _lengthen(filename: Any, needed: int) -> None:
    try:
        with open(filename, "ab") as file:
            if os.path.getsize(filename) < needed:
                file.truncate(needed)
    except OSError as error:
        raise OpError(
            f"unable to open file <{filename}> in read-write mode: {error.strerror} ({error.errno})"
        ) from error
