"""cuBLASLt through ctypes: products with an epilogue, which CuPy has no binding for.

Matrices are column-major here, as cuBLASLt has them. A *plan* is what one product needs whose
matrices are laid out in one way: descriptors, and the algorithm that the heuristic chooses. Names
and numbers are those of ``cublasLt.h`` (CUDA 11.4 to 13).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["EPILOGUES", "Matrix", "Product", "Products", "Refused", "alignment_of", "library"]

#: cudaDataType by the dtype's name
DATA_TYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "int8": 3,
    "complex64": 4,
    "complex128": 5,
    "int32": 10,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}
#: cublasComputeType_t, and cudaDataType of the factors alpha and beta, by the dtype of A and B
_COMPUTED = {
    "float16": (68, 0),
    "bfloat16": (68, 0),
    "float8_e4m3fn": (68, 0),
    "float8_e5m2": (68, 0),
    "float32": (68, 0),
    "complex64": (68, 4),
    "float64": (70, 1),
    "complex128": (70, 5),
    "int8": (72, 10),
}
#: cublasComputeType_t of float32 and complex64 by tensor cores in TF32
_TF32 = 77
#: the type of alpha and beta in memory, by their cudaDataType; complex ones are two numbers
_FACTORS: dict[int, Any] = {
    0: ctypes.c_float,
    1: ctypes.c_double,
    4: ctypes.c_float * 2,
    5: ctypes.c_double * 2,
    10: ctypes.c_int32,
}
#: cublasLtEpilogue_t. GELU is the approximation by tanh. "bgradb" sums matrix B up over the rows.
EPILOGUES = {
    "": 1,
    "relu": 2,
    "bias": 4,
    "relu_bias": 6,
    "gelu": 32,
    "gelu_bias": 36,
    "gelu_aux_bias": 164,
    "dgelu": 192,
    "dgelu_bgrad": 208,
    "bgradb": 512,
}
#: cublasLtMatmulDescAttributes_t: the number and the type of the value
_DESC = {
    "transa": (3, ctypes.c_int32),
    "transb": (4, ctypes.c_int32),
    "epilogue": (7, ctypes.c_uint32),
    "bias": (8, ctypes.c_void_p),
    "aux": (11, ctypes.c_void_p),
    "aux_ld": (12, ctypes.c_int64),
    "a_scale": (17, ctypes.c_void_p),
    "b_scale": (18, ctypes.c_void_p),
    "fast_accum": (25, ctypes.c_int8),
}
#: cublasLtMatrixLayoutAttribute_t
_LAYOUT = {"batch_count": (5, ctypes.c_int32), "batch_stride": (6, ctypes.c_int64)}
#: cublasLtMatmulPreferenceAttributes_t
_PREFERENCE = {
    "workspace": (1, ctypes.c_uint64),
    "alignment_a": (5, ctypes.c_uint32),
    "alignment_b": (6, ctypes.c_uint32),
    "alignment_c": (7, ctypes.c_uint32),
    "alignment_d": (8, ctypes.c_uint32),
}
#: bytes that a product may use beside its matrices, as PyTorch allows on Hopper
_WORKSPACE = 32 << 20
#: the alignment that cuBLASLt takes for granted unless told otherwise
_ALIGNED = 256


class _Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``"""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class _Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``"""

    _fields_ = [
        ("algorithm", _Algorithm),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
#: functions by name, with the types of their arguments
_FUNCTIONS: dict[str, list[Any]] = {
    "cublasLtCreate": [_POINTER],
    "cublasLtMatmulDescCreate": [_POINTER, _INT, _INT],
    "cublasLtMatmulDescSetAttribute": [_POINTER, _INT, _POINTER, _SIZE],
    "cublasLtMatrixLayoutCreate": [
        *(_POINTER, _INT, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
    ],
    "cublasLtMatrixLayoutSetAttribute": [_POINTER, _INT, _POINTER, _SIZE],
    "cublasLtMatmulPreferenceCreate": [_POINTER],
    "cublasLtMatmulPreferenceDestroy": [_POINTER],
    "cublasLtMatmulPreferenceSetAttribute": [_POINTER, _INT, _POINTER, _SIZE],
    "cublasLtMatmulAlgoGetHeuristic": [*[_POINTER] * 7, _INT, _POINTER, _POINTER],
    "cublasLtMatmul": [*[_POINTER] * 14, _SIZE, _POINTER],
}


@cache
def library(cupy: Any) -> Any:
    """The library that CuPy's cuBLAS came with; None where there is none.

    Calls keep the interpreter's lock, as they are short: they put work on a stream.
    """
    if getattr(cupy.cuda, "cublas", None) is None:  # loads it, so that a name finds the library
        return None
    version = int(cupy.cuda.runtime.runtimeGetVersion()) // 1000
    name = f"libcublasLt.so.{version}"
    found = find_spec("nvidia")
    folders = found.submodule_search_locations or () if found else ()
    packaged = [str(path) for folder in folders for path in Path(folder).glob(f"*/lib/{name}")]
    for candidate in (name, *packaged):
        try:
            loaded = ctypes.PyDLL(candidate)
        except OSError:
            continue
        for function, types in _FUNCTIONS.items():
            getattr(loaded, function).argtypes = types
            getattr(loaded, function).restype = ctypes.c_int
        return loaded
    return None


class Matrix(NamedTuple):
    """A column-major matrix, or as many of them as the product has, ``stride`` elements apart."""

    dtype: str
    rows: int
    columns: int
    ld: int
    transposed: bool = False
    stride: int = 0


class Product(NamedTuple):
    """``D = epilogue(alpha op(A) op(B) + beta C)`` of matrices in memory that is aligned so far.

    ``C`` is laid out as ``D`` is. ``alignment`` is that of A, B, D and what the epilogue reads or
    writes beside them; ``aux`` is the leading dimension of the epilogue's own matrix. With ``fast``
    8-bit floats are added up without widening the sums now and then.
    """

    a: Matrix
    b: Matrix
    d: Matrix
    batch: int
    epilogue: str
    tf32: bool
    alignment: tuple[int, int, int, int]
    aux: int = 0
    fast: bool = False


class Refused(Exception):
    """The library does not take a product, and says it by a status."""


def _checked(status: int, name: str) -> None:
    if status:
        raise Refused(f"{name} gives status {status}")


class Products:
    """Runs products; plans are kept for each device.

    Args:
        cupy: CuPy.
        found: the library.
    """

    def __init__(self, cupy: Any, found: Any) -> None:
        self.cupy, self.library = cupy, found
        self.handles: dict[int, Any] = {}
        self.plans: dict[Any, _Plan | None] = {}

    def run(
        self,
        product: Product,
        a: Any,
        b: Any,
        d: Any,
        *,
        c: Any = None,
        alpha: complex = 1,
        beta: complex = 0,
        bias: Any = None,
        aux: Any = None,
        scales: tuple[Any, Any] | None = None,
    ) -> bool:
        """Put the product on the current stream; False where the library does not take it.

        ``a``, ``b``, ``c``, ``d``, ``bias``, ``aux`` and ``scales`` are arrays, of which the first
        element counts. What is refused once is not asked for again.
        """
        key = (int(self.cupy.cuda.runtime.getDevice()), product)
        pointers = {"bias": bias, "aux": aux}
        if scales is not None:
            pointers |= {"a_scale": scales[0], "b_scale": scales[1]}
        given = {name: x.data.ptr for name, x in pointers.items() if x is not None}
        try:
            if key not in self.plans:
                self.plans[key] = None
                self.plans[key] = _Plan(self.library, self._handle(key[0]), product, given)
            plan = self.plans[key]
            if plan is None:
                return False
            space = self.cupy.cuda.alloc(plan.workspace) if plan.workspace else None
            where = (a.data.ptr, b.data.ptr, (d if c is None else c).data.ptr, d.data.ptr)
            stream = self.cupy.cuda.get_current_stream().ptr
            plan.run(where, alpha, beta, given, 0 if space is None else space.ptr, stream)
        except Refused:
            self.plans[key] = None
            return False
        return True

    def _handle(self, device: int) -> Any:
        if device not in self.handles:
            handle = ctypes.c_void_p()
            _checked(self.library.cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate")
            self.handles[device] = handle
        return self.handles[device]


class _Plan:
    """Descriptors and the algorithm of one product."""

    def __init__(self, found: Any, handle: Any, product: Product, pointers: dict[str, int]) -> None:
        self.library, self.handle, self.lock = found, handle, threading.Lock()
        compute, self.factor = _COMPUTED[product.a.dtype]
        if product.tf32 and product.a.dtype in ("float32", "complex64"):
            compute = _TF32
        self.desc = self._made("cublasLtMatmulDescCreate", compute, self.factor)
        self._describe(transa=int(product.a.transposed), transb=int(product.b.transposed))
        self._describe(epilogue=EPILOGUES[product.epilogue], **pointers)
        if product.fast:
            self._describe(fast_accum=1)
        if product.aux:
            self._describe(aux_ld=product.aux)
        self.a, self.b, self.d = (
            self._layout(matrix, product.batch) for matrix in (product.a, product.b, product.d)
        )
        self.algorithm, self.workspace = self._chosen(product.alignment)

    def _made(self, create: str, *args: Any) -> Any:
        made = ctypes.c_void_p()
        _checked(getattr(self.library, create)(ctypes.byref(made), *args), create)
        return made

    def _set(self, setter: str, target: Any, known: dict[str, Any], values: dict[str, int]) -> None:
        for name, value in values.items():
            number, kind = known[name]
            given = kind(value)
            function: Callable[..., int] = getattr(self.library, setter)
            _checked(function(target, number, ctypes.byref(given), ctypes.sizeof(given)), setter)

    def _describe(self, **values: int) -> None:
        self._set("cublasLtMatmulDescSetAttribute", self.desc, _DESC, values)

    def _layout(self, matrix: Matrix, batch: int) -> Any:
        kind = DATA_TYPES[matrix.dtype]
        size = (matrix.rows, matrix.columns, matrix.ld)
        made = self._made("cublasLtMatrixLayoutCreate", kind, *size)
        if batch > 1:
            values = {"batch_count": batch, "batch_stride": matrix.stride}
            self._set("cublasLtMatrixLayoutSetAttribute", made, _LAYOUT, values)
        return made

    def _chosen(self, alignment: tuple[int, int, int, int]) -> tuple[_Algorithm, int]:
        """What the heuristic says is fastest, and the bytes that it needs."""
        preference = self._made("cublasLtMatmulPreferenceCreate")
        names = ("alignment_a", "alignment_b", "alignment_c", "alignment_d")
        # Of what an epilogue reads nothing can be said: PyTorch says it of D, too.
        places = (*alignment[:3], min(alignment[2], alignment[3] or _ALIGNED))
        values = dict(zip(names, places, strict=True)) | {"workspace": _WORKSPACE}
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, _PREFERENCE, values)
        result, count = _Heuristic(), ctypes.c_int()
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            *(self.handle, self.desc, self.a, self.b, self.d, self.d, preference),
            *(1, ctypes.byref(result), ctypes.byref(count)),
        )
        self.library.cublasLtMatmulPreferenceDestroy(preference)
        _checked(status, "cublasLtMatmulAlgoGetHeuristic")
        if not count.value or result.state:
            raise Refused("there is no algorithm")
        return result.algorithm, int(result.workspace)

    def run(
        self,
        where: tuple[int, int, int, int],
        alpha: complex,
        beta: complex,
        pointers: dict[str, int],
        space: int,
        stream: int,
    ) -> None:
        """Put the product on a stream."""
        a, b, c, d = where
        with self.lock:  # threads share the descriptor, which says where a bias lies
            if pointers:
                self._describe(**pointers)
            status = self.library.cublasLtMatmul(
                *(self.handle, self.desc, ctypes.byref(self._factor(alpha))),
                *(a, self.a, b, self.b, ctypes.byref(self._factor(beta)), c, self.d, d, self.d),
                *(ctypes.byref(self.algorithm), space, self.workspace, stream),
            )
        _checked(status, "cublasLtMatmul")

    def _factor(self, value: complex) -> Any:
        kind = _FACTORS[self.factor]
        if self.factor in (4, 5):
            return kind(complex(value).real, complex(value).imag)
        return kind(value)


def alignment_of(pointer: int) -> int:
    """The largest power of two that divides an address, up to what cuBLASLt asks for."""
    return min(_ALIGNED, pointer & -pointer) if pointer else _ALIGNED
