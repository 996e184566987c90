"""Weight normalization by hooks, the older form. Salimans and Kingma, 2016."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

from coredispatch._warnings import warn
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter, is_lazy
from coredispatch.registry.model.errors import DimError
from coredispatch.registry.wiring import GRAPH

__all__ = ["WeightNorm", "norm_except_dim", "remove_weight_norm", "weight_norm"]

T = TypeVar("T", bound=Module)


def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """Norms over all dimensions but ``dim``, kept as 1; over all of them for ``dim=-1``.

    Raises ``IndexError`` where ``v`` has no dimension ``dim``.
    """
    pow, dim = operator.index(pow), operator.index(dim)
    if dim == -1:
        return v.norm(pow)
    if not -v.ndim <= dim < v.ndim:
        raise DimError(
            f"norm_except_dim: a tensor of shape {tuple(v.shape)} has no dimension {dim}",
            fix="give a tensor with dimensions, or dim=-1 for one norm of all elements",
        )
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    if not others:  # each element is a norm of its own
        return v.unsqueeze(-1).norm(pow, dim=-1)
    return v.norm(pow, dim=others, keepdim=True)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """``g * v / |v|``, with norms over all dimensions but ``dim``."""
    weight = v * (g / norm_except_dim(v, 2, dim))
    GRAPH.name_results(weight, -1, "WeightNormInterfaceBackward0")
    return weight


class WeightNorm:
    """The hook that computes a weight from its direction and its length before each call."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        """The weight, from ``name_g`` and ``name_v``."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return _weight_norm(v, g, self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Put the hook on; the parameter becomes ``name_g`` and ``name_v``."""
        warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of "
            "`torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
        )
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two weight_norm hooks on the same parameter {name}"
                )
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure "
                "to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        module.register_parameter(
            name + "_g", Parameter(norm_except_dim(weight, 2, fn.dim).detach())
        )
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Module) -> None:
        """Make the weight an ordinary parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: T, name: str = "weight", dim: int = 0) -> T:
    """Replace the parameter ``name`` by its length ``name_g`` and its direction ``name_v``.

    Lengths are taken over all dimensions but ``dim`` (None: over all). New programs use
    ``nn.utils.parametrizations.weight_norm``.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: T, name: str = "weight") -> T:
    """Undo :func:`weight_norm`. Raises ``ValueError`` where there is none."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
