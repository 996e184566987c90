"""Steps of all parameters of a group at once, where a backend has a kernel over lists."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Together"]


class Together:
    """The steps that one call of an operator over lists is to take.

    Args:
        operator: the operator: lists of tensors first, then numbers.
        group: the parameter group. Parameters on the device of its first one are taken, if the
            device's backend has a kernel for the operator; ``differentiable`` steps are not.
    """

    def __init__(self, operator: Any, group: dict[str, Any]) -> None:
        self.operator = operator
        self.device: str | None = None
        self.calls: dict[Any, tuple[list[list[Tensor]], tuple[Any, ...]]] = {}
        parameters = group["params"]
        if parameters and not group.get("differentiable"):
            device = parameters[0].device.type
            if (operator.name, device, None) in TABLE.snapshot.registrations:
                self.device = device

    def takes(self, tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> bool:
        """Whether the step of the parameter ``tensors[0]`` is left to :meth:`run`."""
        parameter = tensors[0]
        if self.device is None or parameter.device.type != self.device or parameter.is_complex():
            return False
        given = tuple([x is not None for x in tensors])
        key = (parameter.device, parameter.dtype, numbers, given)
        found = self.calls.get(key)
        if found is None:
            found = self.calls[key] = [[] for _ in tensors], numbers
        for tensor, members in zip(tensors, found[0], strict=True):
            if tensor is not None:
                members.append(tensor)
        return True

    def run(self) -> None:
        """Take the steps: one call for those of a device, a dtype and the same numbers."""
        for lists, numbers in self.calls.values():
            self.operator(*lists, *numbers)
