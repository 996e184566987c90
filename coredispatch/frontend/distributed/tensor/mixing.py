"""The layer that sees what a program calls with DTensors: plain tensors among them are refused.

It lies above autograd, so that it sees no call that a decomposition or a derivative makes.
The tensors that these make of their own (an identity, a range of numbers) are equal on all ranks,
and count as replicated. Random ones are equal as well: all draw from an agreed generator.
"""

from __future__ import annotations

import threading
from typing import Any

from coredispatch.frontend.distributed.tensor.generators import agreed_generator
from coredispatch.frontend.torch_function import flat
from coredispatch.plugin import Layer, LayerEntry, Registrar, Value, hookimpl, key_bit
from coredispatch.registry.dispatch.masks import current_pass

__all__ = ["DISTRIBUTED", "coredispatch_register", "implicit_replication", "in_backward"]

#: the key of every DTensor
DISTRIBUTED = key_bit("distributed_tensor")


class _Implicit(threading.local):
    depth = 0


_implicit = _Implicit()


class implicit_replication:
    """Take plain tensors that meet DTensors for replicated ones, in this block and thread."""

    def __enter__(self) -> None:
        _implicit.depth += 1

    def __exit__(self, *error: object) -> None:
        _implicit.depth -= 1


def in_backward() -> bool:
    """Whether a derivative is being computed: formulas may make tensors of their own."""
    return current_pass() is not None


def _counts(tensor: Any) -> bool:
    """Whether it must be a DTensor: masks, indices and single numbers need not."""
    values = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return bool(values and tensor.numel() != 1)


class _MixingEntry(LayerEntry):
    def __init__(self, op: Any, *rest: Any) -> None:
        super().__init__(op, *rest)
        names = [param.name for param in op.schema.params]
        self.generator = names.index("generator") if op.random and "generator" in names else None

    def call(self, args: tuple[Any, ...]) -> Any:
        tensors = [item for item in flat(args) if isinstance(item, Value)]
        if any(not t.keys & DISTRIBUTED and _counts(t) for t in tensors):
            if not _implicit.depth and not in_backward():
                raise RuntimeError(
                    f"{self.op.name}: got mixed Tensor and DTensor, need to convert all Tensor to "
                    "DTensor before calling distributed operators!\n  fix: "
                    "distribute_tensor(tensor, mesh), or `with implicit_replication():`"
                )
        place = self.generator
        if place is None:
            return self.below(args)
        first: Any = next(t for t in tensors if t.keys & DISTRIBUTED)
        with agreed_generator(args[place], first.device, first.device_mesh) as agreed:
            return self.below((*args[:place], agreed, *args[place + 1 :]))


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``distributed_tensor``."""
    above = ("autograd", "autocast", "inference", "transform")
    registrar.layer(Layer("distributed_tensor", generic=_MixingEntry, above=above))
