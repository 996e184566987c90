"""``all_reduce`` of sparse matrices: rows for the layout ``sparse_csr``.

The ranks have elements at different places. Each tells how many it has, then all get the places and
values of all, and add up those of one place in the order of the ranks.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.distributed.carriers import check_reduction, divided
from coredispatch.frontend.distributed.process_group import LAST, ProcessGroup
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.modes import no_grad
from coredispatch.plugin import from_raw, to_raw
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError

__all__ = ["serve_sparse"]

_LAYOUT = "sparse_csr"


def all_reduce_(tensors: Sequence[Any], op: str, group: ProcessGroup, background: bool) -> None:
    if len(tensors) != 1:
        raise ArgumentError(
            f"all_reduce of {len(tensors)} tensors, some of which are sparse",
            fix="call all_reduce for each of them",
        )
    (tensor,) = tensors
    raw = to_raw(tensor)
    if op not in ("sum", "avg"):
        raise ArgumentError(
            f"all_reduce of a sparse tensor with ReduceOp.{op.upper()}, which elements that are "
            "not stored would have a part in",
            fix="use ReduceOp.SUM or AVG, or all_reduce(tensor.to_dense())",
        )
    check_reduction("all_reduce", raw.dtype, op)
    what = f"all_reduce(sparse {raw.dtype}{list(raw.shape)})"
    counts = _counts(raw, group, f"{what}: the numbers of elements")
    width = 8 + raw.dtype.itemsize
    every = np.empty(sum(counts) * width, np.uint8)

    def finish() -> None:
        made = _joined(raw, every, counts, op == "avg")
        with no_grad():
            tensor.copy_(from_raw(made, keys_like=tensor, layout=_LAYOUT))

    work = group.launch(
        "cpu",
        "all_gather",
        (every, _message(raw), [count * width for count in counts]),
        what,
        finish=[finish],
        background=background,
        details=lambda: op,
    )
    if background:
        assert isinstance(work, Work)
        LAST.work = work


def all_reduce(self: Any, op: str, group: ProcessGroup) -> Any:
    out = self.clone()
    all_reduce_([out], op, group, False)
    return out


def _counts(raw: Any, group: ProcessGroup, what: str) -> list[int]:
    """How many elements each rank has. ArgumentError where shapes or dtypes differ."""
    kind = zlib.crc32(raw.dtype.name.encode())
    own = np.array([len(raw.values), *raw.shape, kind], np.int64)
    table = np.empty((group.size(), len(own)), np.int64)
    group.launch("cpu", "all_gather", (table, own, [len(own)] * group.size()), what)
    for rank, row in enumerate(table):
        if (row[1:] != own[1:]).any():
            its = f"the shape {row[1:-1].tolist()}" if row[-1] == kind else "another dtype"
            raise ArgumentError(
                f"all_reduce: rank {group.rank()} of the group has a sparse tensor of "
                f"{raw.dtype}{list(raw.shape)}, and rank {rank} has one of {its}",
                fix="use the same shape and dtype on all ranks",
            )
    counts: list[int] = table[:, 0].tolist()
    return counts


def _message(raw: Any) -> Any:
    """Where the elements are, counted row by row, and behind it their values."""
    rows = np.repeat(np.arange(raw.shape[0]), np.diff(raw.crow_indices))
    places = (rows * raw.shape[1] + raw.col_indices).astype(np.int64)
    values = np.ascontiguousarray(raw.values)
    return np.concatenate([places.view(np.uint8), values.view(np.uint8)])


def _joined(raw: Any, every: Any, counts: list[int], average: bool) -> Any:
    """The sum of what all ranks have, as raw data like `raw`."""
    dtype, at = raw.dtype, 0
    places, values = [], []
    for count in counts:
        places.append(every[at : at + 8 * count].view(np.int64))
        at += 8 * count
        values.append(every[at : at + dtype.itemsize * count].copy().view(dtype))
        at += dtype.itemsize * count
    place = np.concatenate(places)
    order = np.argsort(place, kind="stable")
    place, first = np.unique(place[order], return_index=True)
    value = np.concatenate(values)[order]
    if dtype.name in ("float16", "bfloat16"):
        value = value.astype(np.float32)
    if len(first):
        with np.errstate(all="ignore"):
            value = np.add.reduceat(value, first)
            value = divided(value, len(counts)) if average else value
            value = value.astype(dtype)
    rows, columns = raw.shape
    index = raw.col_indices.dtype
    crow = np.zeros(rows + 1, index)
    np.cumsum(np.bincount(place // max(columns, 1), minlength=rows), out=crow[1:])
    return type(raw)(crow, (place % max(columns, 1)).astype(index), value, raw.shape)


_serving = threading.Lock()
_served = False


def serve_sparse() -> None:
    """Register the rows, once, where the plugin that brings the layout is there."""
    global _served
    with _serving:
        if _served or _LAYOUT not in TABLE.snapshot.order.by_name:
            return
        registrar = Registrar("distributed over sparse tensors")
        rows: dict[str, Callable[..., Any]] = {
            "c10d::all_reduce": all_reduce,
            "c10d::all_reduce_": all_reduce_,
        }
        registrar.kernels(_LAYOUT, rows, backend="cpu", boxed=True)
        registrar.commit()
        _served = True
