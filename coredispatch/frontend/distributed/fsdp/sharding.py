"""``fully_shard``: gather before use, free after, gather for backward, reduce-scatter gradients.

A unit is a module with its parameters, but for those of units inside it. Its forward gathers them
by one message, through a function whose derivative is the reduce-scatter of the gradients. What
autograd would save of the gathered weights is not kept: they are gathered again when backward comes
to the unit, and stay until it has left it. (Zhao et al., "PyTorch FSDP", 2023; ZeRO stage 3.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.fsdp.policies import MixedPrecisionPolicy, OffloadPolicy
from coredispatch.frontend.distributed.fsdp.unit import Unit
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.distributed.tensor.placements import Shard
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.container import ModuleDict, ModuleList

__all__ = ["FSDPModule", "UnshardHandle", "full_state_dict", "fully_shard", "make_unit"]


class UnshardHandle:
    """What ``unshard(async_op=True)`` returns."""

    def wait(self) -> None:
        """Return when the whole parameters are in place, which they are."""


class FSDPModule:
    """What :func:`fully_shard` adds to the class of a module."""

    def _units(self, recurse: bool = True) -> Iterator[Unit]:
        module: Any = self
        owners = module.modules() if recurse else [module]
        yield from dict.fromkeys(unit for owner in owners for unit in _units(owner))

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Put this unit's whole parameters in place, until :meth:`reshard`; all ranks call it.

        With ``async_op`` it returns what PyTorch's programs wait for. They are there at once.
        """
        for unit in self._units(False):
            unit.unshard()
        return UnshardHandle() if async_op else None

    def reshard(self) -> None:
        """Put the parts in place again; what was written to the whole parameters is lost."""
        for unit in self._units(False):
            unit.reshard()

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward reduces gradients; else they add up, whole, until one does."""
        for unit in self._units(recurse):
            unit.sync = requires_gradient_sync

    def set_reshard_after_forward(
        self, reshard_after_forward: bool, *, recurse: bool = True
    ) -> None:
        """Whether the gathered weights are freed after forward."""
        for unit in self._units(recurse):
            unit.free = reshard_after_forward

    def set_modules_to_forward_prefetch(self, modules: list[Any]) -> None:
        """Accepted: weights are gathered when they are needed."""

    def set_modules_to_backward_prefetch(self, modules: list[Any]) -> None:
        """Accepted: weights are gathered when they are needed."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted: nothing is left to do after a backward pass."""


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Any] | None = None,
    process_group: Any = None,
) -> Any:
    """Keep only this rank's rows of each parameter, in place; returns the module.

    Call it for the blocks of a model first, then for the model: each call makes a unit of what is
    not sharded yet. Parameters become DTensors (dimension 0, as ``chunk`` divides), which the
    optimizer updates. Each rank trains on its part of the batch; gradients are averages. The class
    of the module becomes one that is also an :class:`FSDPModule`.

    What ``parallelize_module`` has divided over another dimension of the same mesh is divided once
    more: parameters lie on both dimensions then (``mesh["dp"]`` here, ``mesh["tp"]`` there).

    Args:
        module: or a list of modules that make one unit: it is gathered when the first of them is
            called, and freed when all were.
        mesh: of one dimension, or of two: copies of what is sharded along the second. The default
            group by default.
        reshard_after_forward: free the gathered weights after forward and gather them again in
            backward; False keeps them.
        shard_placement_fn: gives the dimension along which a parameter is divided, as ``Shard(1)``;
            None means ``Shard(0)``.
        mp_policy: dtypes of the computation and of the reduction.
        offload_policy: accepted; parts stay where the module is.
        ignored_params: parameters that stay whole.
        process_group: instead of a mesh.

    Raises:
        TypeError: something else than a module is given.
        ValueError: the module itself is sharded already or has no forward, its parameters have
            several dtypes, or DTensors among them lie on ranks that are no part of the same mesh,
            or what ``shard_placement_fn`` gives is no dimension of its parameter.

    Example::

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        optimizer = optim.AdamW(model.parameters())     # after sharding
    """
    several = isinstance(module, (list, tuple))
    modules = _roots(module) if several else [module]
    for each in modules:
        _check_module(each)
    if mesh is None:
        mesh = DeviceMesh.from_group(resolved(process_group), "cpu")
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    free = reshard_after_forward is not False
    policy = mp_policy or MixedPrecisionPolicy()
    make_unit(modules, mesh, free, policy, ignored_params or (), shard_placement_fn)
    for each in modules:
        kind = type(each)
        if not isinstance(each, FSDPModule):
            each.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
    return module


def _check_module(module: Any) -> None:
    if not isinstance(module, Module):
        raise TypeError(
            f"fully_shard: expected a module or a list of modules, not {type(module).__name__} "
            f"({module!r:.60})\n  fix: pass the modules whose parameters shall be divided"
        )
    if isinstance(module, (ModuleList, ModuleDict)) and type(module).forward is Module.forward:
        raise ValueError(
            f"fully_shard: {type(module).__name__} has no forward, before which its parameters "
            "could be gathered\n  fix: shard the modules in it; fully_shard(list(...)) keeps them "
            "together"
        )
    if _units(module):
        raise ValueError("fully_shard: the module is sharded already\n  fix: call it once for each")


def _roots(modules: Iterable[Module]) -> list[Module]:
    """Those of several modules that are not inside another one of them, each once."""
    given = list(dict.fromkeys(modules))
    if not given:
        raise ValueError("fully_shard of an empty list\n  fix: pass at least one module")
    for module in given:
        _check_module(module)
    below = {part for module in given for part in module.modules() if part is not module}
    return [module for module in given if module not in below]


def _dim_of(shard_placement_fn: Callable[[Any], Shard | None] | None, param: Any) -> int:
    """Along which dimension a parameter is divided."""
    given = None if shard_placement_fn is None else shard_placement_fn(param)
    if given is None:
        return 0
    if type(given) is not Shard:
        raise ValueError(
            f"fully_shard: shard_placement_fn gave {given!r}, which is no Shard\n"
            "  fix: return Shard(dim), or None for Shard(0)"
        )
    dim, ndim = int(given.dim), max(int(param.ndim), 1)
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"fully_shard: shard_placement_fn gave {given!r} for a parameter of shape "
            f"{tuple(param.shape)}\n  fix: return Shard(dim) of one of its dimensions"
        )
    return dim % ndim


def make_unit(
    modules: Sequence[Module],
    mesh: DeviceMesh,
    free: bool,
    policy: MixedPrecisionPolicy,
    ignored_params: Iterable[Any],
    shard_placement_fn: Callable[[Any], Shard | None] | None = None,
) -> Unit:
    """Shard what is not sharded yet of the modules' parameters, and gather it around forward."""
    parts = list(dict.fromkeys(part for module in modules for part in module.modules()))
    known = list(dict.fromkeys(unit for part in parts for unit in _units(part)))
    taken = {id(p) for unit in known for p in unit.locals} | {id(p) for p in ignored_params}
    places = [
        (owner, name)
        for owner in parts
        for name, param in owner._parameters.items()
        if param is not None and id(param) not in taken
    ]
    unit = Unit(places, mesh, free, policy, partial(_dim_of, shard_placement_fn), modules)
    unit.inside = [
        inner for inner in known if len(inner.modules) > 1 and set(inner.modules) <= set(parts)
    ]
    for module in modules:
        module.__dict__.setdefault("_sharded_units", []).append(unit)
        module.register_forward_pre_hook(unit.enter, with_kwargs=True)
        module.register_forward_hook(unit.leave, always_call=True)
    return unit


def _units(module: Module) -> list[Unit]:
    found: list[Unit] = module.__dict__.get("_sharded_units", [])
    return found


def full_state_dict(module: Module) -> dict[str, Any]:
    """The state of a sharded module with whole parameters; all ranks call it, and all get it."""
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in module.state_dict().items()
    }
