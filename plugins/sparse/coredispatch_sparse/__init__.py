"""Sparse CSR tensors for coredispatch, as the layout ``sparse_csr``.

Loaded through the entry point ``sparse``; ``import coredispatch_sparse`` gives the functions by
name.
"""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import Registrar, hookimpl
from coredispatch_sparse.anywhere import ANYWHERE
from coredispatch_sparse.compiled import COMPILED, WHEN, available
from coredispatch_sparse.creation import sparse_csr_tensor
from coredispatch_sparse.csr import CSR, Pattern
from coredispatch_sparse.cuda_rows import CUDA
from coredispatch_sparse.derivatives import DIFFERENTIATED
from coredispatch_sparse.layout import FROM_STRIDED, LAYOUT
from coredispatch_sparse.ops import (
    OPERATORS,
    is_sparse_csr,
    nnz,
    sampled_matmul,
    sparse_mask,
    spmm,
    to_dense,
    to_sparse_csr,
)

__all__ = [
    "CSR",
    "Pattern",
    "is_sparse_csr",
    "nnz",
    "sampled_matmul",
    "sparse_csr_tensor",
    "sparse_mask",
    "spmm",
    "to_dense",
    "to_sparse_csr",
]


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layout, its operators and kernels, and how autograd treats its product."""
    registrar.op(*OPERATORS)
    registrar.layout(LAYOUT)
    registrar.kernels("sparse_csr", ANYWHERE, boxed=True)
    registrar.kernels("sparse_csr", CUDA, backend="cuda", boxed=True)
    registrar.kernels("cpu", FROM_STRIDED)
    if available():
        registrar.kernels("sparse_csr", COMPILED, backend="cpu", priority=10, when=WHEN)
    # The derivative of a dense product would be dense; that of the sparse product is not.
    registrar.kernels("autograd", DIFFERENTIATED, backend="sparse_csr", boxed=True)


@hookimpl
def coredispatch_conformance() -> Any:
    """What only CSR can be asked; see :mod:`coredispatch_sparse.conformance`."""
    from coredispatch_sparse import conformance

    return conformance


@hookimpl
def coredispatch_info() -> dict[str, Any]:
    """Whether the products run compiled."""
    return {"products": "compiled by Numba" if available() else "NumPy"}
