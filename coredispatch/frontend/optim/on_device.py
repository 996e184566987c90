"""Steps of which every number stays on the device: nothing waits, and a graph can replay them.

``capturable=True`` asks for them, and a :class:`GradScaler` with ``fused=True``: the flag
``optimizer.found_inf`` then decides on the device whether parameters and states stay as they are.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import default_dtype, float32, float64

__all__ = ["CAPTURES", "AdamSteps", "check_capture", "scales_itself", "sgd"]

_full = TABLE.operator("full")
_where = TABLE.operator("where")
_adam_steps = TABLE.operator("capturable_adam_steps")
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


def _counter(parameter: Tensor, state: dict[str, Any]) -> Any:
    """The number of steps of a parameter as a tensor beside it.

    A number becomes one, of float32 as in PyTorch, in which half precision would stop at 2048.
    """
    step = state["step"]
    if not isinstance(step, Tensor):
        dtype = float64 if default_dtype() is float64 else float32
        step = _full((), float(step), dtype=dtype, device=parameter.device)
    elif step.device != parameter.device:  # as a number without dimensions it would be copied
        step = step.to(parameter.device)
    state["step"] = step
    return step


class AdamSteps:
    """Steps of Adam or AdamW by parameters of a group: one call for those of a device and a dtype.

    Args:
        group: the parameter group.
        found: the flag of an overflow, a tensor of one number, or None.
    """

    def __init__(self, group: dict[str, Any], found: Any) -> None:
        self.group = group
        self.found = found
        self.calls: dict[Any, list[tuple[Any, ...]]] = {}

    def add(self, parameter: Tensor, grad: Any, state: dict[str, Any]) -> None:
        """Leave the step of a parameter, with the gradient and the state, to :meth:`run`."""
        largest = state.get("max_exp_avg_sq")
        tensors = parameter, grad, state["exp_avg"], state["exp_avg_sq"], largest
        row = (*_pairs(*tensors), _counter(parameter, state))
        # What has a layout or a layer of its own is stepped alone, by operators on single tensors.
        plain = not self.group["differentiable"] and all(map(_is_plain, (parameter, grad)))
        key = (parameter.device, row[0].dtype) if plain else len(self.calls)
        self.calls.setdefault(key, []).append(row)

    def run(self) -> None:
        """Take the steps."""
        group, found = self.group, self.found
        numbers = *group["betas"], group["eps"], group["weight_decay"]
        flags = group["decoupled_weight_decay"], group["maximize"]
        for key, rows in self.calls.items():
            lists = [[] if column[0] is None else list(column) for column in zip(*rows)]
            flag = None if found is None else found.to(rows[0][0].device)
            step: Any = _adam_steps if isinstance(key, tuple) else _adam_steps.decomposition
            step(*lists, flag, group["lr"], *numbers, *flags)


def _is_plain(x: Any) -> bool:
    """Whether a tensor has no key besides its backend's and autograd's."""
    keys = x.keys & ~TABLE.bit("autograd")
    return bool(keys) and keys & TABLE.snapshot.order.backend_bits == keys


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
