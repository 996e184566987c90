"""``PipelineStage``: some layers on one rank, and what passes between them and their neighbours."""

from __future__ import annotations

from collections import deque
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.objects import packed, unpacked
from coredispatch.frontend.distributed.point_to_point import isend, recv
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

__all__ = ["PipelineStage"]

_FORWARD, _BACKWARD = 0, 1  # which way a message goes


class PipelineStage:
    """Layers of this rank: stage `stage_index` of `num_stages`. Rank r has r, r + size, ...

    Args:
        submodule: takes what the stage before gives, and gives tensors. Between stages other
            values may pass, too.
        device: of the submodule.
        input_args, output_args: accepted; shapes are sent along.
        group: the ranks of the stages, in order; the default group.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any = None,
        input_args: Any = None,
        output_args: Any = None,
        group: ProcessGroup | None = None,
    ) -> None:
        self.group = resolved(group)
        size = self.group.size()
        if num_stages % size:
            raise ValueError(
                f"{num_stages} stages on {size} ranks\n  fix: as many stages on each rank"
            )
        if stage_index % size != self.group.rank() or not 0 <= stage_index < num_stages:
            raise ValueError(f"stage {stage_index} must be on rank {stage_index % size} of its "
                             f"group, and this is rank {self.group.rank()}")  # fmt: skip
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device = device
        self._held: dict[int, tuple[list[Any], list[Any]]] = {}
        self._sent: list[tuple[Work | None, Tensor]] = []
        #: what stages of this rank have for each other, by stage and direction
        self.here: dict[tuple[int, int], deque[list[Any]]] = {}

    @property
    def is_first(self) -> bool:
        """Whether the inputs of the model come in here."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether the outputs of the model leave here."""
        return self.stage_index == self.num_stages - 1

    def _pass_on(self, values: list[Any], to: int, way: int) -> None:
        plain = [v.detach().contiguous() if isinstance(v, Tensor) else v for v in values]
        rank = to % self.group.size()
        if rank == self.group.rank():
            self.here.setdefault((to, way), deque()).append(plain)
            return
        described = packed([
            (tuple(v.shape), v.dtype.name) if isinstance(v, Tensor) else (None, v) for v in plain
        ])  # fmt: skip
        length = cd.tensor([described.numel()])
        # Stages of two ranks may have messages under way at once: each has a tag of its own.
        for tensor in (length, described, *(v for v in plain if isinstance(v, Tensor))):
            work = isend(tensor, group=self.group, group_dst=rank, tag=2 * to + way)
            self._sent.append((work, tensor))

    def _receive(self, source: int, way: int) -> list[Any]:
        rank, tag = source % self.group.size(), 2 * self.stage_index + way
        if rank == self.group.rank():
            return self.here[self.stage_index, way].popleft()

        def receive(shape: tuple[int, ...], dtype: Any) -> Tensor:
            tensor = cd.empty(shape, dtype=dtype)
            recv(tensor, group=self.group, group_src=rank, tag=tag)
            return tensor

        described = receive((int(receive((1,), cd.int64)),), cd.uint8)
        return [
            other if shape is None else receive(shape, getattr(cd, other))
            for shape, other in unpacked(described)
        ]

    def forward_one(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a part of the batch; what it gives."""
        inputs: list[Any] = []
        if not self.is_first:
            inputs = self._receive(self.stage_index - 1, _FORWARD)
            for value in inputs:
                if isinstance(value, Tensor) and value.dtype.is_floating_point:
                    value.requires_grad_()
            args = tuple(inputs)
        output = self.submod(*args, **kwargs)
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        if not self.is_last:
            self._pass_on(outputs, self.stage_index + 1, _FORWARD)
        self._held[number] = (inputs, outputs)
        return output

    def backward_one(self, number: int, loss: Tensor | None) -> None:
        """The derivative of that part: of its loss in the last stage."""
        inputs, outputs = self._held.pop(number)
        if loss is not None:
            loss.backward()
        else:
            grads = self._receive(self.stage_index + 1, _BACKWARD)
            pairs = [
                (o, g) for o, g in zip(outputs, grads, strict=True)
                if g is not None and o.requires_grad
            ]  # fmt: skip
            cd.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            grads = [value.grad if isinstance(value, Tensor) else None for value in inputs]
            self._pass_on(grads, self.stage_index - 1, _BACKWARD)

    def finish(self) -> None:
        """Wait until the neighbours have what was sent, and forget what was held."""
        for work, _ in self._sent:
            if work is not None:
                work.wait()
        self._sent.clear()
        self._held.clear()

    def scale_grads(self, parts: int) -> None:
        """Divide the gradients by the number of parts: losses are averages."""
        for param in self.submod.parameters():
            if param.grad is not None:
                param.grad.div_(parts)
