"""cuDNN through `nvidia-cudnn-frontend`, where that is installed: graphs that are planned once.

The frontend's objects describe arrays by dimensions, strides and dtypes, and are called with
addresses. What cuDNN does not support raises when it is planned, and is not asked for again.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from coredispatch.plugin import OutOfMemoryError
from coredispatch_cuda_cupy import capture

__all__ = ["Graphs", "Spec", "frontend", "settings", "spec_of"]

#: names of ``cudnn.data_type`` by the dtype's
_TYPES = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "HALF",
    "bfloat16": "BFLOAT16",
    "int32": "INT32",
    "int64": "INT64",
}
#: cuDNN 9 is the oldest that the frontend's wheels load
_OLDEST = 90000
#: runs of a plan that are timed, after one that is not
_TIMED = 3


@cache
def frontend(cupy: Any) -> Any:
    """The module ``cudnn`` with a library that it can call; None where there is none."""
    if getattr(cupy.cuda, "cublas", None) is None:
        return None  # not CuPy, but what takes its place in tests
    try:
        found = import_module("cudnn")
        return found if int(found.backend_version()) >= _OLDEST else None
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None


def settings() -> Any:
    """``cd.backends.cudnn``: what the program allows."""
    return import_module("coredispatch.backends.cudnn")


class Spec(NamedTuple):
    """An array as the frontend describes it; strides count elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


def spec_of(x: Any) -> Spec:
    """The description of an array."""
    return Spec(x.shape, tuple(s // x.itemsize for s in x.strides), x.dtype.name)


class _Plan:
    """A graph that is ready to run; ``index`` is None for the plan that the heuristic chose."""

    def __init__(self, graph: Any, index: int | None, workspace: int) -> None:
        self.graph, self.index, self.workspace = graph, index, workspace

    def run(self, addresses: dict[int, int], space: int, handle: Any) -> None:
        """Put it on the handle's stream; ``addresses`` by the uids of the graph's arrays."""
        if self.index is None:
            self.graph.execute(addresses, space, handle=handle)
        else:
            self.graph.execute_plan_at_index(addresses, space, self.index, handle=handle)


class Builder:
    """Describes arrays to a graph; inputs and outputs have the uids 1, 2, ... in their order."""

    def __init__(self, cudnn: Any, graph: Any) -> None:
        self.cudnn, self.graph, self.count = cudnn, graph, 0

    def data_type(self, name: str) -> Any:
        """A dtype as the frontend names it."""
        return getattr(self.cudnn.data_type, _TYPES[name])

    def _next(self) -> int:
        self.count += 1
        return self.count

    def input(self, spec: Spec) -> Any:
        """An array that is read."""
        return self.graph.tensor(
            dim=list(spec.shape),
            stride=list(spec.strides),
            data_type=self.data_type(spec.dtype),
            uid=self._next(),
        )

    def number(self, dtype: str) -> Any:
        """A number of main memory that comes with each call."""
        return self.graph.tensor(
            dim=[1, 1, 1, 1],
            stride=[1, 1, 1, 1],
            data_type=self.data_type(dtype),
            is_pass_by_value=True,
            uid=self._next(),
        )

    def output(self, tensor: Any, spec: Spec) -> None:
        """An array that is written."""
        tensor.set_output(True)
        tensor.set_data_type(self.data_type(spec.dtype))
        tensor.set_dim(list(spec.shape))
        tensor.set_stride(list(spec.strides))
        tensor.set_uid(self._next())


class Graphs:
    """Plans of graphs, by what they compute, and where.

    Args:
        cupy: CuPy.
        cudnn: the frontend.
    """

    def __init__(self, cupy: Any, cudnn: Any) -> None:
        self.cupy, self.cudnn = cupy, cudnn
        self.plans: dict[Any, _Plan | None] = {}
        self.threads = threading.local()
        refusal = getattr(cudnn, "cudnnGraphNotSupportedError", RuntimeError)
        self.refusals = (refusal, RuntimeError, ValueError)

    def run(self, describe: Any, arrays: tuple[Any, ...]) -> bool:
        """Run the graph that ``describe(builder)`` makes, over arrays in the order of their uids.

        ``describe`` is hashable, and all that the graph depends on. False where cuDNN does not
        support it.
        """
        chosen = settings()
        if not chosen.enabled:
            return False
        flags = (bool(chosen.deterministic), bool(chosen.allow_tf32), self._times(chosen))
        where = (int(self.cupy.cuda.runtime.getDevice()), *flags, describe)
        handle = self._handle(where[0])
        stream = self.cupy.cuda.get_current_stream().ptr
        self.cudnn.set_stream(handle=handle, stream=stream)
        addresses = {uid: _address(x) for uid, x in enumerate(arrays, 1)}
        try:
            if where not in self.plans:
                self.plans[where] = None
                self.plans[where] = self._planned(describe, flags, chosen, handle, addresses)
        except OutOfMemoryError:  # no refusal of cuDNN's: there may be memory the next time
            self.plans.pop(where, None)
            raise
        except self.refusals:
            return False
        plan = self.plans.get(where)
        if plan is None:
            return False
        space = self.cupy.cuda.alloc(plan.workspace) if plan.workspace else None
        try:
            plan.run(addresses, 0 if space is None else int(space.ptr), handle)
        except self.refusals:
            self.plans[where] = None
            return False
        return True

    def _times(self, chosen: Any) -> bool:
        """Whether plans are timed; in a graph that is captured nothing runs yet."""
        return bool(chosen.benchmark) and capture.current() is None

    def _handle(self, device: int) -> Any:
        """A thread's handle for a device: the stream is set in it for each call."""
        known = self.threads.__dict__.setdefault("handles", {})
        if device not in known:
            known[device] = self.cudnn.create_handle()
        return known[device]

    def _planned(
        self,
        describe: Any,
        flags: tuple[bool, bool, bool],
        chosen: Any,
        handle: Any,
        addresses: dict[int, int],
    ) -> _Plan:
        cudnn, (deterministic, tf32, times) = self.cudnn, flags
        graph = cudnn.pygraph(
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=handle,
        )
        builder = Builder(cudnn, graph)
        describe(builder)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        notes = cudnn.numerical_note
        unwanted = [notes.NONDETERMINISTIC] if deterministic else []
        if not tf32 and "float32" in getattr(describe, "dtypes", ()):
            unwanted += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        if unwanted:
            graph.deselect_numeric_notes(unwanted)
        graph.check_support()
        if times:
            return self._fastest(graph, chosen.benchmark_limit, handle, addresses)
        graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
        return _Plan(graph, None, int(graph.get_workspace_size()))

    def _fastest(
        self, graph: Any, limit: int | None, handle: Any, addresses: dict[int, int]
    ) -> _Plan:
        """The plan that took the shortest time, of the first ``limit`` that can be built."""
        timed: list[tuple[float, int, _Plan]] = []
        for index in range(int(graph.get_execution_plan_count())):
            if limit and len(timed) >= limit:
                break
            try:
                graph.build_plan_at_index(index)
                plan = _Plan(graph, index, int(graph.get_workspace_size_plan_at_index(index)))
                timed.append((self._time_of(plan, handle, addresses), index, plan))
            except (*self.refusals, MemoryError):
                continue  # heuristics name plans that the device or its memory do not allow
        if not timed:
            raise RuntimeError("no plan of cuDNN's runs here")
        return min(timed)[2]

    def _time_of(self, plan: _Plan, handle: Any, addresses: dict[int, int]) -> float:
        """Milliseconds of a run; waits for the device, as PyTorch's benchmark does."""
        cuda = self.cupy.cuda
        space = cuda.alloc(plan.workspace) if plan.workspace else None
        where = 0 if space is None else int(space.ptr)
        plan.run(addresses, where, handle)
        start, end = cuda.Event(), cuda.Event()
        start.record()
        for _ in range(_TIMED):
            plan.run(addresses, where, handle)
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(start, end)) / _TIMED


def _address(x: Any) -> int:
    """Where an array lies; a number of main memory is an array of NumPy's own."""
    return int(x.ctypes.data if type(x) is np.ndarray else x.data.ptr)
