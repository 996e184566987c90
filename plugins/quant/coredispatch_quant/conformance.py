"""What the conformance suite asks of quantized tensors beside what it asks of every layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import OpError, nn
from coredispatch_quant.ops import (
    dequantize,
    quantize_per_channel,
    quantize_per_tensor,
    quantized_conv2d,
    quantized_linear,
)

__all__ = ["CASES", "FAULTS"]


def rounding(case: Any) -> None:
    """Ties go to the even integer."""
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    q = quantize_per_tensor(case.tensor(values), 1.0, 0, "qint8")
    found = case.array(dequantize(q)).tolist()
    case.expect(found == [0.0, 2.0, 2.0, 0.0, -2.0, -2.0], f"ties round to {found}")


def saturation(case: Any) -> None:
    """What is out of range becomes the last integer, infinities too."""
    values = np.array([1e6, -1e6, 12.7, -12.8, np.inf, -np.inf], np.float32)
    q = quantize_per_tensor(case.tensor(values), 0.1, 0, "qint8")
    found = case.array(dequantize(q))
    wanted = [12.7, -12.8, 12.7, -12.8, 12.7, -12.8]
    case.expect(np.allclose(found, wanted, atol=1e-5), f"saturates to {found.tolist()}")


def _products(case: Any, name: str) -> None:
    """In integers, and within 0.9 output steps of the exact product (QNNPACK's own tests)."""
    rng = case.rng
    shape, weights = ((5, 7), (6, 7)) if name == "linear" else ((2, 4, 9, 8), (6, 2, 3, 3))
    options = {} if name == "linear" else {"stride": 2, "padding": 1, "groups": 2}
    operator = quantized_linear if name == "linear" else quantized_conv2d
    plain = getattr(nn.functional, name)
    for per, relu in itertools.product(("tensor", "channel"), (False, True)):
        x = case.tensor(rng.uniform(-3, 3, shape).astype(np.float32))
        w = case.tensor(rng.uniform(-1, 1, weights).astype(np.float32))
        bias = case.tensor(rng.uniform(-1, 1, 6).astype(np.float32))
        q = quantize_per_tensor(x, 0.025, 121, "quint8")
        if per == "tensor":
            qw = quantize_per_tensor(w, 0.008, 0, "qint8")
        else:
            scales = case.tensor(rng.uniform(0.008, 0.02, 6))
            qw = quantize_per_channel(w, scales, case.tensor(np.zeros(6, np.int64)), 0, "qint8")
        step = 0.08
        found = case.array(dequantize(operator(q, qw, bias, step, 130, relu=relu, **options)))
        exact = plain(dequantize(q).double(), dequantize(qw).double(), bias.double(), **options)
        wanted = case.array(exact).clip((0 - 130) * step, (255 - 130) * step)
        wanted = np.maximum(wanted, 0) if relu else wanted
        error = np.abs(found - wanted).max() / step
        case.expect(error <= 0.9, f"{name} per {per} is off by {error:.2f} output steps")


def linear(case: Any) -> None:
    """``quantized_linear``, weights per tensor and per channel, with and without relu."""
    _products(case, "linear")


def conv2d(case: Any) -> None:
    """``quantized_conv2d`` with stride, padding and groups."""
    _products(case, "conv2d")


def parameters(case: Any) -> None:
    """A quantized tensor tells its parameters; what it has not is refused."""
    x = case.tensor(case.rng.uniform(-1, 1, (3, 4)).astype(np.float32))
    q: Any = quantize_per_tensor(x, 0.25, 7, "quint8")
    found = (q.q_scale(), q.q_zero_point())
    case.expect(found == (0.25, 7), f"scale and zero point {found}, not (0.25, 7)")
    scales, zeros = case.tensor(np.full(4, 0.5)), case.tensor(np.zeros(4, np.int64))
    rows: Any = quantize_per_channel(x, scales, zeros, 1, "qint8")
    axis = rows.q_per_channel_axis()
    case.expect(axis == 1, f"the scales vary along dimension {axis}, not 1")
    for ask in (q.q_per_channel_axis, rows.q_scale, rows.q_zero_point, x.q_scale, x.q_zero_point):
        try:
            ask()
        except OpError:
            continue
        case.expect(False, f"{ask.__name__} of a tensor that has none is answered")


CASES: dict[str, Callable[[Any], None]] = {
    "parameters": parameters,
    "rounding": rounding,
    "saturation": saturation,
    "linear": linear,
    "conv2d": conv2d,
}


# ---- faults that the self-test plants ---------------------------------------------------------


def wrapping(correct: Any, raws: Any) -> Any:
    """Wraps around instead of saturating."""
    result = correct(*raws)
    wrapped = np.rint(raws[0] / raws[1]) + raws[2]
    with np.errstate(all="ignore"):
        result.data[...] = np.nan_to_num(wrapped).astype(np.int64).astype(result.data.dtype)
    return result


def ties_away(correct: Any, raws: Any) -> Any:
    """Rounds ties away from zero."""
    x, scale = raws[0], raws[1]
    steps = np.asarray(x / scale)
    away = np.copysign(np.floor(np.abs(steps) + 0.5), steps) * scale
    return correct(away.astype(x.dtype), *raws[1:])


def zero_point_ignored(correct: Any, raws: Any) -> Any:
    """``relu`` compares the integers with 0 instead of the zero point."""
    (q,) = raws
    return q.like(np.asarray(np.maximum(q.data, 0)))


def fine_channel_off(correct: Any, raws: Any) -> Any:
    """``relu`` puts the channel of the finest scale one integer up."""
    (q,) = raws
    result = correct(q)
    if not q.per_channel or not result.data.size:
        return result
    data = np.array(result.data)
    fine = np.moveaxis(data, q.axis, 0)[int(np.argmin(q.scale))]
    fine += fine < 120
    return q.like(data)


def memory_order(correct: Any, raws: Any) -> Any:
    """``relu`` walks through memory, whatever the order of the dimensions there."""
    (q,) = raws
    result = correct(q)
    return q.like(np.array(result.data).ravel(order="K").reshape(q.shape))


#: name -> (operator, key whose kernel is at fault, fault, what the case that notices says)
FAULTS: dict[str, tuple[str, str, Callable[[Any, Any], Any], str]] = {
    "wraps instead of saturating": ("quantize_per_tensor", "cpu", wrapping, "saturates to"),
    "rounds quantized ties away from zero": (
        "quantize_per_tensor",
        "cpu",
        ties_away,
        "ties round",
    ),
    "quantized relu at the integer 0": ("relu", "quantized", zero_point_ignored, "output steps"),
    "a fine channel one step off": ("relu", "quantized", fine_channel_off, "output steps"),
    "quantized relu in memory order": ("relu", "quantized", memory_order, "output steps"),
}
