"""The kernels as coredispatch sees them, in the argument order of the op's schema.

Each module has ``KERNELS``, from op name to kernel, and as it needs them ``LEAST``, from op name
to the number of elements from which the kernel takes over, and ``WHEN``, from op name to the
predicate that says which of those calls it takes. None of them imports Numba.

The least sizes in the predicates were measured on two cores of a Zen 4 (AVX-512) against NumPy
2.4, whose wheels have vector loops of their own for many functions there: a kernel takes over
where it is faster by more than its predicate costs.
"""

from __future__ import annotations

from coredispatch_cpu_numba.kernels import (
    batch_norm,
    conv,
    conv_bfloat16,
    ctc,
    elementwise,
    grids,
    halves,
    incomplete_gamma,
    indexing,
    loss,
    norm,
    optim_steps,
    pooling,
    products,
    products_bfloat16,
    products_int8,
    recurrent,
    recurrent_bfloat16,
    reduction,
    scan,
    small,
    softmax,
)

__all__ = ["MODULES"]

MODULES = (
    elementwise,
    reduction,
    softmax,
    norm,
    batch_norm,
    pooling,
    loss,
    optim_steps,
    conv,
    conv_bfloat16,
    grids,
    ctc,
    incomplete_gamma,
    scan,
    indexing,
    recurrent,
    products,
    products_bfloat16,
    products_int8,
    recurrent_bfloat16,
    small,
    halves,
)
