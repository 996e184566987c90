"""``DTensor``: a tensor that lies in parts on the ranks of a mesh, and computes as a whole.

It is a subclass without data of its own: operators come below autograd to ``__torch_dispatch__``,
which moves the operands to layouts with which the operator can run on the parts
(``sharding.propagation``). Derivatives are operators, so they are computed in parts as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.distributed.device_mesh import DeviceMesh, current_mesh
from coredispatch.frontend.distributed.tensor.mixing import DISTRIBUTED
from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Replicate,
    Shard,
    local_layout,
)
from coredispatch.frontend.distributed.tensor.transfers import moved
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.torch_dispatch import make_wrapper_subclass
from coredispatch.frontend.torch_function import disabled_torch_function
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.sizes import contiguous_strides

__all__ = ["DTensor", "global_shape", "normalized", "wrapped"]


def normalized(
    placements: Sequence[Placement] | None, mesh: DeviceMesh, ndim: int
) -> tuple[Placement, ...]:
    """Placements, one for each dimension of the mesh, with dimensions counted from 0.

    Raises ValueError where they are not one for each, IndexError for a dimension that is not there.
    """
    if placements is None:
        return tuple(Replicate() for _ in range(mesh.ndim))
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements "
            f"length: {len(placements)}, and device_mesh.ndim: {mesh.ndim}."
        )
    found = []
    for placement in placements:
        if isinstance(placement, Shard):
            if not -ndim <= placement.dim < ndim:
                raise IndexError(
                    f"{placement!r}: the tensor has {ndim} dimensions\n  fix: shard one of them"
                )
            placement = replace(placement, dim=placement.dim % ndim)
        found.append(placement)
    return tuple(found)


def wrapped(
    local: Any,
    mesh: DeviceMesh,
    placements: tuple[Placement, ...],
    shape: Sequence[int],
    requires_grad: bool = False,
) -> Any:
    """A DTensor of parts that lie as `placements` say. Nothing is sent."""
    shape = tuple(shape)
    made = make_wrapper_subclass(
        DTensor,
        shape,
        strides=contiguous_strides(shape),
        dtype=local.dtype,
        device=local.device,
        requires_grad=requires_grad,
    )
    made._local_tensor, made.device_mesh, made.placements = local, mesh, placements
    made.keys |= DISTRIBUTED
    return made


def global_shape(
    local: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[int, ...]:
    """The shape of the whole where every rank has a part of this size."""
    shape = list(local)
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            shape[placement.dim] *= mesh.size(mesh_dim)
    return tuple(shape)


class DTensor(Tensor):
    """Made by :func:`distribute_tensor` and :meth:`from_local`.

    Attributes:
        device_mesh: the ranks.
        placements: one for each dimension of the mesh.
    """

    __module__ = "coredispatch.distributed.tensor"
    __torch_function__ = disabled_torch_function

    _local_tensor: Any
    #: of a view whose elements were gathered for it: where they come from
    _copied: Any = None
    #: the tensors that share its elements, once there are views
    _aliases: Any = None
    device_mesh: DeviceMesh
    placements: tuple[Placement, ...]

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from coredispatch.frontend.distributed.tensor.sharding.propagation import propagate

        return propagate(func, args, kwargs or {})

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """The tensor whose parts the ranks have; differentiable.

        Args:
            placements: how they lie; ``[Replicate()]`` by default.
            run_check: let all ranks take replicated values from the first of the mesh.
            shape: of the whole, where the parts are not of one size.
            stride: accepted; strides are those of a contiguous tensor.
            grad_placements: how the gradient that `local_tensor` gets lies; as the tensor does.
        """
        mesh = current_mesh() if device_mesh is None else device_mesh
        found = normalized(placements, mesh, local_tensor.ndim)
        whole = global_shape(local_tensor.shape, mesh, found) if shape is None else tuple(shape)
        if run_check:
            from coredispatch.frontend.distributed.collectives import broadcast

            for dim, placement in enumerate(found):
                if placement.is_replicate():
                    broadcast(local_tensor, group=mesh.get_group(dim), group_src=0)
        back = _of_gradient(found)
        if grad_placements is not None:
            back = normalized(grad_placements, mesh, len(whole))
        return _FromLocal.apply(local_tensor, mesh, found, whole, back)  # type: ignore[no-any-return]

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """This rank's part, as a tensor; differentiable.

        Args:
            grad_placements: how the gradient that comes back to it lies; as the tensor does.
        """
        if not self.requires_grad:
            return self._local_tensor
        return _ToLocal.apply(self, grad_placements)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """The whole tensor, on every rank; all ranks of the mesh call it. Differentiable."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor in another layout; all ranks of the mesh call it. Differentiable.

        Args:
            async_op: accepted; the parts are there when this returns.
            forward_dtype: of the result; parts are converted before they are sent.
            backward_dtype: in which parts of the gradient are sent; it is converted back.
        """
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError(
                "redistribute to another mesh is not there\n  fix: full_tensor(), then "
                "distribute_tensor"
            )
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        target = normalized(placements, self.device_mesh, self.ndim)
        if any(
            isinstance(b, Partial) and a != b for a, b in zip(self.placements, target, strict=True)
        ):
            raise RuntimeError("Can not redistribute from non-Partial to Partial!\n"
                               "  fix: DTensor.from_local(tensor, mesh, [Partial()])")  # fmt: skip
        given: Any = self if forward_dtype is None else self.to(forward_dtype)
        return _Redistribute.apply(given, target, backward_dtype)  # type: ignore[no-any-return]

    def stride(self, dim: int | None = None) -> Any:
        """The strides of the whole, as if it were contiguous."""
        strides = contiguous_strides(tuple(self.shape))
        return strides if dim is None else strides[dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether this rank's part is."""
        return bool(self._local_tensor.is_contiguous())

    # -- reading --------------------------------------------------------------------------------

    def _whole(self) -> Any:
        """All of it, without history."""
        detached: Any = self.detach()
        return detached.full_tensor()

    def item(self) -> Any:
        """The value of a tensor of one element; all ranks of the mesh call it."""
        return self._whole().item()

    def tolist(self) -> Any:
        """The values; all ranks of the mesh call it."""
        return self._whole().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The values; all ranks of the mesh call it."""
        return self._whole().numpy(force=force)

    def __bool__(self) -> bool:
        return bool(self._whole())

    def __float__(self) -> float:
        return float(self._whole())

    def __int__(self) -> int:
        return int(self._whole())

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        local = self._local_tensor
        return (
            f"DTensor(local_tensor={local}, device_mesh={self.device_mesh}, "
            f"placements={self.placements})"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise AutogradError(
                "only leaf tensors can be deep-copied: the copy would not know its history",
                fix="copy tensor.detach(), or use tensor.clone()",
            )
        copy = wrapped(
            self._local_tensor.detach().clone(),
            self.device_mesh,
            self.placements,
            self.shape,
            self.requires_grad,
        )
        if hasattr(self, "_is_param"):
            copy.__dict__["_is_param"] = True
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NotImplementedError(
            "a DTensor cannot be pickled: its mesh belongs to this job\n"
            "  fix: distributed.checkpoint.save, or full_tensor()"
        )

    def __create_chunk_list__(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """``[(offsets, sizes)]`` of this rank's part."""
        sizes, offsets = local_layout(self.shape, self.device_mesh, self.placements)
        return [(offsets, sizes)]


def _of_gradient(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """How the gradient of a tensor lies: as the tensor does, but that of a sum is whole."""
    return tuple(Replicate() if p.is_partial() else p for p in placements)


def _as_placed(grad: Any, mesh: DeviceMesh, target: tuple[Placement, ...]) -> Any:
    """This rank's part of a gradient in the layout `target`, in memory of its own."""
    local = moved(grad._local_tensor, grad.shape, mesh, grad.placements, target)
    return local.clone() if local is grad._local_tensor else local


_DATA: Any = Tensor.data
DTensor.data = property(  # type: ignore[assignment]
    lambda self: _data(self), lambda self, value: _set_data(self, value), doc=_DATA.__doc__
)


def _data(self: DTensor) -> Any:
    data = _DATA.__get__(self)
    if isinstance(data, DTensor):
        return data
    # The key of subclasses does not come with a tensor without memory.
    return wrapped(self._local_tensor.detach(), self.device_mesh, self.placements, self.shape)


def _emptied(self: DTensor, device: Any) -> DTensor:
    """An uninitialised DTensor of the same layout, with its parts on `device`."""
    local = TABLE.operator("empty_like")(self._local_tensor, device=device)
    made: DTensor = wrapped(local, self.device_mesh, self.placements, tuple(self.shape))
    return made


DTensor._emptied = _emptied  # type: ignore[attr-defined]


def _set_data(self: DTensor, value: Any) -> None:
    if not isinstance(value, DTensor):
        raise TypeError(
            f"the data of a DTensor must be a DTensor, not {type(value).__name__}\n"
            "  fix: distribute_tensor(value, x.device_mesh, x.placements)"
        )
    local, mesh, placements = value._local_tensor, value.device_mesh, value.placements
    made = wrapped(local, mesh, placements, value.shape)
    _DATA.__set__(self, made)
    self.raw.attributes = self.__dict__
    self._local_tensor, self.device_mesh, self.placements = local, mesh, placements


def _new(name: str) -> Any:
    make = getattr(Tensor, name)

    def method(self: DTensor, *args: Any, **kwargs: Any) -> Any:
        local = make(self._local_tensor, *args, **kwargs)
        whole = tuple(Replicate() for _ in range(self.device_mesh.ndim))
        return wrapped(local.detach(), self.device_mesh, whole, local.shape, local.requires_grad)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"As ``Tensor.{name}``; a DTensor, replicated."
    return method


for _name in ("new_empty", "new_zeros", "new_ones", "new_full"):
    setattr(DTensor, _name, _new(_name))


def _refuses(name: str) -> Any:
    def method(self: DTensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} of a DTensor: its shape and layout do not change in place\n"
            f"  fix: x = x.{name.removesuffix('_')}(...)"
        )

    method.__name__ = method.__qualname__ = name
    method.__doc__ = "Raises NotImplementedError: a DTensor keeps its shape."
    return method


for _name in (
    *("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_"),
    *("resize_", "resize_as_"),
):
    setattr(DTensor, _name, _refuses(_name))


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, local: Any, mesh: Any, placements: Any, shape: Any, back: Any) -> Any:
        ctx.mesh, ctx.placements = mesh, back
        return wrapped(local.detach(), mesh, placements, shape)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _as_placed(grad, ctx.mesh, ctx.placements), None, None, None, None


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, tensor: DTensor, grad_placements: Any) -> Any:
        ctx.mesh, ctx.shape = tensor.device_mesh, tuple(tensor.shape)
        placements = tensor.placements if grad_placements is None else grad_placements
        ctx.placements = _of_gradient(placements) if grad_placements is None else tuple(placements)
        return tensor._local_tensor.detach().view_as(tensor._local_tensor)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return wrapped(grad.clone(), ctx.mesh, ctx.placements, ctx.shape), None


class _Redistribute(Function):
    @staticmethod
    def forward(ctx: Any, tensor: DTensor, target: Any, backward_dtype: Any) -> Any:
        ctx.mesh, ctx.source = tensor.device_mesh, tensor.placements
        ctx.own_dtype, ctx.sent_dtype = tensor.dtype, backward_dtype
        local = tensor._local_tensor
        found = moved(local, tensor.shape, ctx.mesh, tensor.placements, target)
        return wrapped(found.view_as(found), ctx.mesh, target, tensor.shape)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.sent_dtype is not None:
            grad = grad.to(ctx.sent_dtype)
        target = _of_gradient(ctx.source)
        local = _as_placed(grad, ctx.mesh, target).to(ctx.own_dtype)
        return wrapped(local, ctx.mesh, target, grad.shape), None, None
