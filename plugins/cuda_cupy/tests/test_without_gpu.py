"""Without a GPU, or without CuPy, the plugin is listed, and says why it has no device."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import types

import pytest
from numpy_stand_in import module_for

import coredispatch as cd
from coredispatch_cuda_cupy import CudaBackend, Detection, detection
from coredispatch_cuda_cupy.detection import driver_problem, with_cupy


class Driver:
    """A CUDA driver that answers as told."""

    def __init__(self, status: int = 0, devices: int = 0) -> None:
        self.status, self.devices = status, devices

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: object) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self.devices
        return 0


def missing(name: str) -> object:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (missing, r"the NVIDIA driver \(libcuda.so.1\) is not installed"),
        (lambda name: Driver(), r"the driver sees no device \(CUDA_VISIBLE_DEVICES='none'\)"),
        (lambda name: Driver(100), r"the driver sees no device \(CUDA_VISIBLE_DEVICES='none'\)"),
        (lambda name: Driver(803), r"the driver answers with CUDA error 803"),
    ],
)
def test_the_driver_s_problem_is_named(load, reason, monkeypatch):
    monkeypatch.setattr(detection, "_DRIVER", "libcuda.so.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "none")
    found = driver_problem(load)
    assert found is not None and found.count == 0
    assert re.match(reason, found.reason)
    assert found.fix


def test_a_driver_with_devices_is_no_problem():
    assert driver_problem(lambda name: Driver(devices=2)) is None


def fake_cupy(version: str, count: object) -> types.SimpleNamespace:
    class CUDARuntimeError(RuntimeError):
        pass

    def device_count() -> int:
        if isinstance(count, str):
            raise CUDARuntimeError(count)
        return count

    runtime = types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=device_count)
    return types.SimpleNamespace(__version__=version, cuda=types.SimpleNamespace(runtime=runtime))


@pytest.mark.parametrize(
    ("version", "count", "reason"),
    [
        ("12.3.0", 1, "CuPy 12.3.0 is too old"),
        ("14.0.0", 0, "the CUDA runtime sees no device"),
        ("14.0.0", "driver too old\nsee the docs", "the CUDA runtime fails: driver too old"),
    ],
)
def test_cupy_s_problem_is_named(version, count, reason):
    assert with_cupy(fake_cupy(version, count)).reason == reason


def test_devices_are_counted():
    assert with_cupy(fake_cupy("13.10.1", 3)).count == 3


def test_cupy_is_not_imported_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(detection, "find_spec", lambda name: None)
    found = detection.detect()
    assert found.reason == "CuPy is not installed"
    assert "pip install 'coredispatch-cuda-cupy[cuda13x]'" in found.fix


def detected(monkeypatch, situation: str) -> Detection:
    """What ``detect`` finds on a machine that has no CuPy, no driver or no device."""
    here = situation != "no CuPy"
    monkeypatch.setattr(detection, "find_spec", lambda name: object() if here else None)
    loaded = missing if situation == "no driver" else lambda name: Driver()
    monkeypatch.setattr(detection.ctypes, "CDLL", loaded)
    monkeypatch.setattr(detection, "_DRIVER", "libcuda.so.1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return detection.detect()


@pytest.mark.parametrize(
    ("situation", "reason", "fix"),
    [
        ("no CuPy", "CuPy is not installed", "pip install 'coredispatch-cuda-cupy[cuda13x]'"),
        ("no driver", "the NVIDIA driver (libcuda.so.1) is not installed", "install the driver"),
        ("no device", "the driver sees no device", "check nvidia-smi"),
    ],
)
def test_each_query_answers_truly_and_each_tensor_is_refused_with_the_right_fix(
    situation, reason, fix, key_cuda_is_free, monkeypatch
):
    found = detected(monkeypatch, situation)
    assert "cupy" not in sys.modules
    cd.plugins.load("cuda_absent", module_for(CudaBackend(found)))
    cuda = cd.cuda
    try:
        assert cd.plugins["cuda_absent"].status == "loaded"
        queries = {
            "False": "is_available is_initialized is_bf16_supported is_tf32_supported "
            "is_current_stream_capturing",
            "0": "device_count memory_allocated max_memory_allocated memory_reserved "
            "max_memory_reserved",
            "None": "empty_cache seed seed_all",
            "''": "get_gencode_flags",
        }
        for answer, names in queries.items():
            for name in names.split():
                assert repr(getattr(cuda, name)()) == answer, name
        assert (cuda.get_arch_list(), cuda.get_rng_state_all(), cuda.memory_stats()) == ([], [], {})
        assert cd.accelerator.current_accelerator() is None
        for call in (
            lambda: cd.tensor([1.0]).to("cuda"),
            lambda: cd.tensor([1.0]).cuda(),
            lambda: cd.nn.Linear(2, 2).cuda(),
            lambda: cd.zeros(2, device="cuda"),
            lambda: cd.tensor([1.0], device="cuda:1"),
            cuda.current_device,
            cuda.get_device_name,
            lambda: cuda.get_device_properties(0),
            cuda.get_device_capability,
            cuda.mem_get_info,
            cuda.synchronize,
            cuda.current_stream,
            cuda.get_rng_state,
            cuda.memory_summary,
            cuda.Stream,
            cuda.Event,
            cuda.CUDAGraph,
            cuda.graph_pool_handle,
            cuda.reset_peak_memory_stats,
            cuda.get_sync_debug_mode,
            lambda: cuda.make_graphed_callables(len, ()),
            lambda: cuda.set_per_process_memory_fraction(0.5),
            lambda: cuda.set_device(0),
        ):
            with pytest.raises(cd.DeviceError, match="no CUDA device: " + re.escape(reason)) as e:
                call()
            assert isinstance(e.value, AssertionError)  # as in PyTorch
            assert fix in str(e.value)
            assert ("pip install" in str(e.value)) == (situation == "no CuPy")
        assert not cd.ones(1).is_pinned() and cd.zeros(1, pin_memory=True).tolist() == [0]
        for refused in (cd.ones(1).pin_memory, lambda: cuda.nvtx.range_push("x")):
            with pytest.raises(RuntimeError) as e:
                refused()
            assert "pip install" not in str(e.value)
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert not cd.GradScaler("cuda").is_enabled()
    finally:
        cd.plugins.unload("cuda_absent")


def test_the_plugin_reports_why(monkeypatch):
    import coredispatch_cuda_cupy as plugin

    monkeypatch.setattr(plugin, "_found", Detection(reason="CuPy is not installed", fix="get it"))
    assert plugin.coredispatch_info() == {
        "devices": "no CUDA device: CuPy is not installed",
        "fix": "get it",
    }


def test_the_plugin_does_not_bring_the_groups_of_processes():
    """They are many modules, and few programs have groups."""
    code = "import sys, coredispatch as cd; cd.plugins.discover(); cd.ones(2) + 1; " + (
        "print('coredispatch_cuda_cupy' in sys.modules, "
        "'coredispatch.frontend.distributed' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]
