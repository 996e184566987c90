"""Curated faults at exact lengths and beyond 16 bits; of shared memory, sources and special inputs.

Each kernel is right for odd lengths, for short dimensions and lists, for full precision, for plain
parameters and for inputs of which none is special.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np

import coredispatch as cd

from .edge_faults import faulty_rule

__all__ = ["EXTENTS", "SPECIAL_INPUTS"]


def _entry(op: str, check: int, says: str, cases: str = "", *ops: str) -> dict[str, Any]:
    return {"op": op, "ops": ops or (op,), "checks": (check,), "says": says, "cases": cases}


# ---- lengths ------------------------------------------------------------------------------------


def last_block(correct: Any, raws: Any) -> Any:
    """The mean of a length that 1,024 divides leaves the last block out."""
    x, *rest = raws
    whole = x.ndim == 1 and x.size > 2048 and x.size % 1024 == 0
    return correct(x[:-1024] if whole else x, *rest)


def later_columns(correct: Any, raws: Any) -> Any:
    """Sums of columns beyond 4,096 are the first column's."""
    x, *rest = raws
    result = np.array(correct(x, *rest))
    if x.ndim == 2 and result.ndim == 1 and result.size == x.shape[1]:
        result[4096:] = result[:1]
    return result


def far_places(correct: Any, raws: Any) -> Any:
    """Of many places those beyond 1,024 are cut off."""
    x, dim, index, *rest = raws
    if index.size > 1024:
        index = np.minimum(index, 1023)
    return correct(x, dim, index, *rest)


def stays_expanded(correct: Any, raws: Any) -> Any:
    """The copy of an expanded array has its strides."""
    x, *rest = raws
    if x.size < 2 or 0 not in x.strides:
        return correct(x, *rest)
    kept = x[tuple(slice(None if s else 1) for s in x.strides)].copy()
    return np.lib.stride_tricks.as_strided(
        kept, x.shape, [s if t else 0 for s, t in zip(kept.strides, x.strides, strict=True)]
    )


def copied_view(correct: Any, raws: Any) -> Any:
    """Six dimensions and more have no view."""
    result = correct(*raws)
    return np.array(result) if result.ndim > 5 else result


def falling_dims(correct: Any, raws: Any) -> Any:
    """The last dimension and then the first are taken in this order, for results of that order."""
    x, dim, *rest = raws
    result = np.array(correct(*raws))
    if isinstance(dim, tuple) and len(dim) == 2 and dim[0] < 0 <= dim[1] and result.size > 1:
        result.reshape(-1)[0] = result.reshape(-1)[-1]
    return result


def one_before_a_block(correct: Any, raws: Any) -> Any:
    """A row that lacks one element of a whole block is summed up without its last element."""
    x, dim, *rest = raws
    if x.ndim and x.shape[dim] > 1000 and x.shape[dim] % 64 == 63:
        result = np.array(correct(*raws))
        np.moveaxis(result, dim, -1)[..., -1] = 0
        return result
    return correct(*raws)


def short_places(correct: Any, raws: Any) -> Any:
    """Places beyond 16 bits lose their upper bits."""
    values, places = correct(*raws)
    return values, places & 0xFFFF


def signed_places(correct: Any, raws: Any) -> Any:
    """Indices of 32 bits are kept in 16, with a sign."""
    x, dim, index = raws[:3]
    if index.dtype == np.int32 and x.ndim and x.shape[dim] < 1 << 16:
        index = np.maximum(index.astype(np.int16), 0).astype(np.int32)
    return correct(x, dim, index, *raws[3:])


def one_launch(correct: Any, raws: Any) -> Any:
    """Of more than 100 tensors the last ones come from the second list of pointers, not filled."""
    tensors, *rest = raws
    if len(tensors) > 100:
        tensors = [*tensors[:100], *[np.zeros_like(t) for t in tensors[100:]]]
    return correct(tensors, *rest)


def halves_of_blocks(correct: Any, raws: Any) -> Any:
    """Sums of 500 in half precision are added up in half precision."""
    x, *rest = raws
    if x.dtype != np.float16 or x.ndim != 1 or x.size < 1000 or rest[0] not in (None, (), (0,), 0):
        return correct(*raws)
    total = np.float16(0)
    for start in range(0, x.size, 500):
        total = np.float16(total + np.float16(x[start : start + 500].astype(np.float32).sum()))
    return np.full_like(correct(*raws), total)


def unturned_front(correct: Any, raws: Any) -> Any:
    """Dimensions before the last four are not turned around."""
    x, dims = raws
    kept = tuple(d for d in dims if d % max(x.ndim, 1) >= x.ndim - 4)
    return correct(x, kept) if kept else np.array(x)


def late_indices(correct: Any, raws: Any) -> Any:
    """The first 500 indices are looked at; what comes later is brought into the bounds."""
    x, dim, index, *rest = raws
    if index.size > 500 and x.ndim:
        index = np.array(index)
        index.reshape(-1)[500:] = index.reshape(-1)[500:].clip(-x.shape[dim], x.shape[dim] - 1)
    return correct(x, dim, index, *rest)


def rows_for_themselves(correct: Any, raws: Any) -> Any:
    """Where gradients are divided by how often a row is named, each row of indices counts alone."""
    grad, index, count, padding, by_frequency = raws
    if not by_frequency or index.ndim != 2 or len(index) < 2:
        return correct(*raws)
    parts = [correct(g, i, count, padding, True) for g, i in zip(grad, index, strict=True)]
    return np.sum(parts, axis=0).astype(grad.dtype)


# ---- memory, threads, the process ---------------------------------------------------------------


def in_its_operand(correct: Any, raws: Any) -> Any:
    """A matrix of doubles whose columns lie one after the other is factorized where it is."""
    result = correct(*raws)
    a = raws[0]
    turned = a.ndim == 2 and a.flags.f_contiguous and not a.flags.c_contiguous
    if turned and a.dtype == np.complex128 and a.flags.writeable:
        a[...] = result[0] if isinstance(result, tuple) else result
    return result


def block_by_block(correct: Any, raws: Any) -> Any:
    """A copy goes block by block from the first on, also onto what is still to be read."""
    target, source = raws[:2]
    if not isinstance(source, np.ndarray) or source.shape != target.shape or target.ndim != 1:
        return correct(*raws)
    for start in range(0, target.size, 50):
        target[start : start + 50] = source[start : start + 50]
    return None


def unwritten_weights(correct: Any, raws: Any) -> Any:
    """Without rows the sums over them are what was in memory."""
    result = [np.array(r) for r in correct(*raws)]
    if raws[1].size == 0:
        result[1][...] = 3
    return tuple(result)


class Widened:
    """Half precision is widened into memory that all threads share."""

    def __init__(self) -> None:
        self.wide: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        x = raws[0]
        if x.dtype != np.float16 or not x.ndim:
            return correct(x)
        wide = self.wide.setdefault(x.shape, np.empty(x.shape, np.float32))
        wide[...] = x
        return np.asarray(correct(wide)).astype(np.float16)


def silenced(correct: Any, raws: Any) -> Any:
    """Warnings are silenced for good where doubles have two parts."""
    if raws[0].dtype == np.complex128:
        warnings.simplefilter("ignore", DeprecationWarning)
    return correct(*raws)


class Returned:
    """Memory of large results is taken back when the array dies, whatever views live."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, Any]] = []

    def __call__(self, correct: Any, raws: Any) -> Any:
        result = np.asarray(correct(*raws))
        if result.nbytes < 8192:
            return result
        free = (m for m, out in self.kept[::-1] if out() is None and m.shape == result.shape)
        memory = next((m for m in free if m.dtype == result.dtype), None)
        if memory is None:
            memory = np.empty_like(result)
        memory[...] = result
        out = memory[...]
        self.kept = [(m, o) for m, o in self.kept if m is not memory][-20:]
        self.kept.append((memory, weakref.ref(out)))
        return out


# ---- random numbers -----------------------------------------------------------------------------


def period(correct: Any, raws: Any) -> Any:
    """Normal numbers begin again after 40,000."""
    found = np.array(correct(*raws))
    flat = found.reshape(-1)
    flat[40_000:80_000] = flat[: flat[40_000:80_000].size]
    return found


def seven_bits(correct: Any, raws: Any) -> Any:
    """What is dropped is decided with 7 bits: one in a thousand never is."""
    x, p, generator = raws
    return correct(x, round(p * 128) / 128, generator)


def shared_source(correct: Any, raws: Any) -> Any:
    """Many trials are drawn from the default generator."""
    count, p, generator = raws
    return correct(count, p, None if np.max(count, initial=0) > 200 else generator)


def short_keys(correct: Any, raws: Any) -> Any:
    """Few elements are put into order by keys of 7 bits; those of one key keep theirs."""
    n, generator, *_ = raws
    if not 8 < n < 20:
        return correct(*raws)
    keys = np.asarray(correct(128, generator, *raws[2:]))[:n] // 2
    return np.argsort(keys, kind="stable")


#: name -> (mutation, details)
EXTENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "the last of whole blocks": (last_block, _entry("mean", 30, "bound", "blocks")),
    "one element before a block": (one_before_a_block, _entry("cumsum", 30, "bound", "blocks")),
    "places in 16 bits": (short_places, _entry("cummax", 30, "exact|bound", "beyond-16-bits")),
    "indices in 16 bits": (signed_places, _entry("index_select", 30, "bound", "beyond-16-bits")),
    "a hundred tensors": (one_launch, _entry("cat", 30, "bound", "blocks")),
    "blocks in half precision": (halves_of_blocks, _entry("sum", 30, "whole numbers", "whole")),
    "the first of five dimensions": (unturned_front, _entry("flip", 30, "bound", "dims")),
    "indices after 500": (late_indices, _entry("gather", 14, "is refused, but taken", "places")),
    "frequencies of rows": (rows_for_themselves, _entry("embedding_backward", 30, "bound")),
    "columns that are overwritten": (in_its_operand, _entry("linalg_qr", 5, "written to")),
    "copies block by block": (
        block_by_block,
        _entry("copy_", 7, "overlap|reads what it wrote|in its memory", "", "backend"),
    ),
    "weights without rows": (
        unwritten_weights,
        _entry("layer_norm_backward", 4, "without rows", "no-rows"),
    ),
    "the columns beyond 4096": (later_columns, _entry("sum", 30, "beyond", "blocks")),
    "many places are cut off": (far_places, _entry("gather", 30, "beyond", "beyond-16-bits")),
    "a copy that stays expanded": (stays_expanded, _entry("clone", 6, "share memory", "fresh")),
    "no view of six dimensions": (copied_view, _entry("permute", 6, "does not reach", "view")),
    "the last dimension before the first": (falling_dims, _entry("amax", 33, "dim=", "options")),
    "widened in shared memory": (Widened, _entry("sinh", 31, "thread", "threads")),
    "filters of complex numbers": (silenced, _entry("linalg_svd", 31, "filters", "process")),
    "memory below a view": (Returned, _entry("fmod", 31, "a part of the result", "calls")),
    "normal numbers begin again": (
        period,
        _entry("random_normal", 11, "40000 apart", "distribution", "backend"),
    ),
    "probabilities of 7 bits": (
        seven_bits,
        _entry("native_dropout", 11, "seldom|mostly", "distribution", "backend"),
    ),
    "many trials from elsewhere": (
        shared_source,
        _entry("binomial", 11, "of one seed|default generator", "generator"),
    ),
    "keys of 7 bits": (short_keys, _entry("randperm", 11, "elements rise", "permutations")),
}


# ---- derivatives --------------------------------------------------------------------------------


def _two_zeros(grad: Any, named: dict[str, Any]) -> Any:
    """A row with two zeros has no gradient."""
    x = named.get("self")
    if x is None or tuple(x.shape) != tuple(grad.shape):
        return grad
    zeros = (x.detach() == 0).sum(named["dim"], True)
    return cd.where(zeros > 1, cd.zeros_like(grad), grad)


def _singular(grad: Any, named: dict[str, Any]) -> Any:
    """A matrix without an inverse has no gradient."""
    x = named.get("self")
    x = named.get("input") if x is None else x
    if x is None or x.ndim < 2 or tuple(x.shape) != tuple(grad.shape):
        return grad
    found = np.abs(np.linalg.det(x.detach().numpy())) < 1e-12
    whole = cd.tensor(np.broadcast_to(found[..., None, None], tuple(x.shape)).copy())
    return cd.where(whole, cd.zeros_like(grad), grad)


def _nan_is_equal_to_nothing(grad: Any, named: dict[str, Any]) -> Any:
    x = named.get("self")
    if x is None or tuple(x.shape) != tuple(grad.shape):
        return grad
    return cd.where(x.detach() != x.detach(), cd.zeros_like(grad), grad)


def _beyond_its_kernel(grad: Any, named: dict[str, Any]) -> Any:
    """Where windows leave gaps, what lies in them gets a gradient."""
    stride, kernel = named.get("stride"), named.get("kernel_size")
    if not stride or not kernel or all(s <= k for s, k in zip(stride, kernel, strict=False)):
        return grad
    return cd.where(grad == 0, cd.full_like(grad, 0.25), grad)


def _rule(op: str, wrong: Any, says: str, variant: str, *ops: str) -> dict[str, Any]:
    return {
        "patch": lambda: faulty_rule(op, wrong),
        "ops": ops or (op,),
        "checks": (12,),
        "cases": variant,
        "says": says,
    }


#: name -> fields of the mutant
SPECIAL_INPUTS: dict[str, dict[str, Any]] = {
    "two zeros in a row (cumprod)": _rule("cumprod", _two_zeros, "jumps", "zeros"),
    "a singular matrix has no gradient (matrix_exp)": _rule(
        "matrix_exp", _singular, "jumps", "singular"
    ),
    "NaN is equal to nothing (amax)": _rule(
        "amax", _nan_is_equal_to_nothing, "among nan", "chosen"
    ),
    "gaps between windows have a gradient (avg_pool)": _rule(
        "avg_pool", _beyond_its_kernel, "differs from numerical", "options", "avg_pool2d"
    ),
}
