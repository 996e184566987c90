"""Half precision: conversions to the bit, and operators that the pack serves in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import Reference

import coredispatch as cd
from coredispatch.plugin import call_raw, numpy_dtype
from coredispatch.registry.around.observe import observe
from coredispatch_cpu_numba.kernels import halves

pytestmark = pytest.mark.once

F = cd.nn.functional
DTYPES = [numpy_dtype(cd.bfloat16), numpy_dtype(cd.float16)]
ALL_BITS = np.arange(2**16, dtype=np.uint16)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, but for the payload of a NaN: its sign must be the same."""
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    unsigned = np.uint16 if a.itemsize == 2 else np.uint32
    top = unsigned(8 * a.itemsize - 1)
    x, y = a.view(unsigned), b.view(unsigned)
    return bool(np.all((x == y) | (nan & (x >> top == y >> top))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number_of_half_precision_widens_exactly(dtype: np.dtype) -> None:
    x = ALL_BITS.view(dtype)
    out = np.empty(x.shape, np.float32)
    halves._widen(dtype, x.size, x.size, x, out)
    assert same_bits(out, x.astype(np.float32))
    assert same_bits(halves.narrowed(out, dtype), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_beside_every_tie_round_to_the_nearest(dtype: np.dtype) -> None:
    """The float32 numbers around each number of half precision and around the ties between them."""
    bits = ALL_BITS.view(dtype).astype(np.float32).view(np.uint32)
    steps = [0, 1, 2, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    for step in steps:
        x = (bits + np.uint32(step)).view(np.float32)
        with np.errstate(all="ignore"):
            want = x.astype(dtype)
        assert same_bits(halves.narrowed(x, dtype), want), hex(step)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(DTYPES), size=st.integers(64, 300))
def test_any_float32_rounds_to_the_nearest(seed: int, dtype: np.dtype, size: int) -> None:
    x = np.random.default_rng(seed).integers(0, 2**32, size, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        want = x.astype(dtype)
    assert same_bits(halves.narrowed(x, dtype), want)


def _calls(dtype: Any) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(0)

    def tensor(*shape: int) -> Any:
        return cd.tensor(rng.standard_normal(shape).astype(np.float32)).to(dtype)

    x, image, kernel = tensor(70, 64), tensor(4, 8, 12, 12), tensor(6, 8, 3, 3)
    weight, bias, channels = tensor(50, 64), tensor(50), tensor(8)
    float_channels = cd.ones(8)
    op = cd.ops
    return {
        "convolution": lambda: F.conv2d(image, kernel, tensor(6), padding=1),
        "linear": lambda: F.linear(x, weight, bias),
        "matmul": lambda: x @ weight.t(),
        "softmax": lambda: F.softmax(x, 0),
        "log_softmax": lambda: F.log_softmax(x, 1),
        "layer_norm": lambda: F.layer_norm(x, (64,)),
        "rms_norm": lambda: F.rms_norm(x, (64,)),
        "group_norm": lambda: F.group_norm(image, 2, channels, channels),
        "batch_norm_train": lambda: op.batch_norm_train(image, float_channels, None, 1e-5),
        "sum": lambda: x.sum(0),
        "mean": lambda: x.mean(),
        "avg_pool": lambda: F.avg_pool2d(image, 2),
        "max_pool": lambda: F.max_pool2d(image, 2),
        "cross_entropy": lambda: F.cross_entropy(x, cd.arange(64).repeat(2)[:70]),
        "to_dtype": lambda: x.to(cd.float32),
    }


@pytest.mark.parametrize("dtype", [cd.bfloat16, cd.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", sorted(_calls(cd.bfloat16)))
def test_the_pack_serves_and_numpy_agrees(name: str, dtype: Any, reference: Reference) -> None:
    with observe() as log:
        ours = _calls(dtype)[name]()
    assert "cpu_numba" in [o.plugin for o in log if o.op == name]
    cd.plugins.unload("cpu_numba")
    try:
        theirs = _calls(dtype)[name]()
    finally:
        cd.plugins.load("cpu_numba")
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in (ours, theirs))
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype.name]
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        # Both round once what differs by the order of float32 sums: one unit at most.
        scale = float(b.float().abs().max()) * 2.0**-18
        np.testing.assert_allclose(
            a.double().numpy(), b.double().numpy(), rtol=2 * unit, atol=scale
        )


def test_autocast_computes_once_in_float32() -> None:
    """The float32 call inside a kernel is seen by no layer, or autocast would narrow it again."""
    net = cd.nn.Sequential(cd.nn.Conv2d(3, 8, 3), cd.nn.BatchNorm2d(8), cd.nn.Flatten())
    x = cd.randn(4, 3, 12, 12)
    with cd.autocast("cpu", cd.bfloat16):
        y = net(x)
    assert y.dtype == cd.bfloat16
    y.float().square().mean().backward()
    plain = net(x)
    np.testing.assert_allclose(y.detach().float().numpy(), plain.detach().numpy(), atol=0.1)
    assert all(p.grad is not None and p.grad.dtype == cd.float32 for p in net.parameters())


def test_a_requested_dtype_is_not_rounded() -> None:
    x = cd.ones(300, 300, dtype=cd.bfloat16)
    assert x.sum(dtype=cd.float32).dtype == cd.float32
    assert x.sum(dtype=cd.float32).item() == 90_000
    assert F.softmax(x, 1, dtype=cd.float32).dtype == cd.float32


def test_what_is_wrong_is_said_as_without_the_pack() -> None:
    x, w = cd.ones(64, 64, dtype=cd.bfloat16), cd.ones(64, 65, dtype=cd.bfloat16)
    messages = []
    for unload in (False, True):
        if unload:
            cd.plugins.unload("cpu_numba")
        try:
            for call in (lambda: F.linear(x, w), lambda: x @ w.t(), lambda: F.layer_norm(x, (9,))):
                with pytest.raises(cd.CoreDispatchError) as caught:
                    call()
                messages.append((type(caught.value), str(caught.value)))
        finally:
            if unload:
                cd.plugins.load("cpu_numba")
    assert messages[:3] == messages[3:]


def test_call_raw_has_the_table_compute() -> None:
    a = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(call_raw("matmul", "cpu", a, a.T), a @ a.T)
    values, places = call_raw("topk", "cpu", a, 3, 1, True, True)
    np.testing.assert_array_equal(values, a[:, ::-1])
    assert type(places) is np.ndarray
    with pytest.raises(cd.CoreDispatchError, match="no operator|nonsense"):
        call_raw("nonsense", "cpu", a)
