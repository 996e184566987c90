"""A stand-in for cuBLASLt that looks at every argument, and multiplies with NumPy.

Sizes of attributes, types that go together, leading dimensions, what an epilogue asks for, and
where matrices lie are those of NVIDIA's documentation (cuBLAS 12 and 13, "Using the cuBLASLt API").
What it cannot say is what the library itself does.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stand_in_streams import MACHINE, current_stream

__all__ = ["CublasLt", "installed"]

#: bytes of cublasLtMatmulDescAttributes_t, of cublasLtMatrixLayoutAttribute_t, and of
#: cublasLtMatmulPreferenceAttributes_t
DESC = {3: 4, 4: 4, 7: 4, 8: 8, 10: 8, 11: 8, 12: 8, 13: 8, 17: 8, 18: 8, 25: 1}
LAYOUT = {0: 4, 1: 4, 2: 8, 3: 8, 4: 8, 5: 4, 6: 8}
PREFERENCE = {0: 4, 1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4}
#: cudaDataType
TYPES = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
    2: np.dtype(np.float16),
    3: np.dtype(np.int8),
    4: np.dtype(np.complex64),
    5: np.dtype(np.complex128),
    10: np.dtype(np.int32),
    14: np.dtype(ml_dtypes.bfloat16),
    28: np.dtype(ml_dtypes.float8_e4m3fn),
    29: np.dtype(ml_dtypes.float8_e5m2),
}
#: computeType and scaleType with the types of A, B and of D that they go with
TAKEN = {
    (68, 0): {(0, 0, 0), (2, 2, 2), (14, 14, 14), (2, 2, 0), (14, 14, 0)}
    | {(a, b, d) for a, b in ((28, 28), (28, 29), (29, 28)) for d in (0, 2, 14)},
    (77, 0): {(0, 0, 0)},
    (68, 4): {(4, 4, 4)},
    (77, 4): {(4, 4, 4)},
    (70, 1): {(1, 1, 1)},
    (70, 5): {(5, 5, 5)},
    (72, 10): {(3, 3, 10)},
}
RELU, BIAS, GELU, AUX, DGELU, BGRAD, BGRADB = 2, 4, 32, 128, 64, 16, 512
EPILOGUES = {1, 2, 4, 6, 32, 36, 160, 164, 192, 208, 256, 512}
NOT_SUPPORTED = 15
WORKSPACE = 4096


def of(argument: Any) -> Any:
    """What ``byref`` was given."""
    return argument._obj


def look(pointer: int, dtype: np.dtype, rows: int, columns: int, ld: int) -> np.ndarray:
    """A column-major matrix in the stand-in's memory; AssertionError where it is in none."""
    size = dtype.itemsize * (ld * (columns - 1) + rows)
    inside = any(
        start <= pointer and pointer + size <= start + buffer.real.size
        for start, buffer in list(MACHINE.buffers.items())
    )
    assert inside, "a matrix is not in memory of the device"
    place = (ctypes.c_uint8 * size).from_address(pointer)
    strides = (dtype.itemsize, dtype.itemsize * ld)
    return np.ndarray((rows, columns), dtype, memoryview(place).cast("B"), 0, strides)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def gelu_slope(x: np.ndarray) -> np.ndarray:
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    slope = 0.7978845608028654 * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + np.tanh(inner)) + 0.5 * x * slope / np.cosh(inner) ** 2


class CublasLt:
    """The functions of the library; ``calls`` has the epilogue of each product.

    Args:
        refuses: epilogues for which there is no algorithm.
    """

    def __init__(self, refuses: tuple[int, ...] = ()) -> None:
        self.refuses = refuses
        self.made: dict[int, dict[Any, Any]] = {}
        self.numbers = itertools.count(0x1000)
        self.calls: list[dict[str, Any]] = []
        self.heuristics = 0

    def _new(self, target: Any, **facts: Any) -> int:
        number = next(self.numbers)
        of(target).value = number
        self.made[number] = facts
        return 0

    def _set(self, known: dict[int, int], target: Any, number: int, value: Any, size: int) -> int:
        assert known[number] == size == ctypes.sizeof(of(value)), (number, size)
        self.made[target.value][number] = of(value).value
        return 0

    def cublasLtCreate(self, target: Any) -> int:
        return self._new(target, kind="handle")

    def cublasLtMatmulDescCreate(self, target: Any, compute: int, scale: int) -> int:
        return self._new(target, kind="desc", types=(compute, scale))

    def cublasLtMatmulDescSetAttribute(
        self, target: Any, number: int, value: Any, size: int
    ) -> int:
        assert self.made[target.value]["kind"] == "desc"
        return self._set(DESC, target, number, value, size)

    def cublasLtMatrixLayoutCreate(
        self, target: Any, kind: int, rows: int, columns: int, ld: int
    ) -> int:
        assert rows > 0 and columns > 0 and ld >= rows, (rows, columns, ld)
        facts = {"type": kind, "rows": rows, "columns": columns, "ld": ld}
        return self._new(target, kind="layout", **facts)

    def cublasLtMatrixLayoutSetAttribute(
        self, target: Any, number: int, value: Any, size: int
    ) -> int:
        assert self.made[target.value]["kind"] == "layout"
        return self._set(LAYOUT, target, number, value, size)

    def cublasLtMatmulPreferenceCreate(self, target: Any) -> int:
        return self._new(target, kind="preference")

    def cublasLtMatmulPreferenceDestroy(self, target: Any) -> int:
        assert self.made.pop(target.value)["kind"] == "preference"
        return 0

    def cublasLtMatmulPreferenceSetAttribute(
        self, target: Any, number: int, value: Any, size: int
    ) -> int:
        assert self.made[target.value]["kind"] == "preference"
        return self._set(PREFERENCE, target, number, value, size)

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, desc: Any, a: Any, b: Any, c: Any, d: Any, preference: Any,
        wanted: int, results: Any, count: Any,
    ) -> int:  # fmt: skip
        assert self.made[handle.value]["kind"] == "handle" and wanted == 1
        assert c.value == d.value
        self._fit(self.made[desc.value], *(self.made[x.value] for x in (a, b, d)))
        self.heuristics += 1
        facts = self.made[preference.value]
        assert facts[1] >= WORKSPACE
        for number in (5, 6, 7, 8):
            assert facts[number] & (facts[number] - 1) == 0 < facts[number]
        if self.made[desc.value].get(7, 1) in self.refuses:
            of(count).value = 0
            return NOT_SUPPORTED
        result = of(results)
        result.algorithm.data[0] = desc.value
        for k, number in enumerate((5, 6, 8)):
            result.algorithm.data[1 + k] = facts[number]
        result.workspace, result.state = WORKSPACE, 0
        of(count).value = 1
        return 0

    def _fit(self, desc: Any, a: Any, b: Any, d: Any) -> tuple[int, int, int]:
        """Sizes and types that go together; ``(m, n, k)``."""
        types = tuple(x["type"] for x in (a, b, d))
        assert types in TAKEN[desc["types"]], (desc["types"], types)
        m, k = (a["rows"], a["columns"])[:: -1 if desc.get(3, 0) else 1]
        k_of_b, n = (b["rows"], b["columns"])[:: -1 if desc.get(4, 0) else 1]
        assert (m, n, k) == (d["rows"], d["columns"], k_of_b), (a, b, d)
        batches = {x.get(5, 1) for x in (a, b, d)}
        assert len(batches) == 1
        epilogue = desc.get(7, 1)
        assert epilogue in EPILOGUES
        if types[0] in (4, 5):
            assert epilogue == 1, "complex numbers have no epilogue"
        if epilogue & BIAS or epilogue & BGRAD or epilogue == BGRADB:
            assert desc.get(8), "the epilogue needs the pointer of a bias"
        if epilogue & AUX:
            assert desc.get(11), "the epilogue needs the pointer of its matrix"
            assert desc[12] % 8 == 0 and desc[12] >= m
        if types[0] in (3, 28, 29):  # whole numbers and 8 bits: rows of A by columns of B only
            assert desc.get(3, 0) == 1 and desc.get(4, 0) == 0
            unit = 4 if types[0] == 3 else 16
            assert m % unit == 0 and k % unit == 0 and a["ld"] % unit == 0 and b["ld"] % unit == 0
        return m, n, k

    def cublasLtMatmul(
        self, handle: Any, desc: Any, alpha: Any, a: int, a_layout: Any, b: int, b_layout: Any,
        beta: Any, c: int, c_layout: Any, d: int, d_layout: Any, algorithm: Any, space: int,
        size: int, stream: int,
    ) -> int:  # fmt: skip
        assert not MACHINE.delayed, "this stand-in runs at once"
        assert self.made[handle.value]["kind"] == "handle"
        assert stream == current_stream().ptr
        facts = self.made[desc.value]
        layouts = [self.made[x.value] for x in (a_layout, b_layout, d_layout)]
        m, n, _ = self._fit(facts, *layouts)
        assert c_layout.value == d_layout.value
        chosen = of(algorithm).data
        assert chosen[0] == desc.value, "the algorithm is another product's"
        for pointer, aligned in zip((a, b, d), chosen[1:4], strict=True):
            assert pointer % aligned == 0, "a matrix is not aligned as was said"
        for beside in (facts.get(8), facts.get(11)):  # PyTorch says of D what holds of a bias
            assert not beside or beside % chosen[3] == 0, "a bias is not aligned as was said"
        assert size == WORKSPACE
        look(space, TYPES[3], size, 1, size)
        factor = TYPES[facts["types"][1]]
        alpha, beta = (_number(of(x), factor) for x in (alpha, beta))
        batch = layouts[0].get(5, 1)
        for k in range(batch):
            places = [
                look(
                    pointer + k * x.get(6, 0) * TYPES[x["type"]].itemsize,
                    TYPES[x["type"]], x["rows"], x["columns"], x["ld"],
                )
                for pointer, x in zip((a, b, c, d), (*layouts, layouts[2]), strict=True)
            ]  # fmt: skip
            self._multiply(facts, *places, alpha, beta, m, n)
        epilogue = facts.get(7, 1)
        called = {"epilogue": epilogue, "batch": batch, "types": facts["types"]}
        self.calls.append(called | {"fast": facts.get(25, 0)})
        return 0

    def _multiply(
        self, facts: Any, a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray,
        alpha: Any, beta: Any, m: int, n: int,
    ) -> None:  # fmt: skip
        compute = {70: np.float64, 72: np.int32}.get(facts["types"][0], np.float32)
        if a.dtype.kind == "c":
            compute = np.result_type(compute, np.complex64)
        wide = [x.astype(compute) for x in (a, b)]
        for k, (number, pointer) in enumerate(((3, 17), (4, 18))):
            wide[k] = wide[k].T if facts.get(number, 0) else wide[k]
            if facts.get(pointer):
                wide[k] = wide[k] * look(facts[pointer], np.dtype(np.float32), 1, 1, 1)[0, 0]
        with np.errstate(all="ignore"):
            result = alpha * (wide[0] @ wide[1])
            if beta:
                result = result + beta * c.astype(compute)
        epilogue = facts.get(7, 1)
        if epilogue & BIAS:
            result = result + look(facts[8], d.dtype, m, 1, m).astype(compute)
        if epilogue == BGRADB:
            look(facts[8], d.dtype, n, 1, n)[:, 0] = wide[1].sum(0).astype(d.dtype)
        if epilogue & RELU:
            result = np.maximum(result, 0)
        if epilogue & GELU:
            if epilogue & AUX:
                look(facts[11], d.dtype, m, n, facts[12])[...] = result.astype(d.dtype)
            result = gelu(result)
        if epilogue & DGELU:
            result = result * gelu_slope(look(facts[11], d.dtype, m, n, facts[12]).astype(compute))
            if epilogue & BGRAD:
                look(facts[8], d.dtype, m, 1, m)[:, 0] = result.sum(1).astype(d.dtype)
        with np.errstate(all="ignore"):  # half precision overflows
            d[...] = result.astype(d.dtype)


def _number(value: Any, dtype: np.dtype) -> Any:
    """A factor in memory as a number of the scale type."""
    assert ctypes.sizeof(value) == dtype.itemsize, "a factor is not of the scale type"
    return np.frombuffer(bytes(value), dtype)[0]


def installed(patch: pytest.MonkeyPatch, **options: Any) -> Iterator[CublasLt]:
    """The library in the place of the real one, while a backend is made."""
    from coredispatch_cuda_cupy import cublaslt

    found = CublasLt(**options)
    patch.setattr(cublaslt, "library", lambda cupy: found)
    yield found
