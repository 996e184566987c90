"""``Reducer``: what averages gradients over the ranks while a backward pass runs.

A hook on the accumulation of each parameter puts its gradient into a bucket. A bucket that is
full is reduced in the background, in the order of the buckets, which is the same on all ranks. At
the end of the pass the results are waited for and copied back. Sparse gradients are in no bucket:
they are reduced one by one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.autograd.accumulate import accumulator
from coredispatch.frontend.autograd.graph import queue_callback
from coredispatch.frontend.distributed.buckets import (
    FIRST,
    Bucket,
    GradBucket,
    assign,
    check_hook_result,
)
from coredispatch.frontend.distributed.collectives import all_reduce, broadcast
from coredispatch.frontend.distributed.optim.apply_optimizer_in_backward import (
    step_in_backward,
    take_over,
)
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.reductions import ReduceOp
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.futures import Future
from coredispatch.frontend.modes import is_grad_enabled, no_grad
from coredispatch.frontend.nn.modules.sparse import Embedding, EmbeddingBag
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.masks import current_pass

__all__ = ["Reducer", "sparse_weights", "used_by"]

Hook = Callable[[Any, GradBucket], Any]


class Reducer:
    """See the file.

    Args:
        params: the parameters, in the same order on all ranks.
        names: for messages.
        group: the ranks.
        cap: bytes of a bucket.
        find_unused: expect that a pass leaves parameters out, other ones on each rank.
        views: let ``.grad`` be the memory of the buckets.
        rebuild: order the buckets anew by the first pass.
        sparse: positions of the parameters whose gradients are sparse.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        names: Sequence[str],
        group: ProcessGroup,
        cap: int,
        *,
        find_unused: bool,
        views: bool,
        rebuild: bool,
        sparse: Collection[int] = (),
    ) -> None:
        self.params, self.names, self.group = list(params), list(names), group
        self.cap, self.find_unused, self.views = cap, find_unused, views
        self.sparse = frozenset(sparse)
        self.hook: Hook | None = None
        self._assign(range(len(params) - 1, -1, -1))
        self.hook_state: Any = None
        self.divisor = group.size()
        self.rebuild = rebuild
        self.active = False  # whether the pass that comes next is reduced
        self._begun = False
        self._ready: dict[int, None] = {}  # in the order in which they came
        self._unused: set[int] = set()
        self._late: set[int] = set()  # parts of the unused: the end of the pass has told
        self._kept: set[int] = set()  # that have gradients of passes that were not reduced
        self._alone = False
        self._launched = 0
        self._steps = take_over(self.params)
        self.handles = [
            accumulator(p).register_post_accumulate_hook(self._hook_of(i))
            for i, p in enumerate(self.params)
        ]

    def _assign(self, order: Sequence[int]) -> None:
        # A hook gets all gradients in buckets, and memory that is shared with them is theirs.
        direct = self.hook is None and not self.views
        order = [position for position in order if position not in self.sparse]
        self.buckets = assign(self.params, order, self.cap, FIRST, direct=direct)
        self._where = {
            position: (bucket, offset)
            for bucket in self.buckets
            for offset, position in enumerate(bucket.positions)
        }

    def use_hook(self, hook: Hook, state: Any) -> None:
        """Let ``hook(state, bucket)`` reduce the buckets; before the first pass."""
        self.hook, self.hook_state = hook, state
        self._assign(range(len(self.params) - 1, -1, -1))

    def _hook_of(self, position: int) -> Callable[[Any], None]:
        def ready(param: Any) -> None:
            if self.active:
                self._arrived(position)
            elif position in self._late:
                self._refuse_late(position)
            else:  # of a pass that is not synchronized: it is averaged with the next one
                self._kept.add(position)

        return ready

    # -- a pass -------------------------------------------------------------------------------

    def prepare(self, outputs: Any) -> None:
        """Expect a backward pass from `outputs`. RuntimeError where the last one is unfinished."""
        if self.active and self._begun:
            self._refuse_unfinished()
        self.active, self._begun = True, False
        self._ready, self._launched = {}, 0
        for bucket in self.buckets:
            bucket.reset()
        self._unused, self._late = set(), set()
        # Of one rank the gradients are the averages already.
        self._alone = self.group.size() == 1 and self.hook is None and not self.views
        if self.find_unused:
            used = used_by(outputs)
            self._unused = {i for i, p in enumerate(self.params) if id(accumulator(p)) not in used}

    def pause(self) -> None:
        """Leave the gradients of the passes to come as they are."""
        self.active, self._late = False, set()

    def _refuse_late(self, position: int) -> None:
        raise RuntimeError(
            f"{self.names[position]} received a gradient after the pass that it had no part in was "
            "reduced: its gradient is not averaged over the ranks\n"
            "  fix: one backward for each forward (of the sum of the losses)"
        )

    def _refuse_unfinished(self) -> None:
        missing = sorted(set(range(len(self.params))) - set(self._ready))
        names = ", ".join(self.names[i] for i in missing[:5])
        self.active = False
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. "
            "This error indicates that your module has parameters that were not used in producing "
            f"loss: {names}{', ...' if len(missing) > 5 else ''}\n"
            "  fix: DistributedDataParallel(model, find_unused_parameters=True), or let all "
            "outputs of forward take part in the loss"
        )

    def _begin(self) -> None:
        self._begun = True
        queue_callback(self._finish)
        if self._alone:
            return
        self._leave_out(sorted(self._unused))

    def _leave_out(self, positions: Sequence[int]) -> None:
        """Let the buckets not wait for parameters that have no part in the pass."""
        for position in positions:
            if position in self.sparse:
                continue
            bucket, offset = self._where[position]
            grad = self.params[position].grad  # of earlier passes without synchronization
            if bucket.direct:
                bucket.clear()
            if grad is not None:
                (bucket.flat if bucket.direct else bucket.views[offset]).copy_(grad)
            elif not bucket.direct:
                bucket.views[offset].zero_()
            bucket.missing -= 1

    def _arrived(self, position: int) -> None:
        if is_grad_enabled():  # a pass that makes a graph
            with no_grad():
                self._count(position)
        else:
            self._count(position)

    def _count(self, position: int) -> None:
        """A gradient has come."""
        if not self._begun:
            self._begin()
        if position in self._ready:
            self.active = False
            raise RuntimeError(
                f"Expected to mark a variable ready only once: {self.names[position]} received "
                "its gradient twice in one pass\n"
                "  fix: use no reentrant checkpoint around parameters that are shared, or one "
                "backward for each forward"
            )
        self._ready[position] = None
        if self._alone or position in self.sparse:
            self._unused.discard(position)
            return
        bucket, offset = self._where[position]
        self._put(position, bucket, offset)
        if position in self._unused:  # the walk from the outputs had not seen it
            self._unused.discard(position)
        else:
            bucket.missing -= 1
        if self._launched:  # MPI makes progress when it is asked, with all that is under way
            self.buckets[self._launched - 1].ask()
        if not bucket.missing:
            self._launch()

    def _put(self, position: int, bucket: Bucket, offset: int) -> None:
        """Let the bucket have a gradient."""
        grad = self.params[position].grad
        if grad is not None and grad.is_sparse:
            raise RuntimeError(
                f"the gradient of {self.names[position]} is sparse, which buckets are not\n"
                "  fix: Embedding(sparse=True) as a module, which says so before, or sparse=False"
            )
        if bucket.direct:
            param = self.params[position]
            if grad is None:
                bucket.clear()
            elif len(accumulator(param).post_accumulate_hooks or ()) > 1:
                bucket.flat = grad.clone()  # another hook may write to the gradient meanwhile
            else:
                bucket.flat = grad
        elif grad is not None:
            view = bucket.views[offset]
            if not self.views or grad.data_ptr() != view.data_ptr():
                view.copy_(grad)

    def _launch(self) -> None:
        """Reduce the buckets that are full, as far as those before them are."""
        while self._launched < len(self.buckets) and not self.buckets[self._launched].missing:
            self.buckets[self._launched].pending = self._reduce(self._launched)
            self._launched += 1

    def _reduce(self, index: int) -> Any:
        bucket = self.buckets[index]
        if self.hook is not None:
            last = index == len(self.buckets) - 1
            result = self.hook(self.hook_state, GradBucket(bucket, index, last))
            if not isinstance(result, (Future, Work)):
                self.active = False
            return check_hook_result(self.hook, result)
        flat = bucket.flat
        if self.divisor != 1:
            flat.mul_(1.0 / self.divisor)
        return all_reduce(flat, group=self.group, async_op=True)

    def _finish(self) -> None:
        found = self._ready.keys() | self._unused
        missing = [i for i in range(len(self.params)) if i not in found]
        if missing and current_pass().outer is not None:
            current_pass().outer.callbacks.append(self._finish)  # this was a checkpoint's
            return
        if missing and not self.find_unused:
            return  # the next forward says which parameters had no part in the loss
        # The walk from the outputs had found them, but the loss is not made of all outputs.
        self._late = set(missing)
        self._unused |= self._late
        if self._alone:
            self.active = False
            self._step()
            return
        with no_grad():
            self._leave_out(missing)
            self._launch()
            everywhere = self._used_anywhere()
            for bucket in self.buckets:
                self._take(bucket, bucket.result(), everywhere)
            self._reduce_sparse(everywhere)
            self.active = False
            self._kept.clear()
            if self.rebuild:
                self._rebuild()
            self._step()

    def _step(self) -> None:
        """Let the optimizers step that their parameters have for backward passes."""
        with no_grad():
            for param in self._steps:
                if param.grad is not None:
                    step_in_backward(param)

    def _take(self, bucket: Bucket, result: Any, used: list[bool] | None) -> None:
        """Give the parameters what their bucket has become; None means that all are used."""
        result = result[0] if isinstance(result, (list, tuple)) else result
        if bucket.direct:
            self._keep(bucket, used)
            return
        if self.hook is not None:
            self._check_value(bucket, result)
        if result is not bucket.flat and result.data_ptr() != bucket.flat.data_ptr():
            bucket.flat.copy_(result.view(bucket.flat.shape))
        for position, view in zip(bucket.positions, bucket.views, strict=True):
            if used is None or used[position]:
                self._give(self.params[position], view)

    def _check_value(self, bucket: Bucket, result: Any) -> None:
        """Refuse what is no gradient of a bucket, as the value of a hook's Future."""
        if isinstance(result, Tensor) and result.numel() == bucket.flat.numel():
            return
        self.active = False
        shown = type(result).__name__
        if isinstance(result, Tensor):
            shown = f"Tensor of {result.numel()} elements"
        name = getattr(self.hook, "__qualname__", self.hook)
        raise TypeError(
            f"the Future of the communication hook {name!r} has a {shown} as its value, and a "
            f"Tensor of {bucket.flat.numel()} elements is needed\n"
            "  fix: let it be the bucket's buffer after the reduction"
        )

    def _keep(self, bucket: Bucket, used: list[bool] | None) -> None:
        """The same of a gradient that was reduced where it is."""
        position, result = bucket.positions[0], bucket.flat
        bucket.flat = None
        param = self.params[position]
        if param.grad is result or not (used is None or used[position]):
            return
        if param.grad is None:
            param.grad = result
        else:
            param.grad.copy_(result)

    def _give(self, param: Any, view: Tensor) -> None:
        if self.views:
            if param.grad is None or param.grad.data_ptr() != view.data_ptr():
                param.grad = view
        elif param.grad is None:
            param.grad = view.clone()
        else:
            param.grad.copy_(view)

    def _used_anywhere(self) -> list[bool] | None:
        """For each parameter, whether some rank used it: the others keep their gradients."""
        if not self.find_unused:
            return None
        flags = cd.ones(len(self.params), dtype=cd.uint8)
        for position in self._unused - self._kept:
            flags[position] = 0
        all_reduce(flags, ReduceOp.MAX, self.group)
        return [bool(flag) for flag in flags.tolist()]

    def _rebuild(self) -> None:
        """Order the buckets as the gradients of rank 0 became ready."""
        self.rebuild = False
        order = cd.tensor(list(self._ready), dtype=cd.int64)
        broadcast(order, group=self.group, group_src=0)
        positions = [position for position in order.tolist() if position not in self.sparse]
        if positions == [p for bucket in self.buckets for p in bucket.positions]:
            return
        before = [p.grad for p in self.params]
        self._assign(positions)
        if self.views:
            for position, grad in enumerate(before):
                if position in self.sparse:
                    continue
                bucket, offset = self._where[position]
                if grad is not None:
                    bucket.views[offset].copy_(grad)
                    self.params[position].grad = bucket.views[offset]

    # -- shadows of a pass, for ranks without input -------------------------------------------

    def shadow(self) -> None:
        """Take part in the reductions of one pass, with gradients of zero.

        The averages become this rank's gradients, too: a sharded optimizer steps with them.
        """
        with no_grad():
            for index, bucket in enumerate(self.buckets):
                bucket.clear()
                bucket.pending = self._reduce(index)
            used = [True] * len(self.params)
            if self.find_unused:
                flags = cd.zeros(len(self.params), dtype=cd.uint8)
                all_reduce(flags, ReduceOp.MAX, self.group)
                used = [bool(flag) for flag in flags.tolist()]
            for bucket in self.buckets:
                self._take(bucket, bucket.result(), used)
            for position in self.sparse:
                if used[position]:  # what is there is of an earlier pass
                    self.params[position].grad = None
            self._reduce_sparse(used)

    def _reduce_sparse(self, used: list[bool] | None) -> None:
        """Average the gradients that are in no bucket; None means that all are used."""
        for position in sorted(self.sparse):
            param = self.params[position]
            if used is not None and not used[position]:
                continue
            grad = param.grad
            if grad is None:  # of this rank; others have some
                grad = cd.sparse_coo_tensor(param.shape, dtype=param.dtype)
            elif self.divisor != 1:
                grad = grad / self.divisor
            all_reduce(grad, group=self.group)
            param.grad = grad

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()


def sparse_weights(module: Any) -> set[int]:
    """The ids of the parameters of `module` whose gradients will be sparse."""
    tables = (m for m in module.modules() if isinstance(m, (Embedding, EmbeddingBag)))
    return {id(table.weight) for table in tables if table.sparse}


def used_by(outputs: Any) -> set[int]:
    """The ids of the accumulation nodes that a backward pass from `outputs` reaches."""
    seen: set[int] = set()
    waiting = []
    for tensor in tensors_in(outputs):
        if tensor.grad_fn is not None:
            waiting.append(tensor.grad_fn)
        elif tensor.requires_grad:
            seen.add(id(accumulator(tensor)))
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        waiting += [following for following, _ in node.next_functions]
    return seen


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []
