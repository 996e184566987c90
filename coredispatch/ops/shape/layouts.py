"""What a tensor says of its layout. A layout answers with a kernel of its own."""

from __future__ import annotations

from coredispatch.ops.support.annotations import Tensor
from coredispatch.registry import composite


@composite(property=True)
def is_sparse(self: Tensor) -> bool:
    """Whether the layout stores some of the elements only, as ``sparse_csr`` does."""
    return False


@composite(property=True)
def is_quantized(self: Tensor) -> bool:
    """Whether the elements are integers that stand for real numbers, as those of ``quantized``."""
    return False
