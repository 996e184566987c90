"""The older names of sparse tensors on the device, ``cuda.sparse.FloatTensor`` and so on."""

from __future__ import annotations

from functools import partial

from coredispatch.frontend.sparse import older_name

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


_typed = partial(older_name, device="cuda")

FloatTensor, DoubleTensor = _typed("float32"), _typed("float64")
HalfTensor, BFloat16Tensor = _typed("float16"), _typed("bfloat16")
LongTensor, IntTensor, ShortTensor = _typed("int64"), _typed("int32"), _typed("int16")
CharTensor, ByteTensor = _typed("int8"), _typed("uint8")
