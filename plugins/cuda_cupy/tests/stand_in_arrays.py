"""Arrays of the stand-in for CuPy: NumPy's, in memory from CuPy's allocator, on a device.

A call is computed at once on the *twins* of its arguments, which are what they would be if all
work had run at once; that gives shape and dtype. With ``MACHINE.delayed`` the call itself waits
in the queue of the stream, and reads what is in memory when it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stand_in_memory import MemoryPointer, alloc, is_memory_pinned, view_of_pinned
from stand_in_streams import (
    MACHINE,
    Device,
    State,
    capturing,
    current_stream,
    enqueue,
    refuse_in_capture,
    synchronized,
)

__all__ = ["Ufunc", "asarray", "asnumpy", "empty", "launch", "ndarray", "run", "wrapped"]

#: dtypes that atomicAdd takes
ATOMIC = ("int32", "uint32", "uint64", "float16", "float32", "float64")
#: functions whose result has a length that the values decide: CuPy waits for it
WAITING = ("nonzero", "flatnonzero", "argwhere", "unique", "compress", "extract")
WAITING += ("unique_values", "unique_counts", "unique_inverse", "unique_all")
#: methods of arrays that compute, or may copy
METHODS = (
    "all any argmax argmin argpartition argsort astype choose clip compress conj conjugate cumprod "
    "cumsum diagonal dot flatten max mean min nonzero prod ravel repeat reshape round searchsorted "
    "std sum swapaxes take trace transpose var fill sort partition put"
).split()


class Place:
    """Where an array lies: enough to look at its bytes again without keeping them."""

    def __init__(self, array: ndarray) -> None:
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides
        self.buffer = array.buffer
        self.offset = 0 if self.buffer is None else array.ctypes.data - self.buffer.ptr
        self.plain = array.view(np.ndarray) if self.buffer is None else None
        assert self.buffer is None or 0 <= self.offset < self.buffer.real.size

    def over(self, data: Any) -> np.ndarray:
        return np.ndarray(self.shape, self.dtype, data, self.offset, self.strides)

    def look(self, kind: str, scratch: dict[int, Any]) -> np.ndarray:
        """The array over the real bytes, over their twin, or over a copy made for the call."""
        if self.plain is not None:
            return self.plain
        if kind == "scratch":
            return self.over(scratch.setdefault(self.buffer.ptr, self.buffer.real.copy()))
        return self.over(getattr(self.buffer, kind))


class Call:
    """A call with the places of its arguments and results, to run when its turn comes."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        self.function = function
        self.args, self.kwargs = _places(args), _places(kwargs)
        self.outs: list[Any] = []

    def result(self, kind: str, scratch: dict[int, Any]) -> Any:
        args = _looked(self.args, kind, scratch)
        return self.function(*args, **_looked(self.kwargs, kind, scratch))

    def run(self, kind: str = "real") -> None:
        with np.errstate(all="ignore"):
            results = _leaves(self.result(kind, {}))
        for out, result in zip(self.outs, results, strict=True):
            if out is not None:
                out.look(kind, {})[...] = result


class _Launch:
    """A kernel with the places of its arrays."""

    def __init__(self, kernel: Any, args: tuple[Any, ...]) -> None:
        self.kernel, self.args = kernel, _places(args)

    def run(self, kind: str = "real") -> None:
        self.kernel(_looked(self.args, kind, {}))


def launch(kernel: Any, args: tuple[Any, ...]) -> None:
    """``kernel(args)``, which writes to arrays, on the current stream."""
    call, graph = _Launch(kernel, args), capturing()
    if graph is not None:
        graph.calls.append(call)
    elif MACHINE.delayed:
        call.run("twin")
        enqueue(call.run)
    else:
        call.run()


def _places(x: Any) -> Any:
    if isinstance(x, ndarray):
        if x.index != State.device:
            raise ValueError(f"Array device must be same as the current device: {x.index}")
        return Place(x)
    if type(x) is np.ndarray:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(x, dict):
        return {name: _places(value) for name, value in x.items()}
    return type(x)(map(_places, x)) if type(x) in (list, tuple) else x


def _looked(x: Any, kind: str, scratch: dict[int, Any]) -> Any:
    if isinstance(x, Place):
        return x.look(kind, scratch)
    if isinstance(x, dict):
        return {name: _looked(value, kind, scratch) for name, value in x.items()}
    return type(x)(_looked(v, kind, scratch) for v in x) if type(x) in (list, tuple) else x


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, (np.ndarray, np.generic)):
        return [x]
    return [leaf for part in x for leaf in _leaves(part)] if isinstance(x, (list, tuple)) else []


def run(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``function`` of plain arrays, called with arrays of the current device.

    What it returns is a view where it shares memory with an argument, else new memory.
    """
    if getattr(function, "__name__", "") in WAITING:
        synchronized(function.__name__)
        current_stream().queue.run_to(1 << 62)
    call = Call(function, args, kwargs)
    graph, scratch = capturing(), {}
    kind = "scratch" if graph is not None else "twin" if MACHINE.delayed else "real"
    with np.errstate(all="ignore"):
        result = call.result(kind, scratch)
    holders = {}
    for array in _arrays((args, tuple(kwargs.values()))):
        if array.buffer is None:  # no elements: views know their base all the same
            holders[id(array if array.owner is None else array.owner)] = array
        else:
            data = scratch.get(array.buffer.ptr) if scratch else getattr(array.buffer, kind)
            holders[id(data)] = array

    made = _lifted(result, holders, call, kind)
    _refuse_records(function, args, made)
    if graph is not None:
        graph.calls.append(call)
    elif MACHINE.delayed:
        enqueue(call.run)
    return made


def _refuse_records(function: Any, args: Any, made: Any) -> None:
    """CuPy holds records and looks at them anew; it has no kernel that reads or writes one."""
    if not any(x.dtype.names for x in _arrays((args, made)) if x.size):
        return
    views = isinstance(made, ndarray) and made.owner is not None
    if not views and getattr(function, "__name__", "") not in ("zeros", "empty"):
        raise TypeError("no C type is known for the elements of a record")


def _arrays(x: Any) -> list[ndarray]:
    if isinstance(x, ndarray):
        return [x]
    return [a for part in x for a in _arrays(part)] if isinstance(x, (list, tuple)) else []


def _lifted(x: Any, holders: dict[int, Any], call: Call, kind: str) -> Any:
    """The arrays of a result as arrays on the device."""
    if isinstance(x, (np.ndarray, np.generic)):
        return _lifted_array(np.asarray(x), holders, call, kind)
    if isinstance(x, (list, tuple)):
        parts = [_lifted(part, holders, call, kind) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def _lifted_array(x: np.ndarray, holders: dict[int, Any], call: Call, kind: str) -> ndarray:
    data: Any = x
    while getattr(data, "base", None) is not None:
        data = data.base
    holder = holders.get(id(data))
    if holder is not None and holder.buffer is None:
        call.outs.append(None)
        made = x.view(ndarray)
        made.index, made.owner = holder.index, holder if holder.owner is None else holder.owner
        return made
    if holder is not None:
        call.outs.append(None)
        return _over(x, x.ctypes.data - data.ctypes.data, holder)
    made = empty(x.shape, x.dtype, strides=_strides_like(x))
    if made.buffer is None:
        call.outs.append(None)
        return made
    place = Place(made)
    call.outs.append(place)
    if kind != "scratch":
        place.look(kind, {})[...] = x
    return made


def _strides_like(x: np.ndarray) -> Any:
    dense = x.flags.c_contiguous or x.flags.f_contiguous
    return x.strides if dense else None


def _over(like: np.ndarray, offset: int, holder: ndarray) -> ndarray:
    """A view of the memory of ``holder`` that lies in it as ``like`` does in what it looks at."""
    data = holder.buffer.real
    made = np.ndarray.__new__(ndarray, like.shape, like.dtype, data, offset, like.strides)
    made.buffer, made.memory, made.index = holder.buffer, holder.memory, holder.index
    made.owner = holder if holder.owner is None else holder.owner
    return made


def empty(shape: Any, dtype: Any = float, order: str = "C", strides: Any = None) -> ndarray:
    """Memory from the allocator on the current device, not written."""
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size == 0:
        return np.ndarray.__new__(ndarray, shape, dtype)
    memory = alloc(size)
    buffer = MACHINE.buffers[memory.mem.ptr]
    assert memory.ptr == buffer.ptr, "blocks are not divided"
    made = np.ndarray.__new__(ndarray, shape, dtype, buffer.real, 0, strides, order)
    made.buffer, made.memory = buffer, memory
    return made


class ndarray(np.ndarray):
    """An array on a device: NumPy may not have it for nothing."""

    index = 0
    buffer: Any = None
    memory: Any = None
    owner: Any = None

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Any = None, **kwargs: Any) -> ndarray:
        if memptr is None:
            return empty(shape, dtype, **kwargs)
        buffer = MACHINE.buffers[memptr.mem.ptr]
        place = memptr.ptr - buffer.ptr
        made = np.ndarray.__new__(cls, shape, dtype, buffer.real, place, kwargs.get("strides"))
        made.buffer, made.memory = buffer, memptr
        return made

    def __array_finalize__(self, source: Any) -> None:
        self.index = getattr(source, "index", State.device)
        self.buffer = getattr(source, "buffer", None)
        self.memory = getattr(source, "memory", None)
        if isinstance(source, ndarray):
            self.owner = source if source.owner is None else source.owner

    def view(self, kind: Any = None) -> Any:  # type: ignore[override]
        """Another look at the memory; as ``numpy.ndarray`` for tests, which see the bytes."""
        if kind is None or isinstance(kind, type) and issubclass(kind, np.ndarray):
            return np.ndarray.view(self, kind or ndarray)
        return run(np.ndarray.view, self, kind)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        made = run(getattr(ufunc, method), *inputs, **kwargs)
        return made if out is None else out[0] if len(out) == 1 else out

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(getattr(getattr(part, "dtype", None), "kind", "") == "b" for part in parts):
            synchronized("boolean index")
            current_stream().queue.run_to(1 << 62)
        return run(_getitem, self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        run(_setitem, self, index, value)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    @property
    def device(self) -> Device:
        return Device(self.index)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Where it lies, as CuPy says it."""
        if self.memory is None:
            return alloc(0)
        return MemoryPointer(self.memory.mem, self.ctypes.data - self.memory.mem.ptr)

    @property
    def base(self) -> Any:  # type: ignore[override]
        """The array that owns the memory; CuPy's views name no other."""
        return self.owner

    @property
    def real(self) -> Any:  # type: ignore[override]
        return run(lambda x: x.real, self)

    @real.setter
    def real(self, value: Any) -> None:
        run(_set_part, self, "real", value)

    @property
    def imag(self) -> Any:  # type: ignore[override]
        return run(lambda x: x.imag, self)

    @imag.setter
    def imag(self, value: Any) -> None:
        run(_set_part, self, "imag", value)

    def copy(self, order: Any = "C") -> ndarray:  # type: ignore[override]
        """A copy on the current device, wherever the array lies: the driver moves it."""
        if self.index == State.device:
            return run(lambda x: np.copy(x, order), self)
        made = empty(self.shape, self.dtype)
        lent = self.view()
        lent.index = State.device
        made[...] = lent
        return made

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> np.ndarray:
        """A copy in main memory; ``out`` in pinned memory is written in the stream's order."""
        stream = current_stream() if stream is None else stream
        refuse_in_capture()
        place, target = Place(self), np.empty(self.shape, self.dtype) if out is None else out
        if not target.size:
            return target
        if not blocking and is_memory_pinned(target.ctypes.data):
            view = view_of_pinned(target)
            stream.queue.put(lambda: np.copyto(view, place.look("real", {})))
            return target
        synchronized("ndarray.get")
        stream.queue.run_to(1 << 62)
        target[...] = place.look("real", {})
        return target

    def set(self, source: Any, stream: Any = None) -> None:
        """Written from main memory in the stream's order; pageable memory is staged at once."""
        if self.dtype != source.dtype or self.shape != source.shape:
            raise TypeError(f"{source.dtype} array cannot be set to {self.dtype} array")
        if capturing() is not None:
            raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")
        if not self.size:
            return
        stream = current_stream() if stream is None else stream
        pinned = is_memory_pinned(source.ctypes.data)
        if not pinned:
            synchronized("copy from pageable memory")
        view = view_of_pinned(source) if pinned else source.copy()
        place = Place(self)
        if MACHINE.delayed:
            place.look("twin", {})[...] = view
        stream.queue.put(lambda: np.copyto(place.look("real", {}), view))

    def item(self, *args: Any) -> Any:
        return self.get().item(*args)

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    def __complex__(self) -> complex:
        return complex(self.get())

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("Unsupported device in DLTensor.")


def _getitem(x: np.ndarray, index: Any) -> Any:
    return x[index]


def _setitem(x: np.ndarray, index: Any, value: Any) -> None:
    x[index] = value


def _set_part(x: np.ndarray, part: str, value: Any) -> None:
    setattr(x, part, value)


def _method(name: str) -> Any:
    function = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        result = run(function, self, *args, **kwargs)
        return result if out is None else out

    method.__name__ = name
    return method


for _name in METHODS:
    setattr(ndarray, _name, _method(_name))


def wrapped(function: Any) -> Any:
    """A NumPy function that takes and returns device arrays of the current device only."""

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        result = run(function, *args, **kwargs)
        return out if out is not None else result

    call.__name__ = getattr(function, "__name__", "call")
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
        run(self._function.at, x, index, values)


Ufunc.__name__ = "ufunc"


def asarray(x: Any, dtype: Any = None) -> Any:
    """``cupy.asarray``: an array of main memory is staged in pinned memory, without waiting."""
    if isinstance(x, ndarray):
        return x if dtype is None or x.dtype == dtype else x.astype(dtype)
    if isinstance(x, (list, tuple)) and any(isinstance(part, ndarray) for part in x):
        return wrapped(np.stack)([part.astype(dtype or part.dtype) for part in x])
    plain = np.array(x, dtype=dtype)
    made = empty(plain.shape, plain.dtype)
    if plain.size:
        if capturing() is not None:
            raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")
        place = Place(made)
        if MACHINE.delayed:
            place.look("twin", {})[...] = plain
        enqueue(lambda: np.copyto(place.look("real", {}), plain))
    return made


def asnumpy(x: Any, stream: Any = None, order: str = "C", out: Any = None, *,
            blocking: bool = True) -> np.ndarray:  # fmt: skip
    """``cupy.asnumpy``."""
    return x.get(stream, order, out, blocking) if isinstance(x, ndarray) else np.asarray(x)
