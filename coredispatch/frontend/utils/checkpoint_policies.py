"""What selective checkpointing and older programs import from ``utils.checkpoint``."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.announced import announced_class, announced_function
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.generator import default_generator

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "set_checkpoint_debug_enabled",
    "set_device_states",
]

#: operators that selective checkpointing passes over
SAC_IGNORED_OPS: set[Any] = set()


class CheckpointPolicy(enum.Enum):
    """What selective checkpointing does with the results of an operator."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy function is told: whether this is the recomputation, and the result."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


create_selective_checkpoint_contexts = announced_function(
    "utils.checkpoint.create_selective_checkpoint_contexts",
    "checkpoint the functions whose results are cheap to compute again, and no others",
)
GraphExecGroup = announced_class(
    "utils.checkpoint.GraphExecGroup", "unpack saved tensors within one backward pass"
)


class DefaultDeviceType:
    """The kind of device whose random state is kept where no argument says one; ``cuda``."""

    _default_device_type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """The kind of device."""
        return DefaultDeviceType._default_device_type


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors of ``inputs`` as leaves that require grad as before; the rest as it is."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no input requires grad: nothing would have a gradient."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """Index and random state of every device but the CPU that an argument is on."""
    devices = {str(x.device): x.device for x in args if isinstance(x, Tensor)}
    found = [device for name, device in sorted(devices.items()) if device.type not in _STATELESS]
    states = [default_generator(str(device)).state_bytes() for device in found]
    return [device.index or 0 for device in found], states


_STATELESS = ("cpu", "meta")


def set_device_states(
    devices: list[int], states: list[Any], *, device_type: str | None = None
) -> None:
    """Set what :func:`get_device_states` gave."""
    kind = device_type or DefaultDeviceType.get_device_type()
    for index, state in zip(devices, states, strict=True):
        default_generator(f"{kind}:{index}").load_state_bytes(state)


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """The setting of ``checkpoint(debug=)`` for a block; True is not supported."""
    if enabled:
        raise AutogradError("checkpoint: debug=True is not supported", fix="leave it out")
    yield
