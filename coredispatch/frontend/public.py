"""The names of ``cd.``: whatever is imported or assigned here.

With every operator of the top-level namespace (see :mod:`.operators`) they are the public names.
"""

from math import e, inf, nan, pi

from coredispatch.frontend.amp.autocast import (
    autocast,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
from coredispatch.frontend.amp.grad_scaler import GradScaler
from coredispatch.frontend.autograd.anomaly import (
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_anomaly_enabled,
)
from coredispatch.frontend.control_flow import cond, while_loop
from coredispatch.frontend.creation import (
    as_tensor,
    asarray,
    from_dlpack,
    from_numpy,
    frombuffer,
    tensor,
    to_dlpack,
)
from coredispatch.frontend.determinism import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode,
    use_deterministic_algorithms,
)
from coredispatch.frontend.functions import (
    broadcast_shapes,
    is_complex,
    is_floating_point,
    is_inference,
    is_storage,
    load,
    numel,
    result_type,
    save,
)
from coredispatch.frontend.histogramdd import histogramdd
from coredispatch.frontend.legacy import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
    set_default_tensor_type,
)
from coredispatch.frontend.limits import finfo, iinfo
from coredispatch.frontend.lobpcg import lobpcg
from coredispatch.frontend.lowrank import pca_lowrank, svd_lowrank
from coredispatch.frontend.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from coredispatch.frontend.operators import ops
from coredispatch.frontend.printing import get_printoptions, printoptions, set_printoptions
from coredispatch.frontend.programs import (
    SymBool,
    SymFloat,
    SymInt,
    is_warn_always_enabled,
    set_flush_denormal,
    set_warn_always,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sqrt,
    sym_sum,
    typename,
)
from coredispatch.frontend.random import (
    fork_rng,
    get_rng_state,
    initial_seed,
    seed,
    set_rng_state,
    thread_safe_generator,
)
from coredispatch.frontend.removed import eig, lstsq, matrix_rank, solve, symeig
from coredispatch.frontend.size import Size
from coredispatch.frontend.sparse import (
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from coredispatch.frontend.tensor import Tensor, is_tensor
from coredispatch.frontend.vmap import vmap
from coredispatch.registry.around import fallback
from coredispatch.registry.around.explain import explain
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.around.matmul_precision import (
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)
from coredispatch.registry.around.observe import Observation, observe
from coredispatch.registry.around.threads import (
    get_num_interop_threads,
    get_num_threads,
    set_num_interop_threads,
    set_num_threads,
)
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.device import Device, set_default_device
from coredispatch.registry.model.device import default_device as get_default_device
from coredispatch.registry.model.dtypes import (
    STORAGE_DTYPES,
    DType,
    bfloat16,
    bool_,
    can_cast,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from coredispatch.registry.model.dtypes import default_dtype as get_default_dtype
from coredispatch.registry.model.errors import *  # noqa: F403
from coredispatch.registry.model.generator import Generator, manual_seed
from coredispatch.registry.model.spelling import MemoryFormat, TensorLayout

(
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float4_e2m1fn_x2,
) = STORAGE_DTYPES
device = Device
dtype = DType
bool = bool_
float = float32
double = float64
half = float16
short = int16
int = int32
long = int64
cfloat = complex64
cdouble = complex128
layout = TensorLayout
memory_format = MemoryFormat
newaxis = None
strided = TensorLayout("strided")
sparse_coo = TensorLayout("sparse_coo")
sparse_csr = TensorLayout("sparse_csr")
sparse_csc = TensorLayout("sparse_csc")
sparse_bsr = TensorLayout("sparse_bsr")
sparse_bsc = TensorLayout("sparse_bsc")
contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")

__all__ = [name for name in dir() if not name.startswith(("_", "@"))]
