"""Norms, clipping, unscaling and updates of lists of tensors: one kernel for all of a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS
from coredispatch_cuda_cupy.cuda.loading import Family, wide
from coredispatch_cuda_cupy.cuda.tables import NUMBER_TYPES, THREADS, Table, Tables

__all__ = ["kernels"]

#: function -> its number there, and how many lists and numbers it takes beside the tensors
_UPDATES = {
    "add": (0, 1, 1),
    "mul": (1, 0, 1),
    "lerp": (2, 1, 1),
    "addcmul": (3, 2, 1),
    "addcdiv": (4, 2, 1),
    "clamp": (5, 0, 2),
}
_ONE, _TWO, _LARGEST, _OTHER = range(4)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch, tables = Family(cupy, "tensor_lists"), Tables(cupy)

    def tabled(*lists: Any) -> list[tuple[Any, Table]] | None:
        """By dtype of the first list a table; None where one of them has none.

        All are made before a kernel runs: what is rejected must not be written.
        """
        found = []
        for dtype in dict.fromkeys(x.dtype for x in lists[0]):
            rows = [k for k, x in enumerate(lists[0]) if x.dtype == dtype]
            table = tables.of(*[[members[k] for k in rows] for members in lists], written=(0,))
            if table is None:
                return None
            found.append((dtype, table))
        return found

    def rewrite(name: str, found: Any, arguments: tuple[Any, ...]) -> None:
        for dtype, table in found:
            if table.grid:
                launch(name, dtype, table.grid, THREADS, (*table.arguments, *arguments))

    def update_each(tensors: Any, first: Any, second: Any, function: str, numbers: Any) -> Any:
        number, lists, wanted = _UPDATES.get(function, (-1, -1, -1))
        operands = [list(given) for given in (first, second) if len(given)]
        if len(operands) != lists or len(numbers) != wanted:
            return NotImplemented
        if any(len(given) != len(tensors) for given in operands):
            return NotImplemented
        found = tabled(tensors, *operands)
        if not found:
            return NotImplemented
        values = [float(x) for x in numbers]
        rewrite("update_many", found, (number, *values, *[0.0] * (2 - wanted)))
        return None

    def norm_of_each(tensors: Any, order: float) -> Any:
        order = float(order)
        if not 0 < order or not all(x.size for x in tensors) and math.isinf(order):
            return NotImplemented  # counts, smallest elements, and what has none
        found = tabled(tensors)
        if not found or len(found) > 1:
            return NotImplemented
        ((dtype, table),) = found
        kind = {1.0: _ONE, 2.0: _TWO, math.inf: _LARGEST}.get(order, _OTHER)
        sums, norms = cupy.empty(max(table.parts, 1), wide(dtype)), cupy.empty(table.tensors, dtype)
        options = kind, 0.0 if kind == _LARGEST else order
        if table.grid:
            arguments = (*table.arguments, sums, *options)
            launch("norm_parts", dtype, table.grid, THREADS, arguments)
        arguments = (*table.arguments, sums, norms, *options)
        launch("norm_whole", dtype, min(table.tensors, MOST_BLOCKS), THREADS, arguments)
        return norms

    def clip_each(tensors: Any, norm: Any, max_norm: float) -> Any:
        type_ = NUMBER_TYPES.get(norm.dtype.name)
        if type_ is None or norm.ndim:
            return NotImplemented
        found = tabled(tensors)
        if not found:
            return NotImplemented
        rewrite("clip_many", found, (norm, type_, float(max_norm)))
        return None

    def unscale_each(tensors: Any, found_inf: Any, inv_scale: Any) -> Any:
        is_number = isinstance(inv_scale, (int, float))
        flags = [found_inf] if is_number else [found_inf, inv_scale]
        if any(x.dtype != np.float32 or x.ndim for x in flags):
            return NotImplemented
        found = tabled(tensors)
        if not found:
            return NotImplemented
        scale = (0, float(inv_scale)) if is_number else (inv_scale, 0.0)
        rewrite("unscale_many", found, (*scale, found_inf))
        return None

    return {
        "clip_each": clip_each,
        "norm_of_each": norm_of_each,
        "unscale_each": unscale_each,
        "update_each": update_each,
    }
