"""Layers side by side made one, by their names in a model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.nn import intrinsic as nni

__all__ = [
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_known_modules",
    "fuse_linear_bn",
    "fuse_modules",
    "fuse_modules_qat",
    "get_fuser_method",
]

_CONVS = {nn.Conv1d: "1d", nn.Conv2d: "2d", nn.Conv3d: "3d"}


def _same_mode(*modules: Any) -> None:
    if len({module.training for module in modules}) > 1:
        raise AssertionError("Conv and BN both must be in the same mode (train or eval).")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution and the batch norm behind it: folded, or for training side by side."""
    _same_mode(conv, bn)
    if is_qat:
        if bn.num_features != conv.out_channels:
            raise AssertionError("Output channel of Conv2d must match num_features of BatchNorm2d")
        return getattr(nni, "ConvBn" + _CONVS[type(conv)])(conv, bn)
    return nn.utils.fuse_conv_bn_eval(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """A convolution, the batch norm behind it, and ReLU."""
    _same_mode(conv, bn, relu)
    kind = _CONVS[type(conv)]
    if is_qat:
        return getattr(nni, "ConvBnReLU" + kind)(conv, bn, relu)
    return getattr(nni, "ConvReLU" + kind)(nn.utils.fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A linear layer and the batch norm behind it."""
    _same_mode(linear, bn)
    return nni.LinearBn1d(linear, bn) if is_qat else nn.utils.fuse_linear_bn_eval(linear, bn)


def _side_by_side(kind: Any) -> Callable[..., Any]:
    return lambda is_qat, *modules: kind(*modules)


_FUSERS: dict[tuple[Any, ...], Callable[..., Any]] = {
    (nn.Linear, nn.ReLU): _side_by_side(nni.LinearReLU),
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.BatchNorm2d, nn.ReLU): _side_by_side(nni.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _side_by_side(nni.BNReLU3d),
}
for _conv, _kind in _CONVS.items():
    _norm = getattr(nn, "BatchNorm" + _kind)
    _FUSERS[_conv, _norm] = fuse_conv_bn
    _FUSERS[_conv, _norm, nn.ReLU] = fuse_conv_bn_relu
    _FUSERS[_conv, nn.ReLU] = _side_by_side(getattr(nni, "ConvReLU" + _kind))


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: Any = None) -> Any:
    """The function ``(is_qat, *modules)`` that fuses modules of these classes."""
    table = {**_FUSERS, **(additional_fuser_method_mapping or {})}
    found = table.get(tuple(op_list))
    if found is None:
        shown = ", ".join(getattr(kind, "__name__", str(kind)) for kind in op_list)
        raise AssertionError(f"did not find fuser method for: {shown}")
    return found


def fuse_known_modules(
    mod_list: Any, is_qat: bool, additional_fuser_method_mapping: Any = None
) -> list[Any]:
    """The fused module, and an Identity for each of the others."""
    kinds = tuple(type(module) for module in mod_list)
    fused = get_fuser_method(kinds, additional_fuser_method_mapping)(is_qat, *mod_list)
    for hook in list(mod_list[0]._forward_pre_hooks.values()):
        fused.register_forward_pre_hook(hook)
    mod_list[0]._forward_pre_hooks.clear()
    for hook in list(mod_list[-1]._forward_hooks.values()):
        fused.register_forward_hook(hook)
    mod_list[-1]._forward_hooks.clear()
    rest = [nn.Identity() for _ in mod_list[1:]]
    for identity in rest:
        identity.training = mod_list[0].training
    return [fused, *rest]


def _fuse(model: Any, groups: Any, is_qat: bool, fuser: Any, config: Any) -> None:
    extra = (config or {}).get("additional_fuser_method_mapping")
    for group in groups:
        new = fuser([model.get_submodule(name) for name in group], is_qat, extra)
        for name, module in zip(group, new, strict=True):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, module)


def _fused(model: Any, groups: Any, is_qat: bool, inplace: bool, fuser: Any, config: Any) -> Any:
    if not inplace:
        model = copy.deepcopy(model)
    if all(isinstance(name, str) for name in groups):
        groups = [groups]
    _fuse(model, groups, is_qat, fuser, config)
    return model


def fuse_modules(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """The model, in evaluation mode, with groups of modules fused.

    ``modules_to_fuse`` is a list of names (``["conv1", "bn1", "relu1"]``) or a list of such lists.
    Convolution, batch norm and ReLU in these orders are known: conv-bn, conv-bn-relu, conv-relu,
    linear-bn, linear-relu, bn-relu. The first module becomes the fused one, the others Identity.
    """
    return _fused(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """:func:`fuse_modules` for training: batch norms stay, beside their layer."""
    return _fused(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
