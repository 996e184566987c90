"""Settings of CUDA's libraries: products in TF32, and what scripts switch for attention."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.registry.around.matmul_precision import (
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)

__all__ = [
    "SDPAParams",
    "allow_fp16_bf16_reduction_math_sdp",
    "blas_workspace_size",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cublas_workspace_size",
    "cublaslt_workspace_size",
    "cudnn_sdp_enabled",
    "cufft_plan_cache",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_ck_sdpa_available",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "preferred_linalg_library",
    "preferred_rocm_fa_library",
    "sdp_kernel",
]


def is_built() -> bool:
    """Whether a plugin brings the backend ``cuda``, with a device or without."""
    from coredispatch.frontend.cuda.devices import backend_or_none

    return backend_or_none() is not None


class _Matmul:
    """Settings of products of matrices.

    ``allow_tf32`` and ``fp32_precision = "tf32"`` are ``set_float32_matmul_precision("high")`` and
    act; half precision is summed in float32 always, so that what allows fewer bits for it is kept
    and changes nothing.
    """

    _kept = {
        "allow_fp16_reduced_precision_reduction": True,
        "allow_bf16_reduced_precision_reduction": True,
        "allow_fp16_accumulation": False,
    }
    _named = {"none": "highest", "ieee": "highest", "tf32": "high"}
    _chosen = "none"

    def __getattr__(self, name: str) -> Any:
        if name == "allow_tf32":
            return get_float32_matmul_precision() != "highest"
        if name == "fp32_precision":
            reduced = get_float32_matmul_precision() != "highest"
            return "tf32" if reduced else "none" if self._chosen == "tf32" else self._chosen
        if name in self._kept:
            return self._kept[name]
        raise AttributeError(f"Unknown attribute {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "allow_tf32":
            if not isinstance(value, bool):
                raise RuntimeError(
                    f"set_allow_tf32_cublas expects a bool, but got {type(value).__name__}"
                )
            set_float32_matmul_precision("high" if value else "highest")
        elif name == "fp32_precision":
            if value not in self._named:
                raise RuntimeError(f"backend 'cuda' does not support precision {value!r}")
            _Matmul._chosen = value
            set_float32_matmul_precision(self._named[value])
        elif name in self._kept:
            self._kept[name] = value
        else:
            raise AttributeError(f"Unknown attribute {name}")


matmul = _Matmul()


class _PlanCache:
    """cuFFT's plans are cached by CuPy: this cache is empty, and its size is not set here."""

    size = 0
    max_size = 0

    def clear(self) -> None:
        """Nothing to do."""

    def __getitem__(self, device: Any) -> _PlanCache:
        return self


cufft_plan_cache = _PlanCache()


# ---- scaled dot product attention ----------------------------------------------------------------
# There is one implementation, by matrix products and a softmax: PyTorch's "math". The switches of
# the others are kept; where all are off, attention still is computed that way.

_sdp = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
_reduction_allowed = False


def flash_sdp_enabled() -> bool:
    """The switch; there is no flash attention, see :func:`is_flash_attention_available`."""
    return _sdp["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """The switch, which changes nothing."""
    return _sdp["mem_efficient"]


def math_sdp_enabled() -> bool:
    """The switch, which changes nothing: attention is computed this way."""
    return _sdp["math"]


def cudnn_sdp_enabled() -> bool:
    """Whether attention may be cuDNN's, where the backend ``cuda`` has it."""
    return _sdp["cudnn"]


def enable_flash_sdp(enabled: bool) -> None:
    """Set the switch of :func:`flash_sdp_enabled`."""
    _sdp["flash"] = bool(enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Set the switch of :func:`mem_efficient_sdp_enabled`."""
    _sdp["mem_efficient"] = bool(enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Set the switch of :func:`math_sdp_enabled`."""
    _sdp["math"] = bool(enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Set the switch of :func:`cudnn_sdp_enabled`."""
    _sdp["cudnn"] = bool(enabled)


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Set the switch of :func:`fp16_bf16_reduction_math_sdp_allowed`."""
    global _reduction_allowed
    _reduction_allowed = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """The switch, which changes nothing: half precision is summed in float32."""
    return _reduction_allowed


def is_flash_attention_available() -> bool:
    """False."""
    return False


def is_ck_sdpa_available() -> bool:
    """False."""
    return False


class SDPAParams:
    """The arguments of an attention call, for the questions below."""

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool,
    ) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: there is no such kernel."""
    return False


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: there is no such kernel."""
    return False


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: there is no such kernel."""
    return False


def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """A block with these switches; older than ``nn.attention.sdpa_kernel``."""
    warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager "
        "will be removed. Please see `torch.nn.attention.sdpa_kernel()` for the new context "
        "manager, with updated signature.",
        FutureWarning,
    )
    return _switched(enable_flash, enable_math, enable_mem_efficient, enable_cudnn)


@contextlib.contextmanager
def _switched(
    flash: bool, math: bool, mem_efficient: bool, cudnn: bool
) -> Iterator[dict[str, Any]]:
    before = dict(_sdp)
    _sdp.update(flash=flash, math=math, mem_efficient=mem_efficient, cudnn=cudnn)
    try:
        yield {}
    finally:
        _sdp.update(before)


# ---- libraries -----------------------------------------------------------------------------------

_preferred = {"linalg": "default", "blas": "default", "rocm_fa": "default"}


def _prefer(kind: str, backend: str | None, known: tuple[str, ...]) -> str:
    if backend is not None:
        if backend not in known:
            raise RuntimeError(
                f"Unknown input value. Choose from: {', '.join(known)}, got {backend!r}"
            )
        _preferred[kind] = backend
    return _preferred[kind]


def preferred_linalg_library(backend: str | None = None) -> str:
    """Keeps and gives a name, which changes nothing: CuPy uses cuSOLVER and cuBLAS."""
    return _prefer("linalg", backend, ("default", "cusolver", "magma"))


_BLAS = ("default", "cublas", "cublaslt", "hipblaslt", "ck")


def preferred_blas_library(backend: str | None = None) -> str:
    """Keeps and gives a name, which changes nothing: CuPy uses cuBLAS."""
    return _prefer("blas", backend, _BLAS)


def preferred_rocm_fa_library(backend: str | None = None) -> str:
    """Keeps and gives a name, which changes nothing: there is no ROCm."""
    return _prefer("rocm_fa", backend, ("default", "aotriton", "ck"))


def _workspace(name: str, size: int | None) -> int:
    if size is not None:
        raise NotImplementedError(
            f"backends.cuda.{name}(size): cuBLAS has its own workspace, and one of cuBLASLt is "
            "taken from the memory pool for each call"
        )
    return 0


def cublas_workspace_size(size: int | None = None) -> int:
    """0: no workspace is set aside for cuBLAS. A ``size`` to set is refused."""
    return _workspace("cublas_workspace_size", size)


def cublaslt_workspace_size(size: int | None = None) -> int:
    """0: no workspace is set aside for cuBLASLt. A ``size`` to set is refused."""
    return _workspace("cublaslt_workspace_size", size)


def blas_workspace_size(size: int | None = None, backend: str | None = None) -> int:
    """:func:`cublas_workspace_size`, or that of cuBLASLt where ``backend`` names it."""
    found = preferred_blas_library() if backend is None else backend
    if found not in _BLAS:
        raise RuntimeError(f"Unknown backend string. Choose from: {', '.join(_BLAS)}.")
    if found == "ck":
        raise RuntimeError("CK backend does not use a workspace.")
    return (cublaslt_workspace_size if found == "cublaslt" else cublas_workspace_size)(size)
