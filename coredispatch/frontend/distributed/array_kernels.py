"""The rows of the collectives: arrays of NumPy, or of a library that follows it, on any engine.

Those for NumPy are registered with the operators, others with the first group of their key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.distributed.carriers import (
    LIBRARIES,
    bits,
    check_reduction,
    check_writable,
    contiguous,
    entry_of,
    joined,
    library_of,
    reduced,
    settle,
)
from coredispatch.frontend.distributed.operators import OPERATORS, all_select
from coredispatch.frontend.distributed.process_group import LAST, ProcessGroup
from coredispatch.frontend.distributed.work import Work
from coredispatch.registry.dispatch.registrar import Registrar

__all__ = ["KERNELS", "serve"]


class _Text:
    """Words about a call, made when somebody reads them: NumPy takes long to name a dtype."""

    __slots__ = ("_arrays", "_end", "_name")

    def __init__(self, name: str, arrays: Sequence[Any], end: str = "") -> None:
        self._name, self._arrays, self._end = name, arrays, end

    def __str__(self) -> str:
        more = ", ...)" if len(self._arrays) > 2 else ")"
        return f"{self._name}({_shown(self._arrays[:2])}{more}{self._end}"


def _shown(arrays: Sequence[Any]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)


def _what(name: str, *arrays: Any, end: str = "") -> _Text:
    return _Text(name, arrays, end)


def _key(array: Any) -> str:
    """The backend key of an array."""
    return entry_of(array)[0]


def _go(
    like: Any,
    group: ProcessGroup,
    name: str,
    args: tuple[Any, ...],
    what: object,
    background: bool,
    *finish: Any,
    details: Callable[[], str] | None = None,
) -> None:
    work = group.launch(
        _key(like), name, args, what, finish=finish, background=background, details=details
    )
    if background:
        assert isinstance(work, Work)
        LAST.work = work


# ---- forms that write -------------------------------------------------------------------------


def all_reduce_(tensors: Sequence[Any], op: str, group: ProcessGroup, background: bool) -> None:
    if not tensors:
        raise ValueError("all_reduce of no tensors\n  fix: pass at least one")
    for array in tensors:
        check_reduction("all_reduce", array.dtype, op)
    if len(tensors) == 1:
        target, back = tensors[0], None
    else:
        check_writable(*tensors)
        target, back = joined(tensors, read=True)
    carried, engine_op = reduced(target, op)
    _go(
        target,
        group,
        "all_reduce",
        (carried, engine_op),
        _Text("all_reduce", tensors),
        background,
        settle(target, carried, op, group.size()),
        back,
        details=lambda: f"{op} {_shown(tensors)}",
    )


def broadcast_(self: Any, src: int, group: ProcessGroup, background: bool) -> None:
    carried, back = contiguous(self, read=True, written=True)
    what = _what("broadcast", self)
    _go(
        self,
        group,
        "broadcast",
        (carried, src),
        what,
        background,
        back,
        details=lambda: f"from {src}",
    )


def reduce_(self: Any, dst: int, op: str, group: ProcessGroup, background: bool) -> None:
    check_reduction("reduce", self.dtype, op)
    carried, engine_op = reduced(self, op)
    mine = group.rank() == dst
    if not mine and library_of(self).shares_memory(carried, self):
        carried = carried.copy()  # engines may use it, and the caller keeps its own
    done = settle(self, carried, op, group.size()) if mine else None
    args = (carried, dst, engine_op)
    what = _what("reduce", self)
    _go(self, group, "reduce", args, what, background, done, details=lambda: f"to {dst} {op}")


def all_gather_(outputs: Sequence[Any], self: Any, group: ProcessGroup, background: bool) -> None:
    flat, back = joined(outputs, read=False)
    carried, _ = contiguous(self, read=True, written=False)
    args = (bits(flat), carried, [out.size for out in outputs])
    _go(
        self,
        group,
        "all_gather",
        args,
        _what("all_gather", self),
        background,
        back,
        details=lambda: _shown(outputs),
    )


def all_gather_into_(output: Any, self: Any, group: ProcessGroup, background: bool) -> None:
    target, back = contiguous(output, read=False, written=True)
    carried, _ = contiguous(self, read=True, written=False)
    args = (target, carried, [self.size] * group.size())
    what = _what("all_gather_into_tensor", self)
    _go(self, group, "all_gather", args, what, background, back, details=lambda: _shown([self]))


def reduce_scatter_(
    output: Any, inputs: Sequence[Any], op: str, group: ProcessGroup, background: bool
) -> None:
    flat, _ = joined(inputs, read=True)
    counts = [array.size for array in inputs]
    what = _what("reduce_scatter", output)
    _reduce_scatter(output, flat, counts, op, group, background, what)


def reduce_scatter_into_(
    output: Any, self: Any, op: str, group: ProcessGroup, background: bool
) -> None:
    counts = [output.size] * group.size()
    what = _what("reduce_scatter_tensor", output)
    _reduce_scatter(output, self, counts, op, group, background, what)


def _reduce_scatter(
    output: Any,
    array: Any,
    counts: list[int],
    op: str,
    group: ProcessGroup,
    background: bool,
    what: object,
) -> None:
    check_reduction("reduce_scatter", output.dtype, op)
    carried, engine_op = reduced(array, op)
    target = output
    if carried.dtype != output.dtype or not output.flags.c_contiguous:
        target = library_of(output).empty(output.shape, carried.dtype)
    done = settle(output, target, op, group.size())
    args = (target, carried, counts, engine_op)
    _go(
        output,
        group,
        "reduce_scatter",
        args,
        what,
        background,
        done,
        details=lambda: f"{op} {counts}",
    )


def gather_(
    outputs: Sequence[Any], self: Any, dst: int, group: ProcessGroup, background: bool
) -> None:
    carried, _ = contiguous(self, read=True, written=False)
    flat, back, counts = None, None, []
    if outputs:
        flat, back = joined(outputs, read=False)
        flat, counts = bits(flat), [out.size for out in outputs]
    what = _what("gather", self)
    _go(
        self,
        group,
        "gather",
        (flat, carried, counts, dst),
        what,
        background,
        back,
        details=lambda: f"to {dst}",
    )


def scatter_(
    output: Any, inputs: Sequence[Any], src: int, group: ProcessGroup, background: bool
) -> None:
    target, back = contiguous(output, read=False, written=True)
    flat, counts = None, []
    if inputs:
        flat, counts = bits(joined(inputs, read=True)[0]), [array.size for array in inputs]
    args = (target, flat, counts, src)
    _go(
        output,
        group,
        "scatter",
        args,
        _what("scatter", output),
        background,
        back,
        details=lambda: f"from {src}",
    )


def all_to_all_(
    outputs: Sequence[Any], inputs: Sequence[Any], group: ProcessGroup, background: bool
) -> None:
    flat, back = joined(outputs, read=False)
    carried, _ = joined(inputs, read=True)
    counts = [out.size for out in outputs], [array.size for array in inputs]
    args = (bits(flat), bits(carried), *counts)
    _go(
        inputs[0],
        group,
        "all_to_all",
        args,
        _what("all_to_all", *inputs),
        background,
        back,
        details=lambda: "list",
    )


def all_to_all_into_(
    output: Any,
    self: Any,
    out_sizes: Sequence[int],
    in_sizes: Sequence[int],
    group: ProcessGroup,
    background: bool,
) -> None:
    target, back = contiguous(output, read=False, written=True)
    carried, _ = contiguous(self, read=True, written=False)
    row = int(np.prod(self.shape[1:], dtype=np.int64))
    args = (target, carried, [n * row for n in out_sizes], [n * row for n in in_sizes])
    what = _what("all_to_all_single", self)
    _go(self, group, "all_to_all", args, what, background, back, details=lambda: f"rows of {row}")


def send(self: Any, dst: int, tag: int, group: ProcessGroup, background: bool) -> None:
    carried, _ = contiguous(self, read=True, written=False)
    _go(self, group, "send", (carried, dst, tag), _what("send", self, end=f" to {dst}"), background)


def recv_(self: Any, src: int | None, tag: int, group: ProcessGroup, background: bool) -> None:
    carried, back = contiguous(self, read=False, written=True)
    what = _what("recv", self, end=f" from {'any' if src is None else src}")
    work = group.launch(
        _key(self), "recv", (carried, src, tag), what, finish=[back], background=background
    )
    # The receiver wants to know the sender in any case.
    LAST.work = work if isinstance(work, Work) else Work(group, work, what, 0, [])


def barrier(token: Any, group: ProcessGroup, background: bool) -> None:
    _go(token, group, "barrier", (), "barrier()", background, details=lambda: "all")


# ---- functional forms -------------------------------------------------------------------------


def all_reduce(self: Any, op: str, group: ProcessGroup) -> Any:
    out = library_of(self).array(self, order="C")
    all_reduce_([out], op, group, False)
    return out


def broadcast(self: Any, src: int, group: ProcessGroup) -> Any:
    out = library_of(self).array(self, order="C")
    broadcast_(out, src, group, False)
    return out


def reduce(self: Any, dst: int, op: str, group: ProcessGroup) -> Any:
    out = library_of(self).array(self, order="C")
    reduce_(out, dst, op, group, False)
    return out


def all_gather(self: Any, group: ProcessGroup) -> Any:
    out = library_of(self).empty((group.size(), *self.shape), self.dtype)
    all_gather_into_(out, self, group, False)
    return out


def reduce_scatter(self: Any, op: str, group: ProcessGroup) -> Any:
    out = library_of(self).empty(self.shape[1:], self.dtype)
    reduce_scatter_into_(out, self, op, group, False)
    return out


def gather(self: Any, dst: int, group: ProcessGroup) -> Any:
    out = library_of(self).zeros((group.size(), *self.shape), self.dtype)
    gather_(_rows(out) if group.rank() == dst else [], self, dst, group, False)
    return out


def scatter(self: Any, src: int, group: ProcessGroup) -> Any:
    out = library_of(self).empty(self.shape[1:], self.dtype)
    scatter_(out, _rows(self) if group.rank() == src else [], src, group, False)
    return out


def _rows(stacked: Any) -> list[Any]:
    """The rows, as arrays that share the memory: ``stacked[i]`` of a vector would not."""
    return [stacked[i : i + 1] for i in range(len(stacked))]


def all_to_all(
    self: Any, out_sizes: Sequence[int], in_sizes: Sequence[int], group: ProcessGroup
) -> Any:
    out = library_of(self).empty((sum(out_sizes), *self.shape[1:]), self.dtype)
    all_to_all_into_(out, self, out_sizes, in_sizes, group, False)
    return out


#: operator -> kernel, for the keys whose arrays are in LIBRARIES
KERNELS: dict[str, Any] = {
    op.name: all_reduce if op is all_select else globals()[op.name.removeprefix("c10d::")]
    for op in OPERATORS
}


_serving = threading.Lock()
_served = {"cpu"}


def serve(key: str, library: Any) -> None:
    """Let the collectives take arrays of `library` under the backend key `key`, such as ``cuda``.

    `library` has NumPy's names. The first group of that key does it.
    """
    with _serving:
        LIBRARIES[library.ndarray] = (key, library)
        if key not in _served:
            registrar = Registrar(f"distributed over {key}")
            registrar.kernels(key, KERNELS)
            registrar.commit()
            _served.add(key)
