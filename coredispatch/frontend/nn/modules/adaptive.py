"""A softmax over many classes, the rare ones in clusters. Grave et al., 2017."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.container import ModuleList, Sequential
from coredispatch.frontend.nn.modules.linear import Linear
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ("output", "loss"))


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities of targets, frequent classes first. Grave et al., ICML 2017.

    Classes below ``cutoffs[0]`` and one entry per cluster are in the ``head``; the classes from
    ``cutoffs[i]`` to ``cutoffs[i + 1]`` are in ``tail[i]``, behind a projection to
    ``in_features / div_value ** (i + 1)`` features.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(set(cutoffs))
            or cutoffs[0] <= 0
            or cutoffs[-1] > n_classes - 1
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        where = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **where),
                    Linear(hidden, stop - start, bias=False, **where),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for projection, output in self.tail:
            projection.reset_parameters()
            output.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> Any:
        """``(output, loss)``: log probabilities ``(N,)`` of the targets, and minus their mean.

        ``input_`` is ``(N, in_features)`` with ``target_`` ``(N,)``, or one sample of each.
        """
        if target_.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = target_.dim() == 1
        if input_.dim() != target_.dim() + 1:
            raise RuntimeError(
                f"{target_.dim()}D target tensor expects {target_.dim() + 1}D input tensors, but "
                f"found inputs with size {input_.size()}"
            )
        if batched and input_.size(0) != target_.size(0):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        x, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        low, high = (int(target.min()), int(target.max())) if target.numel() else (0, 0)
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{low}, {high}] were found. "
            )
        entries = target
        within = x.new_zeros(target.size(0))
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            rows = ((target >= start) & (target < stop)).nonzero().squeeze(1)
            if not rows.numel():
                continue
            logprob = F.log_softmax(self.tail[i](x.index_select(0, rows)), dim=1)
            own = (target.index_select(0, rows) - start).unsqueeze(1)
            within = within.index_copy(0, rows, logprob.gather(1, own).squeeze(1))
            entries = entries.index_fill(0, rows, self.shortlist_size + i)
        head = F.log_softmax(self.head(x), dim=1)
        output = within + head.gather(1, entries.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input: Any, head_output: Any) -> Any:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            within = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(within + head[:, self.shortlist_size + i].unsqueeze(1))
        return TABLE.operator("cat")(parts, 1)

    def log_prob(self, input: Any) -> Any:
        """Log probabilities of all classes, ``(N, n_classes)``."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Any) -> Any:
        """The most probable class of each sample, ``(N,)``; clusters are computed where needed."""
        head_output = self.head(input)
        best = head_output.argmax(1)
        rest = (best >= self.shortlist_size).nonzero().squeeze(1)
        if not rest.numel():
            return best
        full = self._get_full_log_prob(
            input.index_select(0, rest), head_output.index_select(0, rest)
        )
        return best.index_copy(0, rest, full.argmax(1))
