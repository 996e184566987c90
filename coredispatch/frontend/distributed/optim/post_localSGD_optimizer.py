"""``PostLocalSGDOptimizer``: steps of a rank's own, and models that are averaged now and then."""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.distributed.algorithms.model_averaging.averagers import ModelAverager
from coredispatch.frontend.optim.optimizer import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Each step of `optim` is followed by one of `averager`.

    Args:
        optim: the optimizer of this rank's model.
        averager: such as ``PeriodicModelAverager``.

    Example::

        averager = PeriodicModelAverager(period=4, warmup_steps=100)
        optimizer = PostLocalSGDOptimizer(optim.SGD(model.parameters(), 0.1), averager)
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        # Its groups, state and defaults are those of the optimizer, which makes them.
        self.optim, self.averager = optim, averager
        self.param_groups, self.defaults = optim.param_groups, optim.defaults

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimizer's."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, with the averager's step."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was called; without a step, averaging begins anew."""
        self.optim.load_state_dict(
            {key: value for key, value in state_dict.items() if key != "step"}
        )
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warn(
                "Loaded state dict does not contain a step counter for an averager. "
                "Setting step counter to 0."
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self, closure: Any = None) -> Any:
        """One step of the optimizer, then one of the averager; returns what the closure did."""
        loss: Any = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Give the optimizer more parameters."""
        self.optim.add_param_group(param_group)
