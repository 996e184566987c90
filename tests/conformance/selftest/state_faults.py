"""Curated faults that show in time: what a kernel keeps, changes, leaks, or does too slowly."""

from __future__ import annotations

import gc
import locale
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import TABLE

from .size_faults import arrays_in, outputs_of

__all__ = ["STATES"]


class Counting:
    """A kernel that knows how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, correct: Any, raws: Any) -> Any:
        self.calls += 1
        return self.answer(correct, raws)

    def answer(self, correct: Any, raws: Any) -> Any:
        raise NotImplementedError


def _off(result: Any) -> Any:
    """The result with its first element changed."""
    parts = outputs_of(result)
    if parts[0].size:
        flat = parts[0].reshape(-1)
        flat[0] = ~flat[0] if flat.dtype.kind == "b" else flat[0] + flat.dtype.type(1)
    return parts[0] if not isinstance(result, (list, tuple)) else tuple(parts)


class RingOfBuffers(Counting):
    """The memory of the first result of a shape is handed out again after 100 others."""

    def __init__(self) -> None:
        super().__init__()
        self.rings: dict[Any, list[Any]] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        result = np.array(correct(*raws))
        ring = self.rings.setdefault((result.shape, result.dtype.str), [])
        if len(ring) < 100:
            ring.append(result)
            return result
        buffer = ring[self.calls % 100]
        buffer[...] = result
        return buffer


class KeyedByShape(Counting):
    """Results are remembered by shape, dtype and first element."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Any] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        arrays = arrays_in(raws)
        firsts = tuple((a.shape, a.dtype.str, a.reshape(-1)[:1].tobytes()) for a in arrays)
        key = (firsts, tuple(r for r in raws if isinstance(r, (int, float))))
        if key not in self.known:
            self.known[key] = np.array(correct(*raws))
        return self.known[key].copy()


class KeyedByIdentity(Counting):
    """Results are remembered by the object that an operand is, and by its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Any] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        key = tuple((id(a), a.shape, a.dtype.str) for a in arrays_in(raws))
        if key not in self.known:
            if len(self.known) > 30:
                self.known.clear()
            self.known[key] = np.array(correct(*raws))
        return self.known[key].copy()


class KeyedByPlace(Counting):
    """A large operand that was packed once is known by the place of its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.packed: dict[Any, Any] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        x, weight, *rest = raws
        if weight.size > 1000:
            key = (weight.ctypes.data, weight.shape, weight.strides, weight.dtype.str)
            weight = self.packed.setdefault(key, weight.copy())
        return correct(x, weight, *rest)


class PlannedByLength(Counting):
    """Where the parts of a list go is worked out once for how many they are and how long."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[Any, Any] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        result, (parts, dim) = correct(*raws), raws
        if not result.ndim or len(parts) < 2:
            return result
        first = parts[0].shape[dim] if parts[0].ndim == result.ndim else 0
        planned = self.plans.setdefault((len(parts), dim, result.shape), first)
        return np.roll(result, planned - first, dim) if planned != first else result


class LargeRing(Counting):
    """Large results come from a ring of four pieces of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.rings: dict[Any, list[Any]] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        result = np.array(correct(*raws))
        if result.size <= 4096:
            return result
        ring = self.rings.setdefault((result.shape, result.dtype.str), [])
        if len(ring) < 4:
            ring.append(result)
            return result
        ring.append(ring.pop(0))
        ring[-1][...] = result
        return ring[-1]


def _flushed_elsewhere(correct: Any, raws: Any) -> Any:
    """Threads other than the first take subnormal numbers for zero."""
    result = np.asarray(correct(*raws))
    if result.dtype.kind != "f" or threading.current_thread() is threading.main_thread():
        return result
    tiny = np.finfo(result.dtype).tiny
    return np.where(np.abs(result) < tiny, result.dtype.type(0), result)


class FirstCallsOnly(Counting):
    """The first call of a process is right, the others are not for long."""

    def answer(self, correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        return _off(result) if self.calls % 97 == 96 else result


class After(Counting):
    """Wrong from the 300th call on."""

    def answer(self, correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        return _off(result) if self.calls > 300 else result


class EveryThousandth(Counting):
    """One call of a thousand is wrong."""

    def answer(self, correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        return _off(result) if self.calls % 1000 == 999 else result


class SharedBetweenThreads(Counting):
    """One scratch buffer for all threads."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch: dict[Any, Any] = {}

    def answer(self, correct: Any, raws: Any) -> Any:
        result = np.asarray(correct(*raws))
        key = (result.shape, result.dtype.str)
        scratch = self.scratch.setdefault(key, np.empty_like(result))
        scratch[...] = result
        return scratch.copy()


class SharedArgument(Counting):
    """The packed operand is a variable of the module."""

    def answer(self, correct: Any, raws: Any) -> Any:
        self.packed = raws
        return correct(*self.packed)


class EightAtOnce(Counting):
    """The slots for what threads compute are seven."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0

    def answer(self, correct: Any, raws: Any) -> Any:
        self.inside += 1
        try:
            if threading.current_thread() is not threading.main_thread():
                time.sleep(2e-4)
            result = correct(*raws)
            return _off(result) if self.inside > 6 else result
        finally:
            self.inside -= 1


class LeftOver(Counting):
    """A scratch buffer that grew for a larger call is read to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def answer(self, correct: Any, raws: Any) -> Any:
        size = max((a.size for a in arrays_in(raws)), default=0)
        result = correct(*raws)
        stale = 0 < size < self.length and size == self.before
        self.before, self.length = size, max(size, self.length)
        return _off(result) if stale else result

    before = 0


class KeepsInputs(Counting):
    """The operands of the last call stay alive."""

    def answer(self, correct: Any, raws: Any) -> Any:
        self.last = raws
        return correct(*raws)


class KeepsEveryTenthInput(Counting):
    """Some operands stay alive for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def answer(self, correct: Any, raws: Any) -> Any:
        if self.calls % 10 == 0:
            self.kept.append(arrays_in(raws)[:1])
        return correct(*raws)


class KeepsResults(Counting):
    """Every result stays alive."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def answer(self, correct: Any, raws: Any) -> Any:
        result = np.array(correct(*raws))
        self.kept.append(result)
        return result


class GrowsByAKilobyte(Counting):
    """A log of the calls is kept in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []

    def answer(self, correct: Any, raws: Any) -> Any:
        self.log.append(bytearray(1000))
        return correct(*raws)


class KeepsEveryEighthCall(Counting):
    """The arguments of every eighth call stay alive."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def answer(self, correct: Any, raws: Any) -> Any:
        if self.calls % 8 == 0:
            self.kept.append(raws)
        return correct(*raws)


class LeavesFilesOpen(Counting):
    """Every call opens a file."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[int] = []

    def answer(self, correct: Any, raws: Any) -> Any:
        if len(self.files) < 400:
            self.files.append(os.open(os.devnull, os.O_RDONLY))
        return correct(*raws)

    def __del__(self) -> None:
        for descriptor in self.files:
            os.close(descriptor)


class LeavesAFileInAWhile(Counting):
    """Every 400th call opens a file."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[int] = []

    def answer(self, correct: Any, raws: Any) -> Any:
        if self.calls % 400 == 0:
            self.files.append(os.open(os.devnull, os.O_RDONLY))
        return correct(*raws)

    def __del__(self) -> None:
        for descriptor in self.files:
            os.close(descriptor)


class LeavesThreads(Counting):
    """The pool of the first call never ends."""

    def answer(self, correct: Any, raws: Any) -> Any:
        if self.calls % 50 == 5:
            threading.Thread(target=time.sleep, args=(3.0,), daemon=True).start()
        return correct(*raws)


class WritesToItsInput(Counting):
    """From the 200th call on an operand serves as scratch."""

    def answer(self, correct: Any, raws: Any) -> Any:
        result = np.array(correct(*raws))
        array = arrays_in(raws)[0]
        if self.calls > 200 and array.size and array.flags.writeable:
            array.reshape(-1)[0] = 0
        return result


def leaving(
    change: Callable[[], Any], every: int = 1, least: int = 0, elsewhere: bool = False
) -> type[Counting]:
    """A kernel that changes something of the process beside computing.

    In one of ``every`` calls, of results of ``least`` elements, or in threads other than the first.
    """

    class Leaving(Counting):
        def answer(self, correct: Any, raws: Any) -> Any:
            result = correct(*raws)
            main = threading.current_thread() is threading.main_thread()
            large = least == 0 or sum(a.size for a in outputs_of(result)) >= least
            if self.calls % every == 0 and large and not (elsewhere and main):
                change()
            return result

    return Leaving


def _environment() -> None:
    os.environ["CONFORMANCE_MUTANT"] = "1"


def _threads() -> None:
    cd.set_num_threads(cd.get_num_threads() + 1)


def _blas_threads() -> None:
    import threadpoolctl  # as a kernel does that wants a product for itself

    for each in threadpoolctl.ThreadpoolController().lib_controllers:
        each.set_num_threads(each.num_threads + 1)


def _locale() -> None:
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")


def _signals() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _handlers() -> None:
    sys.excepthook = lambda *error: None


def _path() -> None:
    sys.path.append("conformance-mutant")


def _filters() -> None:
    warnings.simplefilter("error", BytesWarning)


def _default_dtype() -> None:
    cd.set_default_dtype(cd.float64)


def _grad_mode() -> None:
    cd.set_grad_enabled(False)


def _own_generator() -> None:
    cd.rand(1)


def _numpy_generator() -> None:
    np.random.random()  # noqa: NPY002


def _error_state() -> Any:
    """A kernel that changes NumPy's error state: one of its own, for it is not to be wrapped."""
    correct = TABLE.snapshot.registrations["floor", "cpu", None][0].fn

    def kernel(*raws: Any) -> Any:
        np.seterr(divide="raise")
        return correct(*raws)

    return kernel


def _rows_in_python(correct: Any, raws: Any) -> Any:
    """One call for every element."""
    x = raws[0]
    if x.ndim != 1 or x.size > 1 << 17:
        return correct(*raws)
    result = np.array(correct(*raws))
    for i in range(x.size):
        result[i] = correct(x[i : i + 1], *raws[1:])[0]
    return result


def _line_by_line(correct: Any, raws: Any) -> Any:
    """A loop over the elements without a call in it."""
    result = np.array(correct(*raws))
    if result.ndim != 1 or result.size > 1 << 17:
        return result
    total = [0.0] * result.size
    for i in range(result.size):
        total[i] = i
    return result


class SixtyTimesSlower(Counting):
    """Everything is computed three hundred times."""

    def answer(self, correct: Any, raws: Any) -> Any:
        for _ in range(300):
            correct(*raws)
        return correct(*raws)


def _sleeps(correct: Any, raws: Any) -> Any:
    """Waits for a device that is not there."""
    size = max((a.size for a in arrays_in(raws)), default=0)
    if size > 1000:
        time.sleep(size * 2e-7)
    return correct(*raws)


def _fact(op: str, says: str, *checks: int) -> dict[str, Any]:
    return {"op": op, "ops": (op,), "checks": checks or (31,), "says": says}


_VALUES = "call|values differ|thread|beyond|result"
#: name -> (kernel, or class of kernels with a memory, and fields of the mutant)
STATES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a buffer is handed out again after 100 calls": (RingOfBuffers, _fact("add", _VALUES)),
    "results are remembered by shape and first element": (KeyedByShape, _fact("mul", _VALUES)),
    # Whether an operand takes the identity of an earlier one is up to the allocator: new contents
    # of the same operand (26) tell for certain.
    "results are remembered by identity": (KeyedByIdentity, _fact("exp", _VALUES, 26, 31)),
    "a packed operand is known by its place": (KeyedByPlace, _fact("mm", _VALUES)),
    "a plan for lists that are as long": (PlannedByLength, _fact("cat", _VALUES)),
    "large results from a ring of four": (LargeRing, _fact("exp", "changed with a later")),
    "large products from a ring of four": (LargeRing, _fact("matmul", "changed with a later")),
    "other threads flush subnormals": (_flushed_elsewhere, _fact("mul", "thread")),
    "one call of 97 is wrong": (FirstCallsOnly, _fact("sum", _VALUES)),
    "wrong after 300 calls": (After, _fact("mean", _VALUES)),
    "one call of a thousand is wrong": (EveryThousandth, _fact("exp", _VALUES)),
    "a scratch buffer for all threads": (SharedBetweenThreads, _fact("softmax", "thread")),
    "a scratch buffer for all threads (cumprod)": (
        SharedBetweenThreads, _fact("cumprod", "thread")),
    "operands in a variable of the module": (SharedArgument, _fact("matmul", "thread")),
    "threads beyond the sixth": (EightAtOnce, _fact("tanh", "thread")),
    "what is left of a larger call": (LeftOver, _fact("amax", _VALUES)),
    "the operands of the last call stay alive": (KeepsInputs, _fact("sub", "alive")),
    "some operands stay alive": (KeepsEveryTenthInput, _fact("cat", "alive|memory")),
    "every eighth call stays alive": (KeepsEveryEighthCall, _fact("index_select", "alive")),
    "every result stays alive": (KeepsResults, _fact("neg", "memory|alive")),
    "memory grows by a kilobyte": (GrowsByAKilobyte, _fact("cumsum", "memory")),
    "files stay open": (LeavesFilesOpen, _fact("log", "file")),
    "threads stay": (LeavesThreads, _fact("sort", "thread")),
    "an operand serves as scratch later on": (WritesToItsInput, _fact("sqrt", "written to")),
    "NumPy's error state": (
        None, {**_fact("floor", "error state"), "details": {"kernel": _error_state}}),
    "NumPy's generator": (leaving(_numpy_generator), _fact("sigmoid", "generator")),
    "Python's generator": (leaving(random.random), _fact("relu", "generator")),
    "coredispatch's generator": (leaving(_own_generator), _fact("gelu", "generator")),
    "the working directory": (leaving(lambda: os.chdir("/")), _fact("div", "directory")),
    "the environment": (leaving(_environment), _fact("eq", "environment")),
    "the locale": (leaving(_locale), _fact("lt", "locale")),
    "signal handlers": (leaving(_signals), _fact("gt", "signal")),
    "the number of threads": (leaving(_threads), _fact("mm", "threads")),
    "the threads of BLAS": (leaving(_blas_threads), _fact("bmm", "threads of a library")),
    "hooks of the interpreter": (leaving(_handlers), _fact("le", "hook")),
    "the search path": (leaving(_path), _fact("ge", "path")),
    "filters of warnings": (leaving(_filters), _fact("sin", "warning")),
    "the collector of garbage": (leaving(gc.disable), _fact("cos", "garbage")),
    "the default dtype": (leaving(_default_dtype), _fact("maximum", "default dtype")),
    "the gradient mode": (leaving(_grad_mode), _fact("minimum", "gradient mode")),
    "the way arrays are printed": (
        leaving(lambda: np.set_printoptions(precision=3)), _fact("round", "print")),
    "the limit of recursion": (
        leaving(lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1)),
        _fact("abs", "recursion")),
    "the mask of new files": (leaving(lambda: os.umask(0o077)), _fact("ceil", "mask")),
    "it prints": (leaving(lambda: print("kernel")), _fact("bmm", "print")),
    "it writes to the descriptor of errors": (
        leaving(lambda: os.write(2, b"kernel\n")), _fact("linear", "print")),
    "it prints once in a while": (leaving(lambda: print("kernel"), 90), _fact("prod", "print")),
    "it prints every 500th call": (
        leaving(lambda: print("kernel"), 500), _fact("mul", "many calls prints")),
    "it prints every 1000th call": (
        leaving(lambda: print("kernel"), 1000), _fact("sqrt", "many calls prints")),
    "it prints of large results": (
        leaving(lambda: os.write(2, b"kernel\n"), least=5000),
        _fact("add", "large calls prints")),
    "it prints in other threads": (
        leaving(lambda: print("kernel"), elsewhere=True), _fact("exp", "several threads prints")),
    "the environment every 700th call": (
        leaving(_environment, 700), _fact("cos", "many calls changes the environment")),
    "the environment of large results": (
        leaving(_environment, least=5000), _fact("sub", "large calls changes the environment")),
    "the default dtype in other threads": (
        leaving(_default_dtype, elsewhere=True), _fact("neg", "threads changes the default")),
    "NumPy's generator every 600th call": (
        leaving(_numpy_generator, 600), _fact("abs", "many calls changes.*generator")),
    "a file stays open every 400th call": (
        LeavesAFileInAWhile, _fact("tanh", "many calls leave more.*files")),
    "a call for every element": (_rows_in_python, _fact("trunc", "suspicious.*Python")),
    "a loop over the elements": (_line_by_line, _fact("cos", "suspicious.*Python")),
    "everything three hundred times": (SixtyTimesSlower, _fact("atan", "suspicious.*neighbours")),
    "it waits": (_sleeps, _fact("clone", "suspicious.*neighbours")),
}  # fmt: skip
