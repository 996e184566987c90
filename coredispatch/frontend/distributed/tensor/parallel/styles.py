"""Styles: how the parameters, the inputs and the outputs of one module lie on a mesh.

The layouts are those of Shoeybi et al., "Megatron-LM", 2019, section 3 (columns, rows), and of
Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022
(sequence).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.distributed.tensor.making import distribute_module, distribute_tensor
from coredispatch.frontend.distributed.tensor.placements import Placement, Replicate, Shard
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.linear import Linear
from coredispatch.frontend.nn.modules.sparse import Embedding
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor

__all__ = ["ColwiseParallel", "ParallelStyle", "RowwiseParallel", "SequenceParallel", "as_placed"]


class ParallelStyle(ABC):
    """How a module is divided over the ranks of a mesh of one dimension."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module: ...


def as_placed(
    value: Any,
    mesh: DeviceMesh,
    layout: Placement,
    desired: Placement,
    width: int | None = None,
) -> Any:
    """A tensor of which this rank has what `layout` says, as a DTensor that lies as `desired`.

    `width` is the length of the last dimension of the whole, where the parts may be uneven.
    """
    if not isinstance(value, DTensor):
        last = isinstance(layout, Shard) and layout.dim in (-1, value.ndim - 1)
        shape = (*value.shape[:-1], width) if width is not None and last else None
        value = DTensor.from_local(value, mesh, [layout], shape=shape)
    wanted = Shard(desired.dim % value.ndim) if isinstance(desired, Shard) else desired
    return value if value.placements == (wanted,) else value.redistribute(placements=[wanted])


def _divide(module: Module, mesh: DeviceMesh, places: dict[str, Placement], src: Any) -> None:
    """Replace parameters by DTensors that lie as `places` says."""
    for name, param in module._parameters.items():
        if param is not None:
            made = distribute_tensor(param.detach(), mesh, [places[name]], src_data_rank=src)
            module._parameters[name] = Parameter(made, requires_grad=param.requires_grad)


class _Divided(ParallelStyle):
    """What column and row have in common."""

    #: layout of the parameters, by the class of the module
    _places: dict[type, dict[str, Placement]]

    def __init__(
        self,
        input_layout: Placement,
        output_layout: Placement,
        use_local_output: bool,
    ) -> None:
        super().__init__()
        self.input_layouts, self.output_layouts = (input_layout,), (output_layout,)
        self.use_local_output = use_local_output

    def _desired(self, module: Module) -> Placement:
        return Replicate()

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        places = next((p for kind, p in self._places.items() if isinstance(module, kind)), None)
        if places is None:
            raise NotImplementedError(
                f"{type(self).__name__} takes nn.Linear and nn.Embedding, not "
                f"{type(module).__name__}\n  fix: name the layers inside it in the plan"
            )
        desired = self._desired(module)
        width = module.in_features if isinstance(module, Linear) else None

        def divide(name: str, part: Module, mesh: DeviceMesh) -> None:
            _divide(part, mesh, places, self.src_data_rank)

        def enter(part: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            return as_placed(inputs[0], mesh, self.input_layouts[0], desired, width)

        def leave(part: Module, output: Any, mesh: DeviceMesh) -> Any:
            found = as_placed(output, mesh, self.output_layouts[0], self.output_layouts[0])
            return found.to_local() if self.use_local_output else found

        return distribute_module(module, device_mesh, divide, enter, leave)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, "
            f"output_layouts={self.output_layouts}, use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_Divided):
    """A ``Linear`` by output features, an ``Embedding`` by embedding dimensions.

    Args:
        input_layouts: how the input lies; ``Replicate()``.
        output_layouts: how the output shall lie; ``Shard(-1)``, for a :class:`RowwiseParallel` to
            follow.
        use_local_output: give a tensor with this rank's part, rather than a DTensor.
    """

    _places = {
        Linear: {"weight": Shard(0), "bias": Shard(0)},
        Embedding: {"weight": Shard(1)},
    }

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output
        )


class RowwiseParallel(_Divided):
    """A ``Linear`` by input features, an ``Embedding`` by the rows of its table.

    Args:
        input_layouts: how the input lies; ``Shard(-1)``, what a :class:`ColwiseParallel` gives.
            That of an Embedding is ``Replicate()`` in most programs, which must be said.
        output_layouts: how the output shall lie; ``Replicate()``.
        use_local_output: give a tensor with this rank's part, rather than a DTensor.
    """

    _places = {
        Linear: {"weight": Shard(1), "bias": Replicate()},
        Embedding: {"weight": Shard(0)},
    }

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output
        )

    def _desired(self, module: Module) -> Placement:
        return Shard(-1) if isinstance(module, Linear) else Replicate()


class SequenceParallel(ParallelStyle):
    """``LayerNorm``, ``Dropout``, ``RMSNorm`` on parts of the sequence, with replicated weights.

    Args:
        sequence_dim: of the input; 1.
        use_local_output: give a tensor with this rank's part, rather than a DTensor.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        super().__init__()
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        (sharding,) = self.sequence_sharding

        def replicate(name: str, part: Module, mesh: DeviceMesh) -> None:
            _divide(part, mesh, dict.fromkeys(part._parameters, Replicate()), self.src_data_rank)

        def enter(part: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            if not isinstance(inputs[0], Tensor):
                raise ValueError(
                    f"expecting input of {type(part).__name__} to be a Tensor or DTensor, but got "
                    f"{inputs[0]!r}"
                )
            return as_placed(inputs[0], mesh, sharding, sharding)

        def leave(part: Module, output: Any, mesh: DeviceMesh) -> Any:
            return output.to_local() if self.use_local_output else output

        return distribute_module(module, device_mesh, replicate, enter, leave)

    def __repr__(self) -> str:
        return (
            f"SequenceParallel(sequence_dim={self.sequence_sharding[0].dim}, "
            f"use_local_output={self.use_local_output})"
        )
