"""A device with memory of its own: OpenCL through ``pyopencl``, kernels in OpenCL C.

An array is a handle: a block of device memory, a start and strides, so that views share memory.
Kernels are queued and nobody waits for them; :func:`read` does, and raises what went wrong
meanwhile. Every kernel is an expression in one loop (:func:`launch`), in 64 bits whatever the
elements are, and rounds once where it stores. The host does what OpenCL has no functions for, and
waits: decompositions (LAPACK), Fourier transforms, functions of complex numbers, streams of random
numbers.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import defaultdict
from typing import Any

import numpy as np
import pyopencl as cl

import coredispatch.plugin as cdp

# -- the device: a queue, a pool, errors that come later -------------------------------------------


class Device:
    """The first OpenCL device with double precision; made when somebody needs it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # setting a kernel's arguments and queuing it is one act
        self.free: dict[int, list[Any]] = defaultdict(list)  # the pool, by size
        self.reserved = self.allocated = 0
        self.sending: list[Any] = []  # copies from host memory that may not be done
        self.flags: list[tuple[Any, Any]] = []  # where kernels report errors, and what these mean

    @functools.cached_property
    def context(self) -> Any:
        return cl.Context([found_device()])

    @functools.cached_property
    def queue(self) -> Any:
        return cl.CommandQueue(self.context)  # in order: memory is reused without waiting

    def finish(self) -> None:
        """Wait for all work; raises the first error that a kernel reported."""
        with self.lock:
            self.queue.finish()
            self.sending.clear()
            flags, self.flags = self.flags, []
            for flag, meaning in flags:
                told = np.empty(2, np.int64)
                cl.enqueue_copy(self.queue, told, flag.buffer)
                if told[0]:
                    raise meaning(int(told[1]))


DEVICE = Device()


@functools.cache
def found_device() -> Any:
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error:
        devices = []
    return next((d for d in devices if "cl_khr_fp64" in d.extensions and compiles(d)), None)


def compiles(device: Any) -> bool:
    """Whether there is a compiler for it: one of pocl's knows no processor newer than itself."""
    probe = "__kernel void probe(__global double *x) { x[0] += 1; }"
    try:
        cl.Program(cl.Context([device]), probe).build()
    except cl.Error:
        return False
    return True


class Memory:
    """A block of the pool, which goes back to it with the last array that uses it."""

    __slots__ = ("buffer", "size")

    def __init__(self, nbytes: int) -> None:
        self.size = 1 << max(8, (nbytes - 1).bit_length())
        with DEVICE.lock:
            DEVICE.allocated += self.size
            if DEVICE.free[self.size]:
                self.buffer = DEVICE.free[self.size].pop()
                return
            DEVICE.reserved += self.size
        self.buffer = cl.Buffer(DEVICE.context, cl.mem_flags.READ_WRITE, self.size)

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            with DEVICE.lock:
                DEVICE.allocated -= self.size
                DEVICE.free[self.size].append(self.buffer)


class Array:
    """What the kernels take and return; strides and start count elements."""

    __slots__ = ("dtype", "memory", "ndim", "shape", "start", "strides")

    def __init__(self, memory: Any, shape: Any, dtype: Any, strides: Any, start: int = 0) -> None:
        self.memory, self.shape, self.dtype = memory, tuple(shape), dtype
        self.strides, self.start, self.ndim = tuple(strides), start, len(self.shape)

    def seen(self, shape: Any, strides: Any, start: int = 0) -> Array:
        """The same memory with other strides, from ``start`` on."""
        return Array(self.memory, shape, self.dtype, strides, self.start + start)

    def __int__(self) -> int:
        return int(read(self))

    def __bool__(self) -> bool:
        return bool(read(self))


def row_major(shape: Any) -> tuple[int, ...]:
    return tuple(math.prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))


def empty(shape: Any, dtype: Any) -> Array:
    if dtype.name not in STORED:
        raise cdp.DTypeError(
            f"the OpenCL device has no {dtype.name}", fix=f"use one of {', '.join(sorted(STORED))}"
        )
    return Array(Memory(math.prod(shape) * dtype.itemsize), shape, dtype, row_major(shape))


def sent(array: Any) -> Array:
    """A copy of a NumPy array on the device; does not wait for the copying."""
    array = np.array(array, order="C")
    out = empty(array.shape, cdp.DType.of(array.dtype))
    if array.size:
        data = array.reshape(-1).view(np.uint8)
        with DEVICE.lock:
            if len(DEVICE.sending) > 256:
                DEVICE.queue.finish()
                DEVICE.sending.clear()
            copying = cl.enqueue_copy(DEVICE.queue, out.memory.buffer, data, is_blocking=False)
            DEVICE.sending.append(copying)
    return out


def read(x: Array) -> Any:
    """The elements, as a NumPy array; the one place that waits."""
    x = clone(x)
    out = np.empty(x.shape, cdp.numpy_dtype(x.dtype))
    DEVICE.finish()
    if out.size:
        cl.enqueue_copy(DEVICE.queue, out.reshape(-1).view(np.uint8), x.memory.buffer)
    return out


# -- one loop for all kernels ----------------------------------------------------------------------

STORED = {
    "bool": "uchar", "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
    "int8": "char", "int16": "short", "int32": "int", "int64": "long",
    "float16": "half", "bfloat16": "ushort", "float32": "float", "float64": "double",
    "complex64": "float2", "complex128": "double2",
}  # fmt: skip
NARROW = ("float16", "bfloat16", "complex64")
DIMS = 16
PRELUDE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define ANY __attribute__((overloadable))
#define LOAD(m, i) m[i]
#define LOAD_half(m, i) vload_half(i, m)
#define LOAD_bfloat16(m, i) as_float((uint)(m)[i] << 16)
#define LOAD_complex64(m, i) convert_double2((m)[i])
#define STORE_complex64(m, i, v) (m)[i] = convert_float2(v)
#define STORE(T, m, i, v) (m)[i] = (T)(v)
#define STORE_bool(m, i, v) (m)[i] = (v) != 0
#define STORE_half(m, i, v) vstore_half_rte(odd(v), i, m)
#define STORE_bfloat16(m, i, v) (m)[i] = nearest(odd(v))
#define FAIL(value) { failed[1] = (value); failed[0] = 1; }

/* float, the last bit set where it is not exact: rounded again it comes out rounded once */
float ANY odd(double x) { float f = convert_float_rtz(x);
  return f == x || x != x || isinf(f) ? f : as_float(as_uint(f) | 1); }
float ANY odd(long x) { float f = convert_float_rtz(x);
  return (long)f == x ? f : as_float(as_uint(f) | 1); }
float ANY odd(ulong x) { float f = convert_float_rtz(x);
  return (ulong)f == x ? f : as_float(as_uint(f) | 1); }
float ANY odd(int x) { return odd((long)x); }
ushort nearest(float x) { uint u = as_uint(x);
  return x != x ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
ulong ANY whole(double x) { return x < 0 ? (ulong)(long)x : (ulong)x; }
ulong ANY whole(long x) { return x; }
ulong ANY whole(ulong x) { return x; }
ulong ANY whole(int x) { return x; }

double ANY modulo(double x, double y) { double r = fmod(x, y);
  return r != 0 ? ((r < 0) != (y < 0) ? r + y : r) : y != y ? y : y == 0 ? NAN : copysign(0.0, y); }
long ANY modulo(long x, long y) { long r = y == -1 ? 0 : x % y;
  return r && (r < 0) != (y < 0) ? r + y : r; }
ulong ANY modulo(ulong x, ulong y) { return x % y; }
double ANY floored(double x, double y) { double r = fmod(x, y), q;
  if (y == 0 || x != x || y != y) return x / y;
  q = (x - r) / y - (r != 0 && (r < 0) != (y < 0));
  return q == 0 ? copysign(0.0, x / y) : rint(q); }
long ANY floored(long x, long y) {
  if (y == -1) return (long)-(ulong)x;
  return x / y - (x % y != 0 && (x < 0) != (y < 0)); }
ulong ANY floored(ulong x, ulong y) { return x / y; }
double ANY times(double x, double y) { return x * y; }
ulong ANY times(ulong x, ulong y) { return x * y; }
double2 ANY times(double2 x, double2 y) {
  return (double2)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x); }
ulong power(ulong x, ulong y) { ulong p = 1;
  for (; y; y >>= 1, x *= x) if (y & 1) p *= x;
  return p; }
/* sin (quarter 0) and cos (quarter 1) to one unit in the last place, where OpenCL allows four:
   reduced by pi/2 in three parts, then the polynomials of fdlibm (k_sin.c, k_cos.c) */
double turn(double x, int quarter) {
  if (!(fabs(x) < 1e5)) return quarter ? cos(x) : sin(x);
  double n = rint(x * 6.36619772367581382433e-01);
  double a = fma(-n, 1.57079632679489655800e+00, x), w = n * 6.12323399573676603587e-17;
  double r = a - w, b = r - a, e = (a - (r - b)) - (w + b) + fma(-n, 6.12323399573676603587e-17, w);
  e += n * 1.49738490485916983e-33; double z = r * r;
  int q = (int)n + quarter;
  double v;
  if (q & 1) {
    double p = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03
      + z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07
      + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    double h = 0.5 * z, u = 1 - h;
    v = u + ((1 - u - h) + (z * p - r * e));
  } else {
    double p = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04
      + z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08
      + z * 1.58969099521155010221e-10)));
    double c = z * r;
    v = r - ((z * (0.5 * e - c * p) - e) + c * 1.66666666666666324348e-01);
  }
  return q & 2 ? -v : x == 0 && !quarter ? x : v; }
/* the bits of the next number; mask: all but the sign */
long next(long x, long y, long mask, long infinity) { long a = x & mask, b = y & mask;
  if (a > infinity) return x;
  if (b > infinity || x == y || !(a | b)) return y;
  return !a ? (y & ~mask) | 1 : x + ((x ^ y) >= 0 && b > a ? 1 : -1); }
"""


def compute(dtype: Any) -> str:
    """The C type that elements are computed in."""
    if dtype.is_complex or dtype.is_floating_point:
        return "double2" if dtype.is_complex else "double"
    return "long" if dtype.is_signed or dtype.name == "bool" else "ulong"


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


def collapsed(sizes: Any, strides: Any) -> list[list[int]]:
    """Sizes with the stride of each operand; neighbours that lie as one dimension are one."""
    kept: list[list[int]] = []
    for n, *steps in zip(sizes, *strides):
        if n == 1:
            continue
        if kept and all(a == n * b for a, b in zip(kept[-1][1:], steps)):
            kept[-1] = [kept[-1][0] * n, *steps]
        else:
            kept.append([n, *steps])
    return kept


def launch(
    body: str, operands: list[Array], sizes: Any, inner: int = 0,
    begin: str = "", end: str = "", numbers: Any = (), error: Any = None,
) -> Array:  # fmt: skip
    """Queue ``body`` for every element of ``sizes``; returns operand 0, which it writes.

    Operands broadcast to ``sizes``. The last ``inner`` dimensions are a row, which one work item
    goes through in order. ``error(v)`` makes the exception for what ``FAIL(v)`` reports.
    """
    cut = len(sizes) - inner
    rows, count = math.prod(sizes[:cut]), math.prod(sizes[cut:])
    if not rows or (not count and not end):
        return operands[0]
    strides = [expanded(x, sizes).strides for x in operands]
    outside = collapsed(sizes[:cut], [s[:cut] for s in strides])
    dims = outside + collapsed(sizes[cut:], [s[cut:] for s in strides])
    if len(dims) > DIMS:
        raise ValueError(f"{len(dims)} dimensions that do not lie together; the device has {DIMS}")
    table = np.zeros((1 + len(operands), DIMS), np.int64)
    table[:, : len(dims)] = np.array(dims, np.int64).reshape(-1, 1 + len(operands)).T
    head = [len(dims), len(outside)]
    starts = [x.start for x in operands]
    geometry = np.concatenate([head, table[0], starts, table[1:].reshape(-1)]).astype(np.int64)
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
        run.set_args(
            geometry, np.int64(rows), np.int64(count), *buffers, *values, flag and flag.buffer
        )
        cl.enqueue_nd_range_kernel(DEVICE.queue, run, (-(-rows // 64) * 64,), (64,))
    return operands[0]


# -- shapes: other strides over the same memory ----------------------------------------------------


def expanded(x: Array, size: Any) -> Array:
    lead = len(size) - x.ndim
    steps = [0 if n == 1 else s for n, s in zip(x.shape, x.strides)]
    return x.seen(size, [0] * lead + steps)


def permuted(x: Array, dims: Any) -> Array:
    return x.seen([x.shape[d] for d in dims], [x.strides[d] for d in dims])


def viewed(x: Array, shape: Any) -> Array:
    shape = cdp.operator("view").out_rule(x, shape)
    if 0 in shape:
        return x.seen(shape, row_major(shape))
    parts = collapsed(x.shape, [x.strides])[::-1]
    strides, (n, step) = [], parts.pop(0) if parts else (1, 1)
    for size in reversed(shape):
        if n == 1 and size > 1 and parts:
            n, step = parts.pop(0)
        if n % size:
            raise cdp.ShapeError(
                f"shape {shape} cannot view memory of shape {x.shape} and strides {x.strides}",
                fix="use reshape, which copies where it must",
            )
        strides.append(step)
        n, step = n // size, step * size
    return x.seen(shape, strides[::-1])


def sliced(x: Array, basic: Any) -> Array:
    """``x`` at integers, slices and None."""
    shape, strides, start, d = [], [], 0, 0
    for item in basic:
        if item is None:
            shape.append(1), strides.append(0)
            continue
        if isinstance(item, int):
            start += (item + x.shape[d] if item < 0 else item) * x.strides[d]
        else:
            places = range(x.shape[d])[item]
            shape.append(len(places)), strides.append(x.strides[d] * places.step)
            start += places.start * x.strides[d] if len(places) else 0
        d += 1
    return x.seen([*shape, *x.shape[d:]], [*strides, *x.strides[d:]], start)


def reinterpreted(x: Array, dtype: Any) -> Array:
    shape = cdp.operator("view_dtype").out_rule(x, dtype)
    old, new = x.dtype.itemsize, dtype.itemsize
    steps = [s * old // new for s in x.strides[:-1]] + [1] if old != new else x.strides
    return Array(x.memory, shape, dtype, steps, x.start * old // new)


def flipped(x: Array, dims: Any) -> Array:
    turned = [d % max(x.ndim, 1) for d in dims]
    return clone(sliced(x, [slice(None, None, -1 if d in turned else 1) for d in range(x.ndim)]))


def clone(x: Array, memory_format: Any = None) -> Array:
    return written(empty(x.shape, x.dtype), x)


def written(out: Array, src: Array) -> Array:
    """``src``, broadcast and converted, in the elements of ``out``."""
    value = "x"
    if src.dtype.is_complex and not out.dtype.is_complex:
        value = TRUE if out.dtype.name == "bool" else "x.s0"
    elif out.dtype.is_complex and not src.dtype.is_complex:
        value = "(double2)(x, 0)"
    return launch(f"PUT0(0, {value})", [out, src], out.shape)


def view_as_real(x: Array) -> Array:
    strides = (*(2 * s for s in x.strides), 1)
    return Array(x.memory, (*x.shape, 2), x.dtype.to_real(), strides, 2 * x.start)


def view_as_complex(x: Array) -> Array:
    if x.strides[-1] != 1 or x.start % 2 or any(s % 2 for s in x.strides[:-1]):
        x = clone(x)
    halved = [s // 2 for s in x.strides[:-1]]
    return Array(x.memory, x.shape[:-1], x.dtype.to_complex(), halved, x.start // 2)


def full(size: Any, value: Any, dtype: Any, device: Any = None) -> Array:
    dtype = dtype or cdp.result_dtype(cdp.operator("full"), (size, value, dtype, device))
    out = empty(cdp.operator("full").out_rule(size, value, dtype, device), dtype)
    value = value.item() if hasattr(value, "item") else value
    element = np.asarray(value).astype(cdp.numpy_dtype(dtype))
    if math.prod(out.shape):
        nbytes = math.prod(out.shape) * dtype.itemsize
        with DEVICE.lock:
            cl.enqueue_fill_buffer(DEVICE.queue, out.memory.buffer, element, 0, nbytes)
    return out


def fill_(x: Array, value: Any) -> None:
    """A write that elements which share memory allow: all get the same."""
    value = value if isinstance(value, Array) else full((), value, x.dtype)
    if value.ndim:
        raise cdp.ShapeError(f"fill takes a number or a 0-dim tensor, got shape {value.shape}")
    written(x, value)


def arange(start: Any, end: Any, step: Any, dtype: Any, device: Any) -> Array:
    args = (start, end, step, dtype, device)
    out = result("arange", args)
    start = 0 if end is None else start
    if all(isinstance(v, int) for v in (start, step)):
        numbers = [(v + (1 << 63)) % (1 << 64) - (1 << 63) for v in (start, step)]
    else:
        numbers = [float(start), float(step)]
    return launch("PUT0(0, e0 + p0 * e1)", [out], out.shape, numbers=numbers)


def cat(tensors: Any, dim: int) -> Array:
    out = result("cat", (tensors, dim))
    start = 0
    for x in tensors:
        if x.shape != (0,) or out.shape == (0,):
            lead = [slice(None)] * (dim % out.ndim)
            written(sliced(out, [*lead, slice(start, start + x.shape[dim])]), x)
            start += x.shape[dim]
    return out


def padded(x: Array, pad: Any, value: Any) -> Array:
    out = full(cdp.operator("constant_pad_nd").out_rule(x, pad, value), value, x.dtype)
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))[::-1]
    source = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs)]
    target = [slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(out.shape, pairs)]
    written(sliced(out, target), sliced(x, source))
    return out


# -- element by element ----------------------------------------------------------------------------


def by_zero(op: str, v: int) -> Exception:
    return ZeroDivisionError(f"{op}(...), called earlier: integer division or modulo by zero")


def negative_power(op: str, v: int) -> Exception:
    return ValueError(f"{op}(...), called earlier: an integer to the negative integer power {v}")


TRUE = "(x.s0 != 0 || x.s1 != 0)"
COMPLEX = {
    "abs": "hypot(x.s0, x.s1)", "add": "x + y", "sub": "x - y", "neg": "-x", "mul": "times(x, y)",
    "eq": "x.s0 == y.s0 && x.s1 == y.s1", "where": "x != 0 ? y : z",
}  # fmt: skip
#: operator -> expression for floats, for integers, for bool (where it is another), and its errors
POINTWISE: dict[str, tuple[Any, ...]] = {
    "abs": ("fabs(x)", "x < 0 ? (C1)-(ulong)x : x"),
    "add": ("x + y", "(ulong)x + (ulong)y", "x | y"),
    "sub": ("x - y", "(ulong)x - (ulong)y"),
    "mul": ("x * y", "(ulong)x * (ulong)y", "x & y"),
    "neg": ("-x", "-(ulong)x"),
    "div": ("x / y",),
    "floor_divide": ("floored(x, y)", "floored(x, y)", None, "y == 0", "y", by_zero),
    "remainder": ("modulo(x, y)", "modulo(x, y)", None, "y == 0", "y", by_zero),
    "pow": ("pow(x, y)", "power(x, y)", None, "y < 0", "y", negative_power),
    "bitwise_and": (None, "x & y"),
    "bitwise_or": (None, "x | y"),
    "bitwise_xor": (None, "x ^ y"),
    "bitwise_not": (None, "~x", "!x"),
    "bitwise_left_shift": (None, "(ulong)y < 64 ? (ulong)x << y : 0"),
    "bitwise_right_shift": (None, "(ulong)y < 64 ? x >> y : (C1)(x < 0 ? -1 : 0)"),
    "maximum": ("x > y || x != x ? x : y", "x > y ? x : y"),
    "minimum": ("x < y || x != x ? x : y", "x < y ? x : y"),
    "floor": ("floor(x)", "x"),
    "round": ("rint(x)", "x"),
    "where": ("x != 0 ? y : z", "x != 0 ? y : z"),
    **{
        op: (f"x {sign} y", f"x {sign} y")
        for op, sign in {"eq": "==", "lt": "<", "le": "<="}.items()
    },
    **{op: (f"{op}(x)",) for op in ("atan", "exp", "log", "sqrt", "tanh")},
    "sin": ("turn(x, 0)",),
    "cos": ("turn(x, 1)",),
    "atan2": ("atan2(x, y)",),
}


def result(op: str, args: Any) -> Array:
    """Where the result of a call goes, by the rules of the operator."""
    return empty(cdp.operator(op).out_rule(*args), cdp.result_dtype(cdp.operator(op), args))


def pointwise(op: str, floats: Any, ints: Any = None, bools: Any = None, *failure: Any) -> Any:
    def kernel(*args: Any) -> Array:
        out = result(op, args)
        kind = out.dtype if op == "where" else next(a.dtype for a in args if isinstance(a, Array))
        operands = [a if isinstance(a, Array) else full((), a, kind) for a in args]
        if kind.is_complex:
            if op not in COMPLEX:
                return on_host(op)(*operands)
            return launch(f"PUT0(0, {COMPLEX[op]})", [out, *operands], out.shape)
        if kind.is_floating_point:
            return launch(f"PUT0(0, {floats})", [out, *operands], out.shape)
        body = f"PUT0(0, {bools if bools and kind.name == 'bool' else ints})"
        if not failure:
            return launch(body, [out, *operands], out.shape)
        wrong, value, error = failure
        guarded = f"if ({wrong}) FAIL({value}) else {body}"
        return launch(guarded, [out, *operands], out.shape, error=error)

    return kernel


def nextafter(x: Array, y: Array) -> Array:
    out = result("nextafter", (x, y))
    bits = {2: cdp.dtypes.int16, 4: cdp.dtypes.int32, 8: cdp.dtypes.int64}[out.dtype.itemsize]
    infinity = np.asarray(np.inf, cdp.numpy_dtype(out.dtype)).view(cdp.numpy_dtype(bits))
    numbers = [(1 << 8 * bits.itemsize - 1) - 1, int(infinity)]
    operands = [reinterpreted(a, bits) for a in (out, x, y)]
    launch("PUT0(0, next(x, y, e0, e1))", operands, out.shape, numbers=numbers)
    return out


def to_dtype(x: Array, dtype: Any) -> Array:
    return written(empty(x.shape, dtype), x)


# -- along dimensions ------------------------------------------------------------------------------

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


# -- by index --------------------------------------------------------------------------------------


def beyond(sizes: Any, op: str, v: int) -> Exception:
    where = f"{op}(...), called earlier: index {v}"
    return cdp.DimError(f"{where} is out of range for dimensions of size {sizes}")


def nonzero(x: Array) -> Array:
    """Waits: the shape of the result depends on the elements."""
    shape = x.shape
    found = viewed(to_dtype(x, cdp.dtypes.bool_), (math.prod(shape),))
    counts = FUNCTIONS["cumsum"](found, 0, cdp.dtypes.int64)
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


# -- the host's part, and the backend --------------------------------------------------------------


class Host(cdp.ArrayApiBackend):
    """Never registered: NumPy's kernels for what OpenCL has no library for."""

    name, array_type, xp = "opencl_host", np.ndarray, np


HOST = Host()


def on_host(op: str) -> Any:
    def kernel(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            out = HOST.kernels[op](*[read(a) if isinstance(a, Array) else a for a in args])
        return tuple(map(sent, out)) if isinstance(out, tuple) else sent(out)

    return kernel


CALL = threading.local()  # the operator that a thread computes, which late errors name


def checked(op: str, function: Any) -> Any:
    """The kernel ``function``; what the operator does not take is refused before it runs."""

    def kernel(*args: Any) -> Any:
        cdp.check(op, args)
        CALL.op = op
        return function(*args)

    return kernel


HOSTED = (
    "cholesky fft_c2c linalg_eig linalg_eigh linalg_qr linalg_slogdet linalg_solve linalg_svd "
    "random_integers random_normal random_uniform"
).split()
FUNCTIONS: dict[str, Any] = {
    **{op: pointwise(op, *texts) for op, texts in POINTWISE.items()},
    **{op: along(op, *texts) for op, texts in ALONG.items()},
    **{op: on_host(op) for op in HOSTED},
    "arange": arange,
    "cat": cat,
    "clone": clone,
    "constant_pad_nd": padded,
    "detach": lambda x: x,
    "expand": lambda x, size: expanded(x, cdp.operator("expand").out_rule(x, size)),
    "fill_": fill_,
    "flip": flipped,
    "full": full,
    "gather": gather,
    "getitem": getitem,
    "index_put": index_put,
    "matmul": matmul,
    "nextafter": nextafter,
    "nonzero": nonzero,
    "permute": permuted,
    "scatter": scattered("scatter", "PUT0(at, x)"),
    "scatter_add": scattered("scatter_add", "PUT0(at, x + X0(at))"),
    "sort": sort,
    "to_dtype": to_dtype,
    "view": viewed,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
    "view_dtype": reinterpreted,
    "zero_": lambda x: fill_(x, 0),
}
KERNELS = {op: checked(op, function) for op, function in FUNCTIONS.items()}
PARTS = cdp.IndexParts(Array, lambda items: sent(np.asarray(items)), to_dtype)


class OpenCLBackend(cdp.Backend):
    name, array_type, views = "opencl", Array, True
    kernels = KERNELS
    dtypes = frozenset(STORED)

    def device_count(self) -> int:
        return 0 if found_device() is None else 1

    def device_name(self, index: int = 0) -> str:
        found = found_device()
        return "no OpenCL device with double precision" if found is None else found.name

    def from_numpy(self, array: Any) -> Array:
        return sent(array)

    def to_numpy(self, raw: Array) -> Any:
        return read(raw)

    def scalar(self, value: Any, dtype: Any) -> Array:
        return full((), value, dtype)

    def copyto(self, dst: Array, src: Array) -> None:
        if any(n > 1 and not s for n, s in zip(dst.shape, dst.strides)):
            raise ValueError("read-only: the elements of an expanded array share memory")
        written(dst, clone(src) if src.memory is dst.memory else src)

    def strides(self, raw: Array) -> tuple[int, ...]:
        return raw.strides

    def offset(self, raw: Array) -> int:
        return raw.start

    def is_view(self, out: Array, source: Array) -> bool:
        return out.memory is source.memory

    def memory(self, index: int = 0) -> dict[str, int]:
        total = found_device().global_mem_size
        return {"allocated": DEVICE.allocated, "reserved": DEVICE.reserved, "total": total}

    def synchronize(self, index: int = 0) -> None:
        DEVICE.finish()


@cdp.hookimpl
def coredispatch_register(registrar: Any) -> None:
    registrar.backend(OpenCLBackend())
