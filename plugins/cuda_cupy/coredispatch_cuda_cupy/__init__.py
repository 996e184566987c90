"""The key ``cuda``: dense arrays on NVIDIA GPUs, computed by CuPy.

Installing ``coredispatch-cuda-cupy[cuda13x]`` (or ``[cuda12x]``) is all there is to do; then
``tensor.to("cuda")`` works. Without CuPy or without a GPU the plugin still loads, has no device,
and says why: ``no CUDA device: CuPy is not installed``.

Work is put on CuPy's current stream; ``cd.cuda.stream`` makes another one current.
"""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import Registrar, hookimpl
from coredispatch_cuda_cupy import cuda
from coredispatch_cuda_cupy.backend import CudaBackend
from coredispatch_cuda_cupy.detection import Detection, detect

__all__ = ["CudaBackend", "Detection", "detect"]

#: the name of the compiler
COMPILER = "cuda"

_found: Detection | None = None
#: what was registered
_backend: CudaBackend | None = None


def _detection() -> Detection:
    global _found
    if _found is None:
        _found = detect()
    return _found


@hookimpl
def coredispatch_api_version() -> tuple[int, int]:
    """The version of the plugin API this was written for."""
    return (1, 0)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the backend ``cuda``, with devices or without; kernels, process groups over NCCL."""
    global _backend
    _backend = CudaBackend(_detection())
    registrar.backend(_backend)
    if _detection().reason is None:
        cupy = _detection().cupy
        registrar.kernels("cuda", cuda.kernels(cupy), priority=cuda.PRIORITY)
        libraries = cuda.library_kernels(cupy)
        if libraries:
            registrar.kernels("cuda", libraries, priority=cuda.LIBRARY_PRIORITY)
        registrar.communicator("nccl", _nccl, "cuda")


@hookimpl
def coredispatch_compile(graph: Any, inputs: Any, settings: Any = None) -> Any:
    """The graph with fused kernels; None without a device, or where nothing is fused.

    Where ``settings`` ask for CUDA graphs it is captured into one after a few calls.
    """
    if _detection().reason is not None or _backend is None:
        return None
    from coredispatch_cuda_cupy.compiler import compile_graph

    return compile_graph(graph, inputs, _backend, settings)


def _nccl(info: Any) -> Any:
    from coredispatch_cuda_cupy.nccl import create

    return create(info)


@hookimpl
def coredispatch_info() -> dict[str, Any]:
    """CuPy's version and the devices, or why there is none."""
    found = _detection()
    if found.reason is not None:
        return {"devices": f"no CUDA device: {found.reason}", "fix": found.fix}
    backend = CudaBackend(found)
    names = [backend.device_name(i) for i in range(backend.device_count())]
    return {"cupy": found.cupy.__version__, "devices": names}
