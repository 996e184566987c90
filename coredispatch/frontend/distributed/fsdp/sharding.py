"""``fully_shard``: gather before use, free after, gather for backward, reduce-scatter gradients.

A unit is a module with its parameters, but for those of units inside it. Its forward gathers them
by one message, through a function whose derivative is the reduce-scatter of the gradients. What
autograd would save of the gathered weights is not kept: it is gathered again when backward reads
it. (Zhao et al., "PyTorch FSDP", 2023; ZeRO stage 3.)
"""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.autograd.graph import saved_tensors_hooks
from coredispatch.frontend.distributed.coalesced import broadcast_all
from coredispatch.frontend.distributed.collectives import (
    all_gather_into_tensor,
    reduce_scatter_tensor,
)
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.reductions import ReduceOp
from coredispatch.frontend.distributed.replicated import bounds
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor

__all__ = ["full_state_dict", "fully_shard"]


class _Unit:
    """The sharded parameters of a module.

    Attributes:
        places: the modules and names of the parameters.
        shapes: of the whole parameters.
        locals: this rank's rows of each.
    """

    def __init__(self, places: list[tuple[Module, str]], group: ProcessGroup, free: bool) -> None:
        self.places, self.group, self.free = places, group, free
        wholes = [module._parameters[name] for module, name in places]
        if len({(w.dtype, w.device) for w in wholes if w is not None}) > 1:
            raise ValueError(
                "fully_shard: the parameters of a unit have several dtypes or devices\n"
                "  fix: fully_shard the modules of each dtype first"
            )
        broadcast_all([w for w in wholes if w is not None], group, 0)
        self.shapes = [tuple(w.shape) for w in wholes if w is not None]
        self.rows = [bounds(shape[0] if shape else 1, group) for shape in self.shapes]
        self.widths = [_width(shape) for shape in self.shapes]
        #: elements of a rank's message: the largest part of each parameter
        self.stride = sum(r[0][1] * w for r, w in zip(self.rows, self.widths, strict=True))
        self.locals: list[Any] = []
        made: dict[int, Any] = {}
        for whole, rows, (module, name) in zip(wholes, self.rows, places, strict=True):
            assert whole is not None
            begin, end = rows[group.rank()]
            if id(whole) not in made:
                flat = whole.detach().reshape(rows[-1][1] if whole.ndim else 1, *whole.shape[1:])
                part = flat[begin:end].clone()
                made[id(whole)] = Parameter(part, requires_grad=whole.requires_grad)
                shape = tuple(whole.shape) or (1,)
                made[id(whole)].shard = (shape, (begin, *[0] * (len(shape) - 1)))
            module._parameters[name] = made[id(whole)]
            self.locals.append(made[id(whole)])
        self.gathered: dict[int, int] = {}  # address of a gathered weight -> which one
        self._hooks: list[Any] = []

    # -- messages -----------------------------------------------------------------------------

    def gather(self, parts: Any) -> list[Tensor]:
        """The whole parameters."""
        own = cd.zeros(self.stride, dtype=parts[0].dtype)
        at = 0
        for part, rows, width in zip(parts, self.rows, self.widths, strict=True):
            own[at : at + part.numel()] = part.detach().reshape(-1)
            at += rows[0][1] * width
        every = cd.empty(self.stride * self.group.size(), dtype=own.dtype)
        all_gather_into_tensor(every, own, self.group)
        table, at, wholes = every.view(self.group.size(), self.stride), 0, []
        for shape, rows, width in zip(self.shapes, self.rows, self.widths, strict=True):
            most = rows[0][1] * width
            wholes.append(table[:, at : at + most].reshape(-1)[: rows[-1][1] * width].view(shape))
            wholes[-1] = wholes[-1].clone()  # memory of its own, which ends with it
            at += most
        return wholes

    def scatter(self, grads: Any) -> list[Tensor]:
        """This rank's rows of the average of the gradients over the ranks."""
        size = self.group.size()
        table = cd.zeros(size, self.stride, dtype=self.locals[0].dtype)
        at = 0
        for grad, rows, width in zip(grads, self.rows, self.widths, strict=True):
            most = rows[0][1] * width
            if grad is not None:
                flat = grad.reshape(-1)
                for rank, (begin, end) in enumerate(rows):
                    part = flat[begin * width : end * width]
                    table[rank, at : at + part.numel()] = part
            at += most
        own = cd.empty(self.stride, dtype=table.dtype)
        reduce_scatter_tensor(own, table, ReduceOp.AVG, self.group)
        at, found = 0, []
        for local, rows, width in zip(self.locals, self.rows, self.widths, strict=True):
            found.append(own[at : at + local.numel()].view(local.shape).clone())
            at += rows[0][1] * width
        return found

    # -- around the forward -------------------------------------------------------------------

    def enter(self, module: Module, args: Any) -> None:
        """Put the whole parameters in place."""
        wholes = _Gather.apply(self, *self.locals)
        for (owner, name), whole in zip(self.places, wholes, strict=True):
            owner._parameters[name] = whole
            self.gathered[whole.untyped_storage().data_ptr()] = len(self.gathered)
        if self.free:
            hooks = saved_tensors_hooks(self._pack, self._unpack)
            hooks.__enter__()
            self._hooks.append(hooks)

    def leave(self, module: Module, args: Any, output: Any) -> None:
        """Put the local parameters back."""
        if self._hooks:
            self._hooks.pop().__exit__(None, None, None)
        for (owner, name), local in zip(self.places, self.locals, strict=True):
            owner._parameters[name] = local
        self.gathered = {}

    def _pack(self, tensor: Tensor) -> Any:
        number = self.gathered.get(tensor.untyped_storage().data_ptr())
        if number is None:
            return tensor
        return number, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        number, shape, strides, offset = packed
        with no_grad():
            whole = self.gather(self.locals)[number]
            found: Tensor = whole.as_strided(shape, strides, offset)
        return found


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, unit: _Unit, *parts: Tensor) -> Any:
        ctx.unit = unit
        return tuple(unit.gather(parts))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.unit.scatter(grads)


def _width(shape: tuple[int, ...]) -> int:
    width = 1
    for length in shape[1:]:
        width *= length
    return width


def fully_shard(
    module: Module,
    *,
    mesh: Any = None,
    reshard_after_forward: bool = True,
    process_group: Any = None,
    **unsupported: Any,
) -> Module:
    """Keep only this rank's rows of each parameter, in place; returns the module.

    Call it for the blocks of a model first, then for the model: each call makes a unit of what is
    not sharded yet. Parameters become the local rows (dimension 0, as ``chunk`` divides), which
    the optimizer updates. Each rank trains on its part of the batch; gradients are averages.

    Args:
        mesh: of one dimension; the default group.
        reshard_after_forward: free the gathered weights after forward and gather them again in
            backward; False keeps them.
        process_group: instead of a mesh.

    Raises:
        ValueError: nothing is left to shard. NotImplementedError: policies.

    Example::

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        optimizer = optim.AdamW(model.parameters())     # after sharding
    """
    if any(value is not None for value in unsupported.values()):
        raise NotImplementedError(f"fully_shard({next(iter(unsupported))}=) is not there")
    group = resolved(process_group if mesh is None else mesh.get_group())
    sharded = {id(p) for m in module.modules() for unit in _units(m) for p in unit.locals}
    places = [
        (owner, name)
        for owner in module.modules()
        for name, param in owner._parameters.items()
        if param is not None and id(param) not in sharded
    ]
    if not places:
        raise ValueError("fully_shard: the module has no parameter that is not sharded already")
    unit = _Unit(places, group, reshard_after_forward)
    module.__dict__.setdefault("_sharded_units", []).append(unit)
    module.register_forward_pre_hook(unit.enter)
    module.register_forward_hook(unit.leave, always_call=True)
    return module


def _units(module: Module) -> list[_Unit]:
    found: list[_Unit] = module.__dict__.get("_sharded_units", [])
    return found


def full_state_dict(module: Module) -> dict[str, Any]:
    """The state of a sharded module with whole parameters; all ranks call it, and all get it."""
    wholes: dict[tuple[int, str], Tensor] = {}
    with no_grad():
        for owner in module.modules():
            for unit in _units(owner):
                for (holder, name), whole in zip(
                    unit.places, unit.gather(unit.locals), strict=True
                ):
                    wholes[id(holder), name] = whole
    state = dict(module.state_dict())
    for prefix, owner in module.named_modules():
        for name in owner._parameters:
            if (id(owner), name) in wholes:
                state[f"{prefix}.{name}" if prefix else name] = wholes[id(owner), name]
    return state
