"""A kernel pack for coredispatch's ``cpu`` backend: loops compiled by Numba, chosen by size.

Small arrays, dtypes other than float32 and float64, and arrays that are not C-contiguous stay
with the embedded NumPy kernels. Registering the pack imports neither Numba nor LLVM; the first
kernel that runs does, and compiles (or loads from the disk cache) just itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from coredispatch.plugin import hookimpl

from .thread_count import get_num_threads, set_num_threads

__all__ = [
    "coredispatch_compile",
    "coredispatch_info",
    "coredispatch_register",
    "coredispatch_warmup",
    "get_num_threads",
    "set_num_threads",
]
__version__ = "0.1.0"

PRIORITY = 10
_HINT = "numba is not installed: pip install 'numba>=0.62'"


@hookimpl
def coredispatch_register(registrar: Any) -> None:
    """Add the kernels to ``cpu``; without Numba, nothing."""
    if find_spec("numba") is None:
        return
    from . import background, cache_place
    from .allocation import keep_freed_memory
    from .kernels import MODULES

    # Where everything is compiled already, kernels need not say that they are not ready.
    background.active = background.wanted() and not cache_place.is_warm()
    keep_freed_memory()
    registrar.thread_pool("cpu_numba", set_num_threads)
    for module in MODULES:
        waits = background.active and not getattr(module, "PATIENT", False)
        registrar.kernels(
            "cpu",
            {name: background.patient(kernel) for name, kernel in module.KERNELS.items()}
            if waits
            else module.KERNELS,
            priority=getattr(module, "PRIORITY", PRIORITY),
            when=getattr(module, "WHEN", None),
            least=getattr(module, "LEAST", 0),
            accepts=getattr(module, "ACCEPTS", None),
        )


@hookimpl
def coredispatch_compile(graph: Any, inputs: Any) -> Any:
    """The graph as fused loops; None without Numba."""
    if find_spec("numba") is None:
        return None
    from .interrupts import interrupts_wait

    with interrupts_wait():
        from .graphs import compile_graph

        return compile_graph(graph, inputs)


@hookimpl
def coredispatch_warmup(report: Callable[[int, int, str], None]) -> str:
    """Compile the kernels into the disk cache; without Numba there is nothing to do.

    Those of float64, a third of the time, are left to the background: few programs call them.
    """
    if find_spec("numba") is None:
        return _HINT
    from .warmup import DTYPES, run

    done = run(report, tuple(dtype for dtype in DTYPES if dtype != "float64"))
    return f"{done}; python -m {__name__} compiles those of float64, too"


@hookimpl
def coredispatch_info() -> dict[str, Any]:
    """Details for ``coredispatch info``. Does not import Numba."""
    if find_spec("numba") is None:
        return {"kernels": 0, "problem": _HINT}
    from importlib.metadata import version

    from . import blas
    from .kernels import MODULES

    details: dict[str, Any] = {
        "kernels": sum(len(module.KERNELS) for module in MODULES),
        "numba": version("numba"),
        "threads": get_num_threads(),
        "products": blas.describe(),
        "imported": "numba" in sys.modules,
    }
    if details["imported"]:
        from . import cache

        details["cache"] = str(cache.directory() or "none: no directory is writable")
    return details
