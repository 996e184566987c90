"""``Variable``, which every tensor has been since PyTorch 0.4."""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.autograd.graph import queue_callback
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.wiring import HOOKS

__all__ = ["Variable"]


class _ExecutionEngine:
    """The engine as sharded and data-parallel training ask for it in PyTorch."""

    queue_callback = staticmethod(queue_callback)


class VariableMeta(type):
    """Every tensor is an instance of :class:`Variable`."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, HOOKS.value_type)

    def __call__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if data is None:
            data = HOOKS.value_type()
        if not isinstance(data, HOOKS.value_type):
            raise DTypeError(
                f"Variable data has to be a tensor, but got {type(data).__name__}",
                fix="make one with tensor(data), which needs no Variable around it",
            )
        if volatile:
            warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")
        return data.detach().requires_grad_(requires_grad and not volatile)


class Variable(metaclass=VariableMeta):
    """``Variable(tensor, requires_grad=False)``: the tensor's data without its history.

    Every tensor is one. ``volatile=True``, of PyTorch before 0.4, means ``requires_grad=False``.
    ``Variable._execution_engine.queue_callback`` is :func:`.graph.queue_callback`.
    """

    _execution_engine = _ExecutionEngine()
