"""Compiled programs as CUDA graphs, where ``cd.compile(mode="reduce-overhead")`` asks for them.

A program runs as it is until its kernels are compiled and it is known which of its inputs stay
where they are, as parameters and the state of optimizers do. Then it is captured. A later call
copies the other inputs into memory of the graph, replays it, and copies its results out, so that
they are the caller's to keep. Numbers that come with a call, and settings (TF32, cuDNN's), are
constants of a graph: there is one for each choice of them.

What cannot be captured runs as it is, with a warning, and ``cd.compiler.explain`` says why.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from coredispatch.plugin import Value, bump_version, from_raw, version_of
from coredispatch_cuda_cupy import capture, cudnn, device_checks
from coredispatch_cuda_cupy.graphs import CapturedGraph
from coredispatch_cuda_cupy.sharing import Order

__all__ = ["Replayed", "asks_for_graphs"]

#: calls before a capture
_WARM = 2
#: choices of numbers that are looked at, and captures of one of them
_MOST_CHOICES, _MOST_CAPTURES = 8, 4


def asks_for_graphs(settings: Mapping[str, Any] | None) -> bool:
    """Whether mode or options of ``cd.compile`` ask for CUDA graphs, as in PyTorch."""
    settings = settings or {}
    options = settings.get("options") or {}
    wanted = options.get("triton.cudagraphs", settings.get("mode") in _MODES)
    return bool(wanted)


_FLOAT32 = np.dtype(np.float32)
_MODES = ("reduce-overhead", "max-autotune")


class Refused(Exception):
    """A program is not captured, for this reason."""


class Replayed:
    """A compiled program, and its graphs.

    Attributes:
        run: the program, to be called below autograd.
        replays, plain: how many calls were replays, and how many ran without.
        captures: how many graphs were captured.
        reason: why nothing more is captured, None while it may be.
    """

    def __init__(self, backend: Any, run: Callable[..., Any]) -> None:
        self.backend, self.run = backend, run
        self.choices: dict[tuple[Any, ...], _Choice] = {}
        self.replays = self.plain = self.captures = 0
        self.reason: str | None = None
        self.lock = threading.RLock()

    def direct(self, *values: Any) -> Any:
        """The results by a replay; NotImplemented where the program is to run as it is."""
        choice = self.choices.get(self.constants(values))
        graph = None if choice is None else choice.graph
        if graph is None or capture.current() is not None:
            return NotImplemented
        raws = [value.raw if isinstance(value, Value) else None for value in values]
        with self.lock, _home(raws):
            if not graph.fits(raws):
                return NotImplemented
            made = graph.replay(values, raws)
            self.replays += 1
            device_checks.finish(self.backend.cupy)
        return made

    def __call__(self, *values: Any) -> Any:
        made = self.direct(*values)
        if made is not NotImplemented:
            return made
        choice = None if capture.current() is not None else self.choice(self.constants(values))
        if choice is None or not self.lock.acquire(blocking=False):
            return self.plainly(values)
        try:
            if choice.calls >= _WARM and self.capture(choice, values):
                return self.direct(*values)
            return choice.watch(self.plainly, values)
        finally:
            self.lock.release()

    def constants(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a graph for this call has as constants: numbers, and settings that kernels obey.

        Types tell 1 from 1.0 and True.
        """
        numbers = [(type(v), repr(v)) for v in values if not isinstance(v, Value)]
        dnn, core = cudnn.settings(), self.backend.cupy._core
        return (
            *numbers,
            core.get_compute_type(_FLOAT32),
            (dnn.enabled, dnn.deterministic, dnn.allow_tf32),
            import_module("coredispatch.backends.cuda").cudnn_sdp_enabled(),
            import_module("coredispatch").are_deterministic_algorithms_enabled(),
        )

    def plainly(self, values: tuple[Any, ...]) -> Any:
        """The program as it is."""
        self.plain += 1
        return self.run(*values)

    def choice(self, constants: tuple[Any, ...]) -> _Choice | None:
        """What is known of calls with these constants; None where nothing more is captured."""
        if self.reason is not None:
            return None
        found = self.choices.get(constants)
        if found is None and len(self.choices) >= _MOST_CHOICES:
            self.refuse(
                f"{_MOST_CHOICES} choices of numbers came with calls: give tensors in their "
                "place, and capturable=True to optimizers"
            )
            return None
        if found is None:
            found = self.choices[constants] = _Choice()
        return found

    def capture(self, choice: _Choice, values: tuple[Any, ...]) -> bool:
        """Whether there is a graph now that serves this call."""
        choice.graph = None  # its memory is free for the next one
        if choice.captures >= _MOST_CAPTURES:
            self.refuse(f"inputs moved after each of {_MOST_CAPTURES} captures")
            return False
        try:
            with _home([value.raw for value in values if isinstance(value, Value)]):
                graph = _Captured(self.backend, self.run, values, choice)
        except Refused as error:
            self.refuse(str(error))
            return False
        except Exception as error:  # the driver refuses what waits, a kernel what it cannot do
            self.refuse(f"{type(error).__name__}: {error}".splitlines()[0])
            return False
        choice.graph = graph
        choice.captures += 1
        self.captures += 1
        return True

    def refuse(self, reason: str) -> None:
        """Capture no more, and say so."""
        self.reason = reason
        text = f"a compiled program runs without CUDA graphs: {reason}"
        warnings.warn(text, UserWarning, stacklevel=2)

    def told(self) -> list[str]:
        """For the report of ``cd.compiler.explain``."""
        lines = [f"CUDA graphs: {self.captures} captured, {self.replays} calls replayed"]
        lines[0] += f", {self.plain} ran without"
        return lines if self.reason is None else [*lines, f"No CUDA graph: {self.reason}"]


class _Choice:
    """Calls with the same constants, and the graph for them.

    Attributes:
        calls: how many were watched.
        places: where the inputs lay in the last one.
        moves: the inputs that did not lie where they lay before.
        writes: by input how often a call counts its version up.
    """

    def __init__(self) -> None:
        self.calls = self.captures = 0
        self.places: list[int] = []
        self.moves: set[int] = set()
        self.writes: list[int] = []
        self.graph: _Captured | None = None

    def watch(self, run: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """Run the program, and note what a graph of it needs to know."""
        self.note(values)
        before = _versions(values)
        made = run(values)
        self.writes = [now - then for now, then in zip(_versions(values), before, strict=True)]
        self.calls += 1
        return made

    def note(self, values: tuple[Any, ...]) -> None:
        """Look at where the inputs lie."""
        places = [v.raw.data.ptr if isinstance(v, Value) else 0 for v in values]
        if self.places:
            self.moves |= {k for k, place in enumerate(places) if place != self.places[k]}
        self.places = places


class _Captured:
    """A program as one graph, for inputs of which some lie where they lay, and others are copied.

    Raises :class:`Refused` for what no graph does rightly, and whatever its capture raises.
    """

    def __init__(
        self, backend: Any, run: Callable[..., Any], values: tuple[Any, ...], choice: _Choice
    ) -> None:
        self.cupy, self.writes = backend.cupy, choice.writes
        choice.note(values)
        self.places = choice.places
        self.copies: dict[int, Any] = {}
        given = list(values)
        for k in sorted(choice.moves):
            self.copies[k] = self.like(values[k].raw)
            given[k] = from_raw(self.copies[k], backend="cuda")
        self.order = Order(self.cupy)
        self.graph = CapturedGraph(self.cupy, backend.pools)
        self.results = [self.result(value, given) for value in self.captured(backend, run, given)]
        self.check_results()

    def captured(self, backend: Any, run: Callable[..., Any], given: list[Any]) -> list[Any]:
        """What the program gives while it is captured."""
        index = int(self.cupy.cuda.runtime.getDevice())
        with backend.streams.current(backend.streams.for_capture(index), index):
            self.graph.begin(None)
            try:
                made = list(run(*given))
            except BaseException:
                with suppress(Exception):  # the first error is the reason
                    self.graph.end()
                raise
            self.graph.end()
        if self.graph.generators:
            raise Refused(
                "it draws random numbers by cuRAND (all but dropout), of which a graph knows no "
                "later manual_seed"
            )
        return made

    # -- memory ------------------------------------------------------------------------------

    def like(self, raw: Any) -> Any:
        """New memory in which an array like this one lies as this one does."""
        if not raw.size:
            return self.cupy.empty(raw.shape, raw.dtype)
        memory = self.cupy.cuda.alloc(_span(raw))
        return self.cupy.ndarray(raw.shape, raw.dtype, memory, strides=raw.strides)

    def copied(self, raw: Any, into: Any) -> None:
        """Put a copy between arrays that lie alike on the current stream."""
        if raw.size:
            stream = self.cupy.cuda.get_current_stream()
            into.data.copy_from_device_async(raw.data, _span(raw), stream)

    def result(self, value: Any, given: list[Any]) -> Any:
        """How a result comes about in a replay: a function of the values and arrays of the call."""
        if not isinstance(value, Value):
            return lambda values, raws: value
        for k, own in enumerate(given):
            if own is value:
                return lambda values, raws, k=k: values[k]
        raw = value.raw
        if type(raw) is not self.cupy.ndarray:
            raise Refused(f"a result is no dense array: {type(raw).__name__}")
        for k, own in enumerate(given):
            if isinstance(own, Value) and raw.size and own.raw.size:
                offset = raw.data.ptr - own.raw.data.ptr
                if 0 <= offset < _span(own.raw):
                    return _View(self.cupy, k, offset, raw)
        return _Made(self, raw)

    def check_results(self) -> None:
        """Refuse results that share memory: their copies would not."""
        made = [r.raw for r in self.results if isinstance(r, _Made) and r.raw.size]
        spans = sorted((raw.data.ptr, raw.data.ptr + _span(raw)) for raw in made)
        if any(stop > start for (_, stop), (start, _) in zip(spans, spans[1:], strict=False)):
            raise Refused("two results share memory")

    # -- calls -------------------------------------------------------------------------------

    def fits(self, raws: list[Any]) -> bool:
        """Whether those inputs that are not copied lie where they lay."""
        return all(
            raw is None or k in self.copies or raw.data.ptr == self.places[k]
            for k, raw in enumerate(raws)
        )

    def replay(self, values: tuple[Any, ...], raws: list[Any]) -> tuple[Any, ...]:
        """Put the graph on the current stream; its results, which are the caller's."""
        self.order.follow()
        for k, into in self.copies.items():
            self.copied(raws[k], into)
        self.graph.replay()
        before = _versions(values)
        for k, writes in enumerate(self.writes):
            if writes and k in self.copies:
                raws[k][...] = self.copies[k]
            for _ in range(before[k] + writes - _version(values[k])):
                bump_version(values[k])
        return tuple([result(values, raws) for result in self.results])


class _View:
    """A result that looks at the memory of an input."""

    def __init__(self, cupy: Any, place: int, offset: int, raw: Any) -> None:
        self.cupy, self.place, self.offset = cupy, place, offset
        self.layout = raw.shape, raw.dtype, raw.strides

    def __call__(self, values: tuple[Any, ...], raws: list[Any]) -> Any:
        shape, dtype, strides = self.layout
        data = raws[self.place].data
        start = self.cupy.cuda.MemoryPointer(data.mem, data.ptr - data.mem.ptr + self.offset)
        return from_raw(self.cupy.ndarray(shape, dtype, start, strides=strides), backend="cuda")


class _Made:
    """A result in memory of the graph, of which the caller gets a copy."""

    def __init__(self, graph: _Captured, raw: Any) -> None:
        self.graph, self.raw = graph, raw
        _span(raw)

    def __call__(self, values: tuple[Any, ...], raws: list[Any]) -> Any:
        made = self.graph.like(self.raw)
        self.graph.copied(self.raw, made)
        return from_raw(made, backend="cuda")


def _span(raw: Any) -> int:
    """Bytes from the first element of an array to behind its last one."""
    if any(step < 0 for step in raw.strides):
        raise Refused("an array of it runs backwards in memory")
    reach = sum((n - 1) * step for n, step in zip(raw.shape, raw.strides, strict=True))
    return reach + int(raw.dtype.itemsize) if raw.size else 0


def _home(raws: list[Any]) -> Any:
    """Makes the device of the inputs current inside a ``with`` block: there is one for all."""
    return next(raw for raw in raws if raw is not None).device


def _version(value: Any) -> int:
    return version_of(value) if isinstance(value, Value) else 0


def _versions(values: tuple[Any, ...]) -> list[int]:
    return list(map(_version, values))
