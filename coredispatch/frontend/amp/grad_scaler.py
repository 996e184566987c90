"""Loss scaling for float16 gradients (Micikevicius et al., Mixed Precision Training, 2018)."""

from __future__ import annotations

import inspect
import math
import warnings
from enum import Enum
from typing import Any, overload

from coredispatch.frontend.amp.unscaling import check_and_unscale_
from coredispatch.plugin import (
    ArgumentError,
    OpError,
    RequirementError,
    Tensor,
    device_count,
    dtypes,
    no_grad,
)

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """What was done with an optimizer since the last :meth:`GradScaler.update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


_UNSCALED, _STEPPED = OptState.UNSCALED, OptState.STEPPED


class GradScaler:
    """Scales the loss so that small float16 gradients survive, and skips steps that overflow.

    Usage: ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``. The scale
    is multiplied by ``growth_factor`` after ``growth_interval`` steps in a row without infinite
    or NaN gradients, and by ``backoff_factor`` after a step with one.

    Whether a gradient is infinite or NaN is one flag on each device, made without waiting. A step
    reads one number, combined of all devices. An optimizer with ``fused=True`` or
    ``capturable=True`` (SGD, Adam, AdamW) decides on the device instead: nothing is read, and the
    scale stays there too.
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
        self._device = device
        # Numbers, or tensors on a device from the first step on that was decided there.
        self._scale: Any = float(init_scale)
        self._growth_tracker: Any = 0
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._enabled = enabled
        self._used = False
        # By id of the optimizer, since the last update(): by device, a tensor that is 1 where a
        # gradient is infinite or NaN; or the number that was read.
        self._found_inf: dict[int, Any] = {}
        self._stages: dict[int, OptState] = {}

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The current scale, 1.0 when disabled."""
        return float(self._scale) if self._enabled else 1.0

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
        """``outputs`` (a tensor or a list of them) times the scale.

        The product is made in float32 at least. It has the dtype of ``outputs``, but that a
        0-dim float16 or bfloat16 tensor gives float32, as in PyTorch.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(o) for o in outputs)
        if not hasattr(outputs, "device"):
            try:
                each = iter(outputs)
            except TypeError:
                raise ArgumentError(
                    f"outputs must be a Tensor or an iterable of Tensors, not "
                    f"{type(outputs).__name__}",
                    fix="scaler.scale(loss)",
                ) from None
            return map(self.scale, each)
        self._used = True
        scale = self._scale
        if isinstance(scale, Tensor) and scale.device != outputs.device:
            scale = scale.to(outputs.device, non_blocking=True)
        if outputs.dtype not in (dtypes.float16, dtypes.bfloat16):
            return outputs * scale
        # The scale itself may be larger than float16 can hold, where the product is not.
        scaled = outputs.to(dtypes.float32) * scale
        return scaled.to(outputs.dtype) if outputs.ndim else scaled

    def _check_used(self, what: str) -> None:
        if not self._used:
            raise RequirementError(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration.",
                fix="scaler.scale(loss).backward()",
            )

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, once per step.

        Raises :class:`OpError` where that was done, or stepped, since the last :meth:`update`,
        and :class:`ArgumentError` for float16 gradients, which have no room for it.
        """
        if not self._enabled:
            return
        self._check_used("unscale_")
        stage = self._stages.get(id(optimizer))
        if stage == _UNSCALED:
            raise OpError(
                "unscale_() has already been called on this optimizer since the last update().",
                fix="call it once in each step",
            )
        if stage == _STEPPED:
            raise OpError("unscale_() is being called after step().", fix="call it before step()")
        self._found_inf[id(optimizer)] = self._unscale(optimizer)
        self._stages[id(optimizer)] = _UNSCALED

    def _unscale(self, optimizer: Any) -> dict[Any, Tensor]:
        """By device a tensor, 1 where a gradient there is infinite or NaN, else 0."""
        by_device: dict[Any, list[Tensor]] = {}
        sparse = []
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
                if gradient.is_sparse:  # its values are a copy: it is made anew
                    sparse.append((parameter, gradient))
                    by_device.setdefault(gradient.device, []).append(gradient.values())
                else:
                    by_device.setdefault(gradient.device, []).append(gradient)
        found = {}
        with no_grad():
            for device, gradients in by_device.items():
                found[device] = gradients[0].new_zeros((), dtype=dtypes.float32)
                inverse = 1.0 / self._scale
                if isinstance(inverse, Tensor):
                    inverse = inverse.to(device, non_blocking=True)
                check_and_unscale_(gradients, found[device], inverse)
            for parameter, gradient in sparse:
                parameter.grad = gradient * (1.0 / self._scale)
        return found

    def _combined(self, optimizer: Any) -> Any:
        return self._combined_by(self._found_inf[id(optimizer)])

    @staticmethod
    def _combined_by(found: Any) -> Any:
        """The flags of all devices as one tensor on the first, or a number that was read."""
        if not isinstance(found, dict):
            return found
        first, *rest = found.values()
        for flag in rest:
            first = first + flag.to(first.device, non_blocking=True)
        return first

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
        self._check_used("step")
        if self._stages.get(id(optimizer)) == _STEPPED:
            raise OpError(
                "step() has already been called since the last update().",
                fix="call update() after the steps of all optimizers",
            )
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_on_device(optimizer, *args, **kwargs)
        if self._stages.get(id(optimizer)) is None:
            self.unscale_(optimizer)
        self._require_gradients(optimizer)
        found = self._found_inf[id(optimizer)] = float(self._combined(optimizer))  # the one read
        result = None if found else optimizer.step(*args, **kwargs)
        self._stages[id(optimizer)] = _STEPPED
        return result

    def _require_gradients(self, optimizer: Any) -> None:
        if self._found_inf[id(optimizer)] == {}:
            raise RequirementError(
                "No inf checks were recorded for this optimizer.",
                fix="call backward() first: none of its parameters has a gradient",
            )

    def _step_on_device(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """A step that decides by ``optimizer.found_inf``; its gradients are unscaled before."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            result = optimizer.step(*args, grad_scaler=self, **kwargs)
            self._stages[id(optimizer)] = _STEPPED
            return result
        if self._stages.get(id(optimizer)) is None:
            self.unscale_(optimizer)
        self._require_gradients(optimizer)
        optimizer.found_inf, optimizer.grad_scale = self._combined(optimizer), None
        try:
            result = optimizer.step(*args, **kwargs)
        finally:
            del optimizer.found_inf, optimizer.grad_scale
        self._stages[id(optimizer)] = _STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Adjust the scale after all optimizers have stepped; ``new_scale`` (a number or a tensor
        of one) sets it.

        Raises :class:`RequirementError` where no gradient was looked at since the last update.
        """
        if not self._enabled:
            return
        self._check_used("update")
        if new_scale is not None:
            self._set(new_scale)
        else:
            flags = [self._combined_by(found) for found in self._found_inf.values() if found != {}]
            if not flags:
                raise RequirementError(
                    "No inf checks were recorded prior to update.",
                    fix="call step() or unscale_() first",
                )
            if any(isinstance(flag, Tensor) for flag in flags) or isinstance(self._scale, Tensor):
                self._adjust_on_device(flags)
            else:
                self._adjust(any(flags))
        self._found_inf.clear()
        self._stages.clear()

    def _set(self, new_scale: Any) -> None:
        """The scale from here on: a number, or a tensor of one."""
        if isinstance(new_scale, Tensor) and (new_scale.numel() != 1 or new_scale.requires_grad):
            raise RequirementError(
                "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                "torch.FloatTensor with requires_grad=False.",
                fix="pass a number",
            )
        if isinstance(self._scale, Tensor):
            self._scale.fill_(new_scale)
        else:
            self._scale = float(new_scale)

    def _adjust_on_device(self, flags: list[Any]) -> None:
        """:meth:`_adjust` without reading: scale and tracker are tensors, written in place."""
        with no_grad():
            home = next((f for f in (self._scale, *flags) if isinstance(f, Tensor)), None)
            assert home is not None
            if not isinstance(self._scale, Tensor):
                self._scale = home.new_full((), self._scale, dtype=dtypes.float32)
                self._growth_tracker = home.new_full((), self._growth_tracker, dtype=dtypes.int32)
            scale, tracker = self._scale, self._growth_tracker
            found: Any = 0.0
            for flag in flags:
                moved = flag.to(scale.device, non_blocking=True) if hasattr(flag, "to") else flag
                found = found + moved
            overflowed = (scale.new_zeros(()) + found) != 0
            grown = scale * self._growth_factor
            due = tracker + 1 == self._growth_interval
            larger = grown.where(due & grown.isfinite(), scale)
            scale.copy_((scale * self._backoff_factor).where(overflowed, larger))
            tracker.copy_((tracker * 0).where(overflowed | due, tracker + 1))

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
        return int(self._growth_tracker)

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and tracker; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise OpError("the state dict is empty: it comes from a disabled GradScaler")
        self._set(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        if isinstance(self._growth_tracker, Tensor):
            self._growth_tracker.fill_(state_dict["_growth_tracker"])
        else:
            self._growth_tracker = state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        if self._found_inf:
            raise RequirementError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update().",
                fix="pickle it after update(), or keep its state_dict()",
            )
        numbers = {"_scale": float(self._scale), "_growth_tracker": self._get_growth_tracker()}
        return self.__dict__ | numbers
