"""Cross entropy and its gradient, and the losses of pairs of elements.

A class out of range, and what is no probability, is an error at the next wait for the device (see
:mod:`..device_checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from coredispatch_cuda_cupy import device_checks as checks
from coredispatch_cuda_cupy.cuda.index_arguments import as_index, is_index
from coredispatch_cuda_cupy.cuda.layout import blocks, dense, line_grid
from coredispatch_cuda_cupy.cuda.loading import Family, is_float, wide

__all__ = ["kernels"]

_REDUCTIONS = ("mean", "sum", "none")
#: threads of the one block that adds losses up, and sums that it gets at most from other blocks
_THREADS, _MOST_SUMS = 1024, 1024


class _Launcher:
    """What the kernels of losses share."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.launch = Family(cupy, "losses")

    def flagged(self, op: str, kind: int) -> tuple[Any, ...]:
        """The last arguments of a kernel that checks values."""
        flag, number = checks.flag(self.cupy, op)
        return 0, flag, kind, number

    def over_lines(self, name: str, own: Any, sizes: Any, given: tuple[Any, ...]) -> None:
        """A kernel over lines along the classes."""
        grid, block = line_grid(*sizes)
        self.launch(name, own, grid, block, given)

    def reduced(self, losses: Any, own: Any, dtype: Any, divisor: float) -> Any:
        """The sum of losses over that of ``own``, or over a number, 0-dim."""
        out = self.cupy.empty((), dtype)
        given = (losses, own, out, losses.size, float(divisor))
        self.launch("reduced", dtype, 1, _THREADS, given)
        return out


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launcher = _Launcher(cupy)
    return {**_classes(cupy, launcher), **_pairs(cupy, launcher)}


def _classes(cupy: Any, launcher: _Launcher) -> dict[str, Callable[..., Any]]:
    """Cross entropy of class indices and of probabilities."""

    def weights_of(weight: Any, own: Any) -> Any:
        return 0 if weight is None else dense(cupy, weight.astype(wide(own), copy=False))

    def cross_entropy(
        input: Any,
        target: Any,
        weight: Any,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
    ) -> Any:
        sizes = _sizes(input, target, weight, reduction, label_smoothing)
        if sizes is None:
            return NotImplemented
        own, x, weights = input.dtype, dense(cupy, input), weights_of(weight, input.dtype)
        smoothing = float(label_smoothing)
        losses = cupy.empty((sizes[0], *input.shape[2:])[input.ndim == 1 :], wide(own))
        counted: Any = 0
        if is_index(target):
            counted = cupy.empty(losses.shape, wide(own))
            flagged = launcher.flagged("cross_entropy", checks.CLASS)
            arrays: tuple[Any, ...] = (x, as_index(cupy, target), weights, losses, counted)
            given = (*arrays, *sizes, ignore_index, smoothing, *flagged)
            launcher.over_lines("classes", own, sizes, given)
            checks.finish(cupy)
        else:
            arrays = (x, dense(cupy, target), weights, losses)
            launcher.over_lines("shares", own, sizes, (*arrays, *sizes, smoothing))
        if reduction == "none":
            return losses.astype(own, copy=False)
        mean = reduction == "mean"
        return launcher.reduced(losses, counted if mean else 0, own, losses.size if mean else 1)

    def cross_entropy_backward(
        grad_output: Any,
        input: Any,
        target: Any,
        weight: Any,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
    ) -> Any:
        sizes = _sizes(input, target, weight, reduction, label_smoothing)
        each = reduction == "none"
        wanted = (input.shape[:1] + input.shape[2:] if input.ndim > 1 else ()) if each else ()
        if sizes is None or grad_output.shape != wanted or grad_output.dtype != input.dtype:
            return NotImplemented
        own, x, weights = input.dtype, dense(cupy, input), weights_of(weight, input.dtype)
        grad, smoothing = dense(cupy, grad_output), float(label_smoothing)
        out, count = cupy.empty(input.shape, own), sizes[0] * sizes[2]
        if not is_index(target):
            divisor = float(count) if reduction == "mean" else 1.0
            arrays = (grad, int(each), divisor, x, dense(cupy, target), weights, out)
            launcher.over_lines("shares_backward", own, sizes, (*arrays, *sizes, smoothing))
            return out
        classes, total = as_index(cupy, target), 0
        if reduction == "mean":
            total = cupy.empty((), wide(own))
            given = (classes, weights, total, count, sizes[1], ignore_index)
            launcher.launch("total_weight", own, 1, _THREADS, given)
        flagged = launcher.flagged("cross_entropy_backward", checks.CLASS)
        arrays = (grad, int(each), total, x, classes, weights, out)
        given = (*arrays, *sizes, ignore_index, smoothing, *flagged)
        launcher.over_lines("classes_backward", own, sizes, given)
        checks.finish(cupy)
        return out

    return {"cross_entropy": cross_entropy, "cross_entropy_backward": cross_entropy_backward}


def _sizes(
    input: Any, target: Any, weight: Any, reduction: str, smoothing: float
) -> tuple[int, int, int] | None:
    """``(outer, classes, inner)``; None where kernels do not take it, or it is wrong."""
    if not input.ndim or not input.size or not is_float(input.dtype):
        return None
    if reduction not in _REDUCTIONS or not 0 <= smoothing <= 1:
        return None
    outer, classes, inner = 1, input.shape[0], 1
    if input.ndim > 1:
        outer, classes, inner = input.shape[0], input.shape[1], prod(input.shape[2:])
    expected = (outer, *input.shape[2:]) if input.ndim > 1 else ()
    if is_index(target):
        fits = target.shape == expected
    else:
        fits = target.shape == input.shape and target.dtype == input.dtype
    if (
        not fits
        or weight is not None
        and (weight.shape != (classes,) or weight.dtype not in (input.dtype, wide(input.dtype)))
    ):
        return None
    return outer, classes, inner


#: losses of pairs as the kernels number them
_SQUARED, _ABSOLUTE, _SMOOTH, _HUBER, _BINARY, _LOGITS = range(6)


def _pairs(cupy: Any, launcher: _Launcher) -> dict[str, Callable[..., Any]]:
    """Losses of two arrays, element by element."""

    def run(
        op: str, which: int, x: Any, y: Any, reduction: str, bound: float = 0.0, weight: Any = None
    ) -> Any:
        if x.shape != y.shape or x.dtype != y.dtype or not x.size or not is_float(x.dtype):
            return NotImplemented
        if reduction not in _REDUCTIONS or (weight is not None and weight.dtype != x.dtype):
            return NotImplemented
        each: Any = 0
        if weight is not None:
            try:
                each = dense(cupy, cupy.broadcast_to(weight, x.shape))
            except ValueError:  # it does not broadcast, which the kernel below says
                return NotImplemented
        own, size = x.dtype, x.size
        flagged = launcher.flagged(op, checks.PROBABILITY) if which == _BINARY else (0, 0, 0, 0)
        arrays = dense(cupy, x), dense(cupy, y), each
        rest = (size, which, float(bound), *flagged)
        if reduction == "none":
            out = cupy.empty(x.shape, own)
            launcher.launch("pairs_each", own, blocks(size), 256, (*arrays, out, *rest))
        else:
            grid = min(blocks(size), _MOST_SUMS)
            sums = cupy.zeros(grid, wide(own))
            launcher.launch("pairs_sums", own, grid, 256, (*arrays, sums, *rest))
            out = launcher.reduced(sums, 0, own, size if reduction == "mean" else 1)
        if which == _BINARY:
            checks.finish(cupy)
        return out

    def mse_loss(input: Any, target: Any, reduction: str) -> Any:
        return run("mse_loss", _SQUARED, input, target, reduction)

    def l1_loss(input: Any, target: Any, reduction: str) -> Any:
        return run("l1_loss", _ABSOLUTE, input, target, reduction)

    def smooth_l1_loss(input: Any, target: Any, reduction: str, beta: float) -> Any:
        if beta < 0:
            return NotImplemented
        which = _SMOOTH if beta else _ABSOLUTE
        return run("smooth_l1_loss", which, input, target, reduction, beta)

    def huber_loss(input: Any, target: Any, reduction: str, delta: float) -> Any:
        if delta <= 0:
            return NotImplemented
        return run("huber_loss", _HUBER, input, target, reduction, delta)

    def binary_cross_entropy(input: Any, target: Any, weight: Any, reduction: str) -> Any:
        op = "binary_cross_entropy"
        return run(op, _BINARY, input, target, reduction, weight=weight)

    def binary_cross_entropy_with_logits(
        input: Any, target: Any, weight: Any, reduction: str, pos_weight: Any
    ) -> Any:
        if pos_weight is not None:
            return NotImplemented
        op = "binary_cross_entropy_with_logits"
        return run(op, _LOGITS, input, target, reduction, weight=weight)

    return {
        "mse_loss": mse_loss,
        "l1_loss": l1_loss,
        "smooth_l1_loss": smooth_l1_loss,
        "huber_loss": huber_loss,
        "binary_cross_entropy": binary_cross_entropy,
        "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    }
