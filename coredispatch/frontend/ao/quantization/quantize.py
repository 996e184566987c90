"""From a float network to a quantized one: ``prepare``, calibrate or train, ``convert``.

Jacob et al. (2018); Krishnamoorthi, "Quantizing deep convolutional networks for efficient
inference" (2018).
"""

from __future__ import annotations

import copy
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend import nn
from coredispatch.frontend.ao.nn import quantized as nnq
from coredispatch.frontend.ao.nn.intrinsic import _FusedModule
from coredispatch.frontend.ao.nn.intrinsic.qat import Normalized
from coredispatch.frontend.ao.quantization import fake_quantize as fake
from coredispatch.frontend.ao.quantization.observer import ObserverBase
from coredispatch.frontend.ao.quantization.qconfig import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
)
from coredispatch.frontend.ao.quantization.quantization_mappings import (
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
)
from coredispatch.frontend.ao.quantization.stubs import DeQuantStub, QuantWrapper
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]

#: in training, the outputs whose range is known
_FIXED = {
    nn.Hardsigmoid: fake.default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: fake.default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: fake.default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: fake.default_fixed_qparams_range_neg1to1_fake_quant,
}


def propagate_qconfig_(
    module: Any, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None
) -> None:
    """Give every module below ``module`` a ``qconfig``: its own, or one that holds above it.

    ``qconfig_dict`` has more of them, by name or by class. None excludes a module.
    """
    _propagate(module, qconfig_dict or {}, None, "")


def _propagate(module: Any, table: Any, above: Any, prefix: str) -> None:
    own = table.get(prefix, table.get(type(module), above))
    own = getattr(module, "qconfig", own)
    module.qconfig = own
    for name, child in module.named_children():
        _propagate(child, table, own, f"{prefix}.{name}" if prefix else name)


def _observed(module: Any) -> bool:
    return getattr(module, "qconfig", None) is not None


def _observe_output(module: Any, inputs: Any, output: Any) -> Any:
    return module.activation_post_process(output)


def _insert(module: Any, special: Any = None) -> None:
    if _observed(module) and not isinstance(module, DeQuantStub):
        observer = module.qconfig.activation() if special is None else special()
        module.add_module("activation_post_process", observer)
        module.register_forward_hook(_observe_output, prepend=True)


def _add_observers(module: Any, kinds: Any, inner: Any) -> None:
    for child in module.children():
        if isinstance(child, (ObserverBase, fake.FakeQuantizeBase)) or type(child) is nn.Dropout:
            continue
        if isinstance(child, nnq.FloatFunctional):
            if _observed(child):
                child.activation_post_process = child.qconfig.activation()
        elif isinstance(child, _FusedModule) or type(child) in inner:
            _insert(child)
        elif child.training and type(child) in _FIXED:
            _insert(child, _FIXED[type(child)])
        else:
            _add_observers(child, kinds, inner)
    leaf = not list(module.children()) and not isinstance(module, nn.Sequential)
    if leaf and type(module) in kinds:
        _insert(module)


def prepare(
    model: Any,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> Any:
    """The model with observers behind every module that can be quantized and has a ``qconfig``.

    ``model.qconfig`` (or that of parts) says which ones. Then run calibration batches through it,
    and :func:`convert`.
    """
    _refuse_custom(prepare_custom_config_dict)
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model)
    if not any(_observed(module) for module in model.modules()):
        warn(
            "None of the submodule got qconfig applied. Make sure you passed correct "
            "configuration through `qconfig_dict` or by assigning the `.qconfig` attribute "
            "directly on submodules"
        )
    kinds = get_default_qconfig_propagation_list() if allow_list is None else allow_list
    _add_observers(model, kinds, observer_non_leaf_module_list or ())
    return model


def _refuse_custom(config: Any) -> None:
    if config:
        raise NotImplementedError(
            "custom mappings of observed modules are not there yet\n  fix: pass mapping= to convert"
        )


def add_quant_dequant(module: Any) -> Any:
    """Every leaf with a ``qconfig`` between a QuantStub and a DeQuantStub."""
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


def prepare_qat(model: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """The model, in training mode, with weights and activations rounded as they will be."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    table = get_default_qat_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model)
    convert(model, table, inplace=True, remove_qconfig=False)
    return prepare(model, inplace=True, observer_non_leaf_module_list=set(table.values()))


def convert(
    module: Any,
    mapping: Any = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """The model with its modules replaced by those of ``mapping``, made by their ``from_float``.

    Without ``mapping`` those for static quantization. A module without ``qconfig`` stays.
    """
    _refuse_custom(convert_custom_config_dict)
    if is_reference:
        raise NotImplementedError(
            "convert(is_reference=True) is not there yet\n  fix: leave it away for integer kernels"
        )
    table = get_default_static_quant_module_mappings() if mapping is None else mapping
    if not inplace:
        module = copy.deepcopy(module)
    _convert(module, table)
    if remove_qconfig:
        _clean(module)
    return module


def _convert(module: Any, table: Any) -> None:
    for name, child in list(module.named_children()):
        if not isinstance(child, (_FusedModule, Normalized)):
            _convert(child, table)
        module._modules[name] = swap_module(child, table)


def swap_module(
    mod: Any,
    mapping: Any,
    custom_module_class_mapping: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """What ``mapping`` makes of a module with a ``qconfig``; the module itself otherwise."""
    if not _observed(mod) or type(mod) not in mapping:
        return mod
    kept = [hook for hook in mod._forward_hooks.values() if hook is not _observe_output]
    made = mapping[type(mod)].from_float(mod)
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for hook in kept:
        made.register_forward_hook(hook)
    return made


def _clean(module: Any) -> None:
    for child in module.children():
        _clean(child)
    module.__dict__.pop("qconfig", None)
    if isinstance(module._modules.get("activation_post_process"), ObserverBase):
        del module._modules["activation_post_process"]
    for number, hook in list(module._forward_hooks.items()):
        if hook is _observe_output:
            del module._forward_hooks[number]


def quantize(
    model: Any, run_fn: Any, run_args: Any, mapping: Any = None, inplace: bool = False
) -> Any:
    """Prepare, ``run_fn(model, *run_args)`` to calibrate, convert."""
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def quantize_qat(model: Any, run_fn: Any, run_args: Any, inplace: bool = False) -> Any:
    """Prepare for training, ``run_fn(model, *run_args)`` to train, convert."""
    if not inplace:
        model = copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def quantize_dynamic(
    model: Any,
    qconfig_spec: Any = None,
    dtype: Any = "qint8",
    mapping: Any = None,
    inplace: bool = False,
) -> Any:
    """The model with 8-bit (or float16) weights in its Linear and recurrent layers.

    ``qconfig_spec`` is a set of classes and names, or a dict from such to QConfigs; all Linear,
    LSTM, GRU and cells unless given. Activations stay float, and are quantized as they come.
    """
    named = DType.of(dtype).name if not isinstance(dtype, str) else dtype
    if qconfig_spec is None or isinstance(qconfig_spec, set):
        known = {"qint8": default_dynamic_qconfig, "float16": float16_dynamic_qconfig}
        if named in ("quint8", "quint4x2"):
            raise NotImplementedError(
                "embeddings with quantized rows are not there yet\n  fix: use qint8 or float16"
            )
        if named not in known:
            raise ValueError(
                f"Don't know how to quantize with default settings for {dtype}. Provide full "
                "qconfig please"
            )
        kinds = (
            get_default_dynamic_quant_module_mappings() if qconfig_spec is None else qconfig_spec
        )
        qconfig_spec = dict.fromkeys(kinds, known[named])
    table = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return convert(model, table, inplace=True)


def default_eval_fn(model: Any, calib_data: Any) -> None:
    """Run the inputs of pairs ``(data, target)`` through the model: calibration."""
    for data, _ in calib_data:
        model(data)
