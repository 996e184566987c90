"""``cd.backends`` and ``cd.cuda`` without a device: true answers, and settings."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

import coredispatch as cd

needs_no_device = pytest.mark.skipif(cd.cuda.is_available(), reason="there is a CUDA device")


@needs_no_device
@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda: cd.cuda.is_available(), False),
        (lambda: cd.cuda.device_count(), 0),
        (lambda: cd.cuda.is_initialized(), False),
        (lambda: cd.cuda.memory_allocated(), 0),
        (lambda: cd.cuda.max_memory_allocated(), 0),
        (lambda: cd.cuda.memory_reserved(), 0),
        (lambda: cd.cuda.memory_stats(), {}),
        (lambda: cd.cuda.empty_cache(), None),
        (lambda: cd.cuda.manual_seed_all(1), None),
        (lambda: cd.cuda.seed_all(), None),
        (lambda: cd.cuda.get_rng_state_all(), []),
        (lambda: cd.cuda.default_generators, ()),
        (lambda: cd.cuda.is_bf16_supported(), False),
        (lambda: cd.cuda.is_tf32_supported(), False),
        (lambda: cd.cuda.get_arch_list(), []),
        (lambda: cd.cuda.has_half, True),
        (lambda: cd.cuda.set_device(-1), None),
        (lambda: cd.cuda.cudaStatus.ERROR_NOT_READY, 34),
        (lambda: cd.cuda.nccl.is_available([]), False),
        (lambda: cd.cuda.memory.list_gpu_processes is cd.cuda.list_gpu_processes, True),
        (lambda: issubclass(cd.cuda.AcceleratorError, RuntimeError), True),
        (lambda: cd.cuda.set_stream(None), None),
        (lambda: cd.cuda.is_current_stream_capturing(), False),
        (lambda: cd.backends.cudnn.is_available(), False),
        (lambda: cd.backends.cudnn.version(), None),
        (lambda: cd.backends.cudnn.enabled, True),
        (lambda: cd.backends.mps.is_available(), False),
        (lambda: cd.backends.mps.is_built(), False),
        (lambda: cd.backends.mkldnn.is_available(), False),
        (lambda: cd.backends.openmp.is_available(), False),
        (lambda: cd.backends.opt_einsum.is_available(), False),
        (lambda: cd.backends.nnpack.is_available(), False),
        (lambda: cd.backends.quantized.engine, "none"),
        (lambda: cd.backends.cuda.is_flash_attention_available(), False),
        (lambda: cd.backends.cuda.math_sdp_enabled(), True),
        (lambda: cd.backends.mha.get_fastpath_enabled(), True),
        (lambda: cd.amp.custom_fwd(lambda ctx: 1, device_type="cpu").__name__, "<lambda>"),
    ],
)
def test_a_question_is_answered_without_a_device(ask: Any, answer: Any) -> None:
    assert ask() == answer


@needs_no_device
@pytest.mark.parametrize(
    "call",
    [
        lambda: cd.cuda.current_device(),
        lambda: cd.cuda.get_device_name(),
        lambda: cd.cuda.get_device_properties(0),
        lambda: cd.cuda.get_device_capability(),
        lambda: cd.cuda.synchronize(),
        lambda: cd.cuda.mem_get_info(),
        lambda: cd.cuda.reset_peak_memory_stats(),
        lambda: cd.cuda.set_device(0),
        lambda: cd.cuda.Stream(),
        lambda: cd.cuda.Event(),
        lambda: cd.cuda.current_stream(),
        lambda: cd.cuda.init(),
        lambda: cd.cuda.initial_seed(),
        lambda: cd.cuda.get_rng_state(),
        lambda: cd.cuda.memory_summary(),
        lambda: cd.cuda.CUDAGraph(),
        lambda: cd.cuda.set_per_process_memory_fraction(0.5),
    ],
)
def test_what_needs_a_device_refuses_with_the_reason(call: Any) -> None:
    with pytest.raises(AssertionError, match="no CUDA device") as caught:
        call()
    assert isinstance(caught.value, RuntimeError)


@needs_no_device
def test_blocks_of_no_device_change_nothing() -> None:
    with cd.cuda.device(-1), cd.cuda.stream(None), cd.cuda.device_of(cd.ones(1)):
        pass
    with pytest.raises(RuntimeError, match="NVTX functions not installed"):
        cd.cuda.nvtx.range_push("a")
    with pytest.raises(ModuleNotFoundError, match="nvidia-smi"):
        cd.cuda.utilization()


@needs_no_device
def test_the_older_names_of_amp_warn_and_are_off() -> None:
    with pytest.warns(FutureWarning, match="deprecated"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        scaler = cd.cuda.amp.GradScaler()
        block = cd.cuda.amp.autocast()
    assert not scaler.is_enabled()
    with block:
        assert (cd.ones(2, 2) @ cd.ones(2, 2)).dtype is cd.float32
    with pytest.warns(UserWarning, match="CUDA is not available"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        cd.cuda.amp.autocast()


@needs_no_device
def test_autocast_and_scaler_for_cuda_warn_and_are_off_without_a_device() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"):
        block = cd.autocast("cuda")
    with block, cd.autocast("cpu"), cd.autocast("cuda", enabled=False):
        assert (cd.ones(2, 2) @ cd.ones(2, 2)).dtype is cd.bfloat16
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = cd.GradScaler("cuda")
    assert not scaler.is_enabled()


def test_a_functions_state_of_autocast_is_kept_for_backward() -> None:
    seen: dict[str, Any] = {}

    class Product(cd.autograd.Function):
        @staticmethod
        @cd.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @cd.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            a, b = ctx.saved_tensors
            seen["on"] = cd.amp.is_autocast_enabled("cpu")
            seen["dtype"] = (a @ b).dtype
            return (grad.float() @ b.t()), (a.t() @ grad.float())

    a, b = cd.ones(2, 2, requires_grad=True), cd.ones(2, 2, requires_grad=True)
    with cd.autocast("cpu"):
        out = Product.apply(a, b)
    assert out.dtype is cd.bfloat16
    out.float().sum().backward()
    assert seen == {"on": True, "dtype": cd.bfloat16}

    class Narrow(cd.autograd.Function):
        @staticmethod
        @cd.amp.custom_fwd(device_type="cpu", cast_inputs=cd.float32)
        def forward(ctx: Any, a: Any) -> Any:
            seen["inside"] = a.dtype, cd.amp.is_autocast_enabled("cpu")
            return a * 1

        @staticmethod
        @cd.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    with cd.autocast("cpu"):
        Narrow.apply(cd.ones(2, dtype=cd.bfloat16))
    assert seen["inside"] == (cd.float32, False)
    with pytest.raises(ValueError, match="device_type"):
        cd.amp.custom_fwd(device_type=3)  # type: ignore[arg-type]


def test_settings_of_cudnn_are_kept_and_checked() -> None:
    cudnn = cd.backends.cudnn
    cudnn.benchmark = True
    assert cudnn.benchmark
    cudnn.benchmark = False
    cudnn.deterministic = True
    with cudnn.flags(enabled=False, benchmark=True):
        assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (False, True, False)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (True, False, True)
    cudnn.deterministic = False
    with pytest.raises(RuntimeError, match="enabled expects bool"):
        cudnn.enabled = "yes"


def test_the_precision_of_products() -> None:
    assert cd.get_float32_matmul_precision() == "highest"
    try:
        cd.set_float32_matmul_precision("high")
        assert cd.backends.cuda.matmul.allow_tf32
        cd.backends.cuda.matmul.allow_tf32 = False
        assert cd.get_float32_matmul_precision() == "highest"
        with pytest.warns(UserWarning, match="is not one of"):
            cd.set_float32_matmul_precision("low")
        with pytest.raises(AttributeError, match="Unknown attribute foo"):
            _ = cd.backends.cuda.matmul.foo
        with pytest.raises(RuntimeError, match="expects a bool"):
            cd.backends.cuda.matmul.allow_tf32 = 1
    finally:
        cd.set_float32_matmul_precision("highest")


def test_switches_of_attention_are_put_back() -> None:
    cuda = cd.backends.cuda
    with pytest.warns(FutureWarning, match="sdp_kernel"):
        older = cuda.sdp_kernel(enable_flash=False)
    with older:
        assert not cuda.flash_sdp_enabled()
    assert cuda.flash_sdp_enabled()


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda: setattr(cd.backends.opt_einsum, "enabled", True), ValueError),
        (lambda: setattr(cd.backends.opt_einsum, "strategy", "greedy"), ValueError),
        (lambda: setattr(cd.backends.quantized, "engine", "fbgemm"), RuntimeError),
        (lambda: cd.backends.cuda.preferred_linalg_library("foo"), RuntimeError),
        (lambda: cd.backends.mps.get_name(), RuntimeError),
    ],
)
def test_a_setting_that_cannot_act_is_refused(write: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        write()


def test_details_about_the_processor() -> None:
    assert cd.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "SVE", "DEFAULT")
    assert cd.backends.mkl.is_available() in (True, False)
    assert issubclass(cd.cuda.OutOfMemoryError, MemoryError)


def test_a_kernel_without_memory_raises_what_scripts_catch() -> None:
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        cd.zeros(2**55)
    assert type(caught.value) is cd.OutOfMemoryError is cd.cuda.OutOfMemoryError
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is cd.OutOfMemoryError and str(again) == str(caught.value)
