"""What :class:`FullyShardedDataParallel` may be told, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from coredispatch.frontend.nn.modules.batchnorm import _BatchNorm

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]


class ShardingStrategy(Enum):
    """What is kept in parts.

    ``FULL_SHARD``: parameters, gradients and optimizer state; parameters are gathered for forward
    and again for backward. ``SHARD_GRAD_OP``: gathered parameters stay until backward.
    ``NO_SHARD``: nothing. ``HYBRID_SHARD`` and ``_HYBRID_SHARD_ZERO2``: as the first two within a
    machine, copies between machines.
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When backward asks for the next parameters. Accepted: they are gathered when needed."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Dtypes of a wrapped module; None leaves them as they are.

    Attributes:
        param_dtype: of the gathered parameters, and of the computation.
        reduce_dtype: in which gradients are added up; `param_dtype` by default.
        buffer_dtype: of floating-point buffers.
        keep_low_precision_grads: not there.
        cast_forward_inputs: cast the inputs of inner wrapped modules to `param_dtype`.
        cast_root_forward_inputs: cast those of the outermost one.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Whether parts lie in the memory of the CPU; those of modules on the CPU already do."""

    offload_params: bool = False


class StateDictType(Enum):
    """What ``state_dict()`` holds: whole tensors, or this rank's parts as DTensors."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """Settings of a kind of state.

    Attributes:
        offload_to_cpu: give tensors in the memory of the CPU.
    """

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Settings of whole states; with `rank0_only` the other ranks get empty ones."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Settings of local states, which are not there."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Settings of states in parts."""

    _use_dtensor: bool = True


@dataclass
class OptimStateDictConfig:
    """Settings of a kind of optimizer state."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Settings of whole optimizer states; with `rank0_only` the other ranks get empty ones."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Settings of local optimizer states, which are not there."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Settings of optimizer states in parts."""

    _use_dtensor: bool = True


@dataclass
class StateDictSettings:
    """What :meth:`FullyShardedDataParallel.state_dict_type` sets."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=FullStateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(default_factory=FullOptimStateDictConfig)


class OptimStateKeyType(Enum):
    """How the parameters of an optimizer state are called."""

    PARAM_NAME = auto()
    PARAM_ID = auto()
