"""A NumPy-backed stand-in for CuPy, for what can be proved without a GPU.

It has CuPy's names and CuPy's refusals, so that a kernel which would fail on a device for its
*structure* fails here: no implicit conversion to NumPy, `add.at` for the dtypes of atomicAdd
only, the older spelling of the array-API names, singular matrices unnoticed unless asked, one
current device, and every array on a device. Memory comes from CuPy's allocator, work goes to
streams, synchronizations are counted and graphs captured: `stand_in_streams`, `stand_in_memory`
and `stand_in_arrays`. What the numbers are on real hardware, it cannot say.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import numpy as np
import stand_in_memory as memory
from nccl_stand_in import make_nccl
from stand_in_arrays import Ufunc, asarray, asnumpy, empty, ndarray, run, wrapped
from stand_in_streams import (
    MACHINE,
    CUDARuntimeError,
    Device,
    Event,
    ExternalStream,
    Graph,
    State,
    Stream,
    current_stream,
    elapsed_time,
)

from coredispatch.plugin import hookimpl

__all__ = ["MACHINE", "State", "make_cupy", "module_for"]

#: what CuPy 13 does not have
MISSING = ("astype", "permute_dims", "concat", "matrix_transpose", "isdtype", "pow", "unstack")
MISSING += ("acos", "asin", "atan", "atan2", "acosh", "asinh", "atanh", "bitwise_invert")
MISSING += ("bitwise_left_shift", "bitwise_right_shift", "cumulative_sum", "vecdot")
#: what CuPy 14 still does not have
MISSING_IN_14 = ("unstack", "vecdot", "matvec", "vecmat")
#: functions of CuPy 14 that make float32 of bfloat16, and those that refuse it
WIDENING, WITHOUT_BFLOAT16 = ("where", "triu", "tril", "clip"), ("sort", "argsort")


class Generator:
    """cuRAND's place is taken by NumPy's generator; the state is an array on the device."""

    def __init__(self, seed: int) -> None:
        state = asarray(np.frombuffer(np.uint64(seed).tobytes(), np.int8))
        self.bit_generator = types.SimpleNamespace(_state=state)

    def _draw(self, name: str, *args: Any, **kwargs: Any) -> Any:
        def draw(state: np.ndarray) -> Any:
            number = int(np.frombuffer(state.tobytes(), np.uint64)[0])
            following = np.uint64((number + 1) % 2**64)
            state[...] = np.frombuffer(following.tobytes(), np.int8)
            return np.asarray(getattr(np.random.default_rng(number), name)(*args, **kwargs))

        return run(draw, self.bit_generator._state)

    def random(self, size: Any, dtype: Any = np.float64) -> Any:
        return self._draw("random", size, dtype=dtype)

    def standard_normal(self, size: Any, dtype: Any = np.float64) -> Any:
        return self._draw("standard_normal", size, dtype=dtype)

    def integers(self, low: int, high: int, size: Any, dtype: Any = np.int64) -> Any:
        return self._draw("integers", low, high, size, dtype=dtype)


def _linalg() -> Any:
    def careless(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except np.linalg.LinAlgError:
                if State.checks_linalg:
                    raise
                return wrapped(np.full)(args[0].shape, np.nan, dtype=args[0].dtype)

        return call

    names = ("cholesky", "qr", "svd", "eigh", "solve", "slogdet")
    functions = {name: careless(wrapped(getattr(np.linalg, name))) for name in names}
    return types.SimpleNamespace(LinAlgError=np.linalg.LinAlgError, **functions)


def _fft() -> Any:
    names = ("fftn", "ifftn", "rfftn", "irfftn")
    return types.SimpleNamespace(**{name: wrapped(getattr(np.fft, name)) for name in names})


@contextlib.contextmanager
def errstate(*, linalg: str) -> Any:
    """`cupyx.errstate`."""
    before, State.checks_linalg = State.checks_linalg, linalg == "raise"
    try:
        yield
    finally:
        State.checks_linalg = before


def _bfloat16(x: Any) -> bool:
    return getattr(getattr(x, "dtype", None), "name", "") == "bfloat16"


def _widening(function: Any) -> Any:
    """A function with a loop for float32 and none for bfloat16."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(x.astype(np.float32) if _bfloat16(x) else x for x in args), **kwargs)

    return call


def _matmul(a: Any, b: Any) -> np.ndarray:
    """cuBLAS adds the products of half precision up in float32, and rounds once."""
    half = np.result_type(a, b).name in ("float16", "bfloat16")
    return np.matmul(a.astype("f4"), b.astype("f4")).astype(a.dtype) if half else np.matmul(a, b)


def _without_bfloat16(function: Any) -> Any:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        if _bfloat16(x):
            raise NotImplementedError("Sorting arrays with dtype 'bfloat16' is not supported")
        return function(x, *args, **kwargs)

    return call


def _functions(cupy: Any, before_14: bool) -> None:
    """NumPy's functions with CuPy's gaps."""
    for name in dir(np):
        item = getattr(np, name)
        missing = name in (MISSING if before_14 else MISSING_IN_14)
        if name.startswith("_") or missing or isinstance(item, types.ModuleType):
            continue
        if isinstance(item, np.ufunc):
            item = Ufunc(item)
        elif callable(item) and not isinstance(item, type):
            item = wrapped(item)
        if name in WIDENING:
            item = _widening(item)
        if name in WITHOUT_BFLOAT16:
            item = _without_bfloat16(item)
        setattr(cupy, name, item)
    cupy.matmul = wrapped(_matmul)

    def converted(x: Any, dtype: Any = None) -> Any:
        if before_14 and (_bfloat16(x) or getattr(dtype, "name", "") == "bfloat16"):
            raise ValueError("Unsupported dtype bfloat16")
        return asarray(x, dtype)

    cupy.asarray, cupy.asnumpy, cupy.empty, cupy.ndarray = converted, asnumpy, empty, ndarray
    cupy.from_dlpack = lambda x: converted(np.from_dlpack(x))


def _runtime() -> Any:
    def properties(index: int) -> dict[str, Any]:
        numbers = {"major": 9, "minor": 0, "totalGlobalMem": MACHINE.capacity}
        return {"name": b"stand-in %d" % index, **numbers}

    return types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        errorMemoryAllocation=memory.OUT_OF_MEMORY,
        streamCaptureModeRelaxed=2,
        getDeviceCount=lambda: MACHINE.devices,
        getDevice=lambda: State.device,
        getDeviceProperties=properties,
        deviceCanAccessPeer=lambda index, peer: int(index != peer),
        memGetInfo=lambda: (
            MACHINE.capacity - MACHINE.allocated[State.device],
            MACHINE.capacity,
        ),
    )


def _cuda() -> Any:
    """``cupy.cuda``."""
    names = "Memory MemoryPointer MemoryPool PinnedMemoryPool UnownedMemory alloc get_allocator"
    names += " set_allocator using_allocator alloc_pinned_memory"
    marks: list[str] = []
    return types.SimpleNamespace(
        **{name: getattr(memory, name) for name in names.split()},
        memory=types.SimpleNamespace(OutOfMemoryError=memory.OutOfMemoryError),
        pinned_memory=types.SimpleNamespace(is_memory_pinned=memory.is_memory_pinned),
        Device=Device,
        Stream=Stream,
        ExternalStream=ExternalStream,
        Event=Event,
        Graph=Graph,
        nccl=make_nccl(),
        nvrtc=types.SimpleNamespace(getSupportedArchs=lambda: (80, 90)),
        get_elapsed_time=elapsed_time,
        nvtx=types.SimpleNamespace(
            marks=marks,
            RangePush=lambda text, color=-1: marks.append(f"push {text}"),
            RangePop=lambda: marks.append("pop"),
            Mark=lambda text, color=-1: marks.append(f"mark {text}"),
        ),
        get_current_stream=current_stream,
        runtime=_runtime(),
    )


def make_cupy(devices: int = 1, version: str = "13.3.0") -> tuple[Any, Any]:
    """The stand-ins for ``cupy``, with so many idle devices, and for ``cupyx``."""
    MACHINE.reset(devices)
    State.reset()
    Stream.null = Stream(null=True)
    cupy = types.ModuleType("cupy")
    _functions(cupy, version.startswith("13"))
    cupy._core = types.SimpleNamespace(
        COMPUTE_TYPE_TF32="tf32",
        COMPUTE_TYPE_DEFAULT="default",
        set_compute_type=lambda dtype, kind: setattr(cupy._core, "chosen", kind),
        get_compute_type=lambda dtype: getattr(cupy._core, "chosen", "default"),
    )
    cupy.__version__ = version
    cupy.linalg = _linalg()
    cupy.fft = _fft()
    cupy.random = types.SimpleNamespace(default_rng=Generator)
    stride_tricks = types.SimpleNamespace(as_strided=wrapped(np.lib.stride_tricks.as_strided))
    cupy.lib = types.SimpleNamespace(stride_tricks=stride_tricks)
    pool = memory.MemoryPool()
    memory.set_allocator(pool.malloc)
    memory.HOST_POOL.free_all_blocks()
    cupy.get_default_memory_pool = lambda: pool
    cupy.get_default_pinned_memory_pool = lambda: memory.HOST_POOL
    cupy.cuda = _cuda()
    if "from_external" in vars(Stream):
        del Stream.from_external
    if not version.startswith("13"):
        Stream.from_external = Stream._adopted
    cupyx = types.ModuleType("cupyx")
    cupyx.errstate, cupyx.empty_pinned = errstate, memory.empty_pinned
    return cupy, cupyx


def module_for(backend: Any) -> types.ModuleType:
    """A plugin module that registers ``backend``."""
    module = types.ModuleType("cuda_stand_in")

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        from coredispatch_cuda_cupy.nccl import create

        registrar.backend(backend)
        registrar.communicator("nccl", create, "cuda")

    @hookimpl
    def coredispatch_compile(graph: Any, inputs: Any, settings: Any) -> Any:
        from coredispatch_cuda_cupy.compiler import compile_graph

        return compile_graph(graph, inputs, backend, settings)

    module.COMPILER = "cuda"  # type: ignore[attr-defined]
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    module.coredispatch_compile = coredispatch_compile  # type: ignore[attr-defined]
    return module
