"""What a process shares among all of its code, which no kernel may change."""

from __future__ import annotations

import contextlib
import decimal
import gc
import locale
import logging
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import coredispatch as cd

__all__ = [
    "Outputs",
    "State",
    "drifting",
    "global_generators",
    "growing",
    "lasting",
    "passing",
    "unusual",
]


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _signals() -> dict[Any, Any]:
    return {s: signal.getsignal(s) for s in signal.valid_signals()}


def _restore_signals(kept: dict[Any, Any]) -> None:
    for number, handler in kept.items():
        if handler is not None and signal.getsignal(number) is not handler:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, handler)


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}


def _restore_environment(kept: dict[str, str]) -> None:
    for name in _environment().keys() - kept.keys():
        del os.environ[name]
    os.environ.update(kept)


def _numpy_generator() -> Any:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return kind, bytes(keys), *rest


def _files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _hooks() -> tuple[Any, ...]:
    return sys.excepthook, sys.displayhook, sys.unraisablehook


def _restore_hooks(kept: tuple[Any, ...]) -> None:
    sys.excepthook, sys.displayhook, sys.unraisablehook = kept


def _traces() -> tuple[Any, ...]:
    return sys.gettrace(), sys.getprofile()


def _restore_traces(kept: tuple[Any, ...]) -> None:
    sys.settrace(kept[0])
    sys.setprofile(kept[1])


def _error_calls() -> tuple[Any, ...]:
    return np.geterrcall(), np.getbufsize()


def _restore_error_calls(kept: tuple[Any, ...]) -> None:
    np.seterrcall(kept[0])
    np.setbufsize(kept[1])


#: timers of the processor's time; that of real time is what a test runner stops tests by
_CLOCKS = [getattr(signal, n) for n in ("ITIMER_VIRTUAL", "ITIMER_PROF") if hasattr(signal, n)]


def _timers() -> tuple[bool, ...]:
    """Which timers run; not how long they still have."""
    return tuple(signal.getitimer(clock) != (0.0, 0.0) for clock in _CLOCKS)


def _stop_timers(kept: tuple[bool, ...]) -> None:
    for clock, running in zip(_CLOCKS, kept, strict=True):
        if not running:
            signal.setitimer(clock, 0.0)


def _processors() -> Any:
    """On which processors the process may run, where the system tells."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def _restore_processors(kept: Any) -> None:
    if kept is not None:
        os.sched_setaffinity(0, kept)


def _logging() -> tuple[int, int]:
    """What is logged; handlers are a test runner's own."""
    return logging.root.level, logging.root.manager.disable


def _restore_logging(kept: tuple[int, int]) -> None:
    logging.root.setLevel(kept[0])
    logging.disable(kept[1])


def _decimals() -> tuple[int, str]:
    context = decimal.getcontext()
    return context.prec, context.rounding


def _restore_decimals(kept: tuple[int, str]) -> None:
    context = decimal.getcontext()
    context.prec, context.rounding = kept


def _threads() -> Any:
    return cd.get_num_threads(), os.environ.get("OMP_NUM_THREADS")


class _Counts(dict[str, int]):
    """Threads by the file of a library; equal where those are that both know."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, dict)
        return all(other.get(file, count) == count for file, count in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other


#: what reads the threads of libraries, by how many modules there were: imports bring more of them
_controllers: dict[int, Any] = {}


def _libraries() -> list[Any]:
    """Each BLAS and OpenMP of the process, where threadpoolctl is installed."""
    loaded = len(sys.modules)
    if loaded not in _controllers:
        try:
            import threadpoolctl
        except ImportError:
            return []
        _controllers.clear()
        _controllers[len(sys.modules)] = threadpoolctl.ThreadpoolController()
    return list(_controllers.values())[0].lib_controllers  # type: ignore[no-any-return]


def _library_threads() -> _Counts:
    return _Counts({each.filepath: each.num_threads for each in _libraries()})


def _set_library_threads(kept: dict[str, int]) -> None:
    for each in _libraries():
        if kept.get(each.filepath, each.num_threads) != each.num_threads:
            each.set_num_threads(kept[each.filepath])


def _rounding() -> Any:
    """Whether subnormal numbers are computed, and how halves are rounded."""
    one, tiny = np.float64(1.0), np.float64(5e-324)
    up = float(one + np.float64(2.0**-53))
    down = float(-one - np.float64(2.0**-53))
    return float(tiny * one), up, down


def _collector() -> tuple[bool, tuple[int, ...]]:
    return gc.isenabled(), gc.get_threshold()


def _restore_collector(kept: tuple[bool, tuple[int, ...]]) -> None:
    _set_collector(kept[0])
    gc.set_threshold(*kept[1])


def _set_collector(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


def _set_gradients(enabled: bool) -> None:
    cd.set_grad_enabled(enabled)


def _nothing(kept: Any) -> None:
    """What cannot be put back, or puts itself back."""


_Look = tuple[Callable[[], Any], Callable[[Any], Any]]
#: what nobody changes while a backend is at work
_LASTING: dict[str, _Look] = {
    "NumPy's error state": (np.geterr, lambda kept: np.seterr(**kept)),
    "the working directory": (os.getcwd, os.chdir),
    "the environment": (_environment, _restore_environment),
    "the locale": (
        lambda: locale.setlocale(locale.LC_ALL),
        lambda kept: locale.setlocale(locale.LC_ALL, kept),
    ),
    "signal handlers": (_signals, _restore_signals),
    "the number of threads of a call": (_threads, lambda kept: cd.set_num_threads(kept[0])),
    "the number of threads of a library": (_library_threads, _set_library_threads),
    "what NumPy does with errors, and its buffers": (_error_calls, _restore_error_calls),
    "hooks of the interpreter": (_hooks, _restore_hooks),
    "timers of the process": (_timers, _stop_timers),
    "what traces the interpreter": (_traces, _restore_traces),
    "the processors it may run on": (_processors, _restore_processors),
    "what is logged": (_logging, _restore_logging),
    "the precision of decimal numbers": (_decimals, _restore_decimals),
    "the search path": (lambda: [*sys.path], lambda kept: sys.path.__setitem__(slice(None), kept)),
    "the collector of garbage": (_collector, _restore_collector),
    "the default dtype": (cd.get_default_dtype, cd.set_default_dtype),
    "the gradient mode": (cd.is_grad_enabled, _set_gradients),
    "how NumPy prints": (np.get_printoptions, lambda kept: np.set_printoptions(**kept)),
    "the limit of recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
    "the interval of threads": (sys.getswitchinterval, sys.setswitchinterval),
    "the mask of new files": (_mask, lambda kept: os.umask(kept)),
}
#: what others change as well, and what is opened or started once
_PASSING: dict[str, _Look] = {
    "NumPy's global generator": (_numpy_generator, _nothing),
    "Python's global generator": (random.getstate, random.setstate),
    "coredispatch's generator": (lambda: cd.get_rng_state().tolist(), _nothing),
    "the threads of the process": (threading.active_count, _nothing),
    "the number of open files": (_files, _nothing),
    "how the processor rounds": (_rounding, _nothing),
}  # fmt: skip
_LOOKS = {**_LASTING, **_PASSING}


@dataclass(frozen=True)
class State:
    """What was seen of the process, by name."""

    seen: dict[str, Any]

    def restore(self) -> None:
        """Put back what can be put back."""
        for name, (look, put) in _LOOKS.items():
            if name in self.seen and look() != self.seen[name]:
                put(self.seen[name])

    def differences(self, later: State) -> list[str]:
        """What differs, in words."""
        return [
            f"{name}: {_short(self.seen[name], later.seen[name])}"
            for name in self.seen
            if name in later.seen and self.seen[name] != later.seen[name]
        ]

    def grown(self, later: State) -> list[str]:
        """What there is more of later, in words; all that was seen is counted."""
        return [
            f"{name}: {before} became {later.seen[name]}"
            for name, before in self.seen.items()
            if later.seen[name] > before
        ]


def lasting() -> State:
    """What nobody changes while a backend is at work, as it is now."""
    return State({name: look() for name, (look, _) in _LASTING.items()})


def passing() -> State:
    """The rest of the state of the process, as it is now."""
    return State({name: look() for name, (look, _) in _PASSING.items()})


# ---- settings that nobody has by default --------------------------------------------------------


def _numeric() -> str:
    return locale.setlocale(locale.LC_NUMERIC)


def _other_locale(kept: str) -> None:
    locale.setlocale(locale.LC_NUMERIC, "C" if kept == "C.UTF-8" else "C.UTF-8")


def _own_handler(number: int, frame: Any) -> None:
    """A handler of a signal that nobody sends."""


def _handle(kept: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, _own_handler)


#: how a setting is read, how it is given an unusual value, and how the former one comes back
_UNUSUAL: tuple[tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (np.geterr, lambda kept: np.seterr(all="ignore"), lambda kept: np.seterr(**kept)),
    (
        np.get_printoptions,
        lambda kept: np.set_printoptions(precision=5),
        lambda kept: np.set_printoptions(**kept),
    ),
    (np.random.get_state, lambda kept: np.random.random(), np.random.set_state),  # noqa: NPY002
    (random.getstate, lambda kept: random.random(), random.setstate),
    (cd.get_rng_state, lambda kept: cd.rand(1), cd.set_rng_state),
    (_signals, _handle, _restore_signals),
    (_numeric, _other_locale, lambda kept: locale.setlocale(locale.LC_NUMERIC, kept)),
    (cd.get_num_threads, lambda kept: cd.set_num_threads(kept + 1), cd.set_num_threads),
    (_library_threads, _nothing, _set_library_threads),  # which the one before sets as well
    (gc.isenabled, lambda kept: _set_collector(not kept), _set_collector),
    (cd.get_default_dtype, lambda kept: cd.set_default_dtype(cd.float64), cd.set_default_dtype),
    (cd.is_grad_enabled, lambda kept: _set_gradients(not kept), _set_gradients),
    (
        sys.getrecursionlimit,
        lambda kept: sys.setrecursionlimit(kept + 1),
        sys.setrecursionlimit,
    ),
    (
        sys.getswitchinterval,
        lambda kept: sys.setswitchinterval(kept * 2),
        sys.setswitchinterval,
    ),
    (_mask, lambda kept: os.umask(0o027), lambda kept: os.umask(kept)),
)


@contextlib.contextmanager
def unusual() -> Iterator[None]:
    """Inside the block the process has settings that nobody has by default.

    Code that puts a default back, and not what was there, is seen by them; so is one that seeds
    a generator with a number of its own.
    """
    held = [(look(), put) for look, _, put in _UNUSUAL]
    try:
        for (kept, _), (_, change, _) in zip(held, _UNUSUAL, strict=True):
            with contextlib.suppress(locale.Error):
                change(kept)
        yield
    finally:
        for kept, put in held:
            put(kept)


def _named(*names: str) -> State:
    return State({name: _PASSING[name][0]() for name in names})


def global_generators() -> State:
    """The states of the generators that no kernel draws from."""
    return _named("NumPy's global generator", "Python's global generator")


def drifting() -> State:
    """What only code that draws, or that sets the processor, changes."""
    return _named(
        "NumPy's global generator",
        "Python's global generator",
        "coredispatch's generator",
        "how the processor rounds",
    )


def growing() -> State:
    """How much is open and running now."""
    return _named("the number of open files", "the threads of the process")


def _short(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        names = [k for k in {*before, *after} if before.get(k) != after.get(k)]
        return ", ".join(sorted(map(str, names))[:3])
    plain = isinstance(before, (int, float, str, bool))
    return f"{before} became {after}"[:80] if plain else "it is another"


class Outputs:
    """What the process writes to its standard output and error inside a ``with`` block.

    The descriptors are redirected: what compiled code writes is seen as well.
    """

    def __enter__(self) -> Outputs:
        self._flush()
        self._file = tempfile.TemporaryFile()
        self._kept = [os.dup(1), os.dup(2)]
        self._streams = sys.stdout, sys.stderr
        for number in (1, 2):
            os.dup2(self._file.fileno(), number)
        own = open(os.dup(self._file.fileno()), "w", buffering=1, encoding="utf-8")
        self._own = own
        sys.stdout = sys.stderr = own
        return self

    def __exit__(self, *_: object) -> None:
        self._own.flush()
        sys.stdout, sys.stderr = self._streams
        self._own.close()
        for number, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        self._file.seek(0)
        self._text = self._file.read().decode("utf-8", "replace")
        self._file.close()

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    def text(self) -> str:
        """What was written, after the block."""
        return self._text
