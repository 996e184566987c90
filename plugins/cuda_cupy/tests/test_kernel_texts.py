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


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("family", "dtype"),
    [(family, dtype) for family, kinds in cuda.TEXTS.items() for dtype in kinds],
)
def test_nvrtc_compiles_the_texts(family: str, dtype: str, arch: str) -> None:
    assert compile_for(code_of(family, dtype), arch) > 1000
