"""``cd.backends``: which libraries are used, and settings that scripts write.

Questions are answered truly. A setting acts (``cuda.matmul.allow_tf32``), is kept without effect
because there is nothing that it could change (``cudnn.benchmark``), or is refused by name
(``opt_einsum.enabled``); the module of each says which.
"""

from __future__ import annotations

from coredispatch.frontend.backends import (
    cpu,
    cuda,
    cudnn,
    cusparselt,
    kleidiai,
    mha,
    miopen,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
    quantized,
    xnnpack,
)

__all__ = [
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "kleidiai",
    "mha",
    "miopen",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "quantized",
    "xnnpack",
]
