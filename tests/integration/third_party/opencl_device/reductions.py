"""Kernels along dimensions: sums, scans, products of matrices, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

import coredispatch.plugin as cdp
from opencl_device.arrays import Array, empty, permuted, result, row_major
from opencl_device.copies import clone, full, to_dtype
from opencl_device.language import compute
from opencl_device.loop import launch

#: sums go by blocks of 128, so that rounding errors of a long one do not pile up
#: operator -> (before, for each element, after); ACC is double, or ulong, which wraps
ALONG = {
    "sum": (
        "ACC s = NONE, part = NONE;",
        "part += x; if (t % 128 == 127) { s += part; part = NONE; }",
        "PUT0(0, count ? s + part : (ACC)(0));",
    ),
    "prod": ("ACC s = ONE;", "s = times(s, (ACC)(x))", "PUT0(0, s);"),
    "amax": ("C1 s = 0;", "if (!t || x > s || x != x) s = x", "PUT0(0, s);"),
    "amin": ("C1 s = 0;", "if (!t || x < s || x != x) s = x", "PUT0(0, s);"),
    "any": ("int s = 0;", "s |= x != 0", "PUT0(0, s);"),
    "all": ("int s = 1;", "s &= x != 0", "PUT0(0, s);"),
    **{
        op: (
            "C1 s = 0; long at = 0;",
            f"if (!t || x {sign} s || (x != x && s == s)) {{ s = x; at = t; }}",
            "PUT0(0, at);",
        )
        for op, sign in (("argmax", ">"), ("argmin", "<"))
    },
    "cumsum": ("ACC s = NONE;", "s += x; PUT0(0, s)", ""),
    "cumprod": ("ACC s = ONE;", "s = times(s, (ACC)(x)); PUT0(0, s)", ""),
}


def accumulating(text: str, dtype: Any) -> str:
    kind = compute(dtype)
    one, none = {"double": ("1.0", "-0.0"), "double2": ("(double2)(1, 0)", "(double2)(-0.0)")}.get(
        kind, ("1", "0")
    )
    kind = "ulong" if kind == "long" else kind
    return text.replace("ACC", kind).replace("NONE", none).replace("ONE", one)


def along(op: str, *texts: str) -> Any:
    def kernel(x: Array, dim: Any, *rest: Any) -> Array:
        out = result(op, (x, dim, *rest))
        given = (
            range(x.ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
        )
        dims = [d % x.ndim for d in given] if x.ndim else []
        kept = [d for d in range(x.ndim) if d not in dims]
        x = permuted(x, kept + dims)
        if x.dtype.is_complex and op in ("any", "all"):
            x = to_dtype(x, out.dtype)
        if out.dtype.is_complex and not x.dtype.is_complex:
            x = to_dtype(x, out.dtype)
        begin, body, end = (accumulating(text, out.dtype) for text in texts)
        if end:  # one result for each row
            shape = [x.shape[d] for d in range(len(kept))]
            target = out.seen(shape + [1] * len(dims), row_major(shape) + (0,) * len(dims))
        else:
            target = permuted(out, kept + dims)
        launch(body, [target, x], x.shape, len(dims), begin, end)
        return out

    return kernel


def matmul(a: Array, b: Array) -> Array:
    out = result("matmul", (a, b))
    x = a if a.ndim > 1 else a.seen((1, *a.shape), (0, *a.strides))
    y = b if b.ndim > 1 else b.seen((*b.shape, 1), (*b.strides, 0))
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    n, k, m = x.shape[-2], x.shape[-1], y.shape[-1]
    x = x.seen((*x.shape[:-2], n, 1, k), (*x.strides[:-2], x.strides[-2], 0, x.strides[-1]))
    y = y.seen((*y.shape[:-2], 1, m, k), (*y.strides[:-2], 0, y.strides[-1], y.strides[-2]))
    target = out.seen((*batch, n, m, 1), (*row_major((*batch, n, m)), 0))
    begin, body, end = (accumulating(text, out.dtype) for text in ALONG["sum"])
    body = body.replace("+= x", accumulating("+= times((ACC)(x), (ACC)(y))", out.dtype))
    launch(body, [target, x, y], (*batch, n, m, k), 1, begin, end)
    return out


#: merges runs of 1, 2, 4, ... of the order in e0 elements at X0; X3 is the other half of the memory
SORT = """
  for (long i = 0; i < e0; i++) PUT0(i, i);
  int from = 0;
  for (long width = 1; width < e0; width *= 2, from = !from)
    for (long low = 0; low < e0; low += 2 * width) {
      long mid = min(low + width, e0), high = min(low + 2 * width, e0), i = low, j = mid, k = low;
      for (; k < high; k++) {
        long a = i < mid ? (from ? X1(i) : X0(i)) : 0, b = j < high ? (from ? X1(j) : X0(j)) : 0;
        C2 u = X2(a), v = X2(b);
        int before = e1 ? v > u || (v != v && u == u) : v < u || (u != u && v == v);
        int swap = i >= mid || (j < high && before);
        if (from) PUT0(k, swap ? b : a); else PUT1(k, swap ? b : a);
        if (swap) j++; else i++;
      }
    }
  if (from) for (long i = 0; i < e0; i++) PUT0(i, X1(i));
  for (long i = 0; i < e0; i++) PUT3(i, X2(X0(i)))"""


def sort(x: Array, dim: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    if not x.ndim:
        return clone(x), full((), 0, cdp.dtypes.int64)
    dims = [d for d in range(x.ndim) if d != dim % x.ndim] + [dim % x.ndim]
    keys = clone(permuted(x, dims))
    order, other = (empty(keys.shape, cdp.dtypes.int64) for _ in range(2))
    operands = [order, other, keys, empty(keys.shape, x.dtype)]
    rows = [a.seen(a.shape[:-1], a.strides[:-1]) for a in operands]
    if keys.shape[-1]:
        launch(SORT, rows, keys.shape[:-1], numbers=[keys.shape[-1], int(descending)])
    back = np.argsort(dims).tolist()
    return permuted(operands[3], back), permuted(order, back)
