"""NVRTC compiles the texts of all families for the architectures that they are meant for."""

from __future__ import annotations

import pytest
from host_kernels import compile_for, nvrtc

from coredispatch_cuda_cupy import cuda
from coredispatch_cuda_cupy.cuda.loading import code_of

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed: nvidia-cuda-nvrtc-cu12"),
]


@pytest.mark.parametrize("family", cuda.TEXTS)
def test_nvrtc_compiles_the_texts(family: str) -> None:
    """Each text for one architecture and each family for both; all for both would take minutes."""
    for k, dtype in enumerate(cuda.TEXTS[family]):
        arch = ("sm_90", "sm_80")[k // 2 % 2 if len(cuda.TEXTS[family]) > 2 else k]
        assert compile_for(code_of(family, dtype), arch) > 1000
