"""``Join``: a block in which ranks may have different numbers of inputs."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import coredispatch as cd
from coredispatch._warnings import warn
from coredispatch.frontend.distributed.coalesced import broadcast_all
from coredispatch.frontend.distributed.collectives import all_reduce
from coredispatch.frontend.distributed.reductions import ReduceOp

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank without input does for a :class:`Joinable`."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all have joined."""


class Joinable:
    """What can take part in a :class:`Join`: has ``join_hook``, a device and a process group."""

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook."""
        raise NotImplementedError(f"{type(self).__name__} defines no join_hook")

    @property
    def join_device(self) -> Any:
        """Where the tensors of the collectives are."""
        raise NotImplementedError(f"{type(self).__name__} defines no join_device")

    @property
    def join_process_group(self) -> Any:
        """The ranks."""
        raise NotImplementedError(f"{type(self).__name__} defines no join_process_group")


class Join:
    """A block in which ranks may have different numbers of inputs.

    Args:
        joinables: DistributedDataParallel modules, optimizers, ...; the first one's forward tells
            the others that an iteration begins.
        enable: False for even inputs.
        throw_on_early_termination: raise RuntimeError on all ranks when one is done.
        kwargs: for the hooks.
    """

    def __init__(
        self,
        joinables: list[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable, self._throw = enable, throw_on_early_termination
        self._group = joinables[0].join_process_group
        if any(j.join_process_group is not self._group for j in joinables):
            raise ValueError("Using join context manager with multiple process groups")
        self._warned = 0

    def __enter__(self) -> Join:
        if self._enable:
            self._joinables[0]._joining = self
            for joinable in self._joinables:
                reducer = getattr(joinable, "reducer", None)
                if reducer is not None:  # ranks without input could not take part in it
                    reducer.rebuild = False
        return self

    def _waiting(self, present: bool) -> int:
        """How many ranks have input."""
        count = cd.tensor([int(present)])
        all_reduce(count, group=self._group)
        return int(count)

    def notify(self, joinable: Any) -> None:
        """A rank begins an iteration."""
        if joinable is not self._joinables[0]:
            return
        present = self._waiting(True)
        for hook in self._hooks:
            hook.present = present
        if self._throw:
            self._check_early(False)
        for hook in self._hooks:
            if isinstance(hook, DDPJoinHook):
                hook.iteration()

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Tell the block that `joinable` is in that a rank begins an iteration."""
        if getattr(joinable, "_joining", None) is not None:
            joinable._joining.notify(joinable)

    def _check_early(self, done: bool) -> None:
        flag = cd.tensor([int(done)])
        all_reduce(flag, ReduceOp.MAX, self._group)
        if int(flag):
            raise RuntimeError(
                f"Detected at least one rank that exhausted inputs: rank {self._group.rank()} "
                "stops, as throw_on_early_termination asks"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._enable:
            return
        self._joinables[0]._joining = None
        if kind is not None:
            return
        rounds, last = 0, True
        while True:
            present = self._waiting(False)
            if not present:
                break
            if self._throw:
                self._check_early(True)
            last = False
            rounds += 1
            if rounds == 1000:
                warn(
                    "this rank has waited for 1000 iterations of the others: they have far more "
                    "input"
                )
            for hook in self._hooks:
                hook.present = present
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(last)


class DDPJoinHook(JoinHook):
    """Shadows the collectives of a DistributedDataParallel module."""

    present = 0

    def __init__(self, ddp: Any, divide_by_initial_world_size: bool) -> None:
        self._ddp = ddp
        self._all = divide_by_initial_world_size

    def iteration(self) -> None:
        """Before an iteration of a rank that has input."""
        if not self._all:
            self._ddp.reducer.divisor = self.present

    def main_hook(self) -> None:
        ddp = self._ddp
        self.iteration()
        if ddp._will_sync_buffers():
            ddp._sync_buffers()
        ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Ranks that joined early have old parameters: take those of one that did not."""
        ddp = self._ddp
        ddp.reducer.divisor = ddp.process_group.size()
        rank = cd.tensor([ddp.process_group.rank() if is_last_joiner else -1])
        all_reduce(rank, ReduceOp.MAX, ddp.process_group)
        broadcast_all(ddp._synchronized(), ddp.process_group, int(rank))
