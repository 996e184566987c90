"""Observers: modules that pass values on and remember their range.

A range becomes a scale and a zero point as in Jacob et al. (2018), section 3: it is widened to
contain zero, so that zero is represented exactly.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.ao.schemes import (
    limits,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    quantized_type,
)
from coredispatch.frontend.creation import tensor
from coredispatch.frontend.nn.module import Module
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "UniformQuantizationObserverBase",
    "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer",
    "default_fixed_qparams_range_neg1to1_observer",
    "default_histogram_observer",
    "default_observer",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_weight_observer",
    "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]

_op = TABLE.operator
_EPS = 1.1920928955078125e-07  # of float32: the smallest scale


class Made:
    """A class with arguments for it: what a QConfig has for each kind of observer."""

    def __init__(self, made: Any) -> None:
        self.p = made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.p(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.p)

    def with_args(self, **kwargs: Any) -> Made:
        """The same with more arguments."""
        return Made(partial(self.p, **kwargs))


class ObserverBase(Module):
    """The base of observers: they have a ``dtype`` and ``calculate_qparams()``."""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @classmethod
    def with_args(cls, **kwargs: Any) -> Made:
        """Something to call for observers with these arguments."""
        return Made(partial(cls, **kwargs))

    def calculate_qparams(self, *args: Any, **kwargs: Any) -> Any:
        """Scale and zero point, one of each per slice or one of each."""
        raise NotImplementedError


class UniformQuantizationObserverBase(ObserverBase):
    """What the observers of ranges share.

    Args:
        dtype: ``quint8`` (the default) or ``qint8``.
        qscheme: per tensor or per channel, affine or symmetric.
        reduce_range: leave one bit free, for products that could overflow.
        quant_min, quant_max: the integers to use, instead of all of the dtype.
        eps: the smallest scale.
    """

    def __init__(
        self,
        dtype: Any = "quint8",
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(quantized_type(dtype), is_dynamic)
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.factory = dict(factory_kwargs or {})
        self.register_buffer("eps", tensor([eps], **self.factory))
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        low, high = limits(self.dtype)
        if quant_min is not None and quant_max is not None:
            if not quant_min <= 0 <= quant_max or quant_min == quant_max:
                raise ValueError(
                    f"quant_min={quant_min} and quant_max={quant_max}: the range must contain 0 "
                    "and more than one integer"
                )
            low, high = quant_min, quant_max
        if reduce_range:
            low, high = low // 2, high // 2
        self.quant_min, self.quant_max = low, high

    def _calculate_qparams(self, low: Any, high: Any) -> tuple[Any, Any]:
        if not self._seen(low, high):
            return tensor([1.0]), tensor([0])
        low, high = low.clamp_max(0.0), high.clamp_min(0.0)
        steps = float(self.quant_max - self.quant_min)
        if self.qscheme in (per_tensor_symmetric, per_channel_symmetric):
            scale = _op("maximum")(_op("maximum")(-low, high) / (steps / 2), self.eps)
            middle = 0
            if self.dtype.name in ("quint8", "uint8"):
                middle = 128
                if self.has_customized_qrange:
                    middle = (self.quant_min + self.quant_max) // 2
            return scale.reshape(-1), _op("full_like")(scale.reshape(-1), middle, dtype="int64")
        scale = _op("maximum")((high - low) / steps, self.eps)
        zero = self.quant_min - (low / scale).round().to(DType.of("int32"))
        zero = zero.clamp(self.quant_min, self.quant_max)
        return scale.reshape(-1), zero.reshape(-1)

    def _seen(self, low: Any, high: Any) -> bool:
        if low.numel() == 0 or (low.numel() == 1 and float(low) == float("inf")):
            warn("must run observer before calling calculate_qparams. Returning default values.")
            return False
        if bool((low > high).any()):
            raise AssertionError(f"min {low} should be less than max {high}")
        return True

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        raise NotImplementedError("Cannot reset min/max values in the given observer.")


class _RangeObserver(UniformQuantizationObserverBase):
    """An observer that keeps a smallest and a largest value, for one kind of schemes."""

    min_val: Any
    max_val: Any
    _schemes = (
        "per_tensor_symmetric and per_tensor_affine",
        per_tensor_symmetric,
        per_tensor_affine,
    )
    _nothing_seen: tuple[Any, Any] = (float("inf"), float("-inf"))

    def __init__(
        self,
        dtype: Any = "quint8",
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        names, *schemes = self._schemes
        if qscheme not in schemes:
            raise NotImplementedError(f"{self._kind()}'s qscheme only support {names}.")
        options = (reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic)
        super().__init__(dtype, qscheme, *options)
        for name, value in zip(("min_val", "max_val"), self._nothing_seen):
            self.register_buffer(name, tensor(value, **self.factory))

    @classmethod
    def _kind(cls) -> str:
        """The observer that stated the schemes."""
        return next(c.__name__ for c in cls.__mro__ if not c.__name__.startswith("Moving"))

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Scale and zero point: of all, each ``(1,)``, or of each slice."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """What was seen."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(_RangeObserver):
    """Remembers the smallest and the largest value of all."""

    def forward(self, x_orig: Any) -> Any:
        """``x_orig``, whose range is taken in."""
        if x_orig.numel():
            low, high = _op("aminmax")(x_orig.detach().to(self.min_val.dtype))
            self._take(low, high)
        return x_orig

    def _take(self, low: Any, high: Any) -> None:
        self.min_val.copy_(_op("minimum")(low, self.min_val))
        self.max_val.copy_(_op("maximum")(high, self.max_val))

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Moving average of each batch's range: ``low += averaging_constant * (now - low)``."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = "quint8",
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max,
            kwargs.pop("factory_kwargs", None), eps, is_dynamic, **kwargs,
        )  # fmt: skip
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging "
                f"constant of {averaging_constant}"
            )

    def _take(self, low: Any, high: Any) -> None:
        if float(self.min_val) == float("inf") and float(self.max_val) == float("-inf"):
            return super()._take(low, high)
        rate = self.averaging_constant
        self.min_val.copy_(self.min_val + rate * (low - self.min_val))
        self.max_val.copy_(self.max_val + rate * (high - self.max_val))


class PerChannelMinMaxObserver(_RangeObserver):
    """The smallest and largest value of each slice along ``ch_axis``."""

    _schemes = (
        "per_channel_symmetric, per_channel_affine",
        per_channel_symmetric,
        per_channel_affine,
    )
    _nothing_seen = ([], [])

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = "quint8",
        qscheme: Any = per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        options = (reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic)
        super().__init__(dtype, qscheme, *options)
        self.ch_axis = ch_axis

    def forward(self, x_orig: Any) -> Any:
        """``x_orig``, whose ranges are taken in."""
        if x_orig.numel():
            rows = x_orig.detach().to(self.min_val.dtype).transpose(0, self.ch_axis).flatten(1)
            low, high = rows.amin(1), rows.amax(1)
            if self.min_val.numel():
                low, high = self._joined(low, high)
            self.min_val, self.max_val = low, high
        return x_orig

    def _joined(self, low: Any, high: Any) -> tuple[Any, Any]:
        return _op("minimum")(low, self.min_val), _op("maximum")(high, self.max_val)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = tensor([]), tensor([])


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Moving averages of the ranges of each slice."""

    def __init__(self, averaging_constant: float = 0.01, ch_axis: int = 0, **kwargs: Any) -> None:
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(ch_axis, **kwargs)

    def _joined(self, low: Any, high: Any) -> tuple[Any, Any]:
        rate = self.averaging_constant
        return (
            self.min_val + rate * (low - self.min_val),
            self.max_val + rate * (high - self.max_val),
        )


class HistogramObserver(_RangeObserver):
    """A running histogram; the range kept is the one with the least squared error.

    The search is Caffe2's NonlinearQuantizationParamsSearch: quantiles are moved inwards from both
    ends, a step at a time, as long as the error falls.
    """

    def __init__(
        self,
        bins: int = 2048,
        dtype: Any = "quint8",
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        options = (reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic)
        super().__init__(dtype, qscheme, *options)
        self.bins, self.dst_nbins, self.upsample_rate = bins, 256, 16
        self.register_buffer("histogram", _op("zeros")((bins,)))

    def forward(self, x_orig: Any) -> Any:
        """``x_orig``, which is counted."""
        x = x_orig.detach()
        finite = x[x.abs() != float("inf")] if bool(x.isinf().any()) else x
        if finite is not x:
            warn("inf detected in input tensor, ignoring input")
        if not finite.numel():
            return x_orig
        low, high = (float(v) for v in _op("aminmax")(finite))
        old_low, old_high = float(self.min_val), float(self.max_val)
        known = old_low != float("inf")
        new_low, new_high = (min(low, old_low), max(high, old_high)) if known else (low, high)
        counts = _op("histc")(finite.float(), self.bins, new_low, new_high)
        if known:
            counts = counts + self._moved(old_low, old_high, new_low, new_high)
        self.histogram.copy_(counts)
        self.min_val.fill_(new_low)
        self.max_val.fill_(new_high)
        return x_orig

    def _moved(self, low: float, high: float, new_low: float, new_high: float) -> Any:
        """The histogram so far in the bins of a wider range."""
        if (low, high) == (new_low, new_high):
            return self.histogram
        if low == high:
            one = _op("histc")(tensor([low]), self.bins, new_low, new_high)
            return one * self.histogram.sum()
        fine = self.bins * self.upsample_rate
        counts = self.histogram.repeat_interleave(self.upsample_rate) / self.upsample_rate
        middle = _op("linspace")(low, high, fine + 1)[:-1] + 0.5 * (high - low) / fine
        edges = _op("linspace")(new_low, new_high, self.bins + 1)
        place = (_op("bucketize")(middle, edges, right=True) - 1).clamp(0, self.bins - 1)
        return counts.new_zeros((self.bins,)).index_add(0, place, counts)

    def _error(self, start: int, end: int) -> float:
        """The squared error of quantizing the bins ``start`` to ``end``, the others clamped."""
        import numpy as np

        width = (float(self.max_val) - float(self.min_val)) / self.bins
        step = width * (end - start + 1) / self.dst_nbins
        if step == 0.0:
            return 0.0
        begin = (np.arange(self.bins) - start) * width
        last = self.dst_nbins - 1
        first, final = (np.clip(np.floor(x / step), 0, last) for x in (begin, begin + width))
        density = self.histogram.numpy().astype(np.float64) / width

        def norm(a: Any, b: Any) -> Any:
            return density * (b**3 - a**3) / 3

        total = norm(begin - (first + 0.5) * step, step / 2)
        total = total + (final - first - 1) * norm(-step / 2, step / 2)
        total = total + norm(-step / 2, begin + width - (final + 0.5) * step)
        return float(total.sum())

    def _search(self) -> tuple[float, float]:
        sums = self.histogram.cumsum(0).tolist()
        total, stride = float(self.histogram.sum()), 1e-5
        alpha, beta, start, end, least = 0.0, 1.0, 0, self.bins - 1, float("inf")
        while alpha < beta:
            left, right = start, end
            while left < end and sums[left] < (alpha + stride) * total:
                left += 1
            while right > start and sums[right] > (beta - stride) * total:
                right -= 1
            next_start, next_end = start, end
            if left - start > end - right:
                next_start, alpha = left, alpha + stride
            else:
                next_end, beta = right, beta - stride
            if (next_start, next_end) == (start, end):
                continue
            error = self._error(next_start, next_end)
            if error > least:
                break
            least, start, end = error, next_start, next_end
        low = float(self.min_val)
        width = (float(self.max_val) - low) / self.bins
        return low + width * start, low + width * (end + 1)

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Scale and zero point of the range with the least error, each ``(1,)``."""
        if not self._seen(self.min_val, self.max_val):
            return tensor([1.0]), tensor([0])
        return self._calculate_qparams(*[tensor(x) for x in self._search()])


class FixedQParamsObserver(ObserverBase):
    """A scale and a zero point that are known: those of a sigmoid, for instance."""

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: Any = "quint8",
        qscheme: Any = per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(quantized_type(dtype), is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", tensor([scale]))
        self.register_buffer("zero_point", tensor([zero_point]))

    def forward(self, X: Any) -> Any:
        """``X``."""
        return X

    def calculate_qparams(self) -> tuple[Any, Any]:
        """What was given."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Observes nothing: says what dtype is wanted, of activations quantized as they come."""

    def __init__(
        self,
        dtype: Any = "float32",
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(quantized_type(dtype), bool(is_dynamic or compute_dtype))
        self.qscheme = per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max = quant_min, quant_max
        self.eps = _EPS if eps is None else eps
        self.custom_op = custom_op_name

    def forward(self, x: Any) -> Any:
        """``x``."""
        return x

    def extra_repr(self) -> str:
        """The dtype."""
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self) -> Any:
        """There are none."""
        raise RuntimeError("calculate_qparams should not be called for PlaceholderObserver")


class NoopObserver(ObserverBase):
    """Observes nothing."""

    def __init__(self, dtype: Any = "float16", custom_op_name: str = "") -> None:
        super().__init__(DType.of(dtype))
        self.custom_op = custom_op_name

    def forward(self, x: Any) -> Any:
        """``x``."""
        return x

    def calculate_qparams(self) -> Any:
        """There are none."""
        raise RuntimeError("calculate_qparams should not be called for NoopObserver")


_SYMMETRIC_127: dict[str, Any] = {"quant_min": -127, "quant_max": 127, "eps": 2**-12}
default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype="qint8", qscheme=per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = default_weight_observer.with_args(**_SYMMETRIC_127)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype="qint8", qscheme=per_channel_symmetric
)
per_channel_weight_observer_range_neg_127_to_127 = default_per_channel_weight_observer.with_args(
    **_SYMMETRIC_127
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype="quint8", quant_min=0, quant_max=255, is_dynamic=True
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0
)
