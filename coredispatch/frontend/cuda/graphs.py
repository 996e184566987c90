"""CUDA graphs: not available. Each name refuses with the reason."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.cuda.devices import present

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_REASON = "the kernels of CuPy are not captured into CUDA graphs"


class CUDAGraph:
    """Refused: work is not captured."""

    def __init__(self, keep_graph: bool = False) -> None:
        present()
        raise NotImplementedError(f"cuda.CUDAGraph: {_REASON}; run the function itself")


class graph:
    """Refused: work is not captured."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        present()
        raise NotImplementedError(f"cuda.graph: {_REASON}; run the function itself")


def graph_pool_handle() -> Any:
    """Refused: there are no graphs."""
    present()
    raise NotImplementedError(f"cuda.graph_pool_handle: {_REASON}")


def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    """Refused: work is not captured."""
    present()
    raise NotImplementedError(f"cuda.make_graphed_callables: {_REASON}; call the functions")


def is_current_stream_capturing() -> bool:
    """False: nothing is captured."""
    return False
