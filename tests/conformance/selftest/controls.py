"""Negative controls: correct kernels that round differently must be accepted; exploits must not.

A suite that refuses a blocked sum or another order of additions would be tuned to one library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .mutants import Mutant

__all__ = ["controls", "exploits"]


def _blocked_sum(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.ndim == 1 and x.dtype.kind == "f" and len(raws) > 1 and not raws[1] and x.size:
        total = np.zeros((), x.dtype)
        for start in range(0, x.size, 32):
            total = total + correct(x[start : start + 32], *raws[1:]).reshape(())
        return np.asarray(total).reshape(np.shape(correct(*raws)))
    return correct(*raws)


def _reversed_sum(correct: Any, raws: Any) -> Any:
    return correct(np.flip(raws[0]).copy(), *raws[1:]) if raws[0].ndim == 1 else correct(*raws)


def _wider_product(correct: Any, raws: Any) -> Any:
    """A product accumulated in double and rounded once, as fused multiply-add would."""
    a, b = raws[:2]
    if a.dtype == np.float32:
        return np.asarray(correct(a.astype(np.float64), b.astype(np.float64))).astype(np.float32)
    return correct(*raws)


def _outer_products(correct: Any, raws: Any) -> Any:
    """Another BLAS: a sum of outer products, in float32 throughout."""
    a, b = raws[:2]
    if a.dtype == np.float32 and a.ndim == b.ndim == 2 and a.shape[1]:
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for k in range(a.shape[1]):
            total += np.outer(a[:, k], b[k])
        return total
    return correct(*raws)


def _one_ulp(correct: Any, raws: Any) -> Any:
    """A libm whose exp is one unit off."""
    result = correct(*raws)
    if result.dtype == np.float32:
        moved = np.nextafter(result, np.float32(np.inf))
        return np.where(np.isfinite(result) & (result > 1e-30), moved, result)
    return result


def _exp_of_difference(correct: Any, raws: Any) -> Any:
    """Softmax through exp(x - logsumexp(x))."""
    x, dim = raws[0], raws[1]
    if x.dtype != np.float32 or x.ndim == 0 or x.size == 0:
        return correct(*raws)
    with np.errstate(all="ignore"):
        shifted = x - x.max(dim, keepdims=True)
        return np.exp(shifted - np.log(np.exp(shifted).sum(dim, keepdims=True)))


def _copied_inputs(correct: Any, raws: Any) -> Any:
    """Makes its inputs contiguous first."""
    return correct(
        *[
            np.ascontiguousarray(r).reshape(r.shape) if isinstance(r, np.ndarray) else r
            for r in raws
        ]
    )


def controls() -> list[Mutant]:
    """Correct kernels; each must pass every case that passes without it."""
    table = [
        ("blocked sum", "sum", _blocked_sum),
        ("reversed sum", "sum", _reversed_sum),
        ("product in double, rounded once", "matmul", _wider_product),
        ("another BLAS", "matmul", _outer_products),
        ("exp one unit off", "exp", _one_ulp),
        ("softmax through logsumexp", "softmax", _exp_of_difference),
        ("contiguous inputs", "mul", _copied_inputs),
        ("contiguous inputs", "amax", _copied_inputs),
    ]
    return [Mutant(f"{name} ({op})", op, fn, ops=(op,)) for name, op, fn in table]


def _raises(correct: Any, raws: Any) -> Any:
    raise NotImplementedError("this kernel does nothing")


def _empty(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    return np.empty((0,) * result.ndim, result.dtype)


def _nan(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    return np.full_like(result, np.nan) if result.dtype.kind == "f" else result


class _Whatever:
    """Equal to everything: must not pass for an array."""

    shape: tuple[int, ...] = ()
    dtype = np.dtype(np.float32)

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def exploits() -> list[Mutant]:
    """Kernels that try to look right without computing anything."""
    table = [
        ("raises everywhere", "exp", _raises),
        ("returns an empty array", "mul", _empty),
        ("NaN everywhere", "sub", _nan),
        ("an object equal to everything", "neg", lambda correct, raws: _Whatever()),
        ("returns its input", "abs", lambda correct, raws: raws[0]),
    ]
    return [Mutant(f"{name} ({op})", op, fn, ops=(op,)) for name, op, fn in table]
