"""Gradients averaged over all ranks at first, later over few: models are averaged instead.

Lin et al., "Don't use large mini-batches, use local SGD", 2018.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from coredispatch.frontend.distributed.buckets import GradBucket
from coredispatch.frontend.distributed.groups import new_subgroups
from coredispatch.frontend.futures import Future

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """The state of :func:`post_localSGD_hook`.

    Args:
        process_group: whose ranks average gradients at first; the default group.
        subgroup: those that do later; by default the ranks of a machine.
        start_localSGD_iter: the number of steps before that.
        post_local_gradient_allreduce: False averages no gradients from then on.

    Attributes:
        iter: steps so far, counted up to `start_localSGD_iter`.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step at its last bucket."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Any:
    """The average that `state` says. Average the model after each step of the optimizer.

    Example::

        state = PostLocalSGDState(None, None, start_localSGD_iter=100)
        model.register_comm_hook(state, post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(4, warmup_steps=100))
    """
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        own: Any = Future()
        own.set_result(bucket.buffer())
        return own
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return allreduce_hook(state.subgroup, bucket)
