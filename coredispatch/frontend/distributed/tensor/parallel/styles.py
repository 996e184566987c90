"""``Linear`` and ``Embedding`` in columns or rows."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

from coredispatch.frontend.distributed.coalesced import broadcast_all
from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.replicated import (
    bounds,
    gather_parts,
    own_part,
    sum_of_parts,
    to_parts,
)
from coredispatch.frontend.distributed.tensor.placements import Placement, Replicate, Shard
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.linear import Linear
from coredispatch.frontend.nn.modules.sparse import Embedding
from coredispatch.frontend.nn.parameter import Parameter

__all__ = ["ColwiseParallel", "ParallelStyle", "RowwiseParallel", "parallelize_module"]


class ParallelStyle:
    """How a module is divided over the ranks of a mesh of one dimension."""

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        raise NotImplementedError(f"{type(self).__name__} does not define _apply")


def _layout(name: str, value: Placement | None, default: Placement, allowed: Any) -> Placement:
    chosen = default if value is None else value
    if chosen not in allowed:
        raise NotImplementedError(f"{name}={value!r} is not there\n  fix: use one of {allowed}")
    return chosen


def _keep_part(module: Module, name: str, dim: int, group: Any) -> None:
    """Replace a parameter by this rank's part of rank 0's."""
    whole = module._parameters.get(name)
    if whole is None:
        return
    broadcast_all([whole], group, 0)
    begin, end = bounds(whole.shape[dim], group)[group.rank()]
    part = whole.detach().narrow(dim, begin, end - begin).clone()
    made: Any = Parameter(part, requires_grad=whole.requires_grad)
    made.shard = (tuple(whole.shape), tuple(begin * (d == dim) for d in range(whole.ndim)))
    module._parameters[name] = made


def _group(mesh: DeviceMesh) -> Any:
    return mesh.get_group()


class ColwiseParallel(ParallelStyle):
    """A ``Linear`` by output features, an ``Embedding`` by embedding dimensions.

    Args:
        input_layouts: ``Replicate()``.
        output_layouts: ``Shard(-1)``, for a :class:`RowwiseParallel` to follow, or
            ``Replicate()``.
        use_local_output: accepted; outputs are tensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _layout("input_layouts", input_layouts, Replicate(), (Replicate(),))
        allowed = (Shard(-1), Replicate())
        self.output = _layout("output_layouts", output_layouts, Shard(-1), allowed)

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        group = _group(mesh)
        if isinstance(module, Linear):
            length = module.out_features
            _keep_part(module, "weight", 0, group)
            _keep_part(module, "bias", 0, group)
            module.register_forward_pre_hook(lambda m, args: (to_parts(args[0], group),))
        elif isinstance(module, Embedding):
            length = module.embedding_dim
            _keep_part(module, "weight", 1, group)
        else:
            raise NotImplementedError(
                f"ColwiseParallel takes nn.Linear and nn.Embedding, not {type(module).__name__}\n"
                "  fix: name the layers inside it in the plan"
            )
        if self.output == Replicate():
            module.register_forward_hook(lambda m, args, out: gather_parts(out, -1, length, group))
        return module


class RowwiseParallel(ParallelStyle):
    """A ``Linear`` by input features, an ``Embedding`` by the rows of its table.

    Args:
        input_layouts: ``Shard(-1)`` for Linear, what a :class:`ColwiseParallel` gives, or
            ``Replicate()``; for Embedding always ``Replicate()``.
        output_layouts: ``Replicate()``.
        use_local_output: accepted; outputs are tensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        allowed = (Shard(-1), Replicate())
        self.input = _layout("input_layouts", input_layouts, Shard(-1), allowed)
        _layout("output_layouts", output_layouts, Replicate(), (Replicate(),))

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        group = _group(mesh)
        if isinstance(module, Linear):
            self._divide_linear(module, group)
        elif isinstance(module, Embedding):
            self._divide_embedding(module, group)
        else:
            raise NotImplementedError(
                f"RowwiseParallel takes nn.Linear and nn.Embedding, not {type(module).__name__}\n"
                "  fix: name the layers inside it in the plan"
            )
        return module

    def _divide_linear(self, module: Any, group: Any) -> None:
        _keep_part(module, "weight", 1, group)
        bias = module.bias
        if bias is not None:
            broadcast_all([bias], group, 0)
        if self.input == Replicate():
            module.register_forward_pre_hook(lambda m, args: (own_part(args[0], -1, group),))

        def forward(input: Any) -> Any:
            from coredispatch.frontend.nn.functional import linear

            total = sum_of_parts(linear(input, module.weight), group)
            return total if module.bias is None else total + module.bias  # once, not on each rank

        module.forward = forward

    def _divide_embedding(self, module: Any, group: Any) -> None:
        if module.max_norm is not None or module.padding_idx is not None:
            raise NotImplementedError(
                "RowwiseParallel of an Embedding with max_norm or padding_idx is not there\n"
                "  fix: ColwiseParallel(output_layouts=Replicate())"
            )
        begin, end = bounds(module.num_embeddings, group)[group.rank()]
        _keep_part(module, "weight", 0, group)

        def forward(input: Any) -> Any:
            from coredispatch.frontend.nn.functional import embedding

            here = (input >= begin) & (input < end)
            if end == begin:  # more ranks than rows
                found = module.weight.new_zeros((*input.shape, module.embedding_dim))
                return sum_of_parts(found + module.weight.sum(), group)
            rows = embedding((input - begin).clamp(0, end - begin - 1), module.weight)
            return sum_of_parts(rows * here.unsqueeze(-1).to(rows.dtype), group)

        module.forward = forward


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide layers of a module over a mesh of one dimension, in place; returns the module.

    All ranks begin with the weights of the mesh's first rank. All ranks compute the same loss from
    the same batch.

    Args:
        device_mesh: such as ``init_device_mesh("cpu", (4,))`` or ``mesh["tp"]``.
        parallelize_plan: a style for the module, or names of layers (with ``*``) and their styles.

    Raises:
        ValueError: the plan names a layer that is not there.

    Example::

        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    """
    if device_mesh is None:
        from coredispatch.frontend.distributed.groups import get_world_size

        device_mesh = DeviceMesh("cpu", list(range(get_world_size())))
    if device_mesh.ndim != 1:
        raise ValueError(f"{device_mesh} has {device_mesh.ndim} dimensions\n  fix: mesh['tp']")
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan._apply(module, device_mesh)
    for pattern, style in (parallelize_plan or {}).items():
        chosen = [m for name, m in module.named_modules() if fnmatch(name, pattern)]
        if not chosen:
            names = ", ".join(name for name, _ in module.named_modules() if name)
            raise ValueError(f"the plan names {pattern!r}, which is no layer\n  fix: {names}")
        for found in chosen:
            style._apply(found, device_mesh)
    return module
