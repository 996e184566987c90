"""How a sparse tensor is printed: PyTorch's form, the parts as tensors."""

from __future__ import annotations

import numpy as np

from coredispatch.plugin import from_raw
from coredispatch_sparse.csr import CSR

__all__ = ["describe"]

_INDENT = " " * len("tensor(")


def describe(raw: CSR) -> str:
    """The text between ``tensor(`` and the layout's name."""
    parts = ", \n".join(
        f"{name}={part(array, len(name) + 1)}"
        for name, array in (
            ("crow_indices", raw.crow_indices),
            ("col_indices", raw.col_indices),
            ("values", raw.values),
        )
    )
    parts = parts.replace(", \n", ",\n" + _INDENT)
    return f"{parts}, size={raw.shape}, nnz={raw.nnz}"


def part(array: np.ndarray, before: int) -> str:
    """One part as a tensor; lines after the first start below its own opening bracket."""
    text = repr(from_raw(array, backend="cpu"))
    return text.replace("\n", "\n" + _INDENT + " " * before)
