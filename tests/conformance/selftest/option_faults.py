"""Curated faults of options: calls away from the defaults, and options that meet.

Each kernel is right wherever its options have their defaults, or are the same in every dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd

__all__ = ["CHECKS", "OPTIONS", "options_of", "with_options"]

Change = Callable[[dict[str, Any]], dict[str, Any]]
#: the checks that compare values: of samples, layouts, writes, decompositions, options and views
CHECKS = (1, 3, 4, 5, 7, 8, 9, 24, 33)


def options_of(op: str, raws: Any) -> dict[str, Any]:
    """The arguments of a kernel by the names of their parameters."""
    params = getattr(cd.ops, op).schema.params
    return {p.name: raws[i] if i < len(raws) else p.default for i, p in enumerate(params)}


def with_options(op: str, correct: Any, raws: Any, **changes: Any) -> Any:
    """What the correct kernel gives with other values of some options."""
    return correct(*{**options_of(op, raws), **changes}.values())


def _changed(op: str, change: Change) -> Any:
    """A kernel that sees other options than it was given; ``change`` names those it mistakes."""

    def fault(correct: Any, raws: Any) -> Any:
        return with_options(op, correct, raws, **change(options_of(op, raws)))

    return fault


def _single(values: Any, place: int) -> Any:
    """The entry at ``place`` in every dimension."""
    return tuple(values[place] for _ in values) if len(values) > 1 else values


# ---- options that differ in each dimension ------------------------------------------------------


def last_of(*names: str) -> Change:
    """The last dimension's entry is taken for all."""
    return lambda o: {n: _single(o[n], -1) for n in names}


def first_of(*names: str) -> Change:
    """The first dimension's entry is taken for all."""
    return lambda o: {n: _single(o[n], 0) for n in names}


def swapped(*names: str) -> Change:
    """The entries are read from the last dimension to the first."""
    return lambda o: {n: tuple(reversed(o[n])) for n in names}


def _plain_where(*conditions: tuple[str, Any], **wrong: Any) -> Change:
    """Options ``wrong`` where every one of the ``conditions`` is away from its plain value."""

    def away(value: Any, plain: Any) -> bool:
        if isinstance(value, (tuple, list)):
            return any(v != plain for v in value)
        return bool(value != plain)

    def change(o: dict[str, Any]) -> dict[str, Any]:
        if not all(away(o[name], plain) for name, plain in conditions):
            return {}
        return {
            name: tuple(value for _ in o[name]) if isinstance(o[name], (tuple, list)) else value
            for name, value in wrong.items()
        }

    return change


# ---- options of reductions ----------------------------------------------------------------------


def nothing_is_no_dimension(correct: Any, raws: Any) -> Any:
    """``dim=()`` reduces nothing instead of everything."""
    x, dim = raws[0], raws[1] if len(raws) > 1 else None
    if dim is not None and not isinstance(dim, int) and len(dim) == 0 and x.ndim:
        return np.array(x)
    return correct(*raws)


def one_correction(op: str) -> Any:
    """Every correction but 0 is 1."""
    return _changed(op, lambda o: {"correction": 1} if o["correction"] else {})


def bounded_correction(op: str) -> Any:
    """A correction beyond the count counts as one less than it."""

    def change(o: dict[str, Any]) -> dict[str, Any]:
        dims, shape = o["dim"], o["self"].shape
        dims = (dims,) if isinstance(dims, int) else dims
        whole = not dims or not shape
        count = int(np.prod(shape if whole else [shape[d] for d in dims]))
        correction = o["correction"]
        return {"correction": count - 1} if correction and correction >= count else {}

    return _changed(op, change)


def reversed_ties(correct: Any, raws: Any) -> Any:
    """A descending stable sort turns an ascending one around: ties come last first."""
    o = options_of("sort", raws)
    if not o["descending"] or not o["stable"] or not o["self"].ndim:
        return correct(*raws)
    values, index = with_options("sort", correct, raws, descending=False)
    dim = o["dim"]
    return np.flip(values, dim).copy(), np.flip(index, dim).copy()


# ---- indices ------------------------------------------------------------------------------------


def wrapped_twice(correct: Any, raws: Any) -> Any:
    """A negative index wraps once too often: -1 is the last but one."""

    def off(index: Any) -> Any:
        if isinstance(index, np.ndarray) and index.dtype.kind == "i" and index.size:
            return np.where(index < 0, np.maximum(index - 1, -2), index)
        return index

    return correct(raws[0], tuple(off(i) for i in raws[1]), *raws[2:])


def negative_take(correct: Any, raws: Any) -> Any:
    """A negative position is counted from the last but one."""
    x, index = raws
    if x.size < 3 or index.dtype.kind == "b":
        return correct(*raws)
    return correct(x, np.where((index < 0) & (index > -x.size), index - 1, index))


def last_wins_put(correct: Any, raws: Any) -> Any:
    """Values that meet at one place overwrite each other instead of adding up."""
    x, indices, values, accumulate = (*raws, False)[:4]
    if not accumulate or x.dtype.kind == "b" or np.ndim(values) == 0:
        return correct(*raws)
    base = correct(np.zeros_like(x), indices, values, False)
    return np.asarray(x + base).astype(x.dtype)


def last_wins_add(correct: Any, raws: Any) -> Any:
    """Rows that are added to the same row overwrite each other."""
    o = options_of("index_add", raws)
    x, dim, index, source, alpha = (o[k] for k in ("self", "dim", "index", "source", "alpha"))
    if x.ndim == 0 or x.dtype.kind == "b":
        return correct(*raws)
    result = np.array(x)
    at: list[Any] = [slice(None)] * x.ndim
    for i, row in enumerate(index):
        at[dim] = int(row)
        where: list[Any] = [slice(None)] * x.ndim
        where[dim] = i
        result[tuple(at)] = x[tuple(at)] + source[tuple(where)] * x.dtype.type(alpha)
    return result


def last_wins_scatter(correct: Any, raws: Any) -> Any:
    """Elements that are added to the same place overwrite each other."""
    x, dim, index, src = raws
    if x.ndim == 0 or x.dtype.kind == "b" or not index.size:
        return correct(*raws)
    held = np.zeros_like(x)
    for at in np.ndindex(*index.shape):
        place = [*at]
        place[dim] = int(index[at])
        held[tuple(place)] = src[at]
    return np.asarray(x + held).astype(x.dtype)


# ---- factors ------------------------------------------------------------------------------------


def multiplied_nan(op: str, name: str, factor: str) -> Any:
    """A factor of 0 multiplies what it switches off: NaN comes through."""

    def fault(correct: Any, raws: Any) -> Any:
        o = options_of(op, raws)
        result = np.asarray(correct(*raws))
        if o[factor] == 0 and result.dtype.kind == "f":
            product = np.asarray(o[name] * o[name].dtype.type(0))
            return np.asarray(result + product.sum() * 0).astype(result.dtype)
        return result

    return fault


def whole_factor(op: str, name: str) -> Any:
    """A factor is truncated to an integer."""
    return _changed(op, lambda o: {name: np.trunc(o[name])})


def only_one(op: str, name: str) -> Any:
    """A factor other than 1 is ignored."""
    return _changed(op, lambda o: {name: 1})


# ---- matrices -----------------------------------------------------------------------------------


def reads_the_other_triangle(correct: Any, raws: Any) -> Any:
    """The mean of both triangles is factorized."""
    x = raws[0]
    return correct(((x + np.conj(np.swapaxes(x, -1, -2))) / 2).astype(x.dtype), *raws[1:])


def upper_when_transposed(correct: Any, raws: Any) -> Any:
    """``upper=`` is ignored for a transposed matrix."""
    o = options_of("linalg_solve_triangular", raws)
    if o["A"].ndim >= 2 and not o["A"].flags.c_contiguous:
        return with_options("linalg_solve_triangular", correct, raws, upper=False)
    return correct(*raws)


def diagonal_read(correct: Any, raws: Any) -> Any:
    """``unitriangular`` divides by the diagonal all the same, from the right."""
    o = options_of("linalg_solve_triangular", raws)
    if o["unitriangular"] and not o["left"]:
        return with_options("linalg_solve_triangular", correct, raws, unitriangular=False)
    return correct(*raws)


def always_lower(correct: Any, raws: Any) -> Any:
    """``UPLO`` is ignored."""
    return correct(raws[0], "L")


# ---- views --------------------------------------------------------------------------------------


def _base_of(array: Any) -> Any:
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner


def _start(array: Any) -> int:
    base = _base_of(array)
    here, there = (a.__array_interface__["data"][0] for a in (array, base))
    return (int(here) - int(there)) // max(array.itemsize, 1)


def lost_offset(correct: Any, raws: Any) -> Any:
    """A view of a strided view is read from the start of its memory."""

    def moved(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.ndim < 2 or x.flags.c_contiguous or x.size < 2:
            return x
        base = _base_of(x)
        if base is x or _start(x) <= 0 or base.dtype != x.dtype:
            return x
        # Where it goes from the end its first element is not the first in memory.
        first = sum(-s * (n - 1) for s, n in zip(x.strides, x.shape, strict=True) if s < 0)
        return np.ndarray(x.shape, x.dtype, base.data, first, x.strides)

    return correct(*map(moved, raws))


def positive_strides(correct: Any, raws: Any) -> Any:
    """A negative stride counts as a positive one."""

    def turned(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or all(s >= 0 for s in x.strides):
            return x
        return x[tuple(slice(None, None, -1 if s < 0 else 1) for s in x.strides)]

    return correct(*map(turned, raws))


def filled_gaps(correct: Any, raws: Any) -> Any:
    """A strided target of several dimensions is written with the gaps of its rows."""
    target = raws[0]
    result = correct(*raws)
    if isinstance(target, np.ndarray) and target.ndim == 2 and target.size:
        row, item = target.strides[0], target.itemsize
        gap = row // item - target.shape[1]
        if target.strides[1] == item and gap > 0 and target.shape[0] > 1:
            base = _base_of(target)
            start = _start(target) + target.shape[1]
            if base is not target and base.dtype == target.dtype and base.flags.writeable:
                base.reshape(-1)[start : start + 1] = target[0, 0]
    return result


def same_memory(a: Any, b: Any) -> bool:
    """Whether two arguments are one tensor."""
    both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    if not both or a.size < 2 or a.shape != b.shape or a.strides != b.strides:
        return False
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


def one_for_itself(correct: Any, raws: Any) -> Any:
    """A tensor divided by itself is 1, also where it is 0, infinite or NaN."""
    result = correct(*raws)
    return np.ones_like(result) if same_memory(*raws[:2]) else result


def zero_for_itself(correct: Any, raws: Any) -> Any:
    """A tensor less itself is 0, also where it is infinite or NaN."""
    result = correct(*raws)
    return np.zeros_like(result) if same_memory(*raws[:2]) else result


def symmetric_product(correct: Any, raws: Any) -> Any:
    """The product of a matrix with itself is taken for that with its transpose."""
    a, b = raws[:2]
    if same_memory(a, b) and a.ndim == 2:
        return correct(a, np.ascontiguousarray(a.T))
    return correct(*raws)


def forward_copy(correct: Any, raws: Any) -> Any:
    """What overlaps is copied from the front, and meets what it wrote."""
    target, source = raws[:2]
    if (
        isinstance(source, np.ndarray)
        and target.ndim == 1
        and source.shape == target.shape
        and target.size > 1
        and not same_memory(target, source)
        and np.shares_memory(target, source)
    ):
        for i in range(target.size):
            target[i] = source[i]
        return None
    return correct(*raws)


# ---- bounds and modes ---------------------------------------------------------------------------


def lower_bound_wins(correct: Any, raws: Any) -> Any:
    """Where the bounds cross, the lower one is the result."""
    x, low, high = (*raws, None, None)[:3]
    if low is None or high is None:
        return correct(*raws)
    return correct(correct(x, None, high), low, None)


def zero_for_no_bound(correct: Any, raws: Any) -> Any:
    """Without a lower bound, the lower bound is 0."""
    x, low, high = (*raws, None, None)[:3]
    if low is None and high is not None and x.dtype.kind in "if":
        return correct(correct(x, 0, None), None, high)
    return correct(*raws)


def default_eps(op: str) -> Any:
    """``eps`` is the default, whatever was asked for."""
    return _changed(op, lambda o: {"eps": 1e-5})


def unweighted_mean(correct: Any, raws: Any) -> Any:
    """The mean of weighted losses divides by their number, not by the weights."""
    o = options_of("cross_entropy", raws)
    if o["weight"] is None or o["reduction"] != "mean":
        return correct(*raws)
    total = np.asarray(with_options("cross_entropy", correct, raws, reduction="sum"))
    target = o["target"]
    kept = target != o["ignore_index"] if target.dtype.kind == "i" else np.ones(target.shape[:1])
    return np.asarray(total / max(int(np.sum(kept)), 1)).astype(total.dtype)


def _option(
    op: str, *others: str, says: str = "", cases: str = "", **details: Any
) -> dict[str, Any]:
    return {
        "op": op,
        "ops": (*others, op) if others else (op,),
        "checks": CHECKS,
        "says": says,
        "cases": cases,
        **details,
    }


_CONV = ("conv1d", "conv2d", "conv3d")
#: name -> (mutation, fields of the mutant)
OPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dilation of the last dimension for all (convolution)": (
        _changed("convolution", last_of("dilation")),
        _option("convolution", "conv2d"),
    ),
    "dilation of the first dimension for all (convolution)": (
        _changed("convolution", first_of("dilation")),
        _option("convolution", "conv2d"),
    ),
    "strides swapped (convolution)": (
        _changed("convolution", swapped("stride")),
        _option("convolution", "conv2d"),
    ),
    "padding of the first dimension for all (convolution)": (
        _changed("convolution", first_of("padding")),
        _option("convolution", "conv2d"),
    ),
    "dilation ignored by a transposed convolution with groups": (
        _changed("convolution", _plain_where(("transposed", False), ("groups", 1), dilation=1)),
        _option("convolution", "conv_transpose2d", "conv_transpose1d"),
    ),
    "output padding swapped (convolution)": (
        _changed("convolution", swapped("output_padding")),
        _option("convolution", "conv_transpose2d"),
    ),
    "groups ignored by the bias (convolution)": (
        _changed("convolution", lambda o: _reversed_bias(o) if o["groups"] > 1 else {}),
        _option("convolution", *_CONV),
    ),
    "padding excluded where the last window is cut (avg_pool)": (
        _changed(
            "avg_pool", _plain_where(("ceil_mode", False), ("padding", 0), count_include_pad=False)
        ),
        _option("avg_pool", "avg_pool2d", "avg_pool1d"),
    ),
    "divisor ignored with padding (avg_pool)": (
        _changed(
            "avg_pool",
            _plain_where(("divisor_override", None), ("padding", 0), divisor_override=None),
        ),
        _option("avg_pool", "avg_pool2d", "avg_pool3d"),
    ),
    "stride of the first dimension for all (avg_pool)": (
        _changed("avg_pool", first_of("stride")),
        _option("avg_pool", "avg_pool2d"),
    ),
    "kernel sizes swapped (avg_pool)": (
        _changed("avg_pool", swapped("kernel_size")),
        _option("avg_pool", "avg_pool2d"),
    ),
    "dilations swapped (max_pool)": (
        _changed("max_pool", swapped("dilation")),
        _option("max_pool", "max_pool2d"),
    ),
    "padding of the last dimension for all (max_pool)": (
        _changed("max_pool", last_of("padding")),
        _option("max_pool", "max_pool2d"),
    ),
    "dilation ignored where the last window is cut (max_pool)": (
        _changed("max_pool", _plain_where(("ceil_mode", False), dilation=1)),
        _option("max_pool", "max_pool2d", "max_pool1d"),
    ),
    "padding swapped in the indices (max_pool)": (
        _changed("max_pool_with_indices", swapped("padding")),
        _option("max_pool_with_indices", "max_pool2d_with_indices"),
    ),
    "dim=() reduces nothing (sum)": (nothing_is_no_dimension, _option("sum")),
    "dim=() reduces nothing (mean)": (nothing_is_no_dimension, _option("mean")),
    "dim=() reduces nothing (amax)": (nothing_is_no_dimension, _option("amax")),
    "dim=() reduces nothing (any)": (nothing_is_no_dimension, _option("any")),
    "every correction is 1 (var)": (one_correction("var"), _option("var")),
    "every correction is 1 (std)": (one_correction("std"), _option("std")),
    "a correction beyond the count is cut (var)": (bounded_correction("var"), _option("var")),
    "a correction beyond the count is cut (std)": (bounded_correction("std"), _option("std")),
    "correction ignored with keepdim (var)": (
        _changed("var", lambda o: {"correction": 1} if o["keepdim"] else {}),
        _option("var"),
    ),
    "ties of a descending stable sort come last first": (reversed_ties, _option("sort")),
    "smallest elements along another dimension (topk)": (
        _changed("topk", lambda o: {"largest": True} if o["dim"] in (0, -2) else {}),
        _option("topk"),
    ),
    "a negative index wraps once too often (index_put)": (wrapped_twice, _option("index_put")),
    "a negative position is one too far (take)": (negative_take, _option("take")),
    "repeated indices: the last one wins (index_put)": (last_wins_put, _option("index_put")),
    "repeated indices: the last one wins (index_add)": (last_wins_add, _option("index_add")),
    "repeated indices: the last one wins (scatter_add)": (
        last_wins_scatter,
        _option("scatter_add"),
    ),
    "alpha ignored (index_add)": (only_one("index_add", "alpha"), _option("index_add")),
    "alpha truncated (index_add)": (whole_factor("index_add", "alpha"), _option("index_add")),
    "beta=0 multiplies NaN (addmm)": (multiplied_nan("addmm", "self", "beta"), _option("addmm")),
    "alpha=0 multiplies NaN (addmm)": (
        multiplied_nan("addmm", "mat1", "alpha"),
        _option("addmm"),
    ),
    "beta=0 multiplies NaN (baddbmm)": (
        multiplied_nan("baddbmm", "self", "beta"),
        _option("baddbmm"),
    ),
    "beta=0 multiplies NaN (addmv)": (multiplied_nan("addmv", "self", "beta"), _option("addmv")),
    "alpha truncated (addmm)": (whole_factor("addmm", "alpha"), _option("addmm")),
    "beta truncated (addmm)": (whole_factor("addmm", "beta"), _option("addmm")),
    "beta ignored where alpha is given (addmm)": (
        _changed("addmm", _plain_where(("alpha", 1), ("beta", 1), beta=1)),
        _option("addmm"),
    ),
    "beta ignored where alpha is given (baddbmm)": (
        _changed("baddbmm", _plain_where(("alpha", 1), ("beta", 1), beta=1)),
        _option("baddbmm"),
    ),
    "the other triangle is read (cholesky)": (reads_the_other_triangle, _option("cholesky")),
    "the other triangle is read (linalg_eigh)": (
        reads_the_other_triangle,
        _option("linalg_eigh", "linalg_eigvalsh"),
    ),
    "UPLO ignored (linalg_eigh)": (always_lower, _option("linalg_eigh", "linalg_eigvalsh")),
    "upper ignored for a transposed matrix": (
        upper_when_transposed,
        _option("linalg_solve_triangular"),
    ),
    "unitriangular ignored from the right": (diagonal_read, _option("linalg_solve_triangular")),
    "the offset of a view of a view is lost (exp)": (lost_offset, _option("exp")),
    "the offset of a view of a view is lost (sum)": (lost_offset, _option("sum")),
    "the offset of a view of a view is lost (matmul)": (lost_offset, _option("matmul")),
    "a negative stride counts as a positive one (mul)": (positive_strides, _option("mul")),
    "a negative stride counts as a positive one (sum)": (positive_strides, _option("cumsum")),
    "the gaps of a strided target are written (copy_)": (
        filled_gaps,
        _option("copy_", "add", "cumsum", says="beside"),
    ),
    "a tensor divided by itself is 1": (one_for_itself, _option("div")),
    "a tensor less itself is 0": (zero_for_itself, _option("sub")),
    "a matrix times itself is taken for times its transpose": (
        symmetric_product,
        _option("matmul"),
    ),
    "an overlapping copy meets what it wrote": (forward_copy, _option("copy_", "add", "backend")),
    "crossing bounds: the lower one wins (clamp)": (lower_bound_wins, _option("clamp")),
    "no lower bound is a lower bound of 0 (clamp)": (zero_for_no_bound, _option("clamp")),
    "eps is the default (layer_norm)": (default_eps("layer_norm"), _option("layer_norm")),
    "eps is the default (group_norm)": (default_eps("group_norm"), _option("group_norm")),
    "the mean of weighted losses divides by their number": (
        unweighted_mean,
        _option("cross_entropy"),
    ),
    "threshold ignored with beta (softplus)": (
        _changed("softplus", _plain_where(("beta", 1.0), ("threshold", 20.0), threshold=20.0)),
        _option("softplus"),
    ),
    "approximate ignored (gelu)": (
        _changed("gelu", lambda o: {"approximate": "none"}),
        _option("gelu"),
    ),
    "diagonal of swapped dimensions has the other sign (diagonal)": (
        _changed("diagonal", lambda o: {"offset": -o["offset"]} if _crossed(o) else {}),
        _option("diagonal"),
    ),
    "shifts of several dimensions swapped (roll)": (
        _changed("roll", swapped("shifts")),
        _option("roll"),
    ),
    "only the first of several dimensions is turned (flip)": (
        _changed("flip", lambda o: {"dims": tuple(o["dims"])[:1]}),
        _option("flip"),
    ),
    "padding of the front and of the back swapped (constant_pad_nd)": (
        _changed("constant_pad_nd", lambda o: {"pad": _turned_pad(o["pad"])}),
        _option("constant_pad_nd"),
    ),
    "include_self ignored by the mean (scatter_reduce)": (
        _changed(
            "scatter_reduce", lambda o: {"include_self": True} if o["reduce"] == "mean" else {}
        ),
        _option("scatter_reduce"),
    ),
    "label smoothing ignored with weights (cross_entropy)": (
        _changed(
            "cross_entropy",
            lambda o: {"label_smoothing": 0.0} if o["weight"] is not None else {},
        ),
        _option("cross_entropy"),
    ),
    "keepdim ignored without a dimension (argmax)": (
        _changed("argmax", lambda o: {"keepdim": False} if o["dim"] is None else {}),
        _option("argmax"),
    ),
}


def _reversed_bias(o: dict[str, Any]) -> dict[str, Any]:
    return {} if o["bias"] is None else {"bias": o["bias"][::-1].copy()}


def _crossed(o: dict[str, Any]) -> bool:
    ndim = o["self"].ndim
    return bool(o["dim1"] % ndim > o["dim2"] % ndim)


def _turned_pad(pad: Any) -> Any:
    found = list(pad)
    for i in range(0, len(found) - 1, 2):
        found[i], found[i + 1] = found[i + 1], found[i]
    return tuple(found)
