"""Steps of which every number stays on the device: nothing waits, and a graph can replay them.

``capturable=True`` asks for them, and a :class:`GradScaler` with ``fused=True``: the flag
``optimizer.found_inf`` then decides on the device whether parameters and states stay as they are.
"""

from __future__ import annotations

import math
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["CAPTURES", "adam", "check_capture", "scales_itself", "sgd"]

_full = TABLE.operator("full")
_where = TABLE.operator("where")
_maximum = TABLE.operator("maximum")
_view_as_real = TABLE.operator("view_as_real")

#: one element for each graph that is being captured
CAPTURES: list[Any] = []


def check_capture(optimizer: Any, group: dict[str, Any], captures: bool) -> None:
    """Raise ``RuntimeError`` where a graph would replay numbers of the step that it captured."""
    if not CAPTURES or group.get("capturable", True) and captures:
        return
    name = type(optimizer).__name__
    reason = "param_groups' capturable is False" if captures else "it keeps numbers on the host"
    raise RuntimeError(
        f"Attempting CUDA graph capture of step() for an instance of {name} but {reason}.\n"
        f"  fix: {'capturable=True' if captures else 'SGD, or Adam or AdamW with capturable=True'}"
    )


def scales_itself(optimizer: Any) -> bool:
    """Whether a step of the optimizer takes ``found_inf`` into account by itself."""
    groups = optimizer.param_groups
    return all((g.get("fused") or g.get("capturable")) and not g.get("dampening") for g in groups)


def _pairs(*tensors: Any) -> list[Any]:
    """Complex tensors as pairs of real numbers."""
    return [_view_as_real(x) if x is not None and x.is_complex() else x for x in tensors]


def _write(found: Any, *changes: tuple[Tensor, Any]) -> None:
    """Write new values over old ones, unless ``found`` is not 0."""
    for old, new in changes:
        old.copy_(new if found is None else _where(found.to(old.device) != 0, old, new))


def _correction(beta: float, step: Tensor) -> Any:
    """``1 - beta ** step``, without the cancellation that float32 would not survive."""
    return -(step * math.log(beta)).expm1() if beta else 1.0


def adam(parameter: Tensor, grad: Any, state: dict[str, Any], group: dict[str, Any],
         found: Any) -> None:  # fmt: skip
    """One step of Adam or AdamW, with the number of steps as a tensor beside the parameter."""
    step = state["step"]
    if not isinstance(step, Tensor):
        step = state["step"] = _full((), float(step), device=parameter.device)
    step.add_(1.0 if found is None else 1.0 - found.to(step.device))
    largest = state.get("max_exp_avg_sq")
    names = parameter, grad, state["exp_avg"], state["exp_avg_sq"], largest
    parameter, grad, average, squares, largest = _pairs(*names)
    lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
    grad = -grad if group["maximize"] else grad
    value: Any = parameter
    if decay and group["decoupled_weight_decay"]:
        value = value * (1 - lr * decay)
    elif decay:
        grad = grad + value * decay
    new_average = average + (grad - average) * (1 - beta1)
    new_squares = squares * beta2 + grad * grad * (1 - beta2)
    changes = [(average, new_average), (squares, new_squares)]
    scale = new_squares
    if largest is not None:
        scale = _maximum(largest, new_squares)
        changes.append((largest, scale))
    spread = (scale / _correction(beta2, step)).sqrt() + group["eps"]
    new = value - new_average / spread * (lr / _correction(beta1, step))
    _write(found, *changes, (parameter, new))


def sgd(parameter: Tensor, grad: Any, buffer: Any, group: dict[str, Any], found: Any) -> None:
    """One step of SGD without dampening; the buffer of momentum is 0 before the first."""
    parameter, grad, buffer = _pairs(parameter, grad, buffer)
    grad = -grad if group["maximize"] else grad
    if group["weight_decay"]:
        grad = grad + parameter * group["weight_decay"]
    changes = []
    if buffer is not None:
        new_buffer = buffer * group["momentum"] + grad
        changes.append((buffer, new_buffer))
        grad = grad + new_buffer * group["momentum"] if group["nesterov"] else new_buffer
    _write(found, *changes, (parameter, parameter - grad * group["lr"]))
