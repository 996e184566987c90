"""Embedding: rows of a table by index, one by one or summed by bag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn
from coredispatch.ops.nn.backward_reference import (
    embedding_backward_reference,
    embedding_backward_samples,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import greatest, least
from coredispatch.ops.support.plugin_operators import plugin_operator
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, exact, require_one_of, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType, int64
from coredispatch.registry.model.errors import (
    ArgumentError,
    DimError,
    DTypeError,
    RequirementError,
    ShapeError,
)
from coredispatch.registry.model.value import dtype_of


def _embedding_shape(input: Any, weight: Any, *_: Any) -> tuple[int, ...]:
    if weight.ndim != 2:
        raise ShapeError(
            f"weight must be a matrix, and has {weight.ndim} dimensions",
            fix="use (num_embeddings, embedding_dim)",
        )
    dtype = DType.of(input.dtype)
    if dtype.name not in ("int32", "int64"):
        raise DTypeError(
            f"indices must be int64 or int32, and have dtype {dtype}",
            fix="convert them with .long()",
        )
    return (*input.shape, weight.shape[1])


def _row_dtype(input: Any, weight: Any, *_: Any) -> DType:
    return DType.of(weight.dtype)


def _padding(padding_idx: int | None, rows: int) -> int | None:
    """``padding_idx`` counted from the front. Raises :class:`ArgumentError` out of range."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise RequirementError(
            f"padding_idx={padding_idx} is out of range for {rows} embeddings",
            fix=f"use {-rows} to {rows - 1}, or None",
        )
    return padding_idx % rows


def require_sparse_layout(sparse: bool) -> None:
    """Raise ``RuntimeError`` for ``sparse=True`` where no plugin brings sparse tensors."""
    if sparse:
        plugin_operator("csr_assemble", "sparse gradients", "coredispatch-sparse")


def _reference(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows by index."""
    return weight[input]


def _embedding_reference(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    *_: Any,
    **__: Any,
) -> Any:
    """Rows by index, those too long scaled down."""
    rows = weight[input]
    if max_norm is None:
        return rows
    norm = (np.abs(rows) ** norm_type).sum(-1, keepdims=True) ** (1 / norm_type)
    return rows * np.minimum(max_norm / (norm + 1e-7), 1)


def _embedding_samples(make: Any) -> Iterator[Sample]:
    """As :func:`_samples`, with PyTorch's order of options."""
    for sample in _samples(make):
        yield Sample(*sample.args[:3])


def _samples(make: Any) -> Iterator[Sample]:
    """Indices of any shape, repeated ones, an empty one, a padding row."""
    for shape in ((), (5,), (3, 4), (0,), (2, 3, 2)):
        yield Sample(make.index(shape, 7), make((7, 3)))
    # The padding row does not occur: its gradient, 0, is then the derivative as well.
    yield Sample(make.index((17,), 3), make((4, 5)), 3)
    yield Sample(make.index((4,), 1), make((1, 1)))


def _errors(make: Any) -> Iterator[tuple[Sample, type[Exception], str]]:
    """Indices out of range on either side, and of a floating dtype."""
    weight = make((3, 2))
    yield Sample(np.array([0, 3]), weight), IndexError, "out of range"
    yield Sample(np.array([0, -1]), weight), IndexError, "out of range"
    yield Sample(np.array([0.0, 1.0]), weight), TypeError, "indices must be int64 or int32"


def _check_range(indices: Tensor, rows: int) -> None:
    if indices.numel() and indices.device.type != "meta":
        low, high = int(least(indices)), int(greatest(indices))
        if low < 0 or high >= rows:
            raise DimError(
                f"index {low if low < 0 else high} is out of range for {rows} embeddings",
                fix=f"use indices from 0 to {rows - 1}",
            )


@composite(
    out=_embedding_shape,
    dtype=_row_dtype,
    reference=_reference,
    samples=_samples,
    errors=_errors,
    dtypes="float",
    tolerance=exact,
    unbroadcast=False,
    namespace=(),
)
def embedding_lookup(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (``(V, D)``) by the int32 or int64 indices ``input``: ``(*, D)``.

    The row ``padding_idx`` (0 or more) gets no gradient; ``scale_grad_by_freq`` divides each row's
    gradient by how often it was used. With ``sparse`` the gradient is a sparse tensor of the rows
    used. Raises ``DimError`` for an index out of range.
    """
    require_sparse_layout(sparse)
    _embedding_shape(input, weight)
    _check_range(input, weight.shape[0])
    rows = weight.index_select(0, input.reshape(-1))
    return rows.reshape(*input.shape, weight.shape[1])


def _table_gradient(
    grad: Any, input: Any, weight_shape: Any, padding_idx: Any, scale_grad_by_freq: Any, sparse: Any
) -> Any:
    if sparse:
        return _sparse_gradient(grad, input, weight_shape, padding_idx, scale_grad_by_freq)
    return lazy.embedding_backward(grad, input, weight_shape[0], padding_idx, scale_grad_by_freq)


def _sparse_gradient(
    grad: Tensor, input: Tensor, shape: Any, padding_idx: int | None, scaled: bool
) -> Tensor:
    """The rows of ``grad`` by index, added, as a sparse matrix of the rows that occur."""
    assemble = plugin_operator("csr_assemble", "sparse gradients", "coredispatch-sparse")
    count, width = shape
    flat, rows = input.reshape(-1), grad.reshape(-1, width)
    if padding_idx is not None:
        kept = (flat != padding_idx).nonzero().squeeze(1)
        flat, rows = flat.index_select(0, kept), rows.index_select(0, kept)
    used, inverse, times = lazy.unique(flat.long(), return_inverse=True, return_counts=True)
    total = rows.new_zeros((used.shape[0], width)).index_add(0, inverse, rows)
    if scaled:
        total = total / times.to(total.dtype).unsqueeze(1)
    ends = (lazy.bincount(used, minlength=count) * width).cumsum(0)
    columns = lazy.arange(width, device=grad.device).expand(used.shape[0], width).reshape(-1)
    return assemble(
        lazy.cat([ends.new_zeros((1,)), ends]), columns, total.reshape(-1), (count, width)
    )


embedding_lookup.vjp(weight=_table_gradient)


@composite(
    reference=embedding_backward_reference,
    samples=embedding_backward_samples,
    dtypes="float",
    namespace=(),
)
def embedding_backward(
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
) -> Tensor:
    """Gradient of the table, ``(num_weights, D)``: the rows of ``grad_output`` by index, added."""
    width = grad_output.shape[-1]
    flat = indices.reshape(-1)
    rows = grad_output.reshape(flat.shape[0], width)
    if padding_idx is not None:
        rows = rows.masked_fill((flat == padding_idx).unsqueeze(-1), 0)
    total = grad_output.new_zeros((num_weights, width)).index_add(0, flat, rows)
    if scale_grad_by_freq:
        ones = lazy.ones_like(flat).to(total.dtype)
        counts = total.new_zeros((num_weights,)).index_add(0, flat, ones)
        total = total / counts.clamp_min(1).unsqueeze(-1)
    return total


@composite(
    dtype=same,
    samples=lambda make: (
        Sample(make((7, 3)), np.array([0, 5, 5, 2]), 1.0, 2.0),
        Sample(make((4, 5)), np.array([[1], [3]]), 0.5, 1.0),
    ),
    dtypes="float",
    tolerance=conditioned,
    differentiable=False,
    mutates=("self",),
    namespace=(),
)
def embedding_renorm_(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of ``self`` that ``indices`` names, in place, to at most ``max_norm``."""
    if self.ndim != 2:
        raise ShapeError(
            f"expected a 2-dimensional tensor of rows, got shape {tuple(self.shape)}",
            fix="use (number, features)",
        )
    used = indices.reshape(-1)
    rows = self.index_select(0, used)
    norm = (rows.abs() ** norm_type).sum(-1, True) ** (1 / norm_type)
    # PyTorch's 1e-7 keeps the scaled norm from rounding above the limit.
    return self.index_copy_(0, used, rows * (max_norm / (norm + 1e-7)).clamp_max(1))


@composite(
    reference=_embedding_reference,
    samples=_embedding_samples,
    errors=_errors,
    mutates={"weight": lambda max_norm: max_norm is not None},
    dtypes="float",
    tolerance=conditioned,
    namespace=("nn.functional",),
)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (``(V, D)``) by the int32 or int64 indices ``input``: ``(*, D)``.

    The row ``padding_idx``, which may count from the end, gets no gradient; ``scale_grad_by_freq``
    divides each row's gradient by how often it was used. With ``max_norm`` the rows used are first
    scaled down, in place, to at most that ``norm_type``-norm. Raises ``DimError`` for an index out
    of range, ``DTypeError`` for other indices. With ``sparse`` the gradient of ``weight`` is a
    sparse tensor, which needs the plugin coredispatch-sparse.
    """
    require_sparse_layout(sparse)
    row = _padding(padding_idx, weight.shape[0])
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    return embedding_lookup(input, weight, row, scale_grad_by_freq, sparse)


# ---- bags -------------------------------------------------------------------------------------


def _bag_reference(
    input: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    padding_idx: Any = None,
    sparse: bool = False,
) -> Any:
    """Bag by bag."""
    if input.ndim == 2:
        bags = list(input)
        shares = None if per_sample_weights is None else list(per_sample_weights)
    else:
        bags = np.split(input, offsets[1:])
        shares = None if per_sample_weights is None else np.split(per_sample_weights, offsets[1:])
    rows = []
    for i, bag in enumerate(bags):
        kept = np.ones(len(bag), bool) if padding_idx is None else bag != padding_idx
        taken = weight[bag[kept]]
        if shares is not None:
            taken = taken * shares[i][kept][:, None]
        if not len(taken):
            rows.append(np.zeros(weight.shape[1]))
        else:
            rows.append(getattr(taken, mode)(0))
    return np.stack(rows)


def _bag_samples(make: Any) -> Iterator[Sample]:
    """Bags by offsets (one of them empty) and by rows; every mode; weights; padding.

    The offsets stay valid in any order: the suite permutes the contents of its arrays.
    """
    for mode in ("sum", "mean", "max"):
        yield Sample(make.index((7,), 5), make((5, 3)), np.array([0, 0]), mode)
        yield Sample(make.index((3, 4), 5), make((5, 3)), None, mode)
        yield Sample(make.index((3, 4), 5), make((5, 3)), None, mode, None, 2)
    yield Sample(make.index((7,), 5), make((5, 3)), np.array([0]), "sum", make((7,)))


@composite(
    reference=_bag_reference,
    samples=_bag_samples,
    dtypes="float",
    tolerance=conditioned,
    smooth=False,
    namespace=("nn.functional",),
)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    padding_idx: int | None = None,
    sparse: bool = False,
) -> Tensor:
    """Embeddings of each bag of indices, summed, averaged or maximized: ``(bags, D)``.

    ``input`` is ``(bags, L)``, or 1-d with the start of each bag in ``offsets``.
    ``per_sample_weights`` (``mode="sum"`` only) has the input's shape. Entries equal to
    ``padding_idx`` do not count; an empty bag gives zeros. Raises ``ArgumentError`` for an unknown
    mode, ``ShapeError`` for missing or superfluous offsets.
    """
    if dtype_of(weight) is int64 and dtype_of(input).is_floating_point:
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag("
            "weight, input, ...)` is deprecated, and should now be `embedding_bag(input, weight, "
            "...)`."
        )
        input, weight = weight, input
    require_one_of("mode", mode, ("sum", "mean", "max"))
    if sparse and mode == "max":
        raise ArgumentError("mode='max' has no sparse gradient", fix="leave sparse=False")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f"mode={mode!r} does not take per_sample_weights", fix='use mode="sum"')
    if (input.ndim == 2) == (offsets is not None) or input.ndim not in (1, 2):
        raise ShapeError(
            f"a {input.ndim}-d input does not go "
            f"{'without' if offsets is None else 'with'} offsets",
            fix="use a 2-d input without offsets, or a 1-d input with offsets",
        )
    padding = _padding(padding_idx, weight.shape[0])
    if _no_bags(offsets):  # no index is looked at then
        input = input.narrow(0, 0, 0)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.narrow(0, 0, 0)
    flat = input.reshape(-1)
    like = rows = embedding_lookup(flat, weight, padding, False, sparse)
    if per_sample_weights is not None:
        rows = wide(rows) * wide(per_sample_weights.reshape(-1, 1))
        like = weight if weight.dtype is per_sample_weights.dtype else rows
    bags = _Bags(input, offsets)
    kept = None if padding is None else (flat != padding)
    if mode == "max":
        return bags.maximum(rows, kept)
    rows = wide(rows)  # sums and counts of half precision lose digits
    if kept is not None:
        rows = rows.masked_fill(~kept.unsqueeze(1), 0)
    total = bags.total(rows)
    if mode == "mean":
        total = total / bags.sizes(rows, kept)
    return narrow(total, like)


def _no_bags(offsets: Tensor | None) -> bool:
    return offsets is not None and not offsets.shape[0]


class _Bags:
    """Which of the places in a row of indices make a bag."""

    def __init__(self, input: Tensor, offsets: Tensor | None) -> None:
        self.even = offsets is None
        self.count = input.shape[0] if offsets is None else offsets.shape[0]
        self.length = input.shape[-1]
        self.bag: Any = None
        if offsets is not None:  # the bag of a place is the last one that starts at or before it
            marks = offsets.new_zeros((self.length + 1,))
            marks = marks.index_add(0, offsets, lazy.ones_like(offsets))
            self.bag = marks.cumsum(0).narrow(0, 0, self.length) - 1

    def spread(self, x: Tensor) -> Tensor:
        """A row of ``x`` for each place: that of its bag."""
        if not self.even:
            return x.index_select(0, self.bag)
        shape = (self.count, self.length, *x.shape[1:])
        return x.unsqueeze(1).expand(shape).reshape(self.count * self.length, *x.shape[1:])

    def total(self, rows: Tensor) -> Tensor:
        """The sums of the rows of each bag."""
        if self.even:
            return rows.reshape(self.count, self.length, *rows.shape[1:]).sum(1)
        return rows.new_zeros((self.count, *rows.shape[1:])).index_add(0, self.bag, rows)

    def sizes(self, like: Tensor, kept: Tensor | None) -> Any:
        """How many places of each bag count, at least 1: a number, or a column."""
        if self.even and kept is None:
            return max(self.length, 1)
        places = self.count * self.length if self.even else self.length
        ones = like.new_ones((places, 1)) if kept is None else kept.to(like.dtype).unsqueeze(1)
        return self.total(ones).clamp_min(1)

    def maximum(self, rows: Tensor, kept: Tensor | None) -> Tensor:
        """The largest of the rows of each bag; zeros where it has none."""
        if kept is not None:
            rows = rows.masked_fill(~kept.unsqueeze(1), float("-inf"))
        if self.even and self.length:
            best = rows.reshape(self.count, self.length, rows.shape[1]).amax(1)
        else:
            best = rows.new_zeros((self.count, rows.shape[1]))
            if rows.shape[0]:
                best = best.index_reduce(0, self.bag, rows, "amax", include_self=False)
        if kept is None:
            return best
        return best.masked_fill(self.total(kept.to(rows.dtype).unsqueeze(1)) == 0, 0)


def _bag_weight_grad(
    grad: Tensor,
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    mode: str,
    per_sample_weights: Tensor | None,
    padding_idx: int | None,
    sparse: bool,
) -> Tensor:
    if _no_bags(offsets):
        return lazy.zeros_like(weight)
    count = weight.shape[0]
    padding = _padding(padding_idx, count)
    flat, bags = input.reshape(-1), _Bags(input, offsets)
    grad = wide(grad)
    if mode == "mean":
        kept = None if padding is None else (flat != padding)
        grad = grad / bags.sizes(grad, kept)
    if mode == "max":  # those that are equal share; of a NaN all that are none do
        rows = embedding_lookup(flat, weight.detach(), padding)
        most = (rows == bags.spread(out.detach())) | rows.isnan()
        if padding is not None:
            most = most & (flat != padding).unsqueeze(1)
        times = bags.total(most.to(grad.dtype)).clamp_min(1)
        each = lazy.where(most, bags.spread(grad / times), 0)
    else:
        each = bags.spread(grad)
    if per_sample_weights is not None:
        each = each * wide(per_sample_weights.reshape(-1, 1))
    each = each.to(weight.dtype)
    return _table_gradient(each, flat, tuple(weight.shape), padding, False, sparse)


def _bag_share_grad(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    per_sample_weights: Tensor,
    padding_idx: int | None,
) -> Tensor:
    if _no_bags(offsets):
        return lazy.zeros_like(per_sample_weights)
    padding = _padding(padding_idx, weight.shape[0])
    flat = input.reshape(-1)
    each = wide(embedding_lookup(flat, weight, padding)) * _Bags(input, offsets).spread(wide(grad))
    if padding is not None:
        each = each.masked_fill((flat == padding).unsqueeze(1), 0)
    return each.sum(1).reshape(per_sample_weights.shape).to(per_sample_weights.dtype)


embedding_bag.vjp(weight=_bag_weight_grad, per_sample_weights=_bag_share_grad)


@embedding_bag.overload
def _(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    # PyTorch's whole signature; what is left of it after the rows were shrunk is the operator.
    require_sparse_layout(sparse)
    if scale_grad_by_freq:
        raise ArgumentError(
            "embedding_bag does not divide gradients by frequency, and scale_grad_by_freq=True "
            "was given",
            fix="leave scale_grad_by_freq=False",
        )
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    if include_last_offset and offsets is not None:
        offsets = offsets[:-1]
    return embedding_bag(
        input,
        weight,
        offsets,
        mode=mode,
        per_sample_weights=per_sample_weights,
        padding_idx=padding_idx,
        sparse=sparse,
    )
