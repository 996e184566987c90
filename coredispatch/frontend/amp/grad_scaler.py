"""Loss scaling for float16 gradients (Micikevicius et al., Mixed Precision Training, 2018)."""

from __future__ import annotations

import math
import warnings
from typing import Any, overload

from coredispatch.plugin import (
    ArgumentError,
    OpError,
    RequirementError,
    Tensor,
    device_count,
    dtypes,
    no_grad,
)

__all__ = ["GradScaler"]


_UNSCALED, _STEPPED = "unscaled", "stepped"


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
        # by id of the optimizer, since the last update()
        self._found_inf: dict[int, bool | None] = {}
        self._stages: dict[int, str] = {}

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

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...
    @overload
    def scale(self, outputs: list[Tensor]) -> list[Tensor]: ...
    @overload
    def scale(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]: ...
    def scale(self, outputs: Any) -> Any:
        """``outputs`` (a tensor or a list of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(o) for o in outputs)
        return outputs * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, once per step.

        Raises :class:`OpError` where that was done, or stepped, since the last :meth:`update`,
        and :class:`ArgumentError` for float16 gradients, which have no room for it.
        """
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer))
        if stage == _UNSCALED:
            raise OpError(
                "unscale_() has already been called on this optimizer since the last update()",
                fix="call it once in each step",
            )
        if stage == _STEPPED:
            raise OpError("unscale_() is being called after step()", fix="call it before step()")
        self._found_inf[id(optimizer)] = self._unscale(optimizer)
        self._stages[id(optimizer)] = _UNSCALED

    def _unscale(self, optimizer: Any) -> bool | None:
        """Whether a gradient is infinite or NaN; None where there is no gradient."""
        found: bool | None = None
        with no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is None:
                        continue
                    if gradient.dtype is dtypes.float16:
                        raise ArgumentError(
                            "Attempting to unscale FP16 gradients.",
                            fix="keep parameters in float32 and compute under autocast",
                        )
                    gradient.mul_(1.0 / self._scale)
                    found = bool(found) or not bool(gradient.isfinite().all())
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()`` unless a gradient is infinite or NaN.

        Raises :class:`OpError` for a closure and for a second step before :meth:`update`,
        :class:`RequirementError` where no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise OpError(
                "Closure use is not currently supported if GradScaler is enabled.",
                fix="compute the gradients before the step",
            )
        stage = self._stages.get(id(optimizer))
        if stage == _STEPPED:
            raise OpError(
                "step() has already been called since the last update()",
                fix="call update() after the steps of all optimizers",
            )
        if stage is None:
            self.unscale_(optimizer)
        if self._found_inf[id(optimizer)] is None:
            raise RequirementError(
                "No inf checks were recorded for this optimizer.",
                fix="call backward() first: none of its parameters has a gradient",
            )
        self._stages[id(optimizer)] = _STEPPED
        if self._found_inf[id(optimizer)]:
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Adjust the scale after all optimizers have stepped; ``new_scale`` (a number or a tensor
        of one) sets it.

        Raises :class:`RequirementError` where no gradient was looked at since the last update.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            checked = [found for found in self._found_inf.values() if found is not None]
            if not checked:
                raise RequirementError(
                    "No inf checks were recorded prior to update.",
                    fix="call step() or unscale_() first",
                )
            self._adjust(any(checked))
        self._found_inf.clear()
        self._stages.clear()

    def _adjust(self, overflowed: bool) -> None:
        if overflowed:
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            if math.isfinite(self._scale * self._growth_factor):
                self._scale *= self._growth_factor
            self._growth_tracker = 0

    def set_growth_factor(self, new_factor: float) -> None:
        """Replace the factor after a run of clean steps."""
        self._growth_factor = new_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Replace the factor after an overflow."""
        self._backoff_factor = new_factor

    def set_growth_interval(self, new_interval: int) -> None:
        """Replace the number of clean steps before the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        """Clean steps since the scale last changed; libraries read it under this name."""
        return self._growth_tracker

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
