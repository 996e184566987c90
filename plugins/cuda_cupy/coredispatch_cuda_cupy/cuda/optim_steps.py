"""Steps of Adam, AdamW and SGD: over one parameter, and over many in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cuda_cupy import capture
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, blocks
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["kernels"]

_THREADS = 256
#: elements of a parameter that a block takes, where there are many parameters
_PART = 8192
#: tables that are kept: one for each group of parameters, while its gradients lie where they lay
_KEPT = 32


def _adam_numbers(
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[float, ...]:
    return (
        -1.0 if maximize else 1.0,
        0.0 if decoupled else float(weight_decay),
        1.0 - lr * weight_decay if decoupled else 1.0,
        1.0 - beta1,
        float(beta2),
        1.0 - beta2,
        (1.0 - beta2**step) ** -0.5,
        float(eps),
        lr / (1.0 - beta1**step),
    )


def _sgd_numbers(
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> tuple[float, ...]:
    sign = -1.0 if maximize else 1.0
    numbers = (sign, float(weight_decay), float(momentum), 1.0 - dampening, float(lr))
    return (*numbers, int(first), int(nesterov))


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch, tables = Family(cupy, "optim_steps"), _Tables(cupy)

    def one(name: str, arrays: tuple[Any, ...], numbers: tuple[float, ...]) -> Any:
        param = arrays[0]
        if not _alike(*arrays):
            return NotImplemented
        if param.size:
            given = tuple(0 if x is None else x for x in arrays)
            arguments = (*given, param.size, *numbers)
            launch(name, param.dtype, blocks(param.size), _THREADS, arguments)
        return None

    def many(name: str, lists: tuple[Any, ...], numbers: tuple[float, ...]) -> Any:
        lists = tuple(members for members in lists if members)
        found = tables.of(lists) if capture.current() is None else None
        if found is None:
            return NotImplemented
        table, parts = found
        sizes = (len(lists), len(lists[0]), parts, _PART)
        if parts:
            grid = min(parts, MOST_BLOCKS)
            launch(name, lists[0][0].dtype, grid, _THREADS, (table, *sizes, *numbers))
        return None

    def adam_step(
        param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, *numbers: Any
    ) -> Any:
        arrays = (param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq)
        return one("adam", arrays, _adam_numbers(*numbers))

    def adam_steps(
        params: Any,
        grads: Any,
        exp_avgs: Any,
        exp_avg_sqs: Any,
        max_exp_avg_sqs: Any,
        *numbers: Any,
    ) -> Any:
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
        return many("adam_many", lists, _adam_numbers(*numbers))

    def sgd_step(param: Any, grad: Any, momentum_buffer: Any, *numbers: Any) -> Any:
        return one("sgd", (param, grad, momentum_buffer), _sgd_numbers(*numbers))

    def sgd_steps(params: Any, grads: Any, momentum_buffers: Any, *numbers: Any) -> Any:
        return many("sgd_many", (params, grads, momentum_buffers), _sgd_numbers(*numbers))

    return {
        "adam_step": adam_step,
        "adam_steps": adam_steps,
        "sgd_step": sgd_step,
        "sgd_steps": sgd_steps,
    }


class _Tables:
    """Tables of addresses on the device, made anew where arrays lie elsewhere than before.

    A graph that is captured gets none: its replays would read what the host has let go of.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.known: dict[Any, tuple[Any, int]] = {}

    def of(self, lists: tuple[Any, ...]) -> tuple[Any, int] | None:
        """The table, and how many parts it has; None where arrays are not alike or not there."""
        if len(lists) < 2 or len({len(members) for members in lists}) > 1:
            return None
        cuda = self.cupy.cuda
        where = (int(cuda.runtime.getDevice()), cuda.get_current_stream().ptr, lists[0][0].dtype)
        own = [(x.data.ptr, x.shape, x.strides, x.dtype) for members in lists for x in members]
        key = (where, *own)
        found = self.known.get(key)
        if found is None:
            if not all(_alike(*given) for given in zip(*lists, strict=True)):
                return None
            if len({members[0].dtype for members in lists} | {x.dtype for x in lists[0]}) > 1:
                return None
            if len(self.known) >= _KEPT:
                self.known.clear()
            found = self.known[key] = self._made(lists)
        return found

    def _made(self, lists: tuple[Any, ...]) -> tuple[Any, int]:
        sizes = [x.size for x in lists[0]]
        parts = [(k, s) for k, size in enumerate(sizes) for s in range(0, size, _PART)]
        addresses = [x.data.ptr for members in lists for x in members]
        numbers = [*addresses, *sizes, *(k for k, _ in parts), *(start for _, start in parts)]
        return self.cupy.asarray(np.array(numbers, np.int64)), len(parts)


def _alike(param: Any, *others: Any) -> bool:
    """Whether the arrays that are there are of one shape and dtype, dense, and apart in memory."""
    given = [param, *(x for x in others if x is not None)]
    places = set()
    for x in given:
        if x.shape != param.shape or x.dtype != param.dtype or not x.flags.c_contiguous:
            return False
        places.add(x.data.ptr)
    return is_float(param.dtype) and (len(places) == len(given) or not param.size)
