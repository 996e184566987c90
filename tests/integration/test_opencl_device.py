"""A device with memory of its own, written from the documents: ``third_party/opencl_device``."""

from __future__ import annotations

from pathlib import Path

import pytest
from certification import certify, installed, only, run

pytestmark = [pytest.mark.xdist_group("opencl"), pytest.mark.timeout(900), pytest.mark.once]

# One of each kind: element by element, along dimensions, strides, indices, sorting, the host's.
SAMPLE = ("floor_divide", "cumsum", "flip", "gather", "index_put", "sort", "linalg_qr")

PROGRAM = """
import pytest, coredispatch as cd, coredispatch.plugin as cdp, opencl_device
from opencl_device import DEVICE

x = cd.arange(12.0, device="opencl").reshape(3, 4)
x.t()[1:, 0] = -1  # through two views, in place
assert x.tolist() == [[0, -1, -1, -1], [4, 5, 6, 7], [8, 9, 10, 11]]

waits, finish = [], DEVICE.finish
DEVICE.finish = lambda: (waits.append(1), finish())
y = x
for _ in range(100):
    y = (y @ y.t() @ y).tanh() + x[[2, 1, 0]]
assert not waits, "computing waits for nobody"
y.sum().item()
assert len(waits) == 1, "reading waits"

late = x[cd.tensor([0, 7], device="opencl")]  # nobody has looked at the 7 yet
with pytest.raises(IndexError, match="7"):
    late.cpu()
assert x.cpu()[0, 0] == 0, "reported once"
late = cd.tensor([3], device="opencl") // cd.tensor([0], device="opencl")
with pytest.raises(ZeroDivisionError):
    late.tolist()

del late, y
before = dict(DEVICE.__dict__)
for _ in range(20):
    z = cd.zeros(1000, 100, device="opencl") + 1
    del z
assert DEVICE.allocated == before["allocated"], "every block went back to the pool"
assert DEVICE.reserved - before["reserved"] <= 3 * 2**19, "and was taken from it"
with pytest.raises(cdp.DTypeError, match="float8"):
    cd.ones(2, device="opencl").to(cd.float8_e4m3fn)
"""


WITHOUT = """
from types import SimpleNamespace

import pyopencl as cl
from opencl_device import device

def refuses(devices):
    raise cl.Error("build failed\\nerror: unknown target CPU 'generic'")

device.cl = SimpleNamespace(
    Error=cl.Error, Program=None, Context=refuses, get_platforms=lambda: [platform]
)
platform = SimpleNamespace(name="a runtime", get_devices=lambda: devices)
devices = [
    SimpleNamespace(name=name, platform=platform, extensions=extensions)
    for name, extensions in (("single", "cl_khr_fp16"), ("double", "cl_khr_fp64"))
]
assert device.found_device() is None
print(device.missing())
device._search.cache_clear()
devices.clear()
print(device.missing())
"""


def test_why_there_is_no_device_is_said(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    lacking, none = run(installed("opencl", "opencl_device", tmp_path), "-c", WITHOUT).splitlines()
    assert "single of a runtime has no double precision" in lacking
    assert "double of a runtime has a compiler that does not compile" in lacking
    assert "unknown target CPU 'generic'" in lacking and "OCL_ICD_VENDORS" in lacking
    assert "no OpenCL runtime is found" in none


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    pytest.importorskip("pyopencl")
    found = installed("opencl", "opencl_device", tmp_path)
    names = "import opencl_device; print(opencl_device.found_device() or '')"
    if not run(found, "-c", names).strip():
        pytest.skip("no OpenCL device here compiles kernels in double precision")
    return found


def test_it_boots(environment: dict[str, str]) -> None:
    certify(environment, "--backend", "opencl", "--level", "boot")


def test_it_trains(environment: dict[str, str]) -> None:
    certify(environment, "--backend", "opencl", "--level", "training", *only(*SAMPLE))


def test_it_waits_when_somebody_reads(environment: dict[str, str]) -> None:
    assert run(environment, "-W", "ignore", "-c", PROGRAM) == ""


def test_it_imports_the_plugin_module_and_libraries_only(environment: dict[str, str]) -> None:
    package = Path(__file__).parent / "third_party" / "opencl_device"
    imports = {
        line
        for file in package.glob("*.py")
        for line in file.read_text().splitlines()
        if line.strip().startswith(("import coredispatch", "from coredispatch"))
    }
    assert imports == {"import coredispatch.plugin as cdp"}
