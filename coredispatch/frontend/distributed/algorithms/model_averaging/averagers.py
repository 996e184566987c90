"""When the parameters of models that are trained apart are averaged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.distributed.algorithms.model_averaging.utils import (
    average_parameters_or_parameter_groups,
)
from coredispatch.frontend.distributed.groups import default_group

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Counts steps, and averages at some of them.

    Args:
        process_group: the ranks; the default group.

    Attributes:
        step: how often :meth:`average_parameters` was called.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = default_group() if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """To be called after each step of the optimizer."""


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps, after `warmup_steps`.

    Lin et al., "Don't use large mini-batches, use local SGD", 2018.
    Raises ValueError for a period below 1 or a negative number of steps.

    Example::

        averager = PeriodicModelAverager(period=4, warmup_steps=100)
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
            averager.average_parameters(model.parameters())
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError(
                f"Arg ``warmup_steps`` must be a non-negative number, not {warmup_steps}."
            )
        if period < 1:
            raise ValueError(f"Arg ``period`` must be a positive value, not {period}.")
        if period == 1:
            warn(
                "When period is 1, no need to use model averaging because the communication cost "
                "of all-reducing parameters will be no less than the cost of all-reducing "
                "gradients by DistributedDataParallel in the backward pass. Therefore, only "
                "DistributedDataParallel should be used for this case."
            )
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Average, if it is time, what has a gradient; all ranks of the group call it.

        Args:
            params: ``model.parameters()`` or ``optimizer.param_groups``.
        """
        since = self.step - self.warmup_steps
        if since >= 0 and since % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
