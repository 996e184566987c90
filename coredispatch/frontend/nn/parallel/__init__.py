"""``nn.parallel``: a module on several devices; on one, or on the CPU, the module itself."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.nn.parallel.data_parallel import DataParallel, data_parallel
from coredispatch.frontend.nn.parallel.distributed import DistributedDataParallel

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]

_FIX = "run one process on one device; nn.DataParallel(model) then runs the model itself"

gather = announced_function("nn.parallel.gather", _FIX)
parallel_apply = announced_function("nn.parallel.parallel_apply", _FIX)
replicate = announced_function("nn.parallel.replicate", _FIX)
scatter = announced_function("nn.parallel.scatter", _FIX)
