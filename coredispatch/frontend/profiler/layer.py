"""The layer of the profiler: below all others, it times what each operator does.

It sees the calls that layers above have left: forward passes below autograd, and the operators of
backward passes. A decomposition runs with the layer still in force, so that its operators are
children of the composite's event.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from coredispatch.frontend.profiler.stacks import program_stack
from coredispatch.plugin import Layer, LayerEntry, Mode, Registrar, Switch, Value, hookimpl
from coredispatch.registry.dispatch.boxed_kernels import DecompositionEntry, run_decomposition
from coredispatch.registry.dispatch.dispatcher import Entry, enter
from coredispatch.registry.dispatch.inplace_kernels import InplaceEntry
from coredispatch.registry.dispatch.raw_kernels import RawEntry
from coredispatch.registry.model.backend import Kernel
from coredispatch.registry.wiring import GRAPH, HOOKS, OBSERVERS

__all__ = ["Recorder", "Span", "coredispatch_register", "profiling"]


class Span:
    """One event as it is recorded; times are nanoseconds."""

    __slots__ = (
        "category",
        "children",
        "dtypes",
        "end",
        "flops",
        "kernel",
        "memory",
        "name",
        "parent",
        "sequence",
        "shapes",
        "stack",
        "start",
        "thread",
    )

    def __init__(self, name: str, category: str, parent: Span | None) -> None:
        self.name, self.category, self.parent = name, category, parent
        self.children: list[Span] = []
        self.start = self.end = 0
        self.thread = get_ident()
        self.memory = self.flops = 0
        self.sequence = -1
        self.shapes: list[Any] = []
        self.dtypes: list[str] = []
        self.kernel = ""
        self.stack: list[str] = []


class Recorder:
    """Takes the events while it is ``on``; a stack for each thread makes them a forest."""

    def __init__(self, *, shapes: bool, memory: bool, stack: bool, flops: bool) -> None:
        self.on = False
        self.shapes, self.memory, self.stack, self.flops = shapes, memory, stack, flops
        self.spans: list[Span] = []
        self._open: dict[int, list[Span]] = {}

    def begin(self, name: str, category: str) -> Span:
        """Open an event inside the innermost one of this thread."""
        stack = self._open.setdefault(get_ident(), [])
        span = Span(name, category, stack[-1] if stack else None)
        if stack:
            stack[-1].children.append(span)
        if self.stack:
            span.stack = program_stack()
        stack.append(span)
        self.spans.append(span)
        span.start = perf_counter_ns()
        return span

    def end(self, span: Span) -> None:
        """Close the event, and what was left open inside it."""
        span.end = perf_counter_ns()
        stack = self._open.get(span.thread, [])
        while span in stack:
            stack.pop()

    def take(self) -> list[Span]:
        """What was recorded so far; the recorder begins anew."""
        now = perf_counter_ns()
        for span in self.spans:
            span.end = span.end or now
        spans, self.spans, self._open = self.spans, [], {}
        return spans

    @contextmanager
    def span(self, name: str, category: str = "user_annotation") -> Any:
        """An event around a block."""
        if not self.on:
            yield None
            return
        span = self.begin(name, category)
        try:
            yield span
        finally:
            self.end(span)

    @contextmanager
    def backward(self, node: Any) -> Any:
        """The two events that PyTorch has around the backward of a node."""
        name = node.name()
        with (
            self.span(f"autograd::engine::evaluate_function: {name}", "cpu_op"),
            self.span(name, "cpu_op") as span,
        ):
            if span is not None:
                span.sequence = node.sequence
            yield


class profiling(Mode):
    """Switches the layer on; the block's :class:`Recorder` takes the events."""

    switch = Switch(on=("profiler",))
    _running = 0

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def state(self) -> Recorder:
        """What the layer's kernels write to."""
        return self.recorder

    def push(self) -> Any:
        """Also let optimizers, data loaders and the engine tell of what they do."""
        profiling._running += 1
        _listen()
        return super().push()

    def pop(self, token: Any) -> None:
        """The last profiler of the process switches that off again."""
        profiling._running -= 1
        _listen()
        super().pop(token)


def _listen() -> None:
    active = profiling._running > 0
    OBSERVERS.span = _span if active else None
    GRAPH.profile = _backward if active else None
    GRAPH.watch()


@contextmanager
def _span(name: str) -> Any:
    recorder = profiling.current()
    if recorder is None:  # somebody else's, in another thread
        yield
        return
    with recorder.span(name):
        yield


@contextmanager
def _backward(node: Any) -> Any:
    recorder = profiling.current()
    if recorder is None:
        yield
        return
    with recorder.backward(node):
        yield


class ProfileEntry(LayerEntry):
    """The layer's kernel for one operator and key set."""

    def __init__(self, op: Any, *rest: Any) -> None:
        super().__init__(op, *rest)
        self.name = op.name if "::" in op.name else f"aten::{op.name}"
        self.kernel: str | None = None

    def call(self, args: tuple[Any, ...]) -> Any:
        recorder = profiling.current()
        if recorder is None or not recorder.on:
            return self.below(args)
        entry = self.next
        if entry is None:
            entry = self.next = HOOKS.resolve(self.op, self.keys & ~self.down, self.down)
        span = recorder.begin(self.name, "cpu_op")
        try:
            if isinstance(entry, DecompositionEntry) and entry.record is None:
                out = run_decomposition(self, entry.fn, args)
            else:
                out = enter(entry, args)
        finally:
            recorder.end(span)
        span.kernel = served_by(entry, args, self.record)
        if recorder.shapes:
            span.shapes = [_shape(argument) for argument in args]
            span.dtypes = [_dtype(argument) for argument in args]
        if recorder.memory:
            span.memory = sum(_new_bytes(item, args) for item in _items(out))
        if recorder.flops:
            span.flops = flops(self.op.name, args)
        return out


def served_by(entry: Entry, args: tuple[Any, ...], op: Any) -> str:
    """Whose kernel served the call: the plugin that registered it, or that of the decomposition."""
    if isinstance(entry, InplaceEntry):
        return served_by(entry.inner, args, op)
    found = entry
    if isinstance(entry, RawEntry) and entry.least and isinstance(args[0], Value):
        found = entry.fitting(args[0].raw)
    if isinstance(found.record, Kernel):
        return str(found.record.plugin)
    if isinstance(entry, DecompositionEntry):
        return f"{op.plugin} (decomposition)"
    return ""


def _items(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def _shape(argument: Any) -> Any:
    if isinstance(argument, Value):
        return list(argument.raw.shape)
    if isinstance(argument, (list, tuple)) and any(isinstance(item, Value) for item in argument):
        return [_shape(item) for item in argument]
    return []


def _dtype(argument: Any) -> str:
    if isinstance(argument, Value):
        return str(argument.raw.dtype)
    if isinstance(argument, (list, tuple)) and any(isinstance(item, Value) for item in argument):
        return "TensorList"
    return "" if argument is None else "Scalar" if isinstance(argument, (int, float)) else ""


def _new_bytes(item: Any, args: tuple[Any, ...]) -> int:
    """Bytes of a result that is neither an argument nor a view."""
    if not isinstance(item, Value) or item._view is not None:
        return 0
    if any(item is argument for argument in args):
        return 0
    tensor: Any = item
    return int(tensor.nbytes)


def _product(lengths: Any) -> int:
    count = 1
    for length in lengths:
        count *= length
    return count


def flops(name: str, args: tuple[Any, ...]) -> int:
    """Floating-point operations of a call of a matrix product, a convolution, ``add`` or ``mul``.

    Zero for all other operators, as in PyTorch.
    """
    shapes = [tuple(a.raw.shape) if isinstance(a, Value) else () for a in args]
    if name in ("matmul", "mm", "bmm") and shapes[0] and shapes[1]:
        columns = shapes[1][-1] if len(shapes[1]) > 1 else 1
        return int(2 * _product(shapes[0]) * columns)
    if name == "linear" and shapes[0]:
        return 2 * _product(shapes[0]) * (shapes[1][0] if len(shapes[1]) > 1 else 1)
    if name in ("addmm", "baddbmm") and len(shapes) > 2:
        return int(2 * _product(shapes[1]) * shapes[2][-1])
    if name in ("add", "mul"):
        return max(_product(shape) for shape in shapes[:2])
    if name in ("conv1d", "conv2d", "conv3d") and len(shapes) > 1:
        return _conv_flops(shapes[0], shapes[1], args)
    return 0


def _conv_flops(image: Any, weight: Any, args: tuple[Any, ...]) -> int:
    dims = len(weight) - 2
    stride, padding, dilation = (
        value if isinstance(value, tuple) else (value,) * dims for value in args[3:6]
    )
    outputs = 1
    for i in range(dims):
        if isinstance(padding[i], str):
            return 0
        reach = dilation[i] * (weight[2 + i] - 1) + 1
        outputs *= (image[i - dims] + 2 * padding[i] - reach) // stride[i] + 1
    batch = image[0] if len(image) == dims + 2 else 1
    return 2 * int(batch) * outputs * _product(weight)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``profiler``, below every other."""
    registrar.layer(Layer("profiler", generic=ProfileEntry, below=("*",)))
