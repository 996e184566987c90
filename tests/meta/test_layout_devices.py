"""Sparse and quantized tensors on devices with an index and on one that computes later."""

from __future__ import annotations

import copy
import importlib.util
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd

from . import fake_devices

sparse = pytest.importorskip("coredispatch_sparse")
quant = pytest.importorskip("coredispatch_quant")
DEVICES = ("cards:0", "cards:1", "delayed:0")


@pytest.fixture(scope="module", autouse=True)
def fakes() -> Iterator[None]:
    cd.plugins.load("fake_devices", fake_devices)
    yield
    cd.plugins.unload("fake_devices")


def thinned(seed: int = 0, shape: tuple[int, int] = (4, 3), dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        array = array + 1j * rng.standard_normal(shape)
    return np.where(rng.random(shape) < 0.5, array, 0).astype(dtype)


def per_tensor() -> Any:
    return quant.quantize_per_tensor(cd.tensor(thinned()), 0.05, 100)


def per_channel() -> Any:
    scales, zeros = cd.tensor([0.1, 0.02, 0.3]), cd.tensor([1, -2, 3])
    return quant.quantize_per_channel(cd.tensor(thinned()), scales, zeros, 1)


MADE: dict[str, Callable[[], Any]] = {
    "csr": lambda: cd.tensor(thinned()).to_sparse_csr(),
    "csr of float64": lambda: cd.tensor(thinned(1, dtype=np.float64)).to_sparse_csr(),
    "csr without elements": lambda: cd.zeros(3, 2).to_sparse_csr(),
    "csr with int32": lambda: sparse.sparse_csr_tensor(
        np.array([0, 1, 2], np.int32), np.array([2, 0], np.int32), [1.0, 2.0], (2, 3)
    ),
    "per tensor": per_tensor,
    "per channel": per_channel,
    "no channels": lambda: quant.quantize_per_channel(
        cd.zeros(0, 2), cd.zeros(0), cd.zeros(0, dtype=cd.int64), 0
    ),
    "0-dim": lambda: quant.quantize_per_tensor(cd.tensor(1.5), 0.05, 100),
}


def dense(tensor: Any) -> Any:
    out = tensor.dequantize() if tensor.layout == "quantized" else tensor.to_dense()
    return out.cpu().numpy()


def check(found: Any, made: Any, device: str) -> None:
    """``found`` is ``made`` on ``device``: the arrays, not just what they stand for."""
    assert (str(found.device), found.layout, found.dtype) == (device, made.layout, made.dtype)
    assert found.shape == made.shape
    assert np.array_equal(dense(found), dense(made))
    if made.layout == "quantized":
        assert np.array_equal(found.int_repr().cpu().numpy(), made.int_repr().numpy())
        return
    for part in ("values", "crow_indices", "col_indices"):
        a, b = getattr(found, part)(), getattr(made, part)()
        assert str(a.device) == device and a.dtype == b.dtype
        assert np.array_equal(a.cpu().numpy(), b.numpy())
    assert found._nnz() == made._nnz()


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("device", DEVICES)
def test_a_layout_moves_there_and_back(name: str, device: str) -> None:
    made = MADE[name]()
    there = made.to(device)
    check(there, made, device)
    check(there.to("cards:1"), made, "cards:1")
    check(there.cpu(), made, "cpu")
    assert there.to(device) is there
    for copied in (there.clone(), there.detach(), copy.copy(there), copy.deepcopy(there)):
        check(copied, made, device)
    check(pickle.loads(pickle.dumps(there)), made, device)


def test_two_devices_of_one_backend_exchange_a_layout_without_the_host() -> None:
    there = MADE["csr"]().to("cards:0")
    backend = there.backend
    by_host, across = backend.by_host, backend.across
    there.to("cards:1")
    assert (backend.by_host, backend.across) == (by_host, across + 3)


@pytest.mark.parametrize("name", MADE)
def test_a_layout_prints_as_on_the_cpu_with_its_device(name: str) -> None:
    made = MADE[name]()
    text = repr(made.to("cards:1"))
    assert "device='cards:1'" in text
    squeezed = "".join(text.split()).replace("device='cards:1',", "")
    assert squeezed == "".join(repr(made).split())


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("device", DEVICES)
def test_a_file_holds_a_layout_for_any_device(name: str, device: str) -> None:
    made = MADE[name]()
    file = io.BytesIO()
    cd.save({"x": made.to(device), "y": made}, file)
    for wanted in (None, "cpu", "cards:0", "cards:1", "delayed:0"):
        file.seek(0)
        check(cd.load(file, map_location=wanted)["x"], made, wanted or device)
    file.seek(0)
    with pytest.raises(Exception, match="meta"):
        cd.load(file, map_location="meta")


def test_a_parameter_of_a_layout_keeps_its_class_and_its_device() -> None:
    module = cd.nn.Module()
    module.weight = cd.nn.Parameter(MADE["csr"]())
    module.register_buffer("table", per_channel())
    module.to("cards:1")
    assert isinstance(module.weight, cd.nn.Parameter) and module.weight.requires_grad
    assert str(module.weight.device) == str(module.table.device) == "cards:1"
    twin = pickle.loads(pickle.dumps(module))
    check(twin.weight.detach(), MADE["csr"](), "cards:1")
    check(twin.table, per_channel(), "cards:1")


# -- what can be done there ----------------------------------------------------------------------


@given(st.integers(0, 99), st.sampled_from([(4, 3), (1, 5), (0, 3), (3, 0), (9, 7)]))
def test_sparse_operators_there_are_those_of_the_cpu(seed: int, shape: tuple[int, int]) -> None:
    array = thinned(seed, shape)
    here = cd.tensor(array).to_sparse_csr()
    there = here.to("cards:0")
    rng = np.random.default_rng(seed)
    vector, matrix, tall = (
        cd.tensor(rng.standard_normal(size).astype(np.float32))
        for size in (shape[1], (shape[1], 2), (shape[0], 2))
    )
    calls: list[Callable[[Any, Callable[[Any], Any]], Any]] = [
        lambda s, to: s @ to(vector),
        lambda s, to: s @ to(matrix),
        lambda s, to: s * 3,
        lambda s, to: 3 * s,
        lambda s, to: s / to(cd.tensor(2.0)),
        lambda s, to: -s,
        lambda s, to: s.double(),
        lambda s, to: s.t(),
        lambda s, to: s.t().t(),
        lambda s, to: sparse.sampled_matmul(s, to(tall), to(matrix.t().contiguous())),
        lambda s, to: to(cd.tensor(array + 1)).sparse_mask(s),
    ]
    for call in calls:
        wanted = call(here, lambda x: x)
        found = call(there, lambda x: x.to("cards:0"))
        assert str(found.device) == "cards:0" and found.dtype == wanted.dtype
        assert found.layout == wanted.layout
        a, b = (x if x.layout == "strided" else x.to_dense() for x in (found, wanted))
        assert np.allclose(a.cpu().numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
        if found.layout != "strided":
            assert found.col_indices().tolist() == wanted.col_indices().tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_half_precision_are_made_in_float32(dtype: str) -> None:
    dtype = getattr(cd, dtype)
    row = cd.full((1, 4096), 1.0).to(dtype).to_sparse_csr().to("cards:1")
    ones = cd.ones(4096, 1).to(dtype).to("cards:1")
    assert (row @ ones).tolist() == [[4096.0]] and (row @ ones).dtype is dtype
    one = cd.ones(1, 1).to_sparse_csr().to("cards:1")
    product = sparse.sampled_matmul(one, ones.t().contiguous(), ones)
    assert product.values().tolist() == [4096.0] and product.dtype is dtype


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_sparse_products_are_sparse_there(device: str) -> None:
    weight, other = cd.tensor(thinned()).to_sparse_csr(), cd.randn(3, 2)
    found = []
    for where in ("cpu", device):
        w = weight.to(where).detach().requires_grad_()
        x = other.clone().to(where).requires_grad_()
        ((w @ x) ** 2).sum().backward()
        assert w.grad.layout == "sparse_csr" and str(w.grad.device) == where
        found.append([w.grad.values().tolist(), x.grad.tolist()])
    assert np.allclose(found[0][0], found[1][0], atol=1e-5)
    assert np.allclose(found[0][1], found[1][1], atol=1e-5)


def test_a_gradient_comes_back_from_where_the_layout_went() -> None:
    x = cd.tensor(thinned()).to_sparse_csr().requires_grad_()
    (x.to("cards:0") * 2).to_dense().sum().backward()
    assert x.grad is not None and str(x.grad.device) == "cpu"
    assert x.grad.values().tolist() == [2.0] * x._nnz()


@pytest.mark.parametrize("device", ["cards:1", "delayed:0"])
def test_the_details_of_a_quantized_tensor_are_there(device: str) -> None:
    whole, sliced = per_tensor().to(device), per_channel().to(device)
    assert (whole.q_scale(), whole.q_zero_point()) == (0.05, 100)
    assert sliced.q_per_channel_axis() == 1
    for name in ("q_per_channel_scales", "q_per_channel_zero_points"):
        part = getattr(sliced, name)()
        assert str(part.device) == device
        assert part.tolist() == getattr(per_channel(), name)().tolist()


@pytest.mark.parametrize("device", ["cards:1", "delayed:0"])
def test_sparse_matrices_are_made_and_added_there(device: str) -> None:
    x = cd.tensor(thinned())
    made = x.to(device).to_sparse_csr()
    other = x.flip(0).to_sparse_csr().to(device)
    for found, wanted in ((made, x), (made + other, x + x.flip(0)), (made - other, x - x.flip(0))):
        assert str(found.device) == device and found.layout == "sparse_csr"
        assert found.to_dense().tolist() == wanted.tolist()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "sum of sparse and strided": (
        lambda: MADE["csr"]().to("cards:0") + MADE["csr"]().to_dense().to("cards:0"),
        "cards:0",
    ),
    "sparse product": (
        lambda: MADE["csr"]().to("cards:0") @ MADE["csr"]().t().to("cards:0"),
        "cards:0",
    ),
    "relu": (lambda: per_tensor().to("delayed").relu(), "delayed"),
    "quantized linear": (
        lambda: quant.quantized_linear(
            per_tensor().to("cards:1"), per_tensor().to("cards:1"), None, 0.1, 0
        ),
        "cards",
    ),
    "meta": (lambda: MADE["csr"]().to("meta"), "meta"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_there_is_refused_by_the_name_of_the_device(name: str) -> None:
    call, device = REFUSED[name]
    with pytest.raises((cd.MissingKernel, cd.DeviceError), match=device) as caught:
        call()
    assert "fix:" in str(caught.value)


@pytest.mark.parametrize("device", ["cards:1", "delayed"])
def test_quantizing_takes_the_operators_of_the_device(device: str) -> None:
    x = cd.linspace(-1, 1, 7)
    q = quant.quantize_per_tensor(x.to(device), 0.1, 100)
    assert q.device == x.to(device).device
    assert q.is_quantized
    assert q.cpu().int_repr().tolist() == quant.quantize_per_tensor(x, 0.1, 100).int_repr().tolist()


def test_two_devices_in_a_sparse_product_are_refused() -> None:
    s, x = MADE["csr"]().to("cards:0"), cd.ones(3, 2)
    for other in (x, x.to("cards:1"), x.to("delayed")):
        with pytest.raises(cd.DeviceError, match="expected all tensors on one device"):
            s @ other


def test_the_layout_of_the_manual_moves() -> None:
    folder = Path(__file__).parents[2] / "examples" / "diagonal_layout"
    source = folder / "coredispatch_diagonal.py"
    spec = importlib.util.spec_from_file_location("coredispatch_diagonal", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cd.plugins.load("diagonal", module)
    try:
        made = module.to_diagonal(cd.tensor([[2.0, 0.0], [0.0, 3.0]]))
        for device in DEVICES:
            there = made.to(device)
            assert str(there.device) == device and there.layout == "diagonal"
            for twin in (there, there.clone(), there.detach(), copy.deepcopy(there), there.cpu()):
                assert module.diagonal_to_dense(twin).tolist() == [[2, 0], [0, 3]]
            with pytest.raises(cd.MissingKernel, match=device.partition(":")[0]):
                there @ there
    finally:
        cd.plugins.unload("diagonal")
