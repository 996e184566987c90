"""The numbers of an optimizer that its schedules set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer
from coredispatch.frontend.optim.schedule import LRScheduler

__all__ = ["scheduled"]


def scheduled(optimizer: Optimizer) -> Iterator[Any]:
    """The places of the numbers that schedules of an optimizer set."""
    hooks = vars(optimizer).get("_optimizer_step_post_hooks") or {}
    owners = [getattr(hook, "__self__", None) for hook in hooks.values()]
    schedules = [owner for owner in owners if isinstance(owner, LRScheduler)]
    names = ["lr"] if schedules else []
    if any(getattr(schedule, "cycle_momentum", False) for schedule in schedules):
        names += ["momentum", "betas"]
    for group in optimizer.param_groups:
        yield from (("item", id(group), name) for name in names if name in group)
