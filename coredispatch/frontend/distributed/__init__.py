"""``cd.distributed``: processes that train together, with PyTorch's names.

The collectives are operators of the table (``operators``); what carries them is a communicator,
which the backends ``mpi`` (the plugin coredispatch-mpi), ``socket``, ``local`` and ``fake`` bring.
"""

from __future__ import annotations

from datetime import timedelta  # noqa: F401

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.distributed import (
    algorithms,
    array_kernels,
    backend_names,
    checkpoint,
    constants,
    distributed_c10d,
    elastic,
    monitoring,
    nn,
    operators,
    optim,
    threads,
)
from coredispatch.frontend.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    BuiltinCommHookType,
)
from coredispatch.frontend.distributed.availability import (
    get_default_backend_for_device,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    supports_complex,
)
from coredispatch.frontend.distributed.backend_names import Backend, BackendConfig
from coredispatch.frontend.distributed.buckets import GradBucket
from coredispatch.frontend.distributed.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
)
from coredispatch.frontend.distributed.debug import (
    DebugLevel,
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from coredispatch.frontend.distributed.device_mesh import DeviceMesh, init_device_mesh
from coredispatch.frontend.distributed.distributed_c10d import (
    _all_gather_base,  # noqa: F401
    _coalescing_manager,  # noqa: F401
    _rank_not_in_group,  # noqa: F401
    _reduce_scatter_base,  # noqa: F401
)
from coredispatch.frontend.distributed.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)
from coredispatch.frontend.distributed.groups import (
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from coredispatch.frontend.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from coredispatch.frontend.distributed.point_to_point import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    monitored_barrier,
    recv,
    send,
)
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.reducer import Reducer
from coredispatch.frontend.distributed.reductions import ReduceOp, reduce_op
from coredispatch.frontend.distributed.rendezvous import register_rendezvous_handler, rendezvous
from coredispatch.frontend.distributed.stores import FileStore, HashStore, PrefixStore, Store
from coredispatch.frontend.distributed.tcp_store import TCPStore
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.distributed.world import GroupMember, group
from coredispatch.registry.dispatch.registrar import Registrar

__all__ = [
    "Backend",
    "BackendConfig",
    "BuiltinCommHookType",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GradBucket",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "QueueEmptyError",
    "ReduceOp",
    "Reducer",
    "Store",
    "TCPStore",
    "Work",
    "algorithms",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "checkpoint",
    "constants",
    "default_pg_timeout",
    "destroy_process_group",
    "distributed_c10d",
    "elastic",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "monitoring",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "nn",
    "optim",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "rendezvous",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "set_debug_level",
    "set_debug_level_from_env",
    "shrink_group",
    "split_group",
    "supports_complex",
    "threads",
]


shrink_group = announced_function(
    "distributed.shrink_group", "start the round again with fewer ranks from the last checkpoint"
)


def _register() -> None:
    registrar = Registrar("distributed operators")
    registrar.op(*operators.OPERATORS)
    registrar.kernels("cpu", array_kernels.KERNELS)
    registrar.commit()
    backend_names.register_built_in()


_register()
