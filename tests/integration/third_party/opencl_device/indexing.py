"""Kernels that read and write where indices point."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import coredispatch.plugin as cdp
from opencl_device.arrays import Array, empty, expanded, permuted, result, row_major, sliced, viewed
from opencl_device.copies import clone, full, sent, to_dtype
from opencl_device.loop import launch
from opencl_device.reductions import ALONG, along

CUMSUM = along("cumsum", *ALONG["cumsum"])


PARTS = cdp.IndexParts(Array, lambda items: sent(np.asarray(items)), to_dtype)


def beyond(sizes: Any, op: str, v: int) -> Exception:
    where = f"{op}(...), called earlier: index {v}"
    return cdp.DimError(f"{where} is out of range for dimensions of size {sizes}")


def nonzero(x: Array) -> Array:
    """Waits: the shape of the result depends on the elements."""
    shape = x.shape
    found = viewed(to_dtype(x, cdp.dtypes.bool_), (math.prod(shape),))
    counts = CUMSUM(found, 0, cdp.dtypes.int64)
    n = int(sliced(counts, (-1,))) if counts.shape[0] else 0
    out = empty((n, len(shape)), cdp.dtypes.int64)
    for d, (size, step) in enumerate(zip(shape, row_major(shape))):
        column = out.seen(found.shape, (0,), d)
        body = "if (x) m0[o0 + (y - 1) * e0] = p2 / e1 % e2"
        launch(body, [column, found, counts], found.shape, numbers=[len(shape), step, size])
    return out


def at_indices(
    body: str, x: Array, shape: Any, xs: Any, items: Any, rest: Any, inner: int = 0, least: int = 0
) -> Array:
    """``body`` with ``at``: where the indices point in x, from where its strides ``xs`` lead.

    ``items`` are (index array over ``shape``, size, stride) of the indexed dimensions. ``rest`` are
    operands 1 and on; x is operand 0. ``least`` -1: a negative index counts from the end.
    """
    first = 1 + len(rest)
    find, numbers = "long at = 0, i; int ok = 1;", []
    for k, (_, size, step) in enumerate(items):
        index, n, by = f"X{first + k}(0)", f"e{2 * k}", f"e{2 * k + 1}"
        find += f" i = {index}; i += i < 0 ? {-least} * {n} : 0; at += i * {by};"
        find += f" if (i < 0 || i >= {n}) {{ FAIL({index}) ok = 0; }}"
        numbers += [size, step]
    operands = [x.seen(shape, xs), *rest, *(index for index, _, _ in items)]
    guarded = f"{{ {find} if (ok) {{ {body}; }} }}"
    error = functools.partial(beyond, [size for _, size, _ in items])
    launch(guarded, operands, shape, inner, numbers=numbers, error=error)
    return x


def one_dim(x: Array, dim: int, index: Array) -> Any:
    """x and the index as they are indexed along one dimension: none has 0 dimensions."""
    if not x.ndim:
        x = x.seen((1,), (1,))
    if not index.ndim:
        index = index.seen((1,), (1,))
    dim %= x.ndim
    steps = [0 if d == dim else s for d, s in enumerate(x.strides)]
    return x, dim, index, steps


def gather(x: Array, dim: int, index: Array) -> Array:
    out = result("gather", (x, dim, index))
    source, dim, index, steps = one_dim(x, dim, index)
    target = out.seen(index.shape, row_major(index.shape))
    items = [(index, source.shape[dim], source.strides[dim])]
    # The array that is indexed is operand 0 of at_indices, so the result is operand 1.
    at_indices("PUT1(0, X0(at))", source, index.shape, steps, items, [target])
    return out


def scattered(op: str, body: str) -> Any:
    def kernel(x: Array, dim: int, index: Array, src: Any) -> Array:
        out = clone(x)
        src = src if isinstance(src, Array) else full((), src, x.dtype)
        target, dim, index, steps = one_dim(out, dim, index)
        if src.ndim:
            src = src.seen(index.shape, src.strides)
        last = [d for d in range(index.ndim) if d != dim] + [dim]  # several to one place: in order
        shape = [index.shape[d] for d in last]
        items = [(permuted(index, last), target.shape[dim], target.strides[dim])]
        rest = [permuted(expanded(src, index.shape), last)]
        at_indices(body, target, shape, [steps[d] for d in last], items, rest, 1)
        return out

    return kernel


def parts(x: Array, index: Any) -> Any:
    """(view of x at the basic part, index arrays by dimension or None) for an index."""
    basic, advanced = PARTS.split(x.shape, index)
    x = x if basic is None else sliced(x, basic)
    if advanced is None:
        return x, None
    items: list[Any] = []
    for item in advanced:
        if isinstance(item, Array) and item.dtype.name == "bool":
            where = nonzero(item)
            items += [sliced(where, (slice(None), d)) for d in range(item.ndim)]
        else:
            items.append(item if isinstance(item, Array) else None)
    return x, items + [None] * (x.ndim - len(items))


def placed(x: Array, items: Any) -> Any:
    """Shape of what index arrays select, where their dimensions stand in it, its strides in x."""
    common = np.broadcast_shapes(*[item.shape for item in items if item is not None])
    used = [d for d, item in enumerate(items) if item is not None]
    rest = [d for d, item in enumerate(items) if item is None]
    together = used == list(range(used[0], used[-1] + 1))
    front = [d for d in rest if together and d < used[0]]
    back = [d for d in rest if d not in front]
    shape = [x.shape[d] for d in front] + list(common) + [x.shape[d] for d in back]
    steps = [x.strides[d] for d in front] + [0] * len(common) + [x.strides[d] for d in back]
    arrays = []
    for d in used:  # over the whole result, constant outside the common dimensions
        own = expanded(items[d], common).strides
        over = items[d].seen(shape, [*[0] * len(front), *own, *[0] * len(back)])
        arrays.append((over, x.shape[d], x.strides[d]))
    return shape, range(len(front), len(front) + len(common)), steps, arrays


def getitem(x: Array, index: Any) -> Array:
    x, items = parts(x, index)
    if items is None:
        return x
    shape, _, steps, arrays = placed(x, items)
    out = empty(shape, x.dtype)
    at_indices("PUT1(0, X0(at))", x, shape, steps, arrays, [out], least=-1)
    return out


def index_put(x: Array, index: Any, values: Any, accumulate: bool) -> Array:
    out = clone(x)
    target, items = parts(out, index)
    values = to_dtype(values, x.dtype) if isinstance(values, Array) else full((), values, x.dtype)
    if items is None:
        shape, common, steps, arrays = target.shape, range(0), target.strides, []
    else:
        shape, common, steps, arrays = placed(target, items)
    extra = max(values.ndim - len(shape), 0)
    if all(n == 1 for n in values.shape[:extra]):
        values = sliced(values, [0] * extra)
    pairs = zip(values.shape[::-1], shape[::-1])
    if values.ndim > len(shape) or any(n not in (1, wanted) for n, wanted in pairs):
        raise cdp.ShapeError(f"values of shape {values.shape} do not broadcast to {tuple(shape)}")
    if items is None:
        launch(f"PUT0(0, {'x + X0(0)' if accumulate else 'x'})", [target, values], shape)
        return out
    last = [d for d in range(len(shape)) if d not in common] + list(common)
    arrays = [(permuted(item, last), size, step) for item, size, step in arrays]
    rest = [permuted(expanded(values, shape), last)]
    body = "PUT0(at, x + X0(at))" if accumulate else "PUT0(at, x)"
    sizes, steps = [shape[d] for d in last], [steps[d] for d in last]
    at_indices(body, target, sizes, steps, arrays, rest, len(common), least=-1)
    return out
