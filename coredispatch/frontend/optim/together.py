"""Steps of all parameters of a group at once, where a backend has a kernel over lists."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_lists import plain_keys
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Together"]


class Together:
    """The steps that one call of an operator over lists is to take.

    Args:
        operator: the operator: lists of tensors first, then numbers.
        group: the parameter group. Parameters on the device of its first one are taken, if the
            device's backend has a kernel for the operator; ``differentiable`` steps are not.

    Attributes:
        keys: those of a tensor that is taken, and that autograd does not watch; 0 for none.
    """

    def __init__(self, operator: Any, group: dict[str, Any]) -> None:
        self.operator = operator
        self.calls: dict[Any, list[tuple[Tensor | None, ...]]] = {}
        self.watched = TABLE.bit("autograd")
        parameters = group["params"]
        self.keys = 0
        if parameters and not group.get("differentiable"):
            self.keys = plain_keys(operator, parameters[0])
        self.indexed = bool(self.keys) and parameters[0].device.index is not None

    def takes(self, tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> bool:
        """Whether the step of the parameter ``tensors[0]`` is left to :meth:`run`.

        A tensor that is not given is None for every parameter of the group.
        """
        parameter = tensors[0]
        if parameter.keys & ~self.watched != self.keys or not self.keys:
            return False
        dtype = parameter.dtype
        key = (parameter.device, dtype, numbers) if self.indexed else (dtype, numbers)
        found = self.calls.get(key)
        if found is None:
            if dtype.is_complex:
                return False
            found = self.calls[key] = []
        found.append(tensors)
        return True

    def run(self) -> None:
        """Take the steps: one call for those of a device, a dtype and the same numbers."""
        for key, rows in self.calls.items():
            lists = [[] if column[0] is None else list(column) for column in zip(*rows)]
            self.operator(*lists, *key[-1])
