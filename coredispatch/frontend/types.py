"""``cd.types``: names for annotations, PyTorch's ``torch.types``."""

from __future__ import annotations

import os
from builtins import bool as _bool
from builtins import bytes as _bytes
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from coredispatch.frontend.size import Size as _Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.device import Device as _device
from coredispatch.registry.model.dtypes import DType as _dtype
from coredispatch.registry.model.spelling import TensorLayout as _layout

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number: TypeAlias = _int | _float | _bool
Device: TypeAlias = _device | _str | _int | None
FileLike: TypeAlias = _str | os.PathLike[_str] | IO[_bytes]
_size: TypeAlias = _Size | list[_int] | tuple[_int, ...]
_dispatchkey: TypeAlias = _str
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_symint, _qscheme, Storage = _int, Any, Any
_Complex, _Layout, _Dtype = _complex, _layout, _dtype
