"""What autograd records in place of a core operator whose own derivative would be dense.

These are rows of (autograd, sparse_csr): they see tensors while recording is still in force, and
call operators of this plugin, which are recorded with sparse derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch_sparse.ops import csr_matmul, csr_transpose, is_sparse_csr

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

__all__ = ["DIFFERENTIATED"]


def matmul(call: Any, self: Tensor, other: Tensor) -> Tensor:
    """sparse @ strided as it is, strided @ sparse as the transpose of the former."""
    if is_sparse_csr(self) and not is_sparse_csr(other) and other.ndim <= 2:
        return csr_matmul(self, other)
    if is_sparse_csr(other) and not is_sparse_csr(self) and self.ndim <= 2:
        turned = csr_transpose(other)
        return csr_matmul(turned, self) if self.ndim == 1 else csr_matmul(turned, self.mT).mT
    return call.redispatch(self, other)


DIFFERENTIATED: dict[str, Callable[..., Tensor]] = {"matmul": matmul}
