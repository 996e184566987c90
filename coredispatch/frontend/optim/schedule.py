"""The base of learning rate schedules."""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.optim.optimizer import Optimizer

__all__ = ["LRScheduler"]

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available. Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)


def _warn_get_lr_called_within_step(lr_scheduler: LRScheduler) -> None:
    """PyTorch's warning for those who ask ``get_lr`` what ``get_last_lr`` answers."""
    if not lr_scheduler._get_lr_called_within_step:
        warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.")


class LRScheduler:
    """Sets the learning rate of every parameter group, step by step.

    Subclasses define ``get_lr``, which returns one rate per group for ``last_epoch``; the base
    makes the first step itself. ``last_epoch`` other than -1 resumes a run, for which the groups
    must hold their ``initial_lr``.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{number}] when "
                    "resuming an optimizer"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._optimizer_steps = 0
        self._handle = optimizer.register_step_post_hook(self._count)
        self._initial_step()

    def _count(self, *_: Any) -> None:
        self._optimizer_steps += 1

    def _initial_step(self) -> None:
        self._step_count = 0  # SequentialLR begins again, which is no step of the program's
        self.step()

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr()")

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch (or to ``epoch``) and set the rates."""
        if self._step_count == 1 and not self._optimizer_steps:
            warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch "
                "1.1.0 and later, you should call them in the opposite order: `optimizer.step()` "
                "before `lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping "
                "the first value of the learning rate schedule. See more details at "
                "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
            )
        self._step_count += 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch, or of ``epoch``."""
        if epoch is None:
            self.last_epoch += 1
            self._set(self._rates())
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            self._set(self._rates() if closed is None else closed())

    def _rates(self) -> list[float]:
        """What :meth:`get_lr` gives, asked within a step."""
        self._get_lr_called_within_step = True
        try:
            return self.get_lr()
        finally:
            self._get_lr_called_within_step = False

    def _set(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def _current(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._current()]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions that cannot be pickled by value."""
        hidden = ("optimizer", "_handle")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self.__dict__.update(state_dict)
