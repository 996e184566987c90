"""``cd.ao.quantization``, also ``cd.quantization``: quantizing networks module by module.

Quantized tensors and their kernels are the plugin ``coredispatch-quant``. Post-training: give the
model a ``qconfig``, ``prepare`` it, run calibration batches, ``convert`` it. Training with
quantization: ``prepare_qat``, train, ``convert``. Weights alone: ``quantize_dynamic``.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.ao.quantization import (
    fake_quantize,
    observer,
    qconfig,
    quantization_mappings,
    stubs,
)
from coredispatch.frontend.ao.quantization import (
    fuse_modules as _fuse_modules,
)
from coredispatch.frontend.ao.quantization import (
    quantize as _quantize,
)
from coredispatch.frontend.ao.quantization.fake_quantize import *  # noqa: F403
from coredispatch.frontend.ao.quantization.fuse_modules import *  # noqa: F403
from coredispatch.frontend.ao.quantization.observer import *  # noqa: F403
from coredispatch.frontend.ao.quantization.qconfig import *  # noqa: F403
from coredispatch.frontend.ao.quantization.quantization_mappings import *  # noqa: F403
from coredispatch.frontend.ao.quantization.quantize import *  # noqa: F403
from coredispatch.frontend.ao.quantization.stubs import *  # noqa: F403

_MODULES = (
    fake_quantize,
    _fuse_modules,
    observer,
    qconfig,
    quantization_mappings,
    _quantize,
    stubs,
)
_FIX = "use eager mode: qconfig, prepare, convert"
convert_fx: Any = announced_function("ao.quantization.quantize_fx.convert_fx", _FIX)
prepare_fx: Any = announced_function("ao.quantization.quantize_fx.prepare_fx", _FIX)
quantize_dynamic_jit: Any = announced_function("ao.quantization.quantize_dynamic_jit", _FIX)
quantize_jit: Any = announced_function("ao.quantization.quantize_jit", _FIX)

__all__ = [
    "convert_fx",
    "observer",
    "prepare_fx",
    "quantize_dynamic_jit",
    "quantize_jit",
    *[name for module in _MODULES for name in module.__all__],
]
