"""In which order a stage computes forward and backward of the parts of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.pipelining.microbatch import (
    merge_chunks,
    split_args_kwargs_into_chunks,
)
from coredispatch.frontend.distributed.pipelining.stage import PipelineStage
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor

__all__ = ["Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS"]

#: "forward" or "backward", which of this rank's stages, and of which part
Step = tuple[str, int, int]


class _Schedule:
    """A batch in `n_microbatches` parts through the stages.

    Args:
        stages: those of this rank.
        n_microbatches: how many parts.
        loss_fn: ``loss_fn(output, target)``, an average over the part; None computes forward only.
        args_chunk_spec, kwargs_chunk_spec: along which dimensions inputs are divided; see
            ``microbatch.split_args_kwargs_into_chunks``.
        output_merge_spec: along which the outputs are joined; see ``microbatch.merge_chunks``.
        scale_grads: divide gradients by the number of parts, so that they are those of the average
            over the batch.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches={n_microbatches} is not positive")
        if not stages:
            raise ValueError("a schedule needs the stages of this rank")
        self.stages, self.parts, self.loss_fn = list(stages), n_microbatches, loss_fn
        self.scale_grads = scale_grads
        self._specs, self._merge = (args_chunk_spec, kwargs_chunk_spec), output_merge_spec
        for stage in self.stages:
            stage.here = self.stages[0].here

    def order(self) -> Iterator[Step]:
        """What this rank does, one after the other."""
        raise NotImplementedError

    def _forward(self) -> Iterator[Step]:
        for at in range(len(self.stages)):
            yield from (("forward", at, i) for i in range(self.parts))

    def step(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Compute a batch. The first stage gives inputs, the last one the target.

        Returns the output in the last stage, None elsewhere. `losses` is filled with those of the
        parts in the last stage.
        """
        if self.loss_fn is None:
            with no_grad():
                return self._run(args, kwargs, None, None, self._forward())
        return self._run(args, kwargs, target, losses, self.order())

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kw: Any
    ) -> Any:
        """Forward only, with losses where there is a loss function."""
        with no_grad():
            return self._run(args, kw, target, losses, self._forward())

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: list[Any] | None,
        order: Iterator[Step],
    ) -> Any:
        inputs, named = self._split(args, kwargs)
        targets = _divided((target,), self.parts) if target is not None else None
        ends = self.stages[-1].is_last
        if ends and self.loss_fn is not None and targets is None:
            raise ValueError("the last stage needs target=, for the loss")
        outputs: dict[int, Any] = {}
        found: dict[int, Tensor] = {}
        for what, at, i in order:
            stage = self.stages[at]
            if what == "forward":
                output = stage.forward_one(i, inputs[i], named[i])
                if stage.is_last:
                    outputs[i] = output
                    if self.loss_fn is not None and targets is not None:
                        found[i] = self.loss_fn(output, targets[i][0])
            else:
                stage.backward_one(i, found[i] if stage.is_last else None)
        for stage in self.stages:
            stage.finish()
            if self.scale_grads and cd.is_grad_enabled():
                stage.scale_grads(self.parts)
        if not ends:
            return None
        if losses is not None:
            losses[:] = [found[i].detach() for i in range(self.parts)]
        return merge_chunks([outputs[i] for i in range(self.parts)], self._merge)

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments of each part."""
        if not args and not kwargs:
            return [()] * self.parts, [{}] * self.parts  # of a stage that gets what others send
        found = split_args_kwargs_into_chunks(args, kwargs, self.parts, *self._specs)
        if len(found[0]) < self.parts:
            raise ValueError(
                f"a batch of {len(found[0])} in {self.parts} parts\n  fix: use fewer parts"
            )
        return found


class _OneStage(_Schedule):
    """A schedule of one stage on each rank, which comes first among the arguments."""

    def __init__(self, stage: PipelineStage, *args: Any, **kwargs: Any) -> None:
        if stage.num_stages != stage.group.size():
            raise ValueError(
                f"{type(self).__name__}: {stage.num_stages} stages on {stage.group.size()} ranks\n"
                "  fix: one stage on each rank, or ScheduleInterleaved1F1B"
            )
        super().__init__([stage], *args, **kwargs)
        self.stage = stage


def _divided(args: tuple[Any, ...], parts: int) -> list[tuple[Any, ...]]:
    columns = []
    for arg in args:
        if not isinstance(arg, Tensor):
            columns.append([arg] * parts)
            continue
        if arg.shape[0] < parts:
            raise ValueError(f"a batch of {arg.shape[0]} in {parts} parts\n  fix: use fewer parts")
        columns.append(list(arg.tensor_split(parts)))
    return [tuple(column[i] for column in columns) for i in range(parts)]


class ScheduleGPipe(_OneStage):
    """All parts forward, then all backward. (Huang et al., "GPipe", 2019.)"""

    def order(self) -> Iterator[Step]:
        yield from self._forward()
        yield from (("backward", 0, i) for i in range(self.parts))


class Schedule1F1B(_OneStage):
    """One forward, one backward, after a start: a stage holds few parts at a time.

    (Narayanan et al., "PipeDream", 2019, with a flush at the end of the batch.)
    """

    def order(self) -> Iterator[Step]:
        ahead = min(self.parts, self.stage.num_stages - self.stage.stage_index - 1)
        yield from (("forward", 0, i) for i in range(ahead))
        for i in range(self.parts):
            if i + ahead < self.parts:
                yield "forward", 0, i + ahead
            yield "backward", 0, i


class ScheduleLoopedBFS(_Schedule):
    """All parts through a stage before the next of this rank. (Lamy-Poirier, 2022.)"""

    def order(self) -> Iterator[Step]:
        yield from self._forward()
        for at in reversed(range(len(self.stages))):
            yield from (("backward", at, i) for i in range(self.parts))


class ScheduleInterleaved1F1B(_Schedule):
    """Several stages on each rank, in turns: less waiting at the start and the end of a batch.

    A rank takes as many parts as there are ranks through one stage, then through its next.
    (Narayanan et al., "Efficient Large-Scale Language Model Training", 2021, section 2.2.)

    Raises ValueError where the parts do not divide into rounds of that many.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._size = self.stages[0].group.size()
        rounds = max(1, self.parts // self._size)
        if self.parts % rounds:
            raise ValueError(
                "Interleaved 1F1B requires the number of microbatches to be a multiple of the "
                f"number of rounds ({rounds}), but got {self.parts}."
            )
        self._per_round = self.parts // rounds

    def order(self) -> Iterator[Step]:
        count, per = len(self.stages), self._per_round
        total = count * self.parts
        rank = self.stages[0].stage_index % self._size
        ahead = min((count - 1) * per + 2 * (self._size - 1 - rank), total)
        done: Counter[tuple[str, int]] = Counter()

        def step(what: str, number: int) -> Step:
            at = number // per % count
            at = at if what == "forward" else count - 1 - at
            done[what, at] += 1
            return what, at, done[what, at] - 1

        yield from (step("forward", number) for number in range(ahead))
        for number in range(total):
            if number + ahead < total:
                yield step("forward", number + ahead)
            yield step("backward", number)
