"""``PipelineStage``: some layers on one rank, and what passes between them and their neighbours."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.objects import recv_object_list, send_object_list
from coredispatch.frontend.distributed.point_to_point import isend, recv
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

__all__ = ["PipelineStage"]


class PipelineStage:
    """The layers of this rank: stage `stage_index` of `num_stages`, one on each rank of the group.

    Args:
        submodule: takes what the stage before gives, and gives tensors.
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
        if num_stages != self.group.size():
            raise ValueError(
                f"{num_stages} stages on {self.group.size()} ranks\n  fix: one stage on each rank"
            )
        if stage_index != self.group.rank():
            raise ValueError(f"stage {stage_index} must be on rank {stage_index} of its group, "
                             f"and this is rank {self.group.rank()}")  # fmt: skip
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device = device
        self._held: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._sent: list[tuple[Work | None, Tensor]] = []

    @property
    def is_first(self) -> bool:
        """Whether the inputs of the model come in here."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether the outputs of the model leave here."""
        return self.stage_index == self.num_stages - 1

    def _pass_on(self, tensors: list[Any], to: int) -> None:
        shapes = [None if t is None else (tuple(t.shape), t.dtype.name) for t in tensors]
        send_object_list([shapes], group=self.group, group_dst=to)
        for tensor in tensors:
            if tensor is not None:
                plain = tensor.detach().contiguous()
                self._sent.append((isend(plain, group=self.group, group_dst=to), plain))

    def _receive(self, source: int) -> list[Any]:
        box: list[Any] = [None]
        recv_object_list(box, group=self.group, group_src=source)
        shapes = box[0]
        found: list[Any] = []
        for shape in shapes:
            if shape is None:
                found.append(None)
                continue
            tensor = cd.empty(shape[0], dtype=getattr(cd, shape[1]))
            recv(tensor, group=self.group, group_src=source)
            found.append(tensor)
        return found

    def forward_one(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a part of the batch; what it gives."""
        inputs: list[Tensor] = []
        if not self.is_first:
            inputs = self._receive(self.stage_index - 1)
            for tensor in inputs:
                if tensor.dtype.is_floating_point:
                    tensor.requires_grad_()
            args = tuple(inputs)
        output = self.submod(*args, **kwargs)
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        if not self.is_last:
            self._pass_on(outputs, self.stage_index + 1)
        self._held[number] = (inputs, outputs)
        return output

    def backward_one(self, number: int, loss: Tensor | None) -> None:
        """The derivative of that part: of its loss in the last stage."""
        inputs, outputs = self._held.pop(number)
        if loss is not None:
            loss.backward()
        else:
            grads = self._receive(self.stage_index + 1)
            pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
            cd.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            self._pass_on([tensor.grad for tensor in inputs], self.stage_index - 1)

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
