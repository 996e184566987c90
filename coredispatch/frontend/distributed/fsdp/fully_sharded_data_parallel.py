"""``FullyShardedDataParallel``: the wrapper around modules whose parameters are kept in parts.

The parts, the messages and the gradients are those of ``fully_shard``; this adds the class, its
wrapping policies and its states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    original,
    set_optimizer_state_dict,
)
from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from coredispatch.frontend.distributed.fsdp.entries import (
    given_names,
    taken_names,
    wrapped_modules,
)
from coredispatch.frontend.distributed.fsdp.policies import MixedPrecisionPolicy
from coredispatch.frontend.distributed.fsdp.preparing import (
    materialize,
    mesh_of,
    modules_among,
    parameters_among,
)
from coredispatch.frontend.distributed.fsdp.sharding import make_unit
from coredispatch.frontend.distributed.fsdp.wrap import wrap_children
from coredispatch.frontend.distributed.groups import get_rank
from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.utils.clip_grad import clip_grad_norm_
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils._pytree import tree_map_only

__all__ = ["FullyShardedDataParallel"]

_S = ShardingStrategy
_T = StateDictType


class FullyShardedDataParallel(Module):
    """A module whose parameters, gradients and optimizer state lie in parts on the ranks.

    Each rank trains on its part of the batch; gradients are averages. Forward gathers the
    parameters of this module, but for those of wrapped modules inside it, and frees them after.
    Parameters are DTensors of the original shapes, as with PyTorch's ``use_orig_params=True``; the
    optimizer is made after wrapping. All ranks begin with rank 0's weights.

    Args:
        module: what to wrap; its parameters are replaced in place.
        process_group: the ranks; the default group.
        sharding_strategy: what is kept in parts; ``FULL_SHARD``. The hybrid ones take their two
            dimensions from `device_mesh`, or from ``LOCAL_WORLD_SIZE``.
        cpu_offload: accepted; parts stay where the module is.
        auto_wrap_policy: which modules inside are wrapped on their own, see ``fsdp.wrap``.
        backward_prefetch, forward_prefetch, limit_all_gathers: accepted; parameters are gathered
            when they are needed.
        mixed_precision: dtypes of computation, reduction and buffers.
        ignored_modules, ignored_states: modules, or parameters and modules, that stay whole.
        param_init_fn: gives the modules on the meta device their values.
        device_id: where the module goes first.
        sync_module_states: accepted; weights and buffers of rank 0 are sent in any case.
        use_orig_params: accepted; see above.
        device_mesh: of one dimension, or of two: copies of what the second shards.

    Raises:
        ValueError: a strategy that does not fit the mesh, a module on the meta device without
            `param_init_fn`, or parameters of several dtypes.

    Example::

        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=20_000)
        model = FSDP(Net(), auto_wrap_policy=policy)
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        ignored = [*(ignored_modules or ()), *modules_among(ignored_states)]
        precision = mixed_precision or MixedPrecision()
        if precision.keep_low_precision_grads:
            raise NotImplementedError(
                "MixedPrecision(keep_low_precision_grads=True) is not there\n  fix: leave it out"
            )
        strategy = sharding_strategy or _S.FULL_SHARD
        mesh = device_mesh or mesh_of(strategy, process_group)
        if auto_wrap_policy is not None:
            inner = {
                "sharding_strategy": strategy,
                "mixed_precision": mixed_precision,
                "param_init_fn": param_init_fn,
                "device_id": device_id,
                "ignored_states": ignored_states,
                "device_mesh": mesh,
            }
            if mixed_precision is not None and precision.param_dtype is not None:
                _spare(module, ignored, precision, inner)
            wrap_children(module, auto_wrap_policy, type(self), ignored, **inner)
        materialize(module, param_init_fn)
        if device_id is not None:
            module.to(device_id if not isinstance(device_id, int) else f"cuda:{device_id}")
        self.sharding_strategy, self.mixed_precision = strategy, precision
        self._device_mesh = mesh
        self._fsdp_wrapped_module = module
        self._summoned = False
        self._settings = StateDictSettings()
        self._buffer_dtypes: dict[str, Any] = {}
        self._cast_buffers()
        self._outermost = True
        for part in self._inner():
            part._outermost = False
            part._set_cast(part.mixed_precision.cast_forward_inputs)
        kept = [p for m in ignored for p in m.parameters()] + parameters_among(ignored_states)
        policy = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype)
        free = strategy in (_S.FULL_SHARD, _S.HYBRID_SHARD)
        self._unit = make_unit([module], mesh, free, policy, kept)
        self._set_cast(precision.cast_root_forward_inputs or precision.cast_forward_inputs)
        self.register_state_dict_post_hook(given_names)
        self.register_load_state_dict_pre_hook(taken_names)

    # -- the module ---------------------------------------------------------------------------

    @property
    def module(self) -> Any:
        """The module that is wrapped."""
        return self._fsdp_wrapped_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the wrapped module gives."""
        return self._fsdp_wrapped_module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_fsdp_wrapped_module":
                raise
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]

    def _inner(self) -> list[FullyShardedDataParallel]:
        """The wrapped modules inside, at any depth."""
        return [
            m for m in self.modules() if m is not self and isinstance(m, FullyShardedDataParallel)
        ]

    def _set_cast(self, cast: bool) -> None:
        self._unit.policy = replace(self._unit.policy, cast_forward_inputs=cast)

    def _cast_buffers(self) -> None:
        dtype = self.mixed_precision.buffer_dtype
        if dtype is None:
            return
        held = {id(b) for part in self._inner() for b in part.buffers()}
        for name, buffer in self.module.named_buffers():
            if buffer.is_floating_point() and id(buffer) not in held:
                owner = self.module.get_submodule(name.rpartition(".")[0])
                self._buffer_dtypes[original(name)] = buffer.dtype
                owner._buffers[name.rpartition(".")[2]] = buffer.to(dtype)

    def check_is_root(self) -> bool:
        """Whether no other wrapper is around this one."""
        return self._outermost

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrapped modules in `module`, itself included; with `root_only` the outermost ones."""
        found = wrapped_modules(module)
        inside = {id(part) for one in found for part in one._inner()}
        return [one for one in found if not root_only or id(one) not in inside]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """As of any module; within :meth:`summon_full_params` with the names of the original."""
        for name, param in super().named_parameters(prefix, recurse, remove_duplicate):
            yield (original(name) if self._summoned else name), param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """As of any module; within :meth:`summon_full_params` with the names of the original."""
        for name, buffer in super().named_buffers(prefix, recurse, remove_duplicate):
            yield (original(name) if self._summoned else name), buffer

    def apply(self, fn: Callable[[Module], None]) -> Any:
        """Call `fn` for all modules, with whole parameters; what it writes is kept."""
        with self.summon_full_params(self, recurse=False):  # those inside do so themselves
            return super().apply(fn)

    # -- training -----------------------------------------------------------------------------

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose backward passes reduce nothing: gradients add up, whole, until one does."""
        parts = wrapped_modules(self)
        before = [part._unit.sync for part in parts]
        for part in parts:
            part._unit.sync = False
        try:
            yield
        finally:
            for part, sync in zip(parts, before, strict=True):
                part._unit.sync = sync

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale the gradients of all parameters so that their norm is at most `max_norm`.

        Returns the norm before, over all ranks. All ranks call it.
        """
        total = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        found: Tensor = total.full_tensor() if isinstance(total, DTensor) else total
        return found

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Not there."""
        raise NotImplementedError(
            "FullyShardedDataParallel.register_comm_hook is not there\n"
            "  fix: MixedPrecision(reduce_dtype=) sends gradients in a smaller dtype"
        )

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """A block in which the parameters are whole, in their own dtype; all ranks enter it.

        Args:
            recurse: also those of wrapped modules inside.
            writeback: keep what was written to them; this rank's rows of it.
            rank0_only: on the other ranks they stay in parts.
            offload_to_cpu: accepted; they are where the parts are.
            with_grads: not there.
        """
        if with_grads:
            raise NotImplementedError("summon_full_params(with_grads=True) is not there")
        if writeback and rank0_only:
            raise NotImplementedError(
                "summon_full_params(writeback=True, rank0_only=True) is not supported\n"
                "  fix: writeback=False"
            )
        parts = [part for part in wrapped_modules(module) if recurse or part is module]
        for part in parts:
            part._unit.unshard(_stored(part._unit))
            if rank0_only and get_rank(part._unit.group):
                part._unit.reshard()
            part._summoned = True
        try:
            yield
        finally:
            for part in parts:
                if writeback:
                    part._unit.write_back()
                part._unit.reshard()
                part._summoned = False

    # -- states -------------------------------------------------------------------------------

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """What ``state_dict`` of the wrapped modules in `module` gives from now on.

        Returns the settings of before. The default are whole states.
        """
        if state_dict_type is _T.LOCAL_STATE_DICT:
            raise NotImplementedError(
                "StateDictType.LOCAL_STATE_DICT is not there\n"
                "  fix: SHARDED_STATE_DICT, whose entries have to_local()"
            )
        full = state_dict_type is _T.FULL_STATE_DICT
        kinds = (FullStateDictConfig, FullOptimStateDictConfig)
        if not full:
            kinds = (ShardedStateDictConfig, ShardedOptimStateDictConfig)  # type: ignore[assignment]
        given = (state_dict_config, optim_state_dict_config)
        for config, kind in zip(given, kinds, strict=True):
            if config is not None and not isinstance(config, kind):
                raise RuntimeError(
                    f"Expected state_dict_config of type {kind} but got {type(config)}"
                )
        settings = StateDictSettings(
            state_dict_type, state_dict_config or kinds[0](), optim_state_dict_config or kinds[1]()
        )
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for part in wrapped_modules(module):
            part._settings = settings
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """The settings of the wrapped modules in `module`."""
        found = wrapped_modules(module)
        return found[0]._settings if found else StateDictSettings()

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """:meth:`set_state_dict_type` for a block."""
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for part in wrapped_modules(module):
                part._settings = before

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Any, optim_state_dict: Any = None, group: Any = None
    ) -> dict[str, Any]:
        """The state of an optimizer by the names of parameters, whole or in parts as set.

        All ranks call it. Whole tensors are on the CPU where ``offload_to_cpu`` is set, as it is by
        default. ``optim_state_dict`` is accepted; the state is read from `optim`.
        """
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        whole = settings.state_dict_type is _T.FULL_STATE_DICT
        state = get_optimizer_state_dict(model, optim, options=StateDictOptions(whole))
        if whole and getattr(config, "rank0_only", False) and get_rank(group):
            return {}
        if whole and config.offload_to_cpu:
            state = tree_map_only(Tensor, lambda t: t.cpu(), state)
        return state

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """What ``optim.load_state_dict`` takes, of what :meth:`optim_state_dict` gave.

        With `load_directly` the optimizer has it already; else it stays as it is.
        """
        before = _with_own_dicts(optim.state_dict())
        set_optimizer_state_dict(model, optim, optim_state_dict)
        found = _with_own_dicts(optim.state_dict())
        if not load_directly:
            optim.load_state_dict(before)
        return found

    @staticmethod
    def full_optim_state_dict(
        model: Module,
        optim: Any,
        optim_input: Any = None,
        rank0_only: bool = True,
        group: Any = None,
    ) -> dict[str, Any]:
        """The whole state of an optimizer, by default on rank 0 alone."""
        state = get_optimizer_state_dict(model, optim, options=StateDictOptions(True))
        return {} if rank0_only and get_rank(group) else state


def _with_own_dicts(state: dict[str, Any]) -> dict[str, Any]:
    """A state whose dicts are not those that the optimizer goes on to change."""
    return {**state, "state": {key: dict(values) for key, values in state["state"].items()}}


def _stored(unit: Any) -> Any:
    """The dtype in which parts are kept."""
    return unit.locals[0].dtype if unit.locals else None


def _spare(module: Module, ignored: list[Module], precision: MixedPrecision, inner: Any) -> None:
    """Wrap modules that compute in their own dtype, such as BatchNorm, without mixed precision."""
    kinds = tuple(precision._module_classes_to_ignore)
    if not any(isinstance(m, kinds) for m in module.modules()):
        return
    warn(
        "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped "
        f"module has submodules of type:\n{set(kinds)}\nThese modules will be wrapped as separate "
        "FSDP instances with mixed precision disabled."
    )
    wrap_children(
        module,
        lambda module, recurse, nonwrapped_numel: recurse or isinstance(module, kinds),
        FullyShardedDataParallel,
        ignored,
        **{**inner, "mixed_precision": None},
    )
