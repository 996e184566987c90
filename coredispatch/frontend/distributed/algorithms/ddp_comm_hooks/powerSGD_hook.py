"""PowerSGD: gradients of matrices as products of two narrow ones.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
optimization", 2019, algorithm 1, with error feedback and a warm start.
"""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
)
from coredispatch.frontend.distributed.buckets import GradBucket
from coredispatch.frontend.distributed.collectives import all_reduce
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.futures import Future
from coredispatch.registry.model.generator import Generator

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """What PowerSGD keeps between passes.

    Args:
        process_group: the ranks; the default group.
        matrix_approximation_rank: columns of the narrow matrices.
        start_powerSGD_iter: passes before it that are reduced as they are.
        min_compression_rate: matrices that would not become smaller by this factor are left.
        use_error_feedback: add to the next gradient what this one has lost.
        warm_start: begin with the last pass' right factor.
        orthogonalization_epsilon: added to norms, against division by zero.
        random_seed: of the first factors, the same on all ranks.
        compression_stats_logging_frequency, batch_tensors_with_same_shape: accepted.
    """

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                "enabled, because PowerSGD can only be applied after the first two iterations in "
                "DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.generator = Generator().manual_seed(random_seed)
        self.error_dict: dict[int, Any] = {}
        self.q_memory_dict: dict[int, Any] = {}
        self.iter = 0
        #: elements before and after compression, of all passes
        self.total_numel_before_compression = self.total_numel_after_compression = 0

    def compression_stats(self) -> tuple[float, int, int]:
        """The factor, and the elements before and after."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after else 0.0, before, after


def _orthogonal(matrix: Any, epsilon: float) -> Any:
    if epsilon == 0:
        return cd.linalg.qr(matrix)[0]
    columns: list[Any] = []
    for i in range(matrix.shape[1]):
        column = matrix[:, i]
        for earlier in columns:
            column = column - (column @ earlier) * earlier
        columns.append(column / (column.norm() + epsilon))
    return cd.stack(columns, 1)


def _worth(state: PowerSGDState, shape: tuple[int, ...]) -> bool:
    rows, columns = shape
    rank = min(rows, columns, state.matrix_approximation_rank)
    return (rows + columns) * rank * state.min_compression_rate < rows * columns


def _sum(tensors: list[Any], group: Any) -> None:
    """Average several tensors as one message."""
    if not tensors:
        return
    flat = cd.cat([t.reshape(-1) for t in tensors]).div_(group.size())
    all_reduce(flat, group=group)
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape))


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Any:
    """Average a bucket by low-rank factors of its matrices; vectors as they are."""
    group = resolved(state.process_group)
    index = bucket.index()
    passes = state.iter
    if bucket.is_last():
        state.iter += 1
    if passes < state.start_powerSGD_iter:
        return allreduce_hook(group, bucket)
    buffer = bucket.buffer()
    if state.use_error_feedback:
        if index in state.error_dict and state.error_dict[index].numel() == buffer.numel():
            buffer.add_(state.error_dict[index])
        kept = buffer.clone()
    plain: list[Any] = []
    matrices: list[Any] = []
    compressed = []
    for gradient in bucket.gradients():
        matrix = gradient.view(gradient.shape[0], -1) if gradient.ndim > 1 else None
        compressed.append(matrix is not None and _worth(state, tuple(matrix.shape)))
        if compressed[-1]:
            matrices.append(matrix)
        else:
            plain.append(gradient)
    _sum(plain, group)
    _compress(state, index, matrices, group)
    if state.use_error_feedback:
        lost = kept - buffer
        sizes = [gradient.numel() for gradient in bucket.gradients()]
        for part, was in zip(lost.split(sizes), compressed, strict=True):
            if not was:
                part.zero_()
        state.error_dict[index] = lost
    return _ready(buffer)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Any:
    """Average a bucket by low-rank factors of one square matrix that holds all of it.

    Fewer and larger products than :func:`powerSGD_hook`, and less exact: neighbours in the matrix
    have nothing in common.
    """
    group = resolved(state.process_group)
    index = bucket.index()
    passes = state.iter
    if bucket.is_last():
        state.iter += 1
    if passes < state.start_powerSGD_iter:
        return allreduce_hook(group, bucket)
    buffer = bucket.buffer()
    size = buffer.numel()
    side = math.isqrt(size - 1) + 1
    matrix = buffer.new_zeros(side * side)
    matrix[:size] = buffer
    if state.use_error_feedback:
        if index in state.error_dict and state.error_dict[index].numel() == matrix.numel():
            matrix.add_(state.error_dict[index])
        kept = matrix.clone()
    _compress(state, index, [matrix.view(side, side)], group)
    if state.use_error_feedback:
        state.error_dict[index] = kept - matrix
    buffer.copy_(matrix[:size])
    return _ready(buffer)


def _compress(state: PowerSGDState, index: int, matrices: list[Any], group: Any) -> None:
    """Average matrices in place, as products of narrow ones."""
    qs = _right_factors(state, index, matrices)
    ps = [m @ q for m, q in zip(matrices, qs, strict=True)]
    _sum(ps, group)
    ps = [_orthogonal(p, state.orthogonalization_epsilon) for p in ps]
    qs = [m.t() @ p for m, p in zip(matrices, ps, strict=True)]
    _sum(qs, group)
    for matrix, p, q in zip(matrices, ps, qs, strict=True):
        matrix.copy_(p @ q.t())
        state.total_numel_before_compression += matrix.numel()
        state.total_numel_after_compression += p.numel() + q.numel()
    state.q_memory_dict[index] = qs


def _ready(buffer: Any) -> Future:
    done = Future()
    done.set_result(buffer)
    return done


def _right_factors(state: PowerSGDState, index: int, matrices: list[Any]) -> list[Any]:
    known = state.q_memory_dict.get(index)
    ranks = [min(*m.shape, state.matrix_approximation_rank) for m in matrices]
    shapes = [(m.shape[1], r) for m, r in zip(matrices, ranks, strict=True)]
    if state.warm_start and known is not None and [tuple(q.shape) for q in known] == shapes:
        return [_orthogonal(q, state.orthogonalization_epsilon) for q in known]
    made = [
        cd.randn(shape, generator=state.generator, device="cpu").to(m)
        for shape, m in zip(shapes, matrices, strict=True)
    ]
    return [_orthogonal(q, state.orthogonalization_epsilon) for q in made]
