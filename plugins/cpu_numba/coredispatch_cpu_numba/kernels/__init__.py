"""The kernels as coredispatch sees them, in the argument order of the op's schema.

They lie in the families of ``coredispatch.ops``. Five modules serve operators of many families:
``small`` and ``small_pointwise`` calls of few elements, ``half_pointwise`` those of half precision,
``halves`` bfloat16 and float16 arrays through kernels of float32, ``strided`` arrays in another
order.

Each module has ``KERNELS``, from op name to kernel, and as it needs them ``LEAST``, from op name
to the number of elements from which the kernel takes over, and ``WHEN``, from op name to the
predicate that says which of those calls it takes, or ``ACCEPTS``, to the same of a kernel that
finds out by itself. None of them imports Numba.

The least sizes in the predicates were measured on two cores of a Zen 4 (AVX-512) against NumPy
2.4, whose wheels have vector loops of their own for many functions there: a kernel takes over
where it is faster by more than its predicate costs.
"""

from __future__ import annotations

from coredispatch_cpu_numba.kernels import (
    averages,
    half_arithmetic,
    half_pointwise,
    halves,
    lists,
    pooling,
    small,
    small_parametrized,
    small_pointwise,
    strided,
)
from coredispatch_cpu_numba.kernels.activation import softmax
from coredispatch_cpu_numba.kernels.conv import bfloat16, dense, depthwise, general, tuned
from coredispatch_cpu_numba.kernels.elementwise import (
    gates,
    incomplete_gamma,
    pairs,
    parametrized,
    pointwise,
    special,
)
from coredispatch_cpu_numba.kernels.elementwise import strided as strided_pointwise
from coredispatch_cpu_numba.kernels.indexing import gather_scatter, writes
from coredispatch_cpu_numba.kernels.linalg import (
    distances,
    library_products,
    products,
    products_bfloat16,
)
from coredispatch_cpu_numba.kernels.loss import classification, ctc, regression
from coredispatch_cpu_numba.kernels.nn import (
    attention,
    bags,
    columns,
    grids,
    optim_steps,
    quantizing,
    recurrent,
    recurrent_bfloat16,
    recurrent_one_state,
    requantized,
    resampling,
)
from coredispatch_cpu_numba.kernels.norm import batch_norm, layer_norms
from coredispatch_cpu_numba.kernels.reduction import norms, scans, searching, sorting, sums
from coredispatch_cpu_numba.kernels.shape import copies, padding

__all__ = ["MODULES"]

MODULES = (
    pointwise,
    parametrized,
    gates,
    sums,
    norms,
    softmax,
    layer_norms,
    batch_norm,
    pooling,
    averages,
    classification,
    regression,
    optim_steps,
    lists,
    general,
    depthwise,
    dense,
    tuned,
    bfloat16,
    grids,
    resampling,
    ctc,
    incomplete_gamma,
    special,
    pairs,
    scans,
    sorting,
    searching,
    gather_scatter,
    writes,
    bags,
    columns,
    copies,
    padding,
    recurrent,
    recurrent_one_state,
    distances,
    products,
    library_products,
    products_bfloat16,
    requantized,
    quantizing,
    recurrent_bfloat16,
    attention,
    half_pointwise,
    small,
    strided_pointwise,
    small_parametrized,
    small_pointwise,
    half_arithmetic,
    halves,
    strided,
)
