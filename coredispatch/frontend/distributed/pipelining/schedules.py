"""In which order a stage computes forward and backward of the parts of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.pipelining.stage import PipelineStage
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor

__all__ = ["Schedule1F1B", "ScheduleGPipe"]


class _Schedule:
    """A batch in `n_microbatches` parts through the stages.

    Args:
        stage: that of this rank.
        n_microbatches: how many parts.
        loss_fn: ``loss_fn(output, target)``, an average over the part; None computes forward only.
        scale_grads: divide gradients by the number of parts, so that they are those of the average
            over the batch.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        for name, value in (
            ("args_chunk_spec", args_chunk_spec),
            ("kwargs_chunk_spec", kwargs_chunk_spec),
            ("output_merge_spec", output_merge_spec),
        ):
            if value is not None:
                raise NotImplementedError(f"{name} is not there: parts are along dimension 0")
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches={n_microbatches} is not positive")
        self.stage, self.parts, self.loss_fn = stage, n_microbatches, loss_fn
        self.scale_grads = scale_grads

    def order(self) -> Iterator[tuple[str, int]]:
        """``("forward", part)`` and ``("backward", part)``."""
        raise NotImplementedError

    def step(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Compute a batch. The first stage gives inputs, the last one the target.

        Returns the output in the last stage, None elsewhere. `losses` is filled with those of the
        parts in the last stage.
        """
        if self.loss_fn is None:
            with no_grad():
                return self._run(
                    args, kwargs, None, None, (("forward", i) for i in range(self.parts))
                )
        return self._run(args, kwargs, target, losses, self.order())

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kw: Any
    ) -> Any:
        """Forward only, with losses where there is a loss function."""
        with no_grad():
            order = (("forward", i) for i in range(self.parts))
            return self._run(args, kw, target, losses, order)

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: list[Any] | None,
        order: Iterator[tuple[str, int]],
    ) -> Any:
        stage = self.stage
        inputs = _divided(args, self.parts)
        named = [
            dict(zip(kwargs, row, strict=True))
            for row in _divided(tuple(kwargs.values()), self.parts)
        ]
        targets = _divided((target,), self.parts) if target is not None else None
        if stage.is_last and self.loss_fn is not None and targets is None:
            raise ValueError("the last stage needs target=, for the loss")
        outputs: dict[int, Any] = {}
        found: dict[int, Tensor] = {}
        for what, i in order:
            if what == "forward":
                outputs[i] = stage.forward_one(i, inputs[i], named[i])
                if stage.is_last and self.loss_fn is not None and targets is not None:
                    found[i] = self.loss_fn(outputs[i], targets[i][0])
                if not stage.is_last:
                    del outputs[i]
            else:
                stage.backward_one(i, found[i] if stage.is_last else None)
        stage.finish()
        if self.scale_grads and cd.is_grad_enabled():
            stage.scale_grads(self.parts)
        if losses is not None and stage.is_last:
            losses[:] = [found[i].detach() for i in range(self.parts)]
        if not stage.is_last:
            return None
        every = [outputs[i] for i in range(self.parts)]
        if isinstance(every[0], (tuple, list)):
            return tuple(cd.cat(list(column)) for column in zip(*every, strict=True))
        return cd.cat(every)


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


class ScheduleGPipe(_Schedule):
    """All parts forward, then all backward. (Huang et al., "GPipe", 2019.)"""

    def order(self) -> Iterator[tuple[str, int]]:
        yield from (("forward", i) for i in range(self.parts))
        yield from (("backward", i) for i in range(self.parts))


class Schedule1F1B(_Schedule):
    """One forward, one backward, after a start: a stage holds few parts at a time.

    (Narayanan et al., "PipeDream", 2019, with a flush at the end of the batch.)
    """

    def order(self) -> Iterator[tuple[str, int]]:
        ahead = min(self.parts, self.stage.num_stages - self.stage.stage_index - 1)
        yield from (("forward", i) for i in range(ahead))
        for i in range(self.parts):
            if i + ahead < self.parts:
                yield "forward", i + ahead
            yield "backward", i
