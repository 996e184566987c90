"""Schedules that go up and down."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer
from coredispatch.frontend.optim.schedule import LRScheduler, _warn_get_lr_called_within_step
from coredispatch.frontend.optim.stepping import cosine, number

__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_max`` epochs, and back.

    Loshchilov and Hutter, "SGDR", 2017.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates."""
        _warn_get_lr_called_within_step(self)
        t, low = self.last_epoch, self.eta_min
        if t == 0:
            return self._current()
        if self._step_count == 1 and t > 0:
            height = (1 + cosine(t * math.pi / self.T_max)) / 2
            return [low + (base - low) * height for base in self.base_lrs]
        if (t - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - cosine(math.pi / self.T_max)) / 2
            return [
                rate + (base - low) * rise for base, rate in zip(self.base_lrs, self._current())
            ]
        step = 1 + cosine(math.pi * t / self.T_max)
        before = 1 + cosine(math.pi * (t - 1) / self.T_max)
        return [step / before * (rate - low) + low for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        height = (1 + cosine(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that restarts after ``T_0`` epochs, then ``T_mult`` times as many.

    Loshchilov and Hutter, "SGDR", 2017. ``step(epoch)`` takes fractions of epochs.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates."""
        _warn_get_lr_called_within_step(self)
        height = (1 + cosine(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Go on by one epoch, or to the (possibly fractional) ``epoch``."""
        self._step_count += 1
        if epoch is None:
            epoch = 0 if self.last_epoch < 0 else self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        self._set(self._rates())


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (1 + cosine(math.pi * share))


def _linear(start: float, end: float, share: float) -> float:
    return (end - start) * share + start


def _per_group(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * count


#: what a phase of OneCycleLR has: its last step, and where rate and momentum begin and end
_PHASE = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down far below the start, the momentum the other way round.

    Smith and Topin, "Super-Convergence", 2018. Give ``total_steps``, or ``epochs`` and
    ``steps_per_epoch``; step it after every batch.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.total_steps, self._anneal_func_type = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        rise = float(pct_start * total_steps) - 1
        if three_phase:
            phases = [
                (rise, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                (2 * rise, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                (total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            phases = [
                (rise, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                (total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"),
            ]
        self._schedule_phases: list[dict[str, Any]] = [dict(zip(_PHASE, phase)) for phase in phases]
        groups = optimizer.param_groups
        tops = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if last_epoch == -1:
            for group, top in zip(groups, tops):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError(
                    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
                )
            self.use_beta1 = "betas" in optimizer.defaults
            if last_epoch == -1:
                for group in groups:
                    _set_momentum(group, self.use_beta1, max_momentum)
                    group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates; sets the momentum as well."""
        _warn_get_lr_called_within_step(self)
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        between = _cosine if self._anneal_func_type == "cos" else _linear
        rates = []
        for group in self.optimizer.param_groups:
            start = 0.0
            for index, phase in enumerate(self._schedule_phases):
                end, low, high, m_low, m_high = (phase[part] for part in _PHASE)
                if step <= end or index == len(self._schedule_phases) - 1:
                    share = (step - start) / (end - start)
                    rates.append(between(group[low], group[high], share))
                    if self.cycle_momentum:
                        momentum = between(group[m_low], group[m_high], share)
                        _set_momentum(group, self.use_beta1, momentum)
                    break
                start = end
        return rates


def _set_momentum(group: dict[str, Any], use_beta1: bool, value: float) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """Between ``base_lr`` and ``max_lr`` in triangles. Smith, 2017.

    ``mode`` is ``triangular``, ``triangular2`` (half the height each cycle) or ``exp_range``
    (times ``gamma`` each step); ``scale_fn`` replaces it.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        bases, tops = _per_group(base_lr, len(groups)), _per_group(max_lr, len(groups))
        if last_epoch == -1:
            for group, base in zip(groups, bases):
                group["lr"] = base
        self.max_lrs = tops
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = (
            scale_mode if scale_fn else ("iterations" if mode == "exp_range" else "cycle")
        )
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError(
                    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
                )
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = _per_group(base_momentum, len(groups))
            self.max_momentums = _per_group(max_momentum, len(groups))
            if last_epoch == -1:
                for group, top, base in zip(groups, self.max_momentums, self.base_momentums):
                    _set_momentum(group, self.use_beta1, top)
                    group["max_momentum"], group["base_momentum"] = top, base
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, x: float) -> float:
        """The factor of the amplitude, by cycle or by iteration (``scale_mode``)."""
        if self._scale_fn_custom is not None:
            return number(self._scale_fn_custom(x))
        if self.mode == "triangular2":
            return number(2.0 ** (1 - x))
        return number(self.gamma**x) if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[float]:
        """The rates; sets the momentum as well."""
        _warn_get_lr_called_within_step(self)
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x <= self.step_ratio
        height = x / self.step_ratio if up else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            momentums = zip(self.base_momentums, self.max_momentums)
            for group, (base, top) in zip(self.optimizer.param_groups, momentums):
                _set_momentum(group, self.use_beta1, top - (top - base) * height * scale)
        return [
            base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs)
        ]
