"""Schedules made of schedules, and the one that watches a metric."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.optim.optimizer import Optimizer
from coredispatch.frontend.optim.schedule import EPOCH_DEPRECATION_WARNING, LRScheduler
from coredispatch.frontend.optim.stepping import number

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


def _own_state(schedule: Any, hidden: str) -> dict[str, Any]:
    names = ("optimizer", "_handle", hidden)
    state = {name: value for name, value in schedule.__dict__.items() if name not in names}
    state[hidden] = [inner.state_dict() for inner in getattr(schedule, hidden)]
    return state


def _load_own(schedule: Any, hidden: str, state_dict: dict[str, Any]) -> None:
    given = dict(state_dict)
    for inner, kept in zip(getattr(schedule, hidden), given.pop(hidden)):
        inner.load_state_dict(kept)
    schedule.__dict__.update(given)


class SequentialLR(LRScheduler):
    """One schedule after the other; the next takes over at each of the ``milestones``."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects one scheduler more than milestones, but got "
                f"{len(schedulers)} and {len(milestones)}"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("SequentialLR expects all schedulers to belong to its optimizer")
        self.optimizer = optimizer
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        # Every schedule made its first step when it was made: undo them, then repeat the first.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for schedule in self._schedulers:
            schedule.last_epoch -= 1
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            schedule._update_lr(0)  # step(0) would warn of its argument
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Its own state and that of each schedule."""
        return _own_state(self, "_schedulers")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        _load_own(self, "_schedulers", state_dict)


class ChainedScheduler(LRScheduler):
    """All schedules in every epoch, each going on from the rate the one before it left."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler")
        optimizer = optimizer or schedulers[0].optimizer
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("ChainedScheduler expects all schedulers to share one optimizer")
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._last_lr = self._current()

    def step(self, epoch: int | None = None) -> None:
        """Step every schedule."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._current()

    def state_dict(self) -> dict[str, Any]:
        """Its own state and that of each schedule."""
        return _own_state(self, "_schedulers")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        _load_own(self, "_schedulers", state_dict)


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for more than ``patience`` epochs.

    ``mode`` says whether the metric should fall (``min``) or rise (``max``); an improvement is one
    beyond ``threshold``, relative (``rel``) or absolute (``abs``). After each reduction the
    metric is not looked at for ``cooldown`` epochs.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(mode, str):
            raise TypeError(f"mode is {mode!r}: use 'min' or 'max'")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(self.min_lrs)}")
        self.factor, self.patience, self.cooldown = factor, patience, cooldown
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.eps, self.last_epoch = eps, 0
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._last_lr = self._current()
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the metric (a number or a 0-d tensor) and reduce the rates if it is time."""
        current = number(metrics)
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                rate = max(group["lr"] * self.factor, least)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._current()

    @property
    def in_cooldown(self) -> bool:
        """Whether the last reduction was less than ``cooldown`` epochs ago."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` improves on ``best`` beyond the threshold."""
        if self.threshold_mode == "rel":
            factor = 1.0 - self.threshold if self.mode == "min" else 1.0 + self.threshold
            bound = best * factor
        else:
            bound = best - self.threshold if self.mode == "min" else best + self.threshold
        return a < bound if self.mode == "min" else a > bound
