"""Attention of float16 and bfloat16 on tensor cores, in memory that does not grow with the product
of queries and keys.

Gradients compute the result once more, as their operator is not given it, then that of the query
and those of key and value, each in an order of its own that is fixed.
"""

from __future__ import annotations

from typing import Any

from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS
from coredispatch_cuda_cupy.cuda.loading import Family

__all__ = ["DEEPEST", "HALVES", "Flash"]

#: the dtypes, and the most features of a key or value that kernels are made for
HALVES = ("float16", "bfloat16")
DEEPEST = 128
#: threads of a block, and rows or keys that it takes
_THREADS, _ROWS = 128, 64
_OLDEST = 8  # the major number of the capability that has these products


class Flash:
    """Launches the kernels of ``flash.cu`` over calls as :mod:`.attention` describes them."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.launch = Family(cupy, "flash")
        self.able: dict[int, bool] = {}

    def takes(self, call: Any) -> bool:
        """Whether these kernels compute a call on this device."""
        deep = max(call.query.shape[-1], call.value.shape[-1])
        return call.query.dtype.name in HALVES and deep <= DEEPEST and self._is_able()

    def _is_able(self) -> bool:
        runtime = self.cupy.cuda.runtime
        index = int(runtime.getDevice())
        found = self.able.get(index)
        if found is None:
            major = int(runtime.getDeviceProperties(index)["major"])
            found = self.able[index] = major >= _OLDEST
        return found

    def _run(self, name: str, call: Any, count: int, arrays: tuple[Any, ...]) -> None:
        """A kernel with a block for each 64 of ``count`` rows of each head."""
        heads, rows, depth = call.query.shape
        keys, columns = call.value.shape[-2:]
        sizes = (heads, rows, rows // call.queries, call.queries, keys, call.causal)
        given = (*arrays, *sizes, *call.mask, call.scale, depth, columns)
        grid = min(heads * -(-count // _ROWS), MOST_BLOCKS)
        kind = f"{name}_{64 if max(depth, columns) <= 64 else 128}"
        self.launch(kind, call.query.dtype, grid, _THREADS, given)

    def forward(self, call: Any, wants_hidden: bool = False) -> tuple[Any, Any, Any]:
        """The result, the logarithms of the rows' sums, and which rows have no key (or 0)."""
        heads, rows, _ = call.query.shape
        out = self.cupy.empty((heads, rows, call.value.shape[-1]), call.query.dtype)
        logs = self.cupy.empty((heads, rows), "float32")
        masked = any(not isinstance(part, int) for part in call.mask)
        hidden: Any = self.cupy.empty(heads * rows, bool) if masked and wants_hidden else 0
        arrays = (call.query, call.key, call.value, out, logs, hidden)
        self._run("forward", call, rows, arrays)
        return out, logs, hidden

    def backward(self, call: Any, grad: Any, out: Any, logs: Any) -> tuple[Any, Any, Any]:
        """Gradients of query, key and value; ``out`` and ``logs`` are those of the forward."""
        own, rows = call.query.dtype, logs.size
        along = self.cupy.empty(logs.shape, "float32")
        given = (grad, out, along, rows, grad.shape[-1])
        self.launch("along_rows", own, min(rows, MOST_BLOCKS), 32, given)
        results = [self.cupy.empty(x.shape, own) for x in (call.query, call.key, call.value)]
        arrays = (grad, call.query, call.key, call.value, logs, along)
        self._run("query_gradient", call, call.query.shape[1], (*arrays, results[0]))
        self._run("key_gradients", call, call.key.shape[1], (*arrays, *results[1:]))
        return results[0], results[1], results[2]
