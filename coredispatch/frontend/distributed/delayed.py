"""Gradients that are reduced together at the end of a backward pass, outside of the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.autograd.graph import queue_callback
from coredispatch.frontend.distributed.collectives import all_reduce
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.masks import current_pass

__all__ = ["DelayedReduction", "delayed_parameters"]


def delayed_parameters(module: Any, named: Any, trigger: Any) -> list[Tensor]:
    """The parameters of `module` that are named, as DistributedDataParallel is given them.

    Raises ValueError where one of the two is missing, or a parameter is none of the module's.
    """
    if (named is None) != (trigger is None):
        raise ValueError(
            "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same "
            "time."
        )
    known = {id(param) for param in module.parameters()}
    found = [param for _, param in named or ()]
    for name, param in [*(named or ()), ("param_to_hook_all_reduce", trigger)]:
        if param is not None and id(param) not in known:
            raise ValueError(
                f"DistributedDataParallel: {name!r} is no parameter of the module\n"
                "  fix: take it from module.named_parameters()"
            )
    return found


class DelayedReduction:
    """Averages the gradients of `params` once that of `trigger` has come in a backward pass.

    It waits for the end of that pass, when all gradients are there.
    """

    def __init__(self, params: Sequence[Tensor], trigger: Any, group: ProcessGroup) -> None:
        self._params, self._group = list(params), group
        self._due = False
        self.handle = trigger.register_hook(self._come)

    def _come(self, grad: Any) -> None:
        if not self._due:
            self._due = True
            queue_callback(self._reduce)

    def _reduce(self) -> None:
        running = current_pass()
        if running.outer is not None:  # this was a checkpoint's, and the pass around it goes on
            running.outer.callbacks.append(self._reduce)
            return
        self._due = False
        kinds: dict[Any, list[Any]] = {}
        for param in self._params:
            kinds.setdefault((param.dtype, param.device), []).append(param)
        with no_grad():
            for params in kinds.values():
                grads = [cd.zeros_like(p) if p.grad is None else p.grad for p in params]
                flat = cd.cat([grad.reshape(-1) for grad in grads])
                all_reduce(flat.div_(self._group.size()), group=self._group)
                parts = flat.split([param.numel() for param in params])
                for param, part in zip(params, parts, strict=True):
                    param.grad = part.view(param.shape).clone()
