"""Hooks that average gradients, as they are or in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.buckets import GradBucket
from coredispatch.frontend.distributed.collectives import all_reduce
from coredispatch.frontend.distributed.groups import resolved

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]


def _averaged(group: Any, tensor: Any) -> Any:
    found = resolved(group)
    tensor.div_(found.size())
    work = all_reduce(tensor, group=found, async_op=True)
    assert work is not None
    return work.get_future()


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The average, as without a hook."""
    future = _averaged(process_group, bucket.buffer())
    return future.then(lambda done: done.value()[0])


def _compressed(group: Any, bucket: GradBucket, dtype: Any) -> Any:
    buffer = bucket.buffer()
    future = _averaged(group, buffer.to(dtype))

    def restore(done: Any) -> Any:
        buffer.copy_(done.value()[0])
        return buffer

    return future.then(restore)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The average of gradients rounded to float16."""
    return _compressed(process_group, bucket, cd.float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The average of gradients rounded to bfloat16."""
    return _compressed(process_group, bucket, cd.bfloat16)


def _wrapper(hook: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    def wrapped(state: Any, bucket: GradBucket) -> Any:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))

        def restore(done: Any) -> Any:
            value = done.value()
            buffer.copy_(value[0] if isinstance(value, (list, tuple)) else value)
            return buffer

        return hook(state, bucket).then(restore)

    return wrapped


def fp16_compress_wrapper(hook: Callable[..., Any]) -> Callable[..., Any]:
    """`hook`, given gradients in float16."""
    return _wrapper(hook, cd.float16)


def bf16_compress_wrapper(hook: Callable[..., Any]) -> Callable[..., Any]:
    """`hook`, given gradients in bfloat16."""
    return _wrapper(hook, cd.bfloat16)


class BuiltinCommHookType(Enum):
    """The hooks that DistributedDataParallel knows by name."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1


BUILT_IN = {
    BuiltinCommHookType.ALLREDUCE: allreduce_hook,
    BuiltinCommHookType.FP16_COMPRESS: fp16_compress_hook,
}
