"""Negative controls: correct kernels that round differently must be accepted.

A suite that refuses a blocked sum or another order of additions would be tuned to one library.
Every control counts where its result really differs from the embedded kernel's. Whether it does
depends on the machine: with some BLAS libraries the embedded product is a chain of fused
multiply-adds, too. There a control has nothing to differ from, says so and counts apart. Those
that differ by construction differ everywhere, or the counting is broken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .coordinate_faults import coordinate_controls
from .mutants import Mutant

__all__ = ["controls"]

_PLAIN = (np.float32, np.float64)
#: elements that one accumulator adds up as well as blocks do
_FEW = 1000


def _sums_all(raws: Any) -> bool:
    x, dim = raws[0], raws[1] if len(raws) > 1 else None
    if len(raws) > 3 and raws[3] is not None:
        return False  # another dtype is summed
    return x.ndim == 1 and x.dtype.kind == "f" and x.size > 0 and (dim is None or dim in ((), 0))


def _blocked_sum(correct: Any, raws: Any) -> Any:
    """Sums of 32 elements, of which sums of 32 are made, and so on."""
    x = raws[0]
    if not _sums_all(raws) or x.dtype == np.float16:
        return correct(*raws)
    total = x
    while total.size > 1:
        parts = [np.add.reduce(total[i : i + 32]) for i in range(0, total.size, 32)]
        total = np.asarray(parts, x.dtype)
    return np.asarray(total.sum(dtype=x.dtype)).reshape(np.shape(correct(*raws)))


def _one_by_one(correct: Any, raws: Any) -> Any:
    """One accumulator, from the last element to the first, which is a fault where they are many."""
    x = raws[0]
    if not _sums_all(raws) or x.dtype == np.float16 or x.size > _FEW:
        return correct(*raws)
    total = x.dtype.type(0)
    for value in x[::-1]:
        total = total + value
    return np.asarray(total).reshape(np.shape(correct(*raws)))


def _reversed_sum(correct: Any, raws: Any) -> Any:
    return correct(np.flip(raws[0]).copy(), *raws[1:]) if raws[0].ndim == 1 else correct(*raws)


def _fused(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` with one rounding: the product of two float32 is exact in float64."""
    return (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)


def _fused_product(correct: Any, raws: Any) -> Any:
    """A chain of fused multiply-adds over the inner dimension."""
    a, b = raws[:2]
    if not (a.dtype == b.dtype == np.float32 and a.ndim == b.ndim == 2 and a.shape[1]):
        return correct(*raws)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = _fused(a[:, k, None], b[None, k], total)
    return total


def _wider_product(correct: Any, raws: Any) -> Any:
    """A product accumulated in double and rounded once."""
    a, b = raws[:2]
    if a.dtype == np.float32:
        return np.asarray(correct(a.astype(np.float64), b.astype(np.float64))).astype(np.float32)
    return correct(*raws)


def _outer_products(correct: Any, raws: Any) -> Any:
    """Another BLAS: a sum of outer products, in the inputs' precision throughout."""
    a, b = raws[:2]
    if a.dtype in _PLAIN and a.dtype == b.dtype and a.ndim == b.ndim == 2 and a.shape[1]:
        total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        for k in range(a.shape[1]):
            total += np.outer(a[:, k], b[k])
        return total
    return correct(*raws)


def _split_inner(correct: Any, raws: Any) -> Any:
    """Another BLAS: two halves of the inner dimension, added last, the second half first."""
    a, b = raws[:2]
    if a.dtype not in _PLAIN or a.dtype != b.dtype or min(a.ndim, b.ndim) < 2 or a.shape[-1] < 2:
        return correct(*raws)
    half = a.shape[-1] // 2
    return correct(a[..., half:], b[..., half:, :]) + correct(a[..., :half], b[..., :half, :])


def _split_linear(correct: Any, raws: Any) -> Any:
    """The bias first, then the products of two halves of the features."""
    x, weight, bias = (*raws, None)[:3]
    if x.dtype not in _PLAIN or x.ndim != 2 or weight.ndim != 2 or x.shape[-1] < 2:
        return correct(*raws)
    half = x.shape[-1] // 2
    total = np.zeros((), x.dtype) if bias is None else bias
    return (total + x[:, :half] @ weight[:, :half].T) + x[:, half:] @ weight[:, half:].T


def _one_ulp(correct: Any, raws: Any) -> Any:
    """A libm whose exp is one unit off."""
    result = correct(*raws)
    if result.dtype == np.float32:
        moved = np.nextafter(result, np.float32(np.inf))
        return np.where(np.isfinite(result) & (result > 1e-30), moved, result)
    return result


def _softmax_input(raws: Any) -> bool:
    x, _, dtype, *_ = raws
    return bool(x.dtype in _PLAIN and x.ndim and x.size and dtype is None)


def _added(x: Any, dim: int) -> Any:
    """Pairwise, as NumPy adds what lies beside each other: columns have one accumulator."""
    return np.expand_dims(np.ascontiguousarray(np.moveaxis(x, dim, -1)).sum(-1), dim)


def _exp_of_difference(correct: Any, raws: Any) -> Any:
    """Softmax through exp(x - logsumexp(x))."""
    x, dim = raws[0], raws[1]
    if not _softmax_input(raws):
        return correct(*raws)
    with np.errstate(all="ignore"):
        shifted = x - x.max(dim, keepdims=True)
        return np.exp(shifted - np.log(_added(np.exp(shifted), dim)))


def _reciprocal(correct: Any, raws: Any) -> Any:
    """Softmax with one division, and a product for every element."""
    x, dim = raws[0], raws[1]
    if not _softmax_input(raws):
        return correct(*raws)
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(dim, keepdims=True))
        return e * (x.dtype.type(1) / _added(e, dim))


def _log_of_sum(correct: Any, raws: Any) -> Any:
    """Log-softmax as x - (max + log(sum)) in another order."""
    x, dim = raws[0], raws[1]
    if not _softmax_input(raws):
        return correct(*raws)
    with np.errstate(all="ignore"):
        shifted = x - x.max(dim, keepdims=True)
        return shifted - np.log(np.flip(np.exp(shifted), dim).sum(dim, keepdims=True))


def _scaled_mean(correct: Any, raws: Any) -> Any:
    """A mean as the sum of the elements each divided first."""
    x = raws[0]
    if x.dtype not in _PLAIN or not _sums_all(raws):
        return correct(*raws)
    return np.asarray((x * x.dtype.type(1 / x.size)).sum()).reshape(np.shape(correct(*raws)))


def _welford(correct: Any, raws: Any) -> Any:
    """Variance in one pass, by Welford's recurrence (Technometrics 4, 1962), of a few elements."""
    x, dim, correction, keepdim = (*raws, None, None, None)[:4]
    plain = x.dtype in _PLAIN and x.ndim == 1 and (dim is None or dim in ((), 0, (0,)))
    if not plain or not 2 <= x.size <= _FEW or correction not in (None, 0, 1):
        return correct(*raws)
    mean = moment = x.dtype.type(0)
    with np.errstate(all="ignore"):
        for i, value in enumerate(x):
            delta = value - mean
            mean = mean + delta / x.dtype.type(i + 1)
            moment = moment + delta * (value - mean)
        moment = moment / x.dtype.type(x.size - (1 if correction is None else correction))
    return np.asarray(moment).reshape(np.shape(correct(*raws)))


def _copied_inputs(correct: Any, raws: Any) -> Any:
    """Makes its inputs contiguous first."""
    return correct(
        *[
            np.ascontiguousarray(r).reshape(r.shape) if isinstance(r, np.ndarray) else r
            for r in raws
        ]
    )


def _counted(mutant: Mutant, mutation: Any) -> Any:
    """The mutation, with a count of the calls whose bits differ from the embedded kernel's."""

    def run(correct: Any, raws: Any) -> Any:
        result, plain = mutation(correct, raws), correct(*raws)
        same = np.asarray(result).tobytes() == np.asarray(plain).tobytes()
        mutant.fired += not same
        return result

    return run


def controls() -> list[Mutant]:
    """Correct kernels; each must pass every case that passes without it.

    The detail ``differs`` says where bits differ from the embedded kernel's: ``"here or there"``,
    depending on how the machine's libraries round, or ``"everywhere"``, by construction.
    """
    rounding = [
        ("blocked sum", "sum", _blocked_sum),
        ("one accumulator, backwards", "sum", _one_by_one),
        ("reversed sum", "sum", _reversed_sum),
        ("fused multiply-add", "matmul", _fused_product),
        ("product in double, rounded once", "matmul", _wider_product),
        ("another BLAS: outer products", "matmul", _outer_products),
        ("another BLAS: split inner dimension", "matmul", _split_inner),
        ("another BLAS: split features", "linear", _split_linear),
        ("softmax through logsumexp", "softmax", _exp_of_difference),
        ("softmax with one division", "softmax", _reciprocal),
        ("another order of the log's sum", "log_softmax", _log_of_sum),
        ("divided before it is summed", "mean", _scaled_mean),
        ("Welford's variance", "var", _welford),
    ]
    constructed = [("exp one unit off", "exp", _one_ulp)]
    found = []
    for named, differs in ((rounding, "here or there"), (constructed, "everywhere")):
        for name, op, mutation in named:
            mutant = Mutant(f"{name} ({op})", op, ops=(op,), details={"differs": differs})
            mutant.mutation = _counted(mutant, mutation)
            found.append(mutant)
    for op in ("mul", "amax"):
        found.append(Mutant(f"contiguous inputs ({op})", op, _copied_inputs, ops=(op,)))
    for op in ("exp", "matmul", "softmax", "index_select"):
        found.append(
            Mutant(f"an honest backend of its own ({op})", op, ops=(op,), fake_backend=True)
        )
    return [*found, *coordinate_controls()]
