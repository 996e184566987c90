"""The parameters that are gathered together: their parts, and the messages about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.autograd.graph import queue_callback, saved_tensors_hooks
from coredispatch.frontend.distributed.coalesced import broadcast_all
from coredispatch.frontend.distributed.collectives import (
    all_gather_into_tensor,
    all_reduce,
    reduce_scatter_tensor,
)
from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.fsdp.inner import inner_of, part_of
from coredispatch.frontend.distributed.fsdp.policies import MixedPrecisionPolicy
from coredispatch.frontend.distributed.reducer import tensors_in
from coredispatch.frontend.distributed.reductions import ReduceOp
from coredispatch.frontend.distributed.tensor.dtensor import DTensor, wrapped
from coredispatch.frontend.distributed.tensor.placements import (
    Placement,
    Replicate,
    Shard,
    chunk,
)
from coredispatch.frontend.modes import enable_grad, is_grad_enabled, no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils._pytree import tree_map_only
from coredispatch.registry.dispatch.masks import current_pass

__all__ = ["Unit"]


class Unit:
    """The sharded parameters of a module, or of several that are gathered together.

    Several are gathered when the first of them is called, and freed when each was called once, or
    when a unit around all of them ends its forward. What is called a second time before that, or
    again in backward, gathers anew.

    Attributes:
        modules: whose forward uses the parameters.
        places: the modules and names of the parameters.
        dims: which dimension of each is divided; it is moved to the front in messages.
        shapes: of what is gathered: the whole parameters, or parts of tensor parallelism, with
            that dimension in front.
        inner: how they lie among the ranks of tensor parallelism; None for plain parameters.
        locals: the parameters as DTensors, sharded along that dimension.
        sync: whether gradients are reduced; else they are kept whole until they are.
    """

    def __init__(
        self,
        places: list[tuple[Module, str]],
        mesh: DeviceMesh,
        free: bool,
        policy: MixedPrecisionPolicy,
        dim_of: Callable[[Any], int] = lambda param: 0,
        modules: Sequence[Module] = (),
    ) -> None:
        self.modules = list(modules)
        self.inside: list[Unit] = []  # units of several modules, all of them below this one's
        self._to_come: set[int] = set()  # ids of the modules that the parameters in place wait for
        self._gathered_from: tuple[object, ...] = ()
        self._begin: Callable[[Any], None] | None = None  # what gradients of outputs call
        self.places, self.mesh, self.free, self.policy = places, mesh, free, policy
        # Of two dimensions the first has copies of what the second shards.
        self.group = mesh.get_group(mesh.ndim - 1)
        self.copies = mesh.get_group(0) if mesh.ndim == 2 else None
        self.sync = True
        self.pending: dict[int, Tensor] = {}
        params: list[Any] = [module._parameters[name] for module, name in places]
        self.inner = [inner_of(param) for param in params]
        wholes = [part_of(param) for param in params]
        if len({(w.dtype, w.device) for w in wholes}) > 1:
            raise ValueError(
                "fully_shard: the parameters of a unit have several dtypes or devices\n"
                "  fix: fully_shard the modules of each dtype first"
            )
        if wholes and wholes[0].device.type != "meta":
            for dim in range(mesh.ndim):
                broadcast_all(wholes, mesh.get_group(dim), 0)
        self.dims = [dim_of(param) for param in params]
        self.shapes = [
            tuple(w.movedim(dim, 0).shape) or (1,) for w, dim in zip(wholes, self.dims, strict=True)
        ]
        size = self.group.size()
        self.rows = [[chunk(shape[0], size, r) for r in range(size)] for shape in self.shapes]
        self.widths = [math.prod(shape[1:]) for shape in self.shapes]
        #: elements of a rank's message: the largest part of each parameter
        self.stride = sum(r[0][1] * w for r, w in zip(self.rows, self.widths, strict=True))
        self.own_shapes = [tuple(p.shape) for p in params]  # those of no dimension have one here
        self.locals = self._divide(params)
        self.gathered: dict[int, int] = {}  # address of a gathered weight -> which one
        self._hooks: list[Any] = []
        #: calls of forward whose derivative is being computed, and the parameters in place for it
        self._under_way = 0
        self._backward_wholes: list[Tensor] = []

    def _divide(self, params: list[Any]) -> list[Any]:
        copies: tuple[Placement, ...] = (Replicate(),) * (self.mesh.ndim - 1)
        made: dict[int, Any] = {}
        found = []
        for param, inner, dim, shape, rows, (module, name) in zip(
            params, self.inner, self.dims, self.shapes, self.rows, self.places, strict=True
        ):
            if id(param) not in made:
                begin, end = rows[self.group.rank()]
                moved = part_of(param).detach().movedim(dim, 0).reshape(shape)
                part = moved[begin:end].movedim(0, dim).clone(memory_format=cd.contiguous_format)
                if inner is None:
                    whole_shape = tuple(moved.movedim(0, dim).shape)
                    tensor = wrapped(part, self.mesh, (*copies, Shard(dim)), whole_shape)
                else:
                    placements = (*copies, inner.divided(dim), *inner.placements)
                    tensor = wrapped(part, inner.joined(self.mesh), placements, inner.shape or (1,))
                made[id(param)] = Parameter(tensor, requires_grad=param.requires_grad)
            module._parameters[name] = made[id(param)]
            found.append(made[id(param)])
        return found

    # -- messages -----------------------------------------------------------------------------

    def gather(self, dtype: Any = None) -> list[Tensor]:
        """The whole parameters, in `dtype` or else in that of the computation."""
        if not self.locals:
            return []
        parts = [local._local_tensor for local in self.locals]
        dtype = dtype or self.policy.param_dtype or parts[0].dtype
        own = cd.zeros(self.stride, dtype=dtype, device=parts[0].device)
        at = 0
        for part, dim, rows, width in zip(parts, self.dims, self.rows, self.widths, strict=True):
            own[at : at + part.numel()] = part.detach().movedim(dim, 0).reshape(-1).to(dtype)
            at += rows[0][1] * width
        every = cd.empty(self.stride * self.group.size(), dtype=dtype, device=own.device)
        all_gather_into_tensor(every, own, self.group)
        table, at, wholes = every.view(self.group.size(), self.stride), 0, []
        for shape, dim, rows, width, own_shape, inner in zip(
            self.shapes, self.dims, self.rows, self.widths, self.own_shapes, self.inner, strict=True
        ):
            most = rows[0][1] * width
            whole = table[:, at : at + most].reshape(-1)[: rows[-1][1] * width].view(shape)
            # memory that ends with it
            whole = whole.movedim(0, dim).clone(memory_format=cd.contiguous_format)
            if own_shape == ():
                whole = whole.reshape(())
            wholes.append(whole if inner is None else inner.close(whole))
            at += most
        return wholes

    def scatter(self, grads: Any) -> list[Any]:
        """This rank's rows of the average of the gradients over the ranks, as DTensors."""
        grads = [
            grad if grad is None or inner is None else inner.open(grad)
            for grad, inner in zip(grads, self.inner, strict=True)
        ]
        grads = self._with_pending(grads)
        if not self.sync:
            self.pending = {i: g for i, g in enumerate(grads) if g is not None}
            return [None] * len(grads)
        size = self.group.size()
        first = self.locals[0]
        dtype = self.policy.reduce_dtype or self.policy.param_dtype or first.dtype
        table = cd.zeros(size, self.stride, dtype=dtype, device=first.device)
        at = 0
        for grad, dim, rows, width in zip(grads, self.dims, self.rows, self.widths, strict=True):
            most = rows[0][1] * width
            if grad is not None:
                flat = grad.movedim(dim, 0).reshape(-1).to(dtype)
                for rank, (begin, end) in enumerate(rows):
                    part = flat[begin * width : end * width]
                    table[rank, at : at + part.numel()] = part
            at += most
        own = cd.empty(self.stride, dtype=dtype, device=first.device)
        reduce_scatter_tensor(own, table, ReduceOp.AVG, self.group)
        if self.copies is not None:
            all_reduce(own, ReduceOp.AVG, self.copies)
        at, found = 0, []
        for local, dim, rows, width in zip(
            self.locals, self.dims, self.rows, self.widths, strict=True
        ):
            part = local._local_tensor
            grad = own[at : at + part.numel()].view(part.movedim(dim, 0).shape).movedim(0, dim)
            grad = grad.clone(memory_format=cd.contiguous_format).to(part.dtype)
            found.append(wrapped(grad, local.device_mesh, local.placements, local.shape))
            at += rows[0][1] * width
        return found

    def _with_pending(self, grads: Any) -> list[Any]:
        """Gradients with what earlier passes left without reducing it."""
        pending, self.pending = self.pending, {}
        found = []
        for i, grad in enumerate(grads):
            earlier = pending.get(i)
            if earlier is not None:
                grad = earlier if grad is None else grad + earlier
            found.append(grad)
        return found

    # -- around the forward -------------------------------------------------------------------

    def enter(self, module: Module, args: Any, kwargs: Any) -> Any:
        """Put the whole parameters in place."""
        if self._backward_wholes and current_pass() is None:
            self._end_backward()  # an error ended that pass, and no callback came
        if self.places:
            if self._is_new(module):
                self._begin_forward(module)
            if self.free:
                hooks = saved_tensors_hooks(self._pack, self._unpack)
                hooks.__enter__()
                self._hooks.append(hooks)
        if self.policy.param_dtype is not None and self.policy.cast_forward_inputs:
            return _cast(args, self.policy.param_dtype), _cast(kwargs, self.policy.param_dtype)
        return None

    def _is_new(self, module: Module) -> bool:
        """Whether a call needs parameters that are not in place."""
        waited_for = len(self.modules) > 1 and id(module) in self._to_come
        return not waited_for or current_pass() is not None or self._gathered_from != self._now()

    def _now(self) -> tuple[object, ...]:
        """What parameters in place must have been gathered from, to be those of a call now."""
        versions = (local._local_tensor._version for local in self.locals)
        return (is_grad_enabled(), *versions)

    def _begin_forward(self, module: Module) -> None:
        if self._to_come:
            self.finish_forward()
        self._adopt()
        self._place(_Gather.apply(self, None, *self.locals))
        self._gathered_from = self._now()
        again = current_pass() is not None  # backward computes this call alone
        self._to_come = {id(module)} if again else {id(each) for each in self.modules}
        wholes = None if self.free else [owner._parameters[name] for owner, name in self.places]
        self._begin = self._beginning(wholes)

    def finish_forward(self) -> None:
        """Put the local parameters back after the last call, or where some modules had none."""
        self._to_come, self._begin, self.gathered = set(), None, {}
        self.reshard()

    def _adopt(self) -> None:
        """Take parameters that a program put in place, as ``load_state_dict(assign=True)`` does."""
        for i, ((owner, name), local) in enumerate(zip(self.places, self.locals, strict=True)):
            held: Any = owner._parameters[name]
            if held is local or not isinstance(held, DTensor):
                continue
            layout = (held.device_mesh, held.placements, tuple(held.shape))
            if layout == (local.device_mesh, local.placements, tuple(local.shape)):
                self.locals[i] = held

    def leave(self, module: Module, args: Any, output: Any) -> Any:
        """Put the local parameters back after the last call."""
        if self._hooks:
            self._hooks.pop().__exit__(None, None, None)
        if self._begin is not None and not self._backward_wholes:
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._begin)
        self._to_come.discard(id(module))
        if not self._to_come or output is None:  # None: the forward has failed
            self.finish_forward()
        for unit in self.inside:
            if unit._to_come:
                unit.finish_forward()
        if self._backward_wholes:  # the call was computed again, in backward
            self._place(self._backward_wholes)
        if self.policy.output_dtype is not None:
            return _cast(output, self.policy.output_dtype)
        return None

    def _place(self, wholes: Any) -> None:
        for (owner, name), whole in zip(self.places, wholes, strict=True):
            owner._parameters[name] = whole
            self.gathered[part_of(whole).untyped_storage().data_ptr()] = len(self.gathered)

    # -- around the backward ------------------------------------------------------------------

    def _beginning(self, wholes: Any) -> Callable[[Any], None]:
        """What puts whole parameters in place when the gradient of an output comes.

        Parts of the forward that are computed again (``utils.checkpoint``) need them. `wholes` are
        those of the forward where they are kept, else None.
        """
        begun = False

        def begin(grad: Any) -> None:
            nonlocal begun, wholes
            if not begun:
                self._begin_backward(wholes)
                begun, wholes = True, None

        return begin

    def _begin_backward(self, wholes: Any) -> None:
        if self._to_come and len(self.modules) > 1:  # not all of them were called
            self.finish_forward()
        if not self._backward_wholes:
            with no_grad():
                given = self.gather() if wholes is None else [w.detach() for w in wholes]
            with enable_grad():
                self._backward_wholes = list(_Gather.apply(self, given, *self.locals))
            self._place(self._backward_wholes)
            queue_callback(self._end_backward)
        self._under_way += 1

    def _end_backward(self, all_calls: bool = True) -> None:
        """The parts again, once no call needs the whole parameters."""
        self._under_way = 0 if all_calls else max(self._under_way - 1, 0)
        if not self._under_way and self._backward_wholes:
            self._backward_wholes, self.gathered = [], {}
            self.reshard()

    def unshard(self, dtype: Any = None) -> None:
        """Put whole parameters in place, without history, until :meth:`reshard`."""
        self._adopt()
        with no_grad():
            wholes = self.gather(dtype)
        for (owner, name), whole, local in zip(self.places, wholes, self.locals, strict=True):
            owner._parameters[name] = Parameter(whole, requires_grad=local.requires_grad)

    def write_back(self) -> None:
        """Take this rank's rows of the whole parameters that are in place."""
        with no_grad():
            for (owner, name), local, dim, shape, rows in zip(
                self.places, self.locals, self.dims, self.shapes, self.rows, strict=True
            ):
                begin, end = rows[self.group.rank()]
                whole: Any = owner._parameters[name]
                part = part_of(whole).detach().movedim(dim, 0).reshape(shape)[begin:end]
                local._local_tensor.copy_(part.movedim(0, dim))

    def reshard(self) -> None:
        """Put the parts in place."""
        for (owner, name), local in zip(self.places, self.locals, strict=True):
            owner._parameters[name] = local

    def _pack(self, tensor: Tensor) -> Any:
        part = part_of(tensor)
        number = self.gathered.get(part.untyped_storage().data_ptr())
        if number is None:
            return tensor
        inner = inner_of(tensor)  # of a view of the parameter, maybe
        return number, inner, tuple(part.shape), part.stride(), part.storage_offset()

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        number, inner, shape, strides, offset = packed
        with no_grad():
            wholes = self._backward_wholes or self.gather()
            part: Tensor = part_of(wholes[number]).detach().as_strided(shape, strides, offset)
            return part if inner is None else inner.close(part)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, unit: Unit, given: Any, *parts: Tensor) -> Any:
        ctx.unit, ctx.of_forward = unit, given is None
        return tuple(unit.gather() if given is None else given)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        found = ctx.unit.scatter(grads)
        if ctx.of_forward:
            ctx.unit._end_backward(all_calls=False)
        return None, None, *found


def _cast(value: Any, dtype: Any) -> Any:
    """Floating-point tensors in containers, in another dtype."""
    return tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, value)
