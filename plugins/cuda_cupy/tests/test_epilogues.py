"""Products with what follows them, as compiled programs ask cuBLASLt for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import cublaslt_stand_in as stand_in_library
import pytest
from host_kernels import has_host_compiler, raw_module
from kernel_fixtures import close

import coredispatch as cd
from coredispatch.graph.passes.inlining import inline_modules

F, ops = cd.nn.functional, cd.ops
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not has_host_compiler(), reason="there is no C++ compiler"),
    pytest.mark.filterwarnings("ignore:.torch.jit.[a-z_]+. is deprecated:DeprecationWarning"),
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
RELU_BIAS, GELU_BIAS, GELU_AUX_BIAS, DGELU, DGELU_BGRAD, BGRADB = 6, 36, 164, 192, 208, 512
DTYPES = [cd.float32, cd.float16, cd.bfloat16]


@pytest.fixture
def lt(
    stand_in: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[stand_in_library.CublasLt]:
    """The library, and a stand-in that can run kernels."""
    stand_in.cupy.RawModule = raw_module(tmp_path, [])
    yield from stand_in_library.installed(monkeypatch)


def agrees(program: Any, *inputs: Any) -> None:
    """The compiled program gives on the device what float64 gives on the CPU."""
    import coredispatch_cuda_cupy as plugin

    given = [x.to("cuda") for x in inputs]
    with cd.no_grad(), warnings.catch_warnings():
        graph = inline_modules(cd.jit.trace(program, given, check_trace=False).graph)
        fast = plugin.coredispatch_compile(graph, given)
    wanted = program(*[x.double() for x in inputs])
    for _ in range(2):
        for got, exact in zip(_listed(fast(*given)), _listed(wanted), strict=True):
            own = inputs[0].dtype
            assert (got.device.type, got.dtype, got.shape) == ("cuda", own, exact.shape)
            cd.testing.assert_close(got.cpu(), exact.to(own), **close(own, 5))


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def asked_for(lt: Any) -> list[int]:
    """The epilogues of the two runs, which are the same."""
    found = [call["epilogue"] for call in lt.calls]
    half = len(found) // 2
    assert found[:half] == found[half:]
    return found[:half]


def layer(dtype: Any, *lead: int) -> tuple[Any, Any, Any]:
    """Input, weight and bias."""
    return (
        cd.randn(*lead, 24).to(dtype),
        cd.randn(16, 24).to(dtype) * 0.3,
        cd.randn(16).to(dtype),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lead", [(6,), (2, 3)], ids=str)
def test_linear_with_an_activation(lt, lead, dtype):
    given = layer(dtype, *lead)
    agrees(lambda x, w, b: F.linear(x, w, b).relu(), *given)
    assert asked_for(lt) == [RELU_BIAS]
    lt.calls.clear()
    agrees(lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), *given)
    assert asked_for(lt) == [GELU_BIAS]


def test_gelu_gives_its_input_where_somebody_reads_it(lt):
    def program(x: Any, w: Any, b: Any) -> Any:
        before = F.linear(x, w, b)
        return F.gelu(before, approximate="tanh"), before

    agrees(program, *layer(cd.float32, 6))
    assert asked_for(lt) == [GELU_AUX_BIAS]


def test_other_activations_are_computed_as_before(lt):
    for program in (
        lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2,
        lambda x, w, b: F.linear(x, w).relu() * 2,
        lambda x, w, b: (lambda y: (y.relu() * 2, y))(F.linear(x, w, b)),
    ):
        agrees(program, *layer(cd.float32, 6))
    assert set(asked_for(lt)) <= {1, stand_in_library.BIAS}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("lead", [(6,), (2, 3)], ids=str)
def test_the_gradient_of_gelu(lt, lead, summed, dtype):
    grad, weight = cd.randn(*lead, 16).to(dtype), cd.randn(16, 24).to(dtype) * 0.3
    before, dims = cd.randn(*lead, 24).to(dtype), tuple(range(len(lead)))

    def program(grad: Any, weight: Any, before: Any) -> Any:
        found = ops.gelu_backward(grad.matmul(weight), before, "tanh")
        return (found, found.sum(dims)) if summed else found

    agrees(program, grad, weight, before)
    assert asked_for(lt) == [DGELU_BGRAD if summed else DGELU]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lead", [(6,), (2, 3)], ids=str)
def test_gradients_of_a_weight_and_a_bias(lt, lead, dtype):
    grad, input = cd.randn(*lead, 16).to(dtype), cd.randn(*lead, 24).to(dtype)
    dims = tuple(range(len(lead)))

    def program(grad: Any, input: Any) -> Any:
        return ops.linear_weight_grad(grad, input), grad.sum(dims)

    agrees(program, grad, input)
    assert asked_for(lt) == [BGRADB]


def test_sums_over_other_dimensions_stay_sums(lt):
    def program(grad: Any, input: Any) -> Any:
        return ops.linear_weight_grad(grad, input) * 2 + 1, grad.sum(1), grad.sum(0, keepdim=True)

    agrees(program, cd.randn(6, 16), cd.randn(6, 24))
    assert lt.calls == []


@pytest.fixture
def refusing(
    stand_in: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[stand_in_library.CublasLt]:
    """A library that has no epilogues."""
    stand_in.cupy.RawModule = raw_module(tmp_path, [])
    epilogues = tuple(stand_in_library.EPILOGUES - {1})
    yield from stand_in_library.installed(monkeypatch, refuses=epilogues)


def test_what_the_library_refuses_is_computed_by_the_operators(refusing):
    agrees(lambda x, w, b: F.linear(x, w, b).relu(), *layer(cd.float32, 6))
    given = cd.randn(6, 16), cd.randn(6, 24)
    agrees(lambda g, x: (ops.linear_weight_grad(g, x), g.sum(0)), *given)
    grads = cd.randn(6, 16), cd.randn(16, 24), cd.randn(6, 24)
    agrees(lambda g, w, h: ops.gelu_backward(g.matmul(w), h, "tanh"), *grads)
    assert refusing.calls == []


def test_what_is_written_meanwhile_keeps_nodes_apart(lt):
    def program(x: Any, w: Any, b: Any) -> Any:
        x, w = x * 1, w * 1
        y = F.linear(x, w, b)
        w.zero_()
        return y.relu() + w.sum()

    agrees(program, *layer(cd.float32, 6))
