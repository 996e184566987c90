"""Averages of a model's weights over training: stochastic weight averaging, and exponential ones.

Izmailov et al., "Averaging weights leads to wider optima and better generalization", 2018.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

from coredispatch.frontend.creation import tensor
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.batchnorm import _BatchNorm
from coredispatch.frontend.optim.optimizer import Optimizer
from coredispatch.frontend.optim.schedule import LRScheduler, _warn_get_lr_called_within_step
from coredispatch.frontend.optim.stepping import cosine

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """``decay * average + (1 - decay) * current``, of one tensor."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """:func:`get_ema_avg_fn` of lists of tensors, in place."""
    average = get_ema_avg_fn(decay)

    @no_grad()
    def ema_update(ema_param_list: Any, current_param_list: Any, num_averaged: Any) -> None:
        for mean, current in zip(ema_param_list, current_param_list, strict=True):
            if mean.is_floating_point() or mean.is_complex():
                mean.lerp_(current, 1 - decay)
            else:
                mean.copy_(average(mean, current, num_averaged))

    return ema_update


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """The plain average of all so far, of one tensor."""

    @no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """:func:`get_swa_avg_fn` of lists of tensors, in place."""
    average = get_swa_avg_fn()

    @no_grad()
    def swa_update(averaged_param_list: Any, current_param_list: Any, num_averaged: Any) -> None:
        for mean, current in zip(averaged_param_list, current_param_list, strict=True):
            mean.copy_(average(mean, current, num_averaged))

    return swa_update


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are averages; :meth:`update_parameters` adds to them.

    ``avg_fn(average, current, num_averaged)`` gives the next average of one parameter;
    ``multi_avg_fn`` writes those of lists. Without either it is the plain average. With
    ``use_buffers`` buffers are averaged as well, else copied.
    """

    n_averaged: Any

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[Any, Any, Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model gives."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Average in the parameters of ``model``; the first time copy them."""
        own = self.module
        means: Iterable[Any] = own.parameters()
        given: Iterable[Any] = model.parameters()
        if self.use_buffers:
            means = itertools.chain(means, own.buffers())
            given = itertools.chain(given, model.buffers())
        pairs = [(mean.detach(), x.detach().to(mean.device)) for mean, x in zip(means, given)]
        if self.n_averaged == 0:
            for mean, current in pairs:
                mean.copy_(current)
        elif self.avg_fn is not None:
            for mean, current in pairs:
                count = self.n_averaged.to(mean.device)
                mean.copy_(self.avg_fn(mean, current, count))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            for group in _alike(pairs):
                count = self.n_averaged.to(group[0][0].device)
                update([mean for mean, _ in group], [current for _, current in group], count)
        if not self.use_buffers:
            for mean, current in zip(own.buffers(), model.buffers(), strict=True):
                mean.detach().copy_(current.detach().to(mean.device))
        self.n_averaged += 1


def _alike(pairs: list[tuple[Any, Any]]) -> Iterable[list[tuple[Any, Any]]]:
    """The pairs by device and dtype."""
    groups: dict[Any, list[tuple[Any, Any]]] = {}
    for mean, current in pairs:
        groups.setdefault((str(mean.device), mean.dtype), []).append((mean, current))
    return groups.values()


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the statistics of all batch norms anew, in one pass over ``loader``.

    Its items are tensors, or sequences whose first item is the model's input.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch if device is None else batch.to(device))
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal every group's rate to ``swa_lr`` in ``anneal_epochs`` steps, and stay there.

    ``anneal_strategy`` is ``"cos"`` or ``"linear"``; ``swa_lr`` is one rate, or one per group.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(
                f"swa_lr must have the same length as optimizer.param_groups. swa_lr has "
                f"{len(rates)} values, param_groups has {len(groups)}."
            )
        for rate, group in zip(rates, groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """The share of ``swa_lr`` after the part ``t`` of the way."""
        return (1 - cosine(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[float]:
        """The rate of each group at this step."""
        _warn_get_lr_called_within_step(self)
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (
            self.anneal_func(max(0, min(1, s / max(1, self.anneal_epochs))))
            for s in (step - 1, step)
        )
        rates = []
        for group in self.optimizer.param_groups:
            final = group["swa_lr"]
            start = final if before == 1 else (group["lr"] - before * final) / (1 - before)
            rates.append(final * now + start * (1 - now))
        return rates
