"""Gradient clipping. Pascanu, Mikolov and Bengio, 2013."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_lists import are_alike
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]

_clip_each = TABLE.operator("clip_each")
_norm_of_each = TABLE.operator("norm_of_each")
_update_each = TABLE.operator("update_each")


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    each = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in each if p.grad is not None]


def _norm(x: Any, p: float) -> Any:
    if p == 2.0:
        return (x * x).sum().sqrt()
    if math.isinf(p):
        return x.abs().amax()
    return (x.abs() ** p).sum() ** (1.0 / p)


def _on_one_mesh(norms: list[Any]) -> list[Any]:
    """Norms of DTensors that lie on several meshes: as plain tensors, which all ranks have."""
    meshes = {getattr(norm, "device_mesh", None) for norm in norms}
    if len(meshes) == 1:
        return norms
    return [norm if getattr(norm, "device_mesh", None) is None else norm.full_tensor()
            for norm in norms]  # fmt: skip


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors' elements together, 0-d (0 for none).

    Raises ``RuntimeError`` for a norm that is not finite with ``error_if_nonfinite``.
    """
    each = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    total: Tensor
    norm_type = float(norm_type)
    if not each:
        total = TABLE.operator("zeros")(())
        return total
    with no_grad():
        if are_alike(_norm_of_each, each):
            total = _norm(_norm_of_each(each, norm_type), norm_type)
        else:
            norms = _on_one_mesh([_norm(t, norm_type).to(each[0].device) for t in each])
            one = len(norms) == 1
            total = norms[0] if one else _norm(TABLE.operator("stack")(norms), norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients in place so that their norm together is at most ``max_norm``.

    Returns the norm before. ``foreach`` is accepted and makes no difference.
    """
    max_norm = float(max_norm)
    gradients = _gradients(parameters)
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    _clip(gradients, max_norm, total)
    return total


def _clip(gradients: list[Tensor], max_norm: float, total: Tensor) -> None:
    with no_grad():
        if gradients and are_alike(_clip_each, [*gradients, total]):
            _clip_each(gradients, total, max_norm)
            return
        # Multiplying also where nothing is to be clipped saves reading the norm back.
        factor = (max_norm / (total + 1e-6)).clamp_max(1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device).to(gradient.dtype))


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients in place by ``max_norm / total_norm`` where that is below 1."""
    _clip(_gradients(parameters), float(max_norm), total_norm)


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The older name of :func:`clip_grad_norm_`."""
    warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp every gradient in place to ``[-clip_value, clip_value]``."""
    gradients = _gradients(parameters)
    bound = float(clip_value)
    with no_grad():
        if gradients and are_alike(_update_each, gradients):
            _update_each(gradients, [], [], "clamp", [-bound, bound])
            return
        for gradient in gradients:
            gradient.clamp_(-bound, bound)
