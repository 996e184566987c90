"""The compiler ``cuda`` without a device: its kernels run on the host, and NVRTC compiles them.

Not proved: that the kernels are launched rightly by CuPy on a device.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from host_kernels import compile_for, has_host_compiler, nvrtc, raw_module

import coredispatch as cd
from coredispatch.graph.passes.inlining import inline_modules

F = cd.nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not has_host_compiler(), reason="there is no C++ compiler"),
    pytest.mark.filterwarnings("ignore:.torch.jit.[a-z_]+. is deprecated:DeprecationWarning"),
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]


@pytest.fixture
def codes(stand_in: Any, tmp_path: Any) -> list[str]:
    """The texts of the kernels that were compiled, over a stand-in that can run them."""
    found: list[str] = []
    stand_in.cupy.RawModule = raw_module(tmp_path, found)
    return found


def compiled(program: Any, *inputs: Any) -> Any:
    """The compiled graph of a program; None where nothing is fused."""
    import coredispatch_cuda_cupy as plugin

    with cd.no_grad():
        graph = inline_modules(cd.jit.trace(program, inputs, check_trace=False).graph)
        return plugin.coredispatch_compile(graph, inputs)


def agrees(codes: list[str], kernels: int, program: Any, *inputs: Any) -> None:
    """Compile for the device, run twice, compare with the CPU; so many kernels are made."""
    given = [x.to("cuda") for x in inputs]
    fast, wanted = compiled(program, *given), program(*inputs)
    for _ in range(2):
        got = fast(*given)
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
            assert a.device.type == "cuda"
            cd.testing.assert_close(a.cpu(), b, equal_nan=True)
    assert len(codes) == kernels


X, Y, Z = cd.randn(5, 37), cd.randn(37), cd.randn(5, 1)
NUMBERS = cd.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 3e38, -1.5])


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y, z: (x * 2 + y).sigmoid() * x.tanh() - z.expand(5, 37).exp() / 3,
        lambda x, y, z: cd.where(x > y, x, z) + (x >= 0).to(cd.float32),
        lambda x, y, z: F.gelu(x) + F.silu(x) * F.relu(x) - F.gelu(x, approximate="tanh"),
        lambda x, y, z: x.clamp(-0.5, 0.5) + x.masked_fill(y > 0, -float("inf")) * (x**2) ** 3,
        lambda x, y, z: (x.abs() + 1).log() + (x.square() + 1).rsqrt() - x.neg().erf(),
        lambda x, y, z: cd.lerp(x, x * y, 0.3) + cd.addcmul(x, x, x, value=0.5),
        lambda x, y, z: (x.maximum(y) - x.minimum(z)) / (1 + x.square()).sqrt(),
        lambda x, y, z: ((x > 0) & ~(x > 1)).to(cd.float64) * 3,
        lambda x, y, z: x[:, 1:30:3] * 2 + y[1:30:3],
        lambda x, y, z: x.t() * 2 + z.t(),
    ],
)
def test_chains(codes: Any, program: Any) -> None:
    agrees(codes, 1, program, X, Y, Z)


@pytest.mark.parametrize("weight", [1.0, 0.9, -0.7, 0.2])
def test_lerp_counts_from_the_nearer_end(codes: Any, weight: float) -> None:
    x, y = cd.full((9,), 1e8), cd.arange(9.0)
    agrees(codes, 1, lambda x, y: cd.lerp(x, y, weight).neg(), x, y)
    w = cd.full((9,), weight)
    agrees(codes, 2, lambda x, y, w: cd.lerp(x, y, w).neg(), x, y, w)


def test_special_values(codes: Any) -> None:
    def program(x: Any) -> Any:
        return x.relu() * 2, x.exp() - 1, x.tanh() * 2, x.maximum(x * 0), x.sigmoid(), F.silu(x)

    fast = compiled(program, cd.ones(8).to("cuda"))
    for got, wanted in zip(fast(NUMBERS.to("cuda")), program(NUMBERS), strict=True):
        cd.testing.assert_close(got.cpu(), wanted, equal_nan=True)
    fast = compiled(lambda x: (x * 1).amax(1) + (x * 1).amin(1), cd.ones(2, 4).to("cuda"))
    rows = cd.tensor([[1.0, float("nan"), 2.0, float("inf")], [-float("inf"), 0.0, 3.0, 1.0]])
    got = fast(rows.to("cuda")).cpu()
    assert got[0].isnan() and got[1] == -float("inf")


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64], ids=str)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x * 3, -1) + 1,
        lambda x: F.rms_norm(x, (37,), x[0]),
        lambda x: F.layer_norm(x, (37,), x[0], x[1]).relu(),
        lambda x: (x - x.mean(-1, keepdim=True)).exp().sum(-1, keepdim=True).log() * x,
        lambda x: (x.amax(-1), x.amin(-1), x.mean(-1), (x * 2).sum(-1)),
        lambda x: x.view(1, 5, 37).softmax(-1) * x.mean((0, 1)),
        lambda x: F.softmax(x.t().contiguous(), -1).sum(1) + x.t()[:, 0],
    ],
)
def test_rows(codes: Any, program: Any, dtype: Any) -> None:
    agrees(codes, 1, program, X.to(dtype))


@pytest.mark.parametrize("length", [1, 2, 31, 257, 1000])
def test_rows_of_any_length(codes: Any, length: int) -> None:
    agrees(codes, 1, lambda x: F.softmax(x * 3, -1) - x.amax(-1, keepdim=True), cd.randn(4, length))


HALVES = pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)


@HALVES
@pytest.mark.parametrize(
    "program",
    [
        lambda x, y, z: (x * 0.1 + y).sigmoid() * x.tanh() - z.expand(5, 37).exp() / 3,
        lambda x, y, z: cd.where(x > 0.1, x, z) + (x >= y).to(x.dtype) * 70000.0,
        lambda x, y, z: (x * 65536.0 / 1e5 - 1e-6 + y * -1e9 * 1e-9) * 65536.0 + (1 - z) / 70000,
        lambda x, y, z: F.gelu(x) + F.silu(x) * F.relu(x) - F.gelu(x, approximate="tanh"),
        lambda x, y, z: x.clamp(-0.3, 0.3) + x.masked_fill(y > 0, -float("inf")) * (x**2) ** 3,
        lambda x, y, z: (x.float() * 2 + y, (x.double() + 1e-9).neg(), (x.float() / 3).to(x.dtype)),
        lambda x, y, z: (x.maximum(y) - x.minimum(z)) / (1 + x.square()).sqrt(),
        lambda x, y, z: (x.float().softmax(-1).to(x.dtype) * 2, x.t() * 2 + z.t()),
    ],
)
def test_chains_in_half_precision(codes: Any, program: Any, dtype: Any) -> None:
    """Each operator's result is rounded, as by the operators one after the other."""
    given = [x.to(dtype) for x in (X, Y, Z)]
    fast, wanted = compiled(program, *[x.to("cuda") for x in given]), program(*given)
    got = fast(*[x.to("cuda") for x in given])
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
        assert a.dtype is b.dtype
        unit = 1e-3 if dtype is cd.float16 else 8e-3  # functions of two libraries differ by one
        cd.testing.assert_close(a.cpu(), b, rtol=4 * unit, atol=unit, equal_nan=True)
    assert codes


@HALVES
@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.softmax(x * 3, -1),
        lambda x: F.log_softmax(x, -1) + 1,
        lambda x: F.rms_norm(x, (37,), x[0]),
        lambda x: F.layer_norm(x, (37,), x[0], x[1]).relu(),
    ],
)
def test_rows_of_half_precision_are_computed_in_float32(
    codes: Any, program: Any, dtype: Any
) -> None:
    fast, exact = compiled(program, X.to(dtype).to("cuda")), program(X.to(dtype).double())
    got = fast(X.to(dtype).to("cuda")).cpu()
    unit = 1e-3 if dtype is cd.float16 else 8e-3
    assert got.dtype is dtype
    cd.testing.assert_close(got.double(), exact, rtol=2 * unit, atol=unit)
    assert len(codes) == 1 and "__shared__ float" in codes[0]


@HALVES
def test_arithmetic_in_half_precision_is_rounded_once_an_operator(codes: Any, dtype: Any) -> None:
    bits = cd.arange(-32768, 32768, dtype=cd.int16).view(dtype)
    other = bits.flip(0)

    def program(x: Any, y: Any) -> Any:
        return x * 0.1 + y, x / 3 - 1, (x - y) * 2, x.float() + 1, (x > 0.1) | (x < y)

    def rounded(x: Any) -> Any:
        return x.to(dtype).float()

    x, y, tenth = bits.float(), other.float(), rounded(cd.tensor(0.1))
    wanted = (
        *(rounded(rounded(x * tenth) + y), rounded(rounded(x / 3) - 1), rounded(x - y) * 2),
        *(x + 1, (x > tenth) | (x < y)),
    )
    fast = compiled(program, bits.to("cuda"), other.to("cuda"))
    for a, b in zip(fast(bits.to("cuda"), other.to("cuda")), wanted, strict=True):
        cd.testing.assert_close(a.cpu(), b.to(a.dtype), rtol=0, atol=0, equal_nan=True)


def test_derivatives(codes: Any) -> None:
    def program(x: Any, g: Any) -> Any:
        o = cd.ops
        parts = [o.sigmoid_backward(g, x), o.tanh_backward(g, x), o.silu_backward(g, x)]
        parts += [o.gelu_backward(g, x, kind) for kind in ("none", "tanh")]
        return sum(parts) + o.threshold_backward(g, x, 0.25)

    agrees(codes, 1, program, X, cd.randn(5, 37))


def test_whole_numbers(codes: Any) -> None:
    i, j = cd.arange(12).view(3, 4) - 5, cd.arange(4, dtype=cd.int32)
    agrees(codes, 1, lambda i, j: ((i * 2 - j) * j, (i > 2) | (i == j), i / 4 + j), i, j)


def test_what_is_in_no_group_runs_as_it_was_called(codes: Any) -> None:
    def program(x: Any, w: Any, b: Any, scale: Any) -> Any:
        return F.layer_norm(F.gelu(F.linear(x, w, b)), (16,), scale, b) * 2

    agrees(codes, 1, program, X, cd.randn(16, 37), cd.randn(16), cd.randn(16))
    assert "gelu(" in codes[0]


def test_writes_in_place_keep_their_order(codes: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        a = x.exp() + y
        x.add_(1)
        return a, x.tanh() * y, x

    x, y = cd.randn(3, 4), cd.randn(4)
    fast = compiled(program, x.to("cuda"), y.to("cuda"))
    given = x.to("cuda")
    got, wanted = fast(given, y.to("cuda")), program(x, y)
    for a, b in zip(got, wanted, strict=True):
        cd.testing.assert_close(a.cpu(), b)
    cd.testing.assert_close(given.cpu(), x)
    assert len(codes) == 2


def test_another_layout_gets_a_kernel_of_its_own(codes: Any) -> None:
    program = lambda x, y: (x + y).exp() * 2  # noqa: E731
    square = cd.randn(6, 6)
    x = square.to("cuda")
    fast = compiled(program, x, x)
    for one, other in ((x, x.t()), (x.t(), x), (x, x.t())):
        cd.testing.assert_close(fast(one, other).cpu(), program(one.cpu(), other.cpu()))
    assert len(codes) == 2


def test_numbers_that_come_with_the_call_are_no_constants(codes: Any) -> None:
    fast = compiled(lambda x, n: (x.exp() + 1) * n + x.size(0), X.to("cuda"), 2.0)
    for number in (2.0, 3.5):
        wanted = (X.exp() + 1) * number + 5
        cd.testing.assert_close(fast(X.to("cuda"), number).cpu(), wanted)
    assert len(codes) == 1


def test_what_is_rejected(codes: Any) -> None:
    x = X.to("cuda")
    assert compiled(lambda x: x + 1, x) is None  # one operator has a kernel already
    assert compiled(lambda x: (x.half() + x.int()) * 2, x) is None  # rounded before it is added
    assert compiled(lambda x: x @ x.t(), x) is None
    assert compiled(lambda x: (x + 1) * 2, X) is None  # on the host
    assert codes == []


def test_it_is_found_by_its_name(stand_in: Any) -> None:
    import coredispatch_cuda_cupy as plugin

    assert plugin.COMPILER == "cuda"
    assert "cuda" in cd.compiler.list_backends()


@pytest.mark.once
@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed: nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [cd.float32, cd.float64, cd.float16, cd.bfloat16], ids=str)
def test_nvrtc_compiles_the_texts(codes: Any, arch: str, dtype: Any) -> None:
    def derivatives(x: Any) -> Any:
        o = cd.ops
        return o.gelu_backward(x, x, "tanh") * o.silu_backward(x, x) - o.sigmoid_backward(x, x)

    for program in (
        derivatives,
        lambda x: F.gelu(x) * F.silu(x).erf() - F.gelu(x, approximate="tanh") / (x.abs().log() + 2),
        lambda x: (x > 0) & ~(x.t().reshape(5, 37) <= 2) | (x.clamp(-1, 2).sqrt() == x**2.5),
        lambda x: F.softmax(x.masked_fill(x > 1, -float("inf")), -1) + x.amin(-1, keepdim=True),
        lambda x: F.layer_norm(x, (37,), x[0], x[1]) * x.rsqrt().mean(-1, keepdim=True),
        lambda x: (x.long() * 3 - x.int()) * 2 + (x > 0).int(),
    ):
        given = X.to(dtype).to("cuda")
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            fast = compiled(program, given)
        if fast is not None:  # whole numbers are rounded to half precision first
            fast(given)
    assert len(codes) >= 5
    assert all(compile_for(code, arch) > 500 for code in codes)
