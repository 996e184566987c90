"""Batch norm over the batches of all ranks."""

from __future__ import annotations

import coredispatch as cd
from coredispatch.frontend.distributed.nn.functional import all_reduce
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor

__all__ = ["synchronized_batch_norm"]


def synchronized_batch_norm(
    input: Tensor,
    running: tuple[Tensor, Tensor] | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
    group: ProcessGroup,
) -> Tensor:
    """Standardize each channel of ``(N, C, ...)`` over the elements of all ranks.

    The mean is summed first and the squares of differences from it then, as one would on one
    machine. Their derivatives go through the same sums, so that the gradient of the input is that
    of the sum of all ranks' losses.
    """
    computed = input.float() if input.dtype in (cd.float16, cd.bfloat16) else input
    dims = [0, *range(2, input.ndim)]
    shape = [1, input.shape[1], *([1] * (input.ndim - 2))]
    here = float(input.numel() // input.shape[1])
    ones = cd.full((1,), here, dtype=computed.dtype, device=computed.device)
    sums = all_reduce(cd.cat([computed.sum(dims), ones]), group=group)
    count = sums[-1:].detach()
    if float(count) <= 1.0:
        raise ValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{tuple(input.shape)} on each of {group.size()} ranks\n  fix: use a larger batch"
        )
    mean = sums[:-1] / count
    centred = computed - mean.view(shape)
    variance = all_reduce((centred * centred).sum(dims), group=group) / count
    out = centred * (variance + eps).rsqrt().view(shape)
    if weight is not None:
        out = out * weight.view(shape)
    if bias is not None:
        out = out + bias.view(shape)
    if running is not None:
        with no_grad():
            unbiased = variance.detach() * (count / (count - 1.0))
            running[0].mul_(1 - momentum).add_(mean.detach().to(running[0].dtype), alpha=momentum)
            running[1].mul_(1 - momentum).add_(unbiased.to(running[1].dtype), alpha=momentum)
    return out.to(input.dtype)
