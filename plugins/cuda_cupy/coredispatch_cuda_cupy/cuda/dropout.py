"""Dropout and its gradient, with numbers by Philox that are the same on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.plugin import Device, default_generator
from coredispatch_cuda_cupy import capture
from coredispatch_cuda_cupy.cuda.layout import blocks, dense
from coredispatch_cuda_cupy.cuda.loading import Family, is_float
from coredispatch_cuda_cupy.generator import DeviceStream

__all__ = ["kernels"]


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "dropout")

    def drawn(generator: Any) -> tuple[Any, int, int]:
        """Where replays find their seed and offset, 0 outside of a capture; seed and offset."""
        if generator is None:
            generator = default_generator(Device("cuda", int(cupy.cuda.runtime.getDevice())))
        graph = capture.current()
        if graph is not None:
            base, offset = graph.draws_of(generator).next()
            return base, 0, offset
        stream = generator.stream(lambda seed: DeviceStream(cupy, seed))
        return (0, *stream.take(1))

    def native_dropout(self: Any, p: float, generator: Any) -> Any:
        if not is_float(self.dtype):
            return NotImplemented
        out, mask = cupy.empty(self.shape, self.dtype), cupy.empty(self.shape, bool)
        if self.size:
            p = float(p)
            scale = 1.0 / (1.0 - p) if p < 1 else 0.0
            given = (dense(cupy, self), out, mask, self.size, p, scale, *drawn(generator))
            launch("dropout", self.dtype, blocks(-(-self.size // 4)), 256, given)
        return out, mask

    def dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
        if not is_float(grad.dtype) or mask.shape != grad.shape or mask.dtype.kind != "b":
            return NotImplemented
        out = cupy.empty(grad.shape, grad.dtype)
        if grad.size:
            given = (dense(cupy, grad), dense(cupy, mask), out, grad.size, float(scale))
            launch("dropout_backward", grad.dtype, blocks(grad.size), 256, given)
        return out

    return {"native_dropout": native_dropout, "dropout_backward": dropout_backward}
