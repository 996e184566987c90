"""Making, finding and leaving process groups."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.distributed.array_kernels import serve
from coredispatch.frontend.distributed.backend_names import (
    Backend,
    BackendConfig,
    find_engine,
)
from coredispatch.frontend.distributed.communicator import Communicator, GroupInfo
from coredispatch.frontend.distributed.debug import read_debug_level
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.rendezvous import rendezvous
from coredispatch.frontend.distributed.sparse_reduction import serve_sparse
from coredispatch.frontend.distributed.stores import PrefixStore, Store
from coredispatch.frontend.distributed.tcp_store import StoreGoneError
from coredispatch.frontend.distributed.world import GroupMember, separate_world, world

__all__ = [
    "default_pg_timeout",
    "destroy_process_group",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_initialized",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "separate_world",
    "split_group",
]

#: how long a collective may take, unless the group says otherwise
default_pg_timeout = timedelta(minutes=30)
_NO_GROUP = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)
#: engines that know by themselves who they are and how to meet
_KNOW_THEMSELVES = ("mpi",)


def is_initialized() -> bool:
    """Whether there is a default process group."""
    return world().default is not None


def default_group() -> ProcessGroup:
    """The default group. ValueError before ``init_process_group``."""
    found = world().default
    if found is None:
        raise ValueError(_NO_GROUP)
    return found


class NoMemberError(ValueError):
    """A group was asked for that this process is no part of."""


def resolved(group: Any) -> ProcessGroup:
    """The group meant by an argument: None is the default one.

    Raises NoMemberError for what a process gets for a group that it is no part of, and ValueError
    for anything else that is no group.
    """
    if group is None:
        return default_group()
    if not isinstance(group, ProcessGroup):
        none = isinstance(group, int) and group == GroupMember.NON_GROUP_MEMBER
        raise (NoMemberError if none else ValueError)(
            f"Invalid ``group`` argument: {group!r} is no ProcessGroup\n"
            "  fix: pass what new_group() returned, on its members only"
        )
    return group


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    _ranks: list[int] | None = None,
) -> None:
    """Join the default process group. All processes of the job call it.

    Args:
        backend: ``"gloo"``, ``"mpi"``, ``"nccl"``, ``"socket"``, ``"local"``, ``"fake"``, pairs
            such as ``"cpu:gloo,cuda:nccl"``, or None for gloo. See :class:`Backend`.
        init_method: a URL to meet at: ``env://`` (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; the
            default), ``tcp://host:port`` or ``file:///path``. MPI meets by itself.
        timeout: how long a collective may take; 30 minutes.
        world_size, rank: of this process, where neither the URL nor MPI says it.
        store: to meet by, instead of a URL.
        group_name, device_id: kept for PyTorch's signature.
        pg_options: handed to the engine.

    Raises:
        ValueError: there is a default group already, the backend is unknown, or what is needed to
            meet is missing.

    Example::

        dist.init_process_group("gloo")
        x = cd.ones(2) * dist.get_rank()
        dist.all_reduce(x)
    """
    state = world()
    if state.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}"
        )
    read_debug_level()
    limit = timeout or default_pg_timeout
    config = BackendConfig("cpu:gloo" if backend is None else backend)
    engines = {d: find_engine(name) for d, name in config.get_device_backend_map().items()}
    serve_sparse()
    joining = _Joining(engines, init_method, store, rank, world_size, limit, pg_options)
    communicators, store = joining.join(patient=state.left > 0)
    for device, communicator in communicators.items():
        library = communicator.library()
        if library is not None:
            serve(device, library)
    size = next(iter(communicators.values())).size
    backends = config.get_device_backend_map()
    made = ProcessGroup(range(size), communicators, "0", limit, store, "default_pg", backends)
    state.default, state.store = made, store
    state.groups[made.group_name] = made
    state.count = 1


@dataclass
class _Joining:
    """What is known of a default group before its processes have met."""

    engines: dict[str, Any]
    init_method: str | None
    store: Store | None
    rank: int
    size: int
    timeout: timedelta
    options: Any

    def join(self, patient: bool) -> tuple[dict[str, Communicator], Store | None]:
        """Meet the others: the communicators, and the store.

        With `patient` a store that goes away is the one of the group that this process has left:
        rank 0 leaves it later, and then serves a new one.
        """
        for device, (name, _, serves) in self.engines.items():
            if device != serves:
                raise ValueError(f"backend {name!r} serves {serves}, not {device}")
        end = time.monotonic() + self.timeout.total_seconds()
        while True:
            try:
                return self._try()
            except StoreGoneError:
                if not patient or self.store is not None or time.monotonic() > end:
                    raise

    def _try(self) -> tuple[dict[str, Communicator], Store | None]:
        store, rank, size = self.store, self.rank, self.size
        if any(name not in _KNOW_THEMSELVES for name, _, _ in self.engines.values()):
            store, rank, size = _meet(
                self.engines, self.init_method, store, rank, size, self.timeout
            )
        elif rank == -1 and size == -1:
            size = int(os.environ.get("WORLD_SIZE", -1))
            rank = int(os.environ.get("RANK", -1))
        if store is None:
            return self._communicators(None, rank, size), None
        # A store may have served an earlier group: each has its own part of it. All ranks come
        # equally often, so that this rank's count is that of the group.
        arrivals = f"default/{size}/arrivals/{rank}"
        number = store.add(arrivals, 1)
        try:
            own = PrefixStore(f"default/{size}/{number}", store)
            return self._communicators(own, rank, size), store
        except BaseException:
            with contextlib.suppress(Exception):  # it has not come, and may try again
                store.add(arrivals, -1)
            raise

    def _communicators(self, store: Store | None, rank: int, size: int) -> dict[str, Communicator]:
        seconds = self.timeout.total_seconds()
        made = {}
        for device, (_, create, _) in self.engines.items():
            own = None if store is None else PrefixStore(device, store)
            made[device] = create(GroupInfo(rank, size, own, seconds, "default_pg", self.options))
        return made


def _meet(
    engines: dict[str, Any],
    init_method: str | None,
    store: Store | None,
    rank: int,
    world_size: int,
    timeout: timedelta,
) -> tuple[Store | None, int, int]:
    """The store, and the numbers of this process."""
    if all(name == "fake" for name, _, _ in engines.values()) or store is not None:
        if rank < 0 or world_size <= 0:
            raise ValueError("rank and world_size must be given with a store or the fake backend")
        if rank >= world_size:
            raise ValueError(f"rank {rank} is not one of {world_size}")
        if store is not None:
            store.set_timeout(timeout)
        return store, rank, world_size
    if any(name == "local" for name, _, _ in engines.values()):
        raise ValueError(
            "the backend 'local' joins threads of one process\n"
            "  fix: use cd.distributed.threads.spawn(fn, nprocs=N), or pass one HashStore"
        )
    return next(rendezvous(init_method or "env://", rank, world_size, timeout=timeout))  # type: ignore[no-any-return]


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group; without an argument, or with the default one, leave them all.

    Raises ValueError for a group that is not there.
    """
    state = world()
    if group is not None and group == GroupMember.NON_GROUP_MEMBER:
        return
    if group is None or group is state.default:
        if state.default is None:
            raise AssertionError("Process group cannot be None")
        for made in reversed(list(state.groups.values())):
            state.waited += made.waited
            made.close()
        if state.default.store is state.store:
            state.default.store = None  # who keeps the group does not keep the store open by it
        state.default, state.store, state.count = None, None, 0
        state.left += 1
        state.groups.clear()
        return
    if group.group_name not in state.groups:
        raise ValueError("Invalid process group specified")
    state.waited += group.waited
    group.close()
    del state.groups[group.group_name]


def get_rank(group: ProcessGroup | None = None) -> int:
    """The rank of this process in the group; -1 where it is no part of it."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else resolved(group).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """How many ranks the group has; -1 where this process is no part of it."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else resolved(group).size()


def get_backend(group: ProcessGroup | None = None) -> Backend:
    """The name of the backend, as it was given."""
    return Backend(resolved(group).name())


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """Devices and the backends that serve them, as they were given."""
    return ",".join(f"{device}:{name}" for device, name in resolved(group).backends.items())


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks of the job that belong to the group."""
    return list(resolved(group).ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the job of a rank in the group. Raises ValueError where there is none."""
    ranks = resolved(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in the group of a rank in the job. Raises ValueError where it is no part."""
    ranks = resolved(group).ranks
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_pg_count() -> int:
    """How many groups there are."""
    return len(world().groups)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK, else `fallback_rank`. RuntimeError where there is neither."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device context "
        "and want the code to run locally instead."
    )


# ---- groups of some of the ranks --------------------------------------------------------------


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks of the job. Every rank of the job calls it, in the same order.

    Args:
        ranks: of the job; all by default.
        timeout: how long a collective may take; that of the default group.
        backend: must be served by the engine of the default group, or None.
        use_local_synchronization: only the members call it.
        group_desc: for messages.
        sort_ranks: order the group by rank of the job.
        pg_options, device_id: kept for PyTorch's signature.

    Returns:
        The :class:`ProcessGroup`; ``GroupMember.NON_GROUP_MEMBER`` on other ranks.

    Raises:
        ValueError: a rank is not in the job, or named twice.
        RuntimeError: the group is larger than the job.
    """
    parent = default_group()
    chosen = list(parent.ranks if ranks is None else ranks)
    chosen = sorted(chosen) if sort_ranks else chosen
    _check_ranks(chosen, parent)
    if backend is not None:
        _check_backend(backend, parent)
    if use_local_synchronization:
        name = f"{'-'.join(map(str, chosen))} {group_desc or ''}"
        count = sum(known.startswith(name) for known in world().groups)
        name = f"{name}{count}"
    else:
        name = parent.child_name()
    return _make(parent, chosen, name, timeout, group_desc)


def _check_ranks(ranks: list[int], parent: ProcessGroup) -> None:
    size = parent.size()
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"a rank is named twice in {ranks}\n  fix: name each once")
    if len(ranks) > size:
        raise ValueError("the new group's world size should be less or equal to the world size "
                         "set by init_process_group")  # fmt: skip
    for rank in ranks:
        if not 0 <= rank < size:
            raise ValueError(
                "The new group's rank should be within the world_size set by init_process_group\n"
                f"  fix: {rank} is not in 0..{size - 1}"
            )


def _check_backend(backend: str, parent: ProcessGroup) -> None:
    for device, name in BackendConfig(backend).get_device_backend_map().items():
        engine, _, _ = find_engine(name)
        served = parent.communicators.get(device)
        if served is None or served.name != engine:
            raise NotImplementedError(
                f"new_group(backend={backend!r}): the default group serves "
                f"{get_backend_config(parent)}, and groups are made from it\n"
                "  fix: leave backend= out, or name both in init_process_group"
            )


def _make(
    parent: ProcessGroup,
    ranks: list[int],
    name: str,
    timeout: timedelta | None,
    desc: str | None,
) -> Any:
    state = world()
    state.count += 1
    own = parent.ranks[parent.rank()]
    if own not in ranks:
        return GroupMember.NON_GROUP_MEMBER
    inside = [parent.ranks.index(rank) for rank in ranks]
    communicators: dict[str, Communicator] = {
        device: communicator.split(inside, name)
        for device, communicator in parent.communicators.items()
    }
    store = None if parent.store is None else PrefixStore(f"group {name}", parent.store)
    limit = timeout or parent.timeout
    made = ProcessGroup(
        ranks, communicators, name, limit, store, desc or "undefined", parent.backends
    )
    state.groups[name] = made
    return made


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Divide a group: `split_ranks` are lists of its ranks. This rank's part, None without one."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = resolved(parent_pg)
    if backend is not None:
        _check_backend(backend, parent)
    found = None
    for ranks in split_ranks:
        _check_ranks(list(ranks), parent)
        name = parent.child_name()
        chosen = [parent.ranks[rank] for rank in sorted(ranks)]
        made = _make(parent, chosen, name, timeout, group_desc)
        if made != GroupMember.NON_GROUP_MEMBER:
            found = made
    return found


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[Any]]:
    """Divide the job into groups of `group_size` successive ranks: this rank's, and all.

    Raises ValueError where the number of ranks is no multiple of it.
    """
    size = get_world_size(group)
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size "
                         f"({size})")  # fmt: skip
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size'={group_size}")
    ranks = resolved(group).ranks
    parts = [ranks[at : at + group_size] for at in range(0, size, group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Make a group of each list of ranks: the one of this rank, and all.

    Raises ValueError where a rank is in two of them.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: set[int] = set()
    groups, own = [], None
    rank = get_rank()
    for ranks in ranks_per_subgroup_list:
        if seen & set(ranks):
            raise ValueError(f"Rank {min(seen & set(ranks))} has appeared in two subgroups")
        seen |= set(ranks)
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(made)
        if rank in ranks:
            own = made
    return own, groups


def warn_not_in_group(name: str) -> None:
    """Say that a process called a collective of a group that it is no part of."""
    warn(f"Running {name} on global rank {get_rank()} which does not belong to the given group.")
