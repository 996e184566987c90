"""Loss scaling for float16 gradients (Micikevicius et al., Mixed Precision Training, 2018)."""

from __future__ import annotations

import warnings
from typing import Any

from coredispatch.plugin import ArgumentError, OpError, device_count, no_grad

__all__ = ["GradScaler"]


class GradScaler:
    """Scales the loss so that small float16 gradients survive, and skips steps that overflow.

    Usage: ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``. The scale
    is multiplied by ``growth_factor`` after ``growth_interval`` steps in a row without infinite
    or NaN gradients, and by ``backoff_factor`` after a step with one.
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and not growth_factor > 1.0:
            raise ArgumentError(f"growth_factor must exceed 1, not {growth_factor}")
        if enabled and not 0.0 < backoff_factor < 1.0:
            raise ArgumentError(f"backoff_factor must lie in (0, 1), not {backoff_factor}")
        if enabled and device == "cuda" and not device_count("cuda"):
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            enabled = False
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._enabled = enabled
        self._found_inf: dict[int, bool] = {}
        self._unscaled: set[int] = set()

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The current scale, 1.0 when disabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """Factor after a run of clean steps."""
        return self._growth_factor

    def get_backoff_factor(self) -> float:
        """Factor after an overflow."""
        return self._backoff_factor

    def get_growth_interval(self) -> int:
        """Number of clean steps before the scale grows."""
        return self._growth_interval

    def scale(self, outputs: Any) -> Any:
        """``outputs`` (a tensor or a list of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(o) for o in outputs)
        return outputs * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, once per step."""
        if not self._enabled:
            return
        if id(optimizer) in self._unscaled:
            raise OpError("unscale_() has already been called on this optimizer since update()")
        found = False
        with no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(1.0 / self._scale)
                        found = found or not bool(parameter.grad.isfinite().all())
        self._found_inf[id(optimizer)] = found
        self._unscaled.add(id(optimizer))

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()`` unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        if self._found_inf[id(optimizer)]:
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Adjust the scale after all optimizers have stepped."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif any(self._found_inf.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._found_inf.clear()
        self._unscaled.clear()

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and tracker; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        if not self._enabled:
            return
        if not state:
            raise OpError("the state dict is empty: it comes from a disabled GradScaler")
        self._scale = float(state["scale"])
        self._growth_factor = state["growth_factor"]
        self._backoff_factor = state["backoff_factor"]
        self._growth_interval = state["growth_interval"]
        self._growth_tracker = state["_growth_tracker"]
