"""One loop for all kernels: an expression for every element."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pyopencl as cl

from opencl_device.arrays import Array, broadcast, collapsed
from opencl_device.device import CALL, DEVICE, Memory
from opencl_device.language import NARROW, PRELUDE, STORED, compute

DIMS = 16


@functools.cache
def compiled(dtypes: Any, numbers: Any, begin: str, body: str, end: str) -> Any:
    """The kernel that does ``begin``, ``body`` for every element of a row, and ``end``.

    ``Xk(j)`` is element j of operand k from where it stands, ``PUTk(j, v)`` stores there, ``Ck``
    is the type it is computed in; x, y and z are ``X1(0)`` and so on; t counts the elements of the
    row; e0, e1 are numbers; ``FAIL(v)`` reports an error.
    """
    n = len(dtypes)
    lines = [PRELUDE]
    for k, dtype in enumerate(dtypes):
        name, at = dtype.name, f"m{k}, p{k} + (j)"
        special = {"float16": "_half"}.get(name, f"_{name}" if name in NARROW else "")
        store = f"STORE{special or '_bool'}({at}, v)"
        if not special and name != "bool":
            value = "whole(v)" if compute(dtype) == "ulong" else "v"
            store = f"STORE({STORED[name]}, {at}, {value})"
        lines += [
            f"#define C{k} {compute(dtype)}",
            f"#define X{k}(j) ((C{k}) LOAD{special}({at}))",
            f"#define PUT{k}(j, v) {store}",
        ]
    lines += [f"#define {v} X{k}(0)" for k, v in enumerate("xyz", 1)]
    operands = [f"__global {STORED[d.name]} *m{k}" for k, d in enumerate(dtypes)]
    numbered = [f"{kind} e{k}" for k, kind in enumerate(numbers)]
    parameters = ["const struct geometry g", "long rows, long count", *operands, *numbered]
    step = [" ".join(f"{p}{k} += c * g.step[{k}][d];" for k in range(n)) for p in "op"]
    first = ", ".join(f"o{k} = g.start[{k}]" for k in range(n))
    begun = ", ".join(f"p{k} = o{k}" for k in range(n))
    lines.append(f"""
struct geometry {{ long ndim, outer, size[{DIMS}], start[{n}], step[{n}][{DIMS}]; }};
__kernel void run({", ".join([*parameters, "__global long *failed"])}) {{
  long rest = get_global_id(0), t, c, d, {first};
  if (rest >= rows) return;
  for (d = g.outer - 1; d >= 0; d--) {{
    c = d ? rest % g.size[d] : rest; rest /= g.size[d]; {step[0]}
  }}
  long {begun};
  {begin}
  for (t = 0; t < count; t++) {{
    {begun.replace(",", ";")};
    for (rest = t, d = g.ndim - 1; d >= g.outer; d--) {{
      c = d > g.outer ? rest % g.size[d] : rest; rest /= g.size[d]; {step[1]}
    }}
    {body};
  }}
  {end}
}}""")
    program = cl.Program(DEVICE.context, "\n".join(lines))
    return cl.Kernel(program.build(["-cl-fp32-correctly-rounded-divide-sqrt"]), "run")


@functools.lru_cache(4096)
def geometry(sizes: Any, inner: int, operands: Any) -> Any:
    """What a kernel is told of shapes and strides, its rows and their length; None without rows.

    ``operands`` are shape, strides and start of each.
    """
    cut = len(sizes) - inner
    rows, count = math.prod(sizes[:cut]), math.prod(sizes[cut:])
    if not rows:
        return None
    strides = [broadcast(shape, steps, len(sizes)) for shape, steps, _ in operands]
    outside = collapsed(sizes[:cut], [s[:cut] for s in strides])
    dims = outside + collapsed(sizes[cut:], [s[cut:] for s in strides])
    if len(dims) > DIMS:
        raise ValueError(f"{len(dims)} dimensions that do not lie together; the device has {DIMS}")
    table = np.zeros((1 + len(operands), DIMS), np.int64)
    table[:, : len(dims)] = np.array(dims, np.int64).reshape(-1, 1 + len(operands)).T
    starts = [start for _, _, start in operands]
    flat = [[len(dims), len(outside)], table[0], starts, table[1:].reshape(-1)]
    return np.concatenate(flat).astype(np.int64), np.int64(rows), np.int64(count)


def launch(
    body: str, operands: list[Array], sizes: Any, inner: int = 0,
    begin: str = "", end: str = "", numbers: Any = (), error: Any = None,
) -> Array:  # fmt: skip
    """Queue ``body`` for every element of ``sizes``; returns operand 0, which it writes.

    Operands broadcast to ``sizes``. The last ``inner`` dimensions are a row, which one work item
    goes through in order. ``error(v)`` makes the exception for what ``FAIL(v)`` reports.
    """
    found = geometry(tuple(sizes), inner, tuple((x.shape, x.strides, x.start) for x in operands))
    if found is None or not (found[2] or end):
        return operands[0]
    table, rows, count = found
    kinds = tuple("double" if isinstance(v, float) else "long" for v in numbers)
    values = [np.float64(v) if isinstance(v, float) else np.int64(v) for v in numbers]
    with DEVICE.lock:
        run = compiled(tuple(x.dtype for x in operands), kinds, begin, body, end)
        flag = None if error is None else Memory(16)
        if flag is not None:
            if len(DEVICE.flags) > 256:
                DEVICE.finish()
            cl.enqueue_fill_buffer(DEVICE.queue, flag.buffer, np.int64(0), 0, 16)
            DEVICE.flags.append((flag, functools.partial(error, CALL.op)))
        buffers = [x.memory.buffer for x in operands]
        run.set_args(table, rows, count, *buffers, *values, flag and flag.buffer)
        cl.enqueue_nd_range_kernel(DEVICE.queue, run, (-(-int(rows) // 64) * 64,), (64,))
    return operands[0]
