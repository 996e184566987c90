"""Which module becomes which: static, dynamic, and for training."""

from __future__ import annotations

import copy
from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.nn import intrinsic as nni
from coredispatch.frontend.ao.nn import qat as nnqat
from coredispatch.frontend.ao.nn import quantized as nnq
from coredispatch.frontend.ao.nn.intrinsic import qat as nniqat
from coredispatch.frontend.ao.nn.intrinsic import quantized as nniq
from coredispatch.frontend.ao.nn.quantized import dynamic as nnqd
from coredispatch.frontend.ao.quantization.stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_dynamic_quant_module_class",
    "get_static_quant_module_class",
]

DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    nnq.FloatFunctional: nnq.QFunctional,
    **{
        getattr(nn, name): getattr(nnq, name)
        for name in (
            "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d Dropout ELU GroupNorm Hardswish "
            "InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU Linear PReLU Sigmoid "
            "Softmax ReLU6"
        ).split()
    },
    **{getattr(nni, name): getattr(nniq, name) for name in nniq.__all__},
    nnqat.Linear: nnq.Linear,
    nnqat.Conv1d: nnq.Conv1d,
    nnqat.Conv2d: nnq.Conv2d,
    nnqat.Conv3d: nnq.Conv3d,
    nniqat.LinearReLU: nniq.LinearReLU,
    nniqat.LinearBn1d: nnq.Linear,
    **{
        getattr(nniqat, f"Conv{kind}{n}d"): getattr(nniq if "ReLU" in kind else nnq, made)
        for n in (1, 2, 3)
        for kind, made in (
            ("Bn", f"Conv{n}d"),
            ("ReLU", f"ConvReLU{n}d"),
            ("BnReLU", f"ConvReLU{n}d"),
        )
    },
}
DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    nn.Linear: nnqat.Linear,
    nn.Conv2d: nnqat.Conv2d,
    nn.Conv3d: nnqat.Conv3d,
    **{
        getattr(nni, name): getattr(nniqat, name)
        for name in nniqat.__all__
        if isinstance(getattr(nniqat, name), type)
    },
}
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    getattr(nn, name): getattr(nnqd, name) for name in nnqd.__all__
}


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """A copy of the table for static quantization."""
    return copy.copy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """A copy of the table for dynamic quantization."""
    return copy.copy(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """A copy of the table for training with quantization."""
    return copy.copy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_default_qconfig_propagation_list() -> set[Any]:
    """The modules that get observers."""
    return {
        *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        *DEFAULT_QAT_MODULE_MAPPINGS,
        *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    }


def _class(found: dict[Any, Any], kind: Any) -> Any:
    if kind not in found:
        raise AssertionError(f"Floating point module class {kind} has no quantized counterpart")
    return found[kind]


def get_static_quant_module_class(
    float_module_class: Any,
    additional_static_quant_mapping: dict[Any, Any] | None = None,
    is_reference: bool = False,
) -> Any:
    """What ``convert`` makes of a module of that class."""
    table = {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **(additional_static_quant_mapping or {})}
    return _class(table, float_module_class)


def get_dynamic_quant_module_class(
    float_module_class: Any, additional_dynamic_quant_mapping: dict[Any, Any] | None = None
) -> Any:
    """What ``quantize_dynamic`` makes of a module of that class."""
    table = {**DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, **(additional_dynamic_quant_mapping or {})}
    return _class(table, float_module_class)
