"""A NumPy-backed stand-in for CuPy, for what can be proved without a GPU.

It has CuPy's names and CuPy's refusals, so that a kernel which would fail on a device for its
*structure* fails here: no implicit conversion to NumPy, `add.at` for the dtypes of atomicAdd
only, the older spelling of the array-API names, singular matrices unnoticed unless asked, one
current device, and every array on a device. What the numbers are on real hardware, it cannot say.
"""

from __future__ import annotations

import contextlib
import threading
import types
from typing import Any

import numpy as np
from nccl_stand_in import make_nccl

from coredispatch.plugin import hookimpl

__all__ = ["State", "make_cupy", "module_for"]

ATOMIC = ("int32", "uint32", "uint64", "float16", "float32", "float64")
#: what CuPy 13 does not have
MISSING = ("astype", "permute_dims", "concat", "matrix_transpose", "isdtype", "pow", "unstack")
MISSING += ("acos", "asin", "atan", "atan2", "acosh", "asinh", "atanh", "bitwise_invert")
MISSING += ("bitwise_left_shift", "bitwise_right_shift", "cumulative_sum", "vecdot")
#: what CuPy 14 still does not have
MISSING_IN_14 = ("unstack", "vecdot", "matvec", "vecmat")
#: functions of CuPy 14 that make float32 of bfloat16, and those that refuse it
WIDENING, WITHOUT_BFLOAT16 = ("where", "triu", "tril", "clip"), ("sort", "argsort")


class _State(threading.local):
    """The current device and stream of a thread."""

    def __init__(self) -> None:
        self.device = 0
        self.stream: Any = None
        self.checks_linalg = False


State = _State()


class ndarray(np.ndarray):
    """An array on a device: NumPy may not have it for nothing."""

    index = 0

    def __array_finalize__(self, source: Any) -> None:
        self.index = getattr(source, "index", State.device)

    @property
    def device(self) -> Device:
        return Device(self.index)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Where it lies, as CuPy says it."""
        return types.SimpleNamespace(ptr=self.ctypes.data)

    @property
    def base(self) -> Any:  # type: ignore[override]
        """The array that owns the memory; CuPy's views name no other."""
        found = owner = np.ndarray.base.__get__(self)
        while isinstance(owner, np.ndarray):
            found, owner = owner, np.ndarray.base.__get__(owner)
        return found

    def copy(self, order: Any = "C") -> ndarray:  # type: ignore[override]
        """A copy on the current device, wherever the array lies."""
        made = np.array(self.view(np.ndarray)).view(ndarray)
        made.index = State.device
        return made

    def get(self) -> np.ndarray:
        return np.array(self.view(np.ndarray))


class Device:
    """One of the devices; current inside a ``with`` block."""

    def __init__(self, index: int | None = None) -> None:
        self.id = State.device if index is None else index

    def __enter__(self) -> Device:
        self.before, State.device = State.device, self.id
        return self

    def __exit__(self, *_: object) -> None:
        State.device = self.before

    def synchronize(self) -> None:
        """Nothing runs beside the program here."""

    def use(self) -> Device:
        State.device = self.id
        return self


class Stream:
    """A stream that has always finished."""

    done = True
    count = 0

    def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
        Stream.count += 1
        self.ptr, self.waited = Stream.count, []

    def __enter__(self) -> Stream:
        self.before, State.stream = State.stream, self
        return self

    def __exit__(self, *_: object) -> None:
        State.stream = self.before

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def record(self, event: Any = None) -> Any:
        return ("event of", self.ptr)

    def use(self) -> Stream:
        State.stream = self
        return self

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)


class Event:
    """An event; its time is the number of events recorded before it."""

    done = True
    clock = 0

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.timed = not disable_timing
        self.stream: Any = None

    def record(self, stream: Any = None) -> None:
        Event.clock += 1
        self.stream, self.time = stream, Event.clock

    def synchronize(self) -> None:
        """Nothing to wait for."""


def elapsed_time(start: Event, end: Event) -> float:
    if not (start.timed and end.timed):
        raise RuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
    return float(end.time - start.time)


def wrapped(function: Any) -> Any:
    """A NumPy function that takes and returns device arrays of the current device only."""

    def lower(x: Any) -> Any:
        if isinstance(x, ndarray):
            if x.index != State.device:
                raise ValueError(f"Array device must be same as the current device: {x.index}")
            return x.view(np.ndarray)
        if isinstance(x, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return type(x)(map(lower, x)) if isinstance(x, (list, tuple)) else x

    def lift(x: Any) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            out = np.asarray(x).view(ndarray)
            out.index = State.device
            return out
        return (
            type(x)(*map(lift, x))
            if hasattr(x, "_fields")
            else (type(x)(map(lift, x)) if isinstance(x, (list, tuple)) else x)
        )

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        result = function(*map(lower, args), **{k: lower(v) for k, v in kwargs.items()})
        return out if out is not None else lift(result)

    return call


class Ufunc:
    """A ufunc with CuPy's narrower ``at``."""

    def __init__(self, function: np.ufunc) -> None:
        self._function, self._call = function, wrapped(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def at(self, x: Any, index: Any, values: Any) -> None:
        if x.dtype.name not in ATOMIC:
            raise TypeError("cupy.add.at only supports int32, float16, float32, float64, uint32")
        plain = tuple(i.view(np.ndarray) if isinstance(i, ndarray) else i for i in index)
        self._function.at(x.view(np.ndarray), plain, values.view(np.ndarray))


Ufunc.__name__ = "ufunc"


class Pool:
    """A memory pool that remembers being emptied."""

    freed = 0
    limit = 0

    def set_limit(self, size: Any = None, fraction: Any = None) -> None:
        self.limit = int(fraction * 40)

    def get_limit(self) -> int:
        return self.limit

    def used_bytes(self) -> int:
        return 10

    def total_bytes(self) -> int:
        return 20

    def free_all_blocks(self) -> None:
        Pool.freed += 1


class Generator:
    """cuRAND's place is taken by NumPy's generator; the state is a plain array."""

    def __init__(self, seed: int) -> None:
        self.bit_generator = types.SimpleNamespace(_state=np.zeros(8, np.int8).view(ndarray))
        self.bit_generator._state[...] = np.frombuffer(np.uint64(seed).tobytes(), np.int8)

    def _next(self) -> np.random.Generator:
        state = self.bit_generator._state.view(np.ndarray)
        number = int(np.frombuffer(state.tobytes(), np.uint64)[0])
        state[...] = np.frombuffer(np.uint64((number + 1) % 2**64).tobytes(), np.int8)
        return np.random.default_rng(number)

    def random(self, size: Any, dtype: Any = np.float64) -> Any:
        return np.asarray(self._next().random(size, dtype=dtype)).view(ndarray)

    def standard_normal(self, size: Any, dtype: Any = np.float64) -> Any:
        return np.asarray(self._next().standard_normal(size, dtype=dtype)).view(ndarray)

    def integers(self, low: int, high: int, size: Any, dtype: Any = np.int64) -> Any:
        return np.asarray(self._next().integers(low, high, size, dtype=dtype)).view(ndarray)


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


def make_cupy(devices: int = 1, version: str = "13.3.0") -> tuple[Any, Any]:
    """The stand-ins for ``cupy``, with so many devices, and for ``cupyx``."""
    cupy = types.ModuleType("cupy")
    before_14 = version.startswith("13")
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

    def asarray(x: Any, dtype: Any = None) -> Any:
        if isinstance(x, ndarray) and (dtype is None or x.dtype == dtype):
            return x
        if before_14 and (_bfloat16(x) or getattr(dtype, "name", "") == "bfloat16"):
            raise ValueError("Unsupported dtype bfloat16")
        out = np.array(x, dtype=dtype).view(ndarray)
        out.index = State.device
        return out

    cupy.matmul = wrapped(_matmul)
    pool = Pool()
    Stream.null = Stream()
    cupy._core = types.SimpleNamespace(
        COMPUTE_TYPE_TF32="tf32",
        COMPUTE_TYPE_DEFAULT="default",
        set_compute_type=lambda dtype, kind: setattr(cupy._core, "chosen", kind),
    )
    cupy.__version__ = version
    cupy.ndarray = ndarray
    cupy.asarray = asarray
    cupy.asnumpy = lambda x: x.get()
    cupy.from_dlpack = lambda x: asarray(np.from_dlpack(x))
    cupy.linalg = _linalg()
    cupy.fft = _fft()
    cupy.random = types.SimpleNamespace(default_rng=Generator)
    stride_tricks = types.SimpleNamespace(as_strided=wrapped(np.lib.stride_tricks.as_strided))
    cupy.lib = types.SimpleNamespace(stride_tricks=stride_tricks)
    cupy.get_default_memory_pool = cupy.get_default_pinned_memory_pool = lambda: pool
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        nccl=make_nccl(),
        nvrtc=types.SimpleNamespace(getSupportedArchs=lambda: (80, 90)),
        get_elapsed_time=elapsed_time,
        nvtx=types.SimpleNamespace(RangePush=print, RangePop=lambda: 0, Mark=print),
        get_current_stream=lambda index=None: State.stream or Stream(),
        runtime=types.SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            getDeviceCount=lambda: devices,
            getDevice=lambda: State.device,
            getDeviceProperties=lambda index: {
                "name": b"stand-in %d" % index,
                "major": 9,
                "minor": 0,
                "totalGlobalMem": 40,
            },
            deviceCanAccessPeer=lambda index, peer: int(index != peer),
            memGetInfo=lambda: (30, 40),
        ),
    )
    cupyx = types.ModuleType("cupyx")
    cupyx.errstate = errstate
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
    def coredispatch_compile(graph: Any, inputs: Any) -> Any:
        from coredispatch_cuda_cupy.compiler import compile_graph

        return compile_graph(graph, inputs, backend.cupy)

    module.COMPILER = "cuda"  # type: ignore[attr-defined]
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    module.coredispatch_compile = coredispatch_compile  # type: ignore[attr-defined]
    return module
