"""CUDA graphs: work that is captured once, and put on a stream again and again as one call.

A replay does what was captured, with the memory of then: inputs are written into the tensors that
were read (``static.copy_(batch)``), results are found in the tensors that were made. Numbers that
Python computed while it was captured, learning rates for instance, stay as they were; shapes do,
too. What waits for the device cannot be captured, and says so.

Random numbers go on from replay to replay, with the generators that were used in the capture. Masks
of dropout are those of calls without a graph; of other numbers a ``manual_seed`` after the capture
makes a new generator, which the graph does not know.

Example:
    >>> g = cd.cuda.CUDAGraph()  # doctest: +SKIP
    >>> with cd.cuda.graph(g):  # doctest: +SKIP
    ...     static_y = model(static_x)
    >>> static_x.copy_(batch); g.replay(); static_y  # doctest: +SKIP
"""

from __future__ import annotations

import gc
from typing import Any, Self

from coredispatch.frontend.cuda.devices import asked, is_available, present, synchronize
from coredispatch.frontend.cuda.graphed_callables import make_graphed_callables
from coredispatch.frontend.cuda.memory import empty_cache
from coredispatch.frontend.cuda.streams import Stream, current_stream
from coredispatch.frontend.cuda.streams import stream as stream_context
from coredispatch.frontend.optim.on_device import CAPTURES
from coredispatch.registry.model.errors import ArgumentError

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_MODES = ("global", "thread_local", "relaxed")


class CUDAGraph:
    """One captured graph, with memory of its own.

    Args:
        keep_graph: accepted; a graph is always ready to be replayed when its capture ends.

    Raises :class:`NoDeviceError` where there is no device.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        present()
        self.raw = asked("make_graph")
        self._debug = False

    def capture_begin(
        self,
        pool: Any = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Capture what this thread puts on the current stream, which is not the default one.

        ``pool`` is what :func:`graph_pool_handle` or another graph's :meth:`pool` gave: both then
        share memory, and are to be replayed in the order in which they were captured, never at
        once. ``capture_error_mode`` is checked, and always is "relaxed": the memory pool may grow
        during a capture, which the other modes forbid. ``check_input_liveness`` is refused: what a
        graph reads is not listed.

        :class:`graph` is the better choice.
        """
        if capture_error_mode not in _MODES:
            raise ArgumentError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}",
                fix="leave it out",
            )
        if check_input_liveness:
            raise NotImplementedError(
                "cuda.CUDAGraph(check_input_liveness=True): what a graph reads is not listed; keep "
                "its inputs as long as it is replayed"
            )
        self.raw.begin(pool)
        CAPTURES.append(self)

    def capture_end(self) -> None:
        """Capture no more. Raises where something was captured that cannot be."""
        if self in CAPTURES:
            CAPTURES.remove(self)
        self.raw.end()

    def instantiate(self) -> None:
        """Nothing to do: the graph is ready since its capture ended."""

    def replay(self) -> None:
        """Put what was captured on the current stream, as one call."""
        self.raw.replay()

    def reset(self) -> None:
        """Forget what was captured, and let go of its memory."""
        self.raw.reset()

    def pool(self) -> tuple[int, int]:
        """The name of the graph's memory, to share it with another."""
        if self.raw.handle is None:
            raise ArgumentError("the graph has no memory yet", fix="capture first")
        handle: tuple[int, int] = self.raw.handle
        return handle

    def raw_cuda_graph(self) -> int:
        """Refused: CuPy keeps the graph in the form only that is ready to be replayed."""
        raise NotImplementedError(
            "cuda.CUDAGraph.raw_cuda_graph: CuPy keeps what is ready to be replayed only; see "
            "raw_cuda_graph_exec()"
        )

    def raw_cuda_graph_exec(self) -> int:
        """The driver's handle of what is replayed, a ``cudaGraphExec_t``.

        Raises :class:`ArgumentError` where nothing was captured.
        """
        return int(self.raw.address())

    def enable_debug_mode(self) -> None:
        """Let :meth:`debug_dump` write."""
        self._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph in the DOT language to a file, after :meth:`enable_debug_mode`."""
        if not self._debug:
            raise ArgumentError("debug_dump() needs enable_debug_mode()", fix="call it first")
        with open(debug_path, "w", encoding="utf-8") as file:
            file.write(self.raw.text())

    def register_generator_state(self, generator: Any) -> None:
        """Nothing to do: the state of a generator lies on the device, and replays move it on."""


class graph:
    """A block whose work on the device is captured into ``cuda_graph`` and not run.

    Args:
        cuda_graph: a new :class:`CUDAGraph`.
        pool: memory to share, see :meth:`CUDAGraph.capture_begin`.
        stream: the stream to capture; one for all blocks by default.
        capture_error_mode: see :meth:`CUDAGraph.capture_begin`.
        enable_annotations: refused, as kernels are not annotated.
        check_input_liveness: see :meth:`CUDAGraph.capture_begin`.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        present()
        if enable_annotations:
            raise NotImplementedError("cuda.graph(enable_annotations=True): use cuda.nvtx.range")
        if stream is None:
            known = graph.default_capture_stream
            if known is None or known.device != current_stream().device:
                known = graph.default_capture_stream = Stream()
            stream = known
        self.pool, self.capture_stream, self.cuda_graph = pool, stream, cuda_graph
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        self._block = stream_context(stream)

    def __enter__(self) -> Self:
        synchronize()
        gc.collect()
        empty_cache()
        self._block.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool, self.capture_error_mode, self.check_input_liveness
            )
        except BaseException:
            self._block.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except Exception:
            if error is None:  # else the error of the block is the reason
                raise
        finally:
            self._block.__exit__(None, None, None)


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that several graphs share."""
    handle: tuple[int, int] = asked("graph_pool")
    return handle


def is_current_stream_capturing() -> bool:
    """Whether work on the current stream is being captured; False without a device."""
    return is_available() and bool(asked("is_capturing"))
