"""``ZeroRedundancyOptimizer``: each rank keeps the optimizer's state of some of the parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.distributed.algorithms.join import Join, Joinable, JoinHook
from coredispatch.frontend.distributed.coalesced import broadcast_all
from coredispatch.frontend.distributed.groups import get_global_rank, resolved
from coredispatch.frontend.distributed.objects import gather_object
from coredispatch.frontend.modes import enable_grad
from coredispatch.frontend.optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _StepHook(JoinHook):
    """A rank without input steps as the others do: its share of the parameters is sent by it."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Runs `optimizer_class` for this rank's share of the parameters, then shares the results.

    Gradients must be the same on all ranks, as DistributedDataParallel leaves them. (Rajbhandari et
    al., "ZeRO: memory optimizations toward training trillion parameter models", 2020, stage 1.)

    Args:
        params: the same on all ranks.
        optimizer_class: such as ``optim.Adam``.
        process_group: the ranks; the default group.
        parameters_as_bucket_view: accepted; parameters are sent as they are.
        defaults: for the optimizer.

    Example::

        opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=optim.Adam, lr=1e-3)
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer(overlap_with_ddp=True) is not there\n"
                "  fix: leave it out; the step then follows backward"
            )
        self.process_group = resolved(process_group)
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self._optimizer_class, self._optimizer_defaults = optimizer_class, defaults
        self._all_state_dicts: list[dict[str, Any]] = []
        self.optim: Any = None
        self._owners: Any = None  # by rank and group: the parameters; None until all groups are in
        super().__init__(params, dict(defaults))
        self._make_local()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters and deal them out; those that are there stay with their ranks."""
        super().add_param_group(param_group)
        if self._owners is not None:
            self._deal(len(self.param_groups) - 1)

    def _share(self, groups: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """For each rank the groups with its parameters: the largest first, to who has least."""
        loads = [0] * self.world_size
        shares: list[list[dict[str, Any]]] = [[] for _ in range(self.world_size)]
        for group in groups:
            dealt: list[list[Any]] = [[] for _ in range(self.world_size)]
            order = sorted(
                range(len(group["params"])), key=lambda i: (-group["params"][i].numel(), i)
            )
            for i in order:
                rank = loads.index(min(loads))
                loads[rank] += group["params"][i].numel()
                dealt[rank].append(i)
            for rank, positions in enumerate(dealt):
                part = {k: v for k, v in group.items() if k != "params"}
                part["params"] = [group["params"][i] for i in sorted(positions)]
                shares[rank].append(part)
        return shares

    def _make_local(self) -> None:
        self._positions: list[int] = []
        for number in range(len(self.param_groups)):
            self._deal(number)

    def _deal(self, number: int) -> None:
        """Give this rank's optimizer its part of a group, which may be empty."""
        shares = self._share(self.param_groups)
        self._owners = [[group["params"] for group in share] for share in shares]
        own = shares[self.rank][number]
        if not own["params"]:
            return
        self._positions.append(number)
        if self.optim is None:
            self.optim = self._optimizer_class([own], **self._optimizer_defaults)
        else:
            self.optim.add_param_group(own)

    def _sync_options(self) -> None:
        """What a schedule changed in the groups goes to the optimizer of this rank."""
        if self.optim is None:
            return
        for group, position in zip(self.optim.param_groups, self._positions, strict=False):
            for name, value in self.param_groups[position].items():
                if name != "params":
                    group[name] = value

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's share, then send it to all."""
        Join.notify_join_context(self)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._sync_options()
        if self.optim is not None:
            self.optim.step(**kwargs)
        for rank, groups in enumerate(self._owners):
            broadcast_all([p for params in groups for p in params], self.process_group, rank)
        return loss

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this optimizer does on a rank without input, in a :class:`Join`."""
        return _StepHook(self)

    @property
    def join_device(self) -> Any:
        """Where the parameters are."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """The ranks."""
        return self.process_group

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the state of all ranks on rank `to`, so that :meth:`state_dict` has it all."""
        self._sync_options()
        own = {} if self.optim is None else self.optim.state_dict()
        every: Any = [None] * self.world_size if self.rank == to else None
        gather_object(own, every, group=self.process_group, group_dst=to)
        self._all_state_dicts = every or []

    def state_dict(self) -> dict[str, Any]:
        """The state as `optimizer_class` would have it for all parameters.

        Raises RuntimeError on ranks where :meth:`consolidate_state_dict` has not gathered it.
        """
        if not self._all_state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={get_global_rank(self.process_group, self.rank)})` on "
                "all ranks beforehand if you meant to save the global state."
            )
        numbers = self._numbers()
        state: dict[int, Any] = {}
        for rank, local in enumerate(self._all_state_dicts):
            params = [p for params in self._owners[rank] for p in params]
            for i, param in enumerate(params):
                if i in local.get("state", {}):
                    state[numbers[id(param)]] = local["state"][i]
        groups = []
        for group in self.param_groups:
            shown = {name: value for name, value in group.items() if name != "params"}
            shown["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(shown)
        return {"state": state, "param_groups": groups}

    def _numbers(self) -> dict[int, int]:
        params = [p for group in self.param_groups for p in group["params"]]
        return {id(param): i for i, param in enumerate(params)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's share of a state of all parameters; from any number of ranks."""
        numbers = self._numbers()
        given = state_dict["param_groups"]
        for group, other in zip(self.param_groups, given, strict=True):
            group.update({k: copy.deepcopy(v) for k, v in other.items() if k != "params"})
        self._sync_options()
        if self.optim is None:
            return
        local = self.optim.state_dict()
        params = [p for group in self.optim.param_groups for p in group["params"]]
        flat = [number for group in given for number in group["params"]]
        local["state"] = {
            i: state_dict["state"][flat[numbers[id(p)]]]
            for i, p in enumerate(params)
            if flat[numbers[id(p)]] in state_dict["state"]
        }
        self.optim.load_state_dict(local)
