"""Groups of operators as CUDA C++: chains in one pass, softmax and normalizations a block per row.

A group that reduces rows is a sequence of loops over one row, its *phases*: what needs the result
of a reduction is in a later phase. What an earlier phase computed is computed again, from values
that are in the cache by then. Sizes and strides are constants of the text.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cuda_cupy.cuda.loading import text as text_of
from coredispatch_cuda_cupy.expressions import COMPUTED, TYPES, Written, literal

__all__ = ["BLOCK", "PRELUDE", "Call", "Text"]

#: threads of a block, at most
BLOCK = 256
PRELUDE = """
template <typename T> __device__ T largest(T a, T b) { return b > a || b != b ? b : a; }
template <typename T> __device__ T smallest(T a, T b) { return b < a || b != b ? b : a; }
template <typename T> __device__ T added(T a, T b) { return a + b; }
template <typename T> __device__ T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <typename T> __device__ T silu(T x) { return x / (T(1) + exp(-x)); }
template <typename T> __device__ T silu_backward(T g, T x) {
    T s = sigmoid(x);
    return g * (s * (T(1) + x * (T(1) - s)));
}
template <typename T> __device__ T normal_cdf(T x) {
    return T(0.5) * (T(1) + erf(x * T(0.7071067811865476)));
}
template <typename T> __device__ T gelu(T x) { return x * normal_cdf(x); }
template <typename T> __device__ T gelu_backward(T g, T x) {
    return g * (normal_cdf(x) + x * exp(T(-0.5) * x * x) * T(0.3989422804014327));
}
template <typename T> __device__ T gelu_tanh(T x) {
    T inner = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + tanh(inner));
}
template <typename T> __device__ T gelu_backward_tanh(T g, T x) {
    T t = tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x));
    T slope = T(0.7978845608028654) * (T(1) + T(0.134145) * x * x);
    return g * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope);
}
template <typename T, T (*fold)(T, T)> __device__ T over_block(T x, T* pad) {
    pad[threadIdx.x] = x;
    __syncthreads();
    for (unsigned int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) pad[threadIdx.x] = fold(pad[threadIdx.x], pad[threadIdx.x + half]);
        __syncthreads();
    }
    x = pad[0];
    __syncthreads();
    return x;
}
"""
_FOLD = {"sum": "added", "mean": "added", "amax": "largest", "amin": "smallest"}
_START = {"sum": 0.0, "mean": 0.0, "amax": -np.inf, "amin": np.inf}


class Call(NamedTuple):
    """A node of a group: pointwise (``written``), or a reduction of ``operand``.

    Attributes:
        type: of its result.
        shape: of its result.
    """

    type: str
    shape: tuple[int, ...]
    written: Written | None
    reduction: str = ""
    operand: Any = None


class Text:
    """The text of one group's kernel.

    Args:
        step: how the group goes through its elements.
        calls: by node what it does, in order.
        arrays: by node the arrays that come from outside, or arrays of their sizes and strides.
        outputs: the nodes whose results are written, in order.

    Attributes:
        code: the CUDA C++. The kernel ``fused`` takes the arrays, then the outputs.
        block: how many threads a block has.
        grid: how many blocks there are.
    """

    def __init__(
        self, step: Any, calls: dict[Any, Call], arrays: dict[Any, Any], outputs: list[Any]
    ) -> None:
        self.shape, self.inner = step.shape, step.inner
        self.calls, self.arrays, self.outputs = calls, arrays, outputs
        self.names = {node: f"v{k}" for k, node in enumerate(calls)}
        self.given = {node: f"p{k}" for k, node in enumerate(arrays)}
        self.made = {node: f"o{k}" for k, node in enumerate(outputs)}
        self.lines: list[str] = []
        self.have: dict[Any, str] = {}
        size = prod(self.shape)
        if step.kind == "row":
            self.length = prod(self.shape[len(self.shape) - self.inner :])
            self.block = min(BLOCK, max(32, 1 << (self.length - 1).bit_length()))
            self.grid = min(size // self.length, 1 << 20)
            self.row(size // self.length)
        else:
            self.block, self.grid = BLOCK, min(-(-size // BLOCK), 1 << 16)
            self.point(size)
        pointers = [
            f"const {TYPES[array.dtype.name]}* {self.given[node]}" for node, array in arrays.items()
        ]
        pointers += [f"{calls[node].type}* __restrict__ {self.made[node]}" for node in outputs]
        head = f'extern "C" __global__ void fused({", ".join(pointers)}) {{'
        self.code = "\n".join([text_of("halves"), PRELUDE, head, *self.lines, "}", ""])

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # -- loops -----------------------------------------------------------------------------------

    def point(self, size: int) -> None:
        """One element after the other."""
        self.line(1, "long long step = (long long)gridDim.x * blockDim.x;")
        first = "(long long)blockIdx.x * blockDim.x + threadIdx.x"
        self.line(1, f"for (long long i = {first}; i < {size}; i += step) {{")
        for node in self.outputs:
            self.line(
                2,
                f"{self.made[node]}[i] = {self.value(node, self.calls[node].type, 2, self.shape)};",
            )
        self.line(1, "}")

    def row(self, rows: int) -> None:
        """One row after the other, each by a block."""
        self.schedule()
        used = sorted({call.type for call in self.calls.values() if call.reduction})
        for kind in used:
            self.line(1, f"__shared__ {kind} pad_{kind}[{self.block}];")
        self.line(1, f"for (long long r = blockIdx.x; r < {rows}; r += gridDim.x) {{")
        for phase in range(max(self.phase.values()) + 1):
            self.per_row(phase)
            self.through(phase)
        self.line(1, "}")

    def schedule(self) -> None:
        """In which loop over the row each node can be computed; values per row: before which."""
        self.phase: dict[Any, int] = {}
        for node, call in self.calls.items():
            used = [call.operand] if call.reduction else [a for a, _ in call.written.operands]  # type: ignore[union-attr]
            ready = [self.phase[other] for other in used if _is_one_of(other, self.calls)]
            self.phase[node] = max(ready, default=0) + bool(call.reduction)

    def is_full(self, node: Any) -> bool:
        """Whether a node has an element for each element of the row."""
        return not self.calls[node].reduction and self.calls[node].shape == self.shape

    def per_row(self, phase: int) -> None:
        """Values with one element per row that are there before this loop."""
        for node, call in self.calls.items():
            if self.is_full(node) or self.phase[node] != phase:
                continue
            if not call.reduction:
                self.line(2, f"{call.type} {self.names[node]} = {self.expression(node, 2)};")
                self.have[node] = self.names[node]
            if node in self.made:
                self.line(2, f"if (threadIdx.x == 0) {self.made[node]}[r] = {self.names[node]};")

    def through(self, phase: int) -> None:
        """One loop over the row."""
        reductions = [
            n for n, call in self.calls.items() if call.reduction and self.phase[n] == phase + 1
        ]
        sinks = [n for n in self.outputs if self.is_full(n) and self.phase[n] == phase]
        if not reductions and not sinks:
            return
        for node in reductions:
            call = self.calls[node]
            start = literal(_START[call.reduction], call.type)
            self.line(2, f"{call.type} {self.names[node]} = {start};")
        self.line(2, f"for (long long j = threadIdx.x; j < {self.length}; j += blockDim.x) {{")
        self.line(3, f"long long i = r * {self.length} + j;")
        kept = dict(self.have)
        for node in reductions:
            call, name = self.calls[node], self.names[node]
            value = self.value(call.operand, call.type, 3, self.shape)
            self.line(3, f"{name} = {_FOLD[call.reduction]}({name}, {value});")
        for node in sinks:
            self.line(
                3,
                f"{self.made[node]}[i] = {self.value(node, self.calls[node].type, 3, self.shape)};",
            )
        self.line(2, "}")
        self.have = kept
        for node in reductions:
            call, name = self.calls[node], self.names[node]
            fold = f"over_block<{call.type}, {_FOLD[call.reduction]}<{call.type}>>"
            divided = f" / {self.length}" if call.reduction == "mean" else ""
            self.line(2, f"{name} = {fold}({name}, pad_{call.type}){divided};")
            self.have[node] = name

    # -- values ----------------------------------------------------------------------------------

    def value(self, source: Any, kind: str, depth: int, shape: tuple[int, ...]) -> str:
        """The text of a value as ``kind``, for a node of this shape; what it needs comes first."""
        if _is_one_of(source, self.calls):
            if source not in self.have:
                text = self.expression(source, depth)
                self.line(depth, f"{self.calls[source].type} {self.names[source]} = {text};")
                self.have[source] = self.names[source]
            own, text = self.calls[source].type, self.have[source]
        elif _is_one_of(source, self.arrays):
            own, text = TYPES[self.arrays[source].dtype.name], self.loaded(source, depth, shape)
        else:
            return literal(source, kind)
        if own == kind:
            return text
        if own in COMPUTED:
            own, text = COMPUTED[own], f"widened({text})"
        return text if own == kind else f"(({kind}){text})"

    def expression(self, node: Any, depth: int) -> str:
        written, shape = self.calls[node].written, self.calls[node].shape
        assert written is not None
        values = [self.value(source, kind, depth, shape) for source, kind in written.operands]
        text, own = written.text.format(*values, T=written.type), self.calls[node].type
        return f"Narrowed<{own}>::of({text})" if own in COMPUTED else text

    def loaded(self, source: Any, depth: int, shape: tuple[int, ...]) -> str:
        """An element of an array: that of this place, or of this row."""
        full = shape == self.shape
        if (source, full) not in self.have:
            array, name = self.arrays[source], f"{self.given[source]}{'i' if full else 'r'}"
            outer = len(shape) if full else len(self.shape) - self.inner
            place = _place(shape[:outer], _strides(array, shape)[:outer], "i" if full else "r")
            kind = TYPES[array.dtype.name]
            self.line(depth, f"{kind} {name} = {self.given[source]}[{place}];")
            self.have[source, full] = name
        return self.have[source, full]


def _is_one_of(source: Any, nodes: dict[Any, Any]) -> bool:
    return hasattr(source, "graph") and source in nodes


def _strides(array: Any, shape: tuple[int, ...]) -> list[int]:
    """The distances of an array's elements, as it is broadcast to ``shape``."""
    own = [
        0 if size == 1 else stride // array.itemsize
        for size, stride in zip(array.shape, array.strides, strict=True)
    ]
    return [0] * (len(shape) - len(own)) + own


def _place(sizes: tuple[int, ...], strides: list[int], index: str) -> str:
    """The text of the place of element ``index``, counted in row-major order."""
    kept: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size != 1 and kept and kept[-1][1] == stride * size:
            kept[-1] = kept[-1][0] * size, stride
        elif size != 1:
            kept.append((size, stride))
    terms, below = [], 1
    for k, (size, stride) in reversed(list(enumerate(kept))):
        if stride:
            part = index if below == 1 else f"{index} / {below}"
            part = part if k == 0 else f"({part}) % {size}"
            terms.append(part if stride == 1 else f"({part}) * {stride}")
        below *= size
    return " + ".join(terms) or "0"
