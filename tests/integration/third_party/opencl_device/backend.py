"""The backend: its kernels by operator, and what it tells the framework."""

from __future__ import annotations

from typing import Any

import coredispatch.plugin as cdp
from opencl_device.arrays import (
    Array,
    diagonal,
    expanded,
    permuted,
    reinterpreted,
    strided,
    taken,
    unfolded,
    view_as_real,
    viewed,
)
from opencl_device.copies import (
    arange,
    cat,
    clone,
    fill_,
    flipped,
    full,
    padded,
    read,
    sent,
    to_dtype,
    view_as_complex,
    written,
)
from opencl_device.device import CALL, DEVICE, found_device, missing
from opencl_device.host import HOSTED, on_host
from opencl_device.indexing import gather, getitem, index_put, nonzero, scattered
from opencl_device.language import STORED
from opencl_device.pointwise import POINTWISE, nextafter, pointwise
from opencl_device.reductions import ALONG, along, matmul, sort


def checked(op: str, function: Any) -> Any:
    """The kernel ``function``; what the operator does not take is refused before it runs."""

    def kernel(*args: Any) -> Any:
        taken(op, args)
        CALL.op = op
        return function(*args)

    return kernel


FUNCTIONS: dict[str, Any] = {
    **{op: pointwise(op, *texts) for op, texts in POINTWISE.items()},
    **{op: along(op, *texts) for op, texts in ALONG.items()},
    **{op: on_host(op) for op in HOSTED},
    "arange": arange,
    "as_strided": strided,
    "cat": cat,
    "clone": clone,
    "constant_pad_nd": padded,
    "detach": lambda x: x,
    "diagonal": diagonal,
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
    "unfold": unfolded,
    "view": viewed,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
    "view_dtype": reinterpreted,
    "zero_": lambda x: fill_(x, 0),
}


KERNELS = {op: checked(op, function) for op, function in FUNCTIONS.items()}


class OpenCLBackend(cdp.Backend):
    name, array_type, views = "opencl", Array, True
    kernels = KERNELS
    dtypes = frozenset(STORED)

    def device_count(self) -> int:
        return 0 if found_device() is None else 1

    def device_name(self, index: int = 0) -> str:
        found = found_device()
        return missing() if found is None else found.name

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
