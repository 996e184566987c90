"""The older names of sparse tensors on the device, ``cuda.sparse.FloatTensor`` and so on."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.cuda.devices import present
from coredispatch.frontend.sparse import sparse_coo_tensor
from coredispatch.frontend.tensor import Tensor

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


def _typed(dtype: str) -> Any:
    def make(indices: Any = None, values: Any = None, size: Any = None) -> Tensor:
        present()
        return sparse_coo_tensor(indices, values, size, dtype=dtype, device="cuda")

    make.__doc__ = f"``sparse_coo_tensor`` with dtype {dtype} on the device. Raises without one."
    return make


FloatTensor, DoubleTensor = _typed("float32"), _typed("float64")
HalfTensor, BFloat16Tensor = _typed("float16"), _typed("bfloat16")
LongTensor, IntTensor, ShortTensor = _typed("int64"), _typed("int32"), _typed("int16")
CharTensor, ByteTensor = _typed("int8"), _typed("uint8")
