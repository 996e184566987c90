"""``DistributedDataParallel``: each rank trains a copy of the module on its part of the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch.frontend.modes import is_grad_enabled, no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parallel.data_parallel import _moved
from coredispatch.registry.model.device import Device

__all__ = ["DistributedDataParallel"]

_MEGABYTE = 1024 * 1024


def _samples(inputs: Any, kwargs: dict[str, Any]) -> int:
    """The length of the first tensor among the inputs; 1 where there is none."""
    for value in (*inputs, *kwargs.values()):
        if getattr(value, "ndim", 0):
            return int(value.shape[0])
    return 1


class DistributedDataParallel(Module):
    """Averages gradients over the ranks while backward runs, so that all copies stay the same.

    Parameters and buffers begin as those of rank 0. Every rank calls forward and backward equally
    often (else see :meth:`join`).

    Args:
        module: what to train; its parameters must not change afterwards.
        device_ids, output_device: the CUDA device of the module, None for CPUs.
        broadcast_buffers: copy rank 0's buffers to all before each forward in training.
        init_sync: check shapes and copy parameters and buffers of rank 0 at the beginning.
        process_group: the ranks; the default group.
        bucket_cap_mb: megabytes of gradients that are reduced at once; 25.
        find_unused_parameters: expect parameters that have no part in the loss.
        gradient_as_bucket_view: let gradients share the memory of the buckets.
        static_graph: every pass uses the same parameters; those that the first leaves out, all do.
        delay_all_reduce_named_params: names and parameters whose gradients are averaged together
            at the end of a backward pass in which `param_to_hook_all_reduce` gets a gradient. The
            arguments above, hooks and :meth:`no_sync` are not about them.
        param_to_hook_all_reduce: the parameter that says so.
        device_mesh: a mesh of one dimension, instead of a group.

    Raises:
        ValueError: there is no process group. RuntimeError: no parameter requires grad, or the
            modules of the ranks have other shapes.

    Example::

        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
        model(x).sum().backward()       # gradients are averages over the ranks
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        for name, value in (
            ("mixed_precision", mixed_precision),
            ("bucket_cap_mb_list", bucket_cap_mb_list),
        ):
            if value is not None:
                raise NotImplementedError(
                    f"DistributedDataParallel({name}=) is not there\n  fix: leave it out"
                )
        from coredispatch.frontend.distributed.delayed import DelayedReduction, delayed_parameters
        from coredispatch.frontend.distributed.groups import resolved
        from coredispatch.frontend.distributed.monitoring import dashboard_monitor

        trigger = param_to_hook_all_reduce
        delayed = delayed_parameters(module, delay_all_reduce_named_params, trigger)
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
            process_group = device_mesh.get_group()
        self.process_group = resolved(process_group)
        self.device_ids = None if device_ids is None else list(device_ids)
        self.output_device, self.dim = output_device, dim
        self.module = module
        self.broadcast_buffers = broadcast_buffers is not False
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * _MEGABYTE)
        self._check_devices()
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        apart = {id(p) for p in delayed}
        named = [
            (name, p)
            for name, p in module.named_parameters()
            if p.requires_grad and name not in ignored and id(p) not in apart
        ]
        if not named and not delayed:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        self.parameters_to_ignore = ignored
        if init_sync:
            self._begin_alike()
        self._make_reducer(named)
        if delayed:
            self._delayed = DelayedReduction(delayed, trigger, self.process_group)
        self._monitor = dashboard_monitor(self.process_group)

    def _check_devices(self) -> None:
        if not self.device_ids:
            return
        if any(p.device.type == "cpu" for p in self.module.parameters()):
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with "
                "single-device/multiple-device GPU modules or CPU modules, but got device_ids "
                f"{self.device_ids} and a module on the CPU\n  fix: leave device_ids out"
            )
        if len(self.device_ids) != 1:
            raise ValueError("device_ids can only be None or contain a single element.")

    def _make_reducer(self, named: list[tuple[str, Any]]) -> None:
        from coredispatch.frontend.distributed.reducer import Reducer, sparse_weights

        sparse = sparse_weights(self.module)
        self.reducer = Reducer(
            [p for _, p in named],
            [name for name, _ in named],
            self.process_group,
            self.bucket_bytes_cap,
            find_unused=self.find_unused_parameters or self.static_graph,
            views=self.gradient_as_bucket_view,
            rebuild=not self.find_unused_parameters and not self.static_graph,
            sparse=[position for position, (_, p) in enumerate(named) if id(p) in sparse],
        )

    # -- the same on all ranks ----------------------------------------------------------------

    def _synchronized(self) -> list[Any]:
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        return [value for name, value in named if name not in self.parameters_to_ignore]

    def _begin_alike(self) -> None:
        from coredispatch.frontend.distributed.coalesced import broadcast_all
        from coredispatch.frontend.distributed.objects import all_gather_object

        own = [(name, tuple(p.shape), str(p.dtype)) for name, p in self.module.named_parameters()]
        every: list[Any] = [None] * self.process_group.size()
        all_gather_object(every, own, group=self.process_group)
        for rank, other in enumerate(every):
            if other != every[0]:
                mine, its = next(
                    (a, b)
                    for a, b in zip([*every[0], None], [*other, None], strict=False)
                    if a != b
                )
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but rank 0 has {mine} where rank "
                    f"{rank} has {its}\n  fix: build the module in the same way everywhere"
                )
        broadcast_all(self._synchronized(), self.process_group, 0)

    def _sync_buffers(self) -> None:
        from coredispatch.frontend.distributed.coalesced import broadcast_all

        broadcast_all(self._buffers_alike(), self.process_group, 0)

    def _buffers_alike(self) -> list[Any]:
        """The buffers as they are now; which there are was looked up once."""
        if self._buffer_owners is None:
            ignored = self.parameters_to_ignore
            self._buffer_owners = [
                (owner, name)
                for path, owner in self.module.named_modules()
                for name in owner._buffers
                if (f"{path}.{name}" if path else name) not in ignored
            ]
        found = [owner._buffers.get(name) for owner, name in self._buffer_owners]
        return [buffer for buffer in found if buffer is not None]

    def _will_sync_buffers(self) -> bool:
        return (
            self.broadcast_buffers and self.require_backward_grad_sync and self.training
            and self.process_group.size() > 1 and bool(self._buffers_alike())
        )  # fmt: skip

    # -- running ------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's output. With gradients on, the next backward is synchronized."""
        reduced = is_grad_enabled() and self.require_backward_grad_sync
        if self._joining is not None and reduced:
            self._joining.notify(self)
        if self._will_sync_buffers():
            self._sync_buffers()
        if self.device_ids:
            device = Device("cuda", self.device_ids[0])
            inputs, kwargs = _moved(inputs, device), _moved(kwargs, device)
        output = self.module(*inputs, **kwargs)
        if reduced:
            self.reducer.prepare(output)
            if self._monitor is not None:
                self._monitor.step(_samples(inputs, kwargs))
        else:
            self.reducer.pause()
        return output

    _buffer_owners: list[tuple[Module, str]] | None = None
    _joining: Any = None
    _monitor: Any = None
    _delayed: Any = None

    @property
    def device(self) -> Any:
        """Where the module is: the device of its first parameter."""
        return next(self.module.parameters()).device

    @property
    def device_type(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return str(self.device.type)

    @property
    def is_multi_device_module(self) -> bool:
        """Whether its parameters are on several devices."""
        return len({p.device for p in self.module.parameters()}) > 1

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Details of this wrapper, under PyTorch's names."""
        params = self.reducer.params
        return {
            "world_size": self.process_group.size(),
            "rank": self.process_group.rank(),
            "module_name": type(self.module).__name__,
            "device_ids": ", ".join(map(str, self.device_ids or ())),
            "output_device": -1 if self.output_device is None else self.output_device,
            "broadcast_buffers": int(self.broadcast_buffers),
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "find_unused_parameters": int(self.find_unused_parameters),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "static_graph": int(self.static_graph),
            "backend_name": self.process_group.name(),
            "num_parameter_tensors": len(params),
            "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in params),
            "bucket_sizes": ", ".join(str(b.nbytes) for b in self.reducer.buckets),
        }

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients as they are in this block: they add up until the next synchronized pass.

        The forward must be in the block as well.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Let ``hook(state, bucket)`` reduce each :class:`GradBucket`; it returns a Future.

        Once, before training. Raises TypeError for what cannot be called with these two, ValueError
        for annotations of something else, RuntimeError a second time.
        """
        from coredispatch.frontend.distributed.buckets import check_hook

        check_hook(hook)
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be "
                               "called once.")  # fmt: skip
        self.reducer.use_hook(hook, state)

    def _register_builtin_comm_hook(self, kind: Any) -> None:
        from coredispatch.frontend.distributed.algorithms.ddp_comm_hooks import default_hooks

        self.register_comm_hook(self.process_group, default_hooks.BUILT_IN[kind])

    def _set_static_graph(self) -> None:
        self.static_graph = True
        self.reducer.find_unused, self.reducer.rebuild = True, False

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, names: list[str]) -> None:
        module._ddp_params_and_buffers_to_ignore = names

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Inputs on the device of this rank."""
        device = Device("cuda", device_ids[0])
        return _moved(inputs, device), _moved(kwargs, device)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """The outputs: this rank has one device."""
        return outputs

    # -- uneven inputs ------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Any:
        """A block in which ranks may have different numbers of batches.

        A rank whose batches are used up takes part in the others' reductions with zeros until all
        are done.

        Args:
            divide_by_initial_world_size: average over all ranks, else over those with input.
            enable: False for even inputs.
            throw_on_early_termination: raise RuntimeError on all ranks when one is done.
        """
        from coredispatch.frontend.distributed.algorithms.join import Join

        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> Any:
        """What this module does on a rank without input."""
        from coredispatch.frontend.distributed.algorithms.join import DDPJoinHook

        return DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """Where the module is."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The ranks."""
        return self.process_group

    # -- copies -------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        from coredispatch.frontend.distributed.groups import default_group

        if self.process_group is not default_group():
            raise RuntimeError("DDP Pickling/Unpickling are only supported when using DDP with the "
                               "default process group.")  # fmt: skip
        if self._delayed is not None:
            raise RuntimeError(
                "DistributedDataParallel(delay_all_reduce_named_params=) is not pickled\n"
                "  fix: pickle its module, and wrap that anew"
            )
        state = self.__dict__.copy()
        del state["process_group"], state["reducer"]
        state.pop("_monitor", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from coredispatch.frontend.distributed.groups import default_group

        super().__setstate__(state)
        self.process_group = default_group()
        named = self.module.named_parameters()
        with no_grad():
            self._make_reducer([(n, p) for n, p in named if p.requires_grad])
