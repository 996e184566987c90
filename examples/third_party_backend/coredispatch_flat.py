"""A complete backend by a third party: the key ``flat``, with NumPy as its arithmetic unit."""

from operator import attrgetter

import numpy as np

import coredispatch.plugin as cdp


class FlatArray:
    """Elements of one dtype, row-major in a piece of memory: no strides and no views."""

    def __init__(self, memory, shape, dtype):
        self.memory, self.shape, self.dtype, self.ndim = memory, shape, dtype, len(shape)


def load(x, widen=False):
    """What the arithmetic unit works on; in a wider dtype where sums are made."""
    if isinstance(x, FlatArray):
        array = np.ndarray(x.shape, cdp.numpy_dtype(x.dtype), x.memory)
        return array.astype(WIDER.get(x.dtype.name, array.dtype)) if widen else array
    if isinstance(x, cdp.DType):
        return cdp.numpy_dtype(x)
    return type(x)(load(i, widen) for i in x) if isinstance(x, (list, tuple)) else x


def store(x):
    """A result in memory of its own."""
    if isinstance(x, tuple):
        return tuple(map(store, x))
    return FlatArray(bytearray(x.tobytes()), x.shape, cdp.DType.of(x.dtype))


def lift(op, function):
    """The kernel that computes as a NumPy function does, in the result dtype of the operator."""

    def kernel(*args):
        cdp.check(op, args)
        with np.errstate(all="ignore"):
            out = function(*(load(x, op in TYPED) for x in args))
            if op in TYPED:
                dtype = cdp.result_dtype(cdp.operator(op), args)
                out = cdp.numpy_cast(np.asarray(out), dtype)
        return store(out)

    return kernel


def sort(x, dim, descending, stable):
    v = np.atleast_1d(x)
    keys = v.astype(np.float32) if v.dtype.kind == "V" else v  # bfloat16 does not sort NaN
    order = np.argsort(np.flip(keys, dim) if descending else keys, axis=dim, kind="stable")
    order = v.shape[dim] - 1 - np.flip(order, dim) if descending else order  # ties keep theirs
    return np.take_along_axis(v, order, dim).reshape(x.shape), order.reshape(x.shape)


def pad(x, p, value):
    pairs = [(0, 0)] * (x.ndim - len(p) // 2) + list(zip(p[::2], p[1::2], strict=True))[::-1]
    out = np.pad(x, np.maximum(pairs, 0), constant_values=value) if pairs else x
    return out[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(out.shape, pairs))]


def part(x, index):
    """NumPy's view of what integers and slices select, and the arrays that select from it."""
    basic, advanced = PARTS.split(x.shape, index)
    return x[(*(basic or ()), ...)], (...,) if advanced is None else advanced


def index_put(x, index, values, accumulate):
    out = x.copy()
    target, where = part(out, index)
    np.add.at(target, where, values) if accumulate else target.__setitem__(where, values)
    return out


def located(x, dim, index, src=None, add=False):
    """gather (without ``src``) and scatter, at the open index that ``index`` stands for."""
    v, where = np.atleast_1d(x), np.atleast_1d(index)
    cdp.check_index(where, v.shape[dim])
    cut = tuple(map(slice, where.shape))
    grid = tuple(where if d == dim % v.ndim else g for d, g in enumerate(np.ogrid[cut]))
    if src is None:
        return v[grid].reshape(index.shape)
    src = np.atleast_1d(src)[cut] if isinstance(src, np.ndarray) else src
    return index_put(v, grid, src, add).reshape(x.shape)


PARTS = cdp.IndexParts(np.ndarray, np.asarray, lambda x, d: x.astype(cdp.numpy_dtype(d)))
TYPED = {"sum", "prod", "cumsum", "cumprod", "matmul", "where", "full", "arange", "to_dtype"}
TYPED |= {"scatter_add", "index_put"}
WIDER = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64}
# Operators that are functions of NumPy: one word where the names agree, else op=function.
NAMES = """add sub=subtract mul=multiply neg=negative div=divide floor_divide remainder pow=power
    bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift=left_shift where sqrt
    bitwise_right_shift=right_shift eq=equal lt=less le=less_equal exp log sin cos tanh abs floor
    atan=arctan atan2=arctan2 maximum minimum round matmul detach=asarray nonzero=argwhere
    view=reshape permute=transpose linalg_svd=linalg.svd linalg_eigh=linalg.eigh
    linalg_slogdet=linalg.slogdet view_dtype=ndarray.view"""
KERNELS = {o: attrgetter(f or o)(np) for o, _, f in (n.partition("=") for n in NAMES.split())}
for name in ("any", "all", "amax", "amin", "argmax", "argmin", "sum", "prod"):
    KERNELS[name] = lambda x, dim, keep, dtype=None, f=name: getattr(np, f)(
        x.astype(dtype or x.dtype), axis=dim if x.ndim and dim != () else None, keepdims=keep
    )
for name in ("cumsum", "cumprod"):
    KERNELS[name] = lambda x, dim, dtype, f=name: getattr(np, f)(x, dim, dtype).reshape(x.shape)
for name in ("uniform", "normal", "integers"):
    KERNELS["random_" + name] = lambda size, a, b, dtype, device, generator, draw=name: getattr(
        (generator or cdp.default_generator("flat")).stream(cdp.NumpyStream), draw
    )(size, a, b, dtype)
KERNELS.update(sort=sort, constant_pad_nd=pad, index_put=index_put, gather=located, scatter=located)
KERNELS |= {
    "getitem": lambda x, index: (lambda view, where: view[where])(*part(x, index)),
    "scatter_add": lambda *args: located(*args, True),
    **dict.fromkeys(("clone", "to_dtype"), lambda x, _: x),
    "nextafter": lambda a, b: np.where(a == b, b, np.nextafter(a, b)),  # of half's zeros: a
    "flip": lambda x, dims: np.flip(x, dims if x.ndim else ()),
    "view_as_real": lambda x: np.stack([x.real, x.imag], -1),
    "view_as_complex": lambda x: x.view(np.result_type(x, np.complex64))[..., 0],
    "cat": lambda xs, dim: np.concatenate([x for x in xs if x.shape != (0,)] or xs[:1], dim),
    "expand": lambda x, size: np.broadcast_to(x, cdp.operator("expand").out_rule(x, size)),
    "full": lambda size, value, dtype, device: np.full(size, value),
    "arange": lambda a, b, step, *_: np.arange(0 if b is None else a, a if b is None else b, step),
    "cholesky": lambda x, upper: np.linalg.cholesky(x, upper=upper),
    "linalg_qr": lambda x, m, qr=np.linalg.qr: qr(x, m) if m != "r" else (x.ravel()[:0], qr(x, m)),
    "linalg_eig": lambda x: np.linalg.eig(x.astype(np.result_type(x, np.complex64))),
    "fft_c2c": lambda x, dim, n, on: (np.fft.fftn if on else np.fft.ifftn)(x, None, dim, n),
    "linalg_solve": lambda a, b, left, f=np.linalg.solve: f(a, b) if left else f(a.mT, b.mT).mT,
}


class FlatBackend(cdp.Backend):
    """The two conversions, a write in place, and the kernels."""

    name = "flat"
    array_type = FlatArray
    kernels = {op: lift(op, function) for op, function in KERNELS.items()}
    from_numpy = staticmethod(store)
    to_numpy = staticmethod(lambda raw: load(raw).copy())

    def copyto(self, dst, src):
        load(dst)[...] = load(src)

    def scalar(self, value, dtype):  # NumPy would take it for float32 among bfloat16
        return store(np.asarray(value, cdp.numpy_dtype(dtype)))


@cdp.hookimpl
def coredispatch_register(registrar):
    registrar.backend(FlatBackend())
