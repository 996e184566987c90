"""8-bit floats on the device: conversions, moves and products, with kernels on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cublaslt_stand_in as stand_in_library
import numpy as np
import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch.conformance import Status, Subject, plan_op, run_case
from coredispatch.conformance.case import BACKEND

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
NAMES = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
MOVED = (
    "as_strided cat chunk clone contiguous expand flip gather getitem index_copy index_put "
    "index_select masked_select permute repeat reshape roll scatter stack take to_dtype transpose "
    "view where"
).split()


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Iterator[stand_in_library.CublasLt]:
    """The library, found when the kernels are registered: before ``on_host``."""
    yield from stand_in_library.installed(monkeypatch)


@pytest.mark.parametrize("op", MOVED)
def test_the_suite_s_cases_pass(on_host: Any, op: str) -> None:
    subject = Subject("cuda")
    cases = [case for case in plan_op(subject, op) if case.variant.startswith("8-bit")]
    assert cases
    for case in cases:
        result = run_case(subject, case)
        assert result.status == Status.PASS, f"{case.id}: {result.message}"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_made_written_read_and_kept(on_host: Any, name: str) -> None:
    subject = Subject("cuda")
    (case,) = (c for c in plan_op(subject, BACKEND) if c.variant == "8-bit" and c.dtype == name)
    result = run_case(subject, case)
    assert result.status == Status.PASS, result.message


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("half", [cd.float16, cd.bfloat16, cd.float64], ids=str)
def test_every_number_of_half_precision(on_host: Any, half: Any, name: str) -> None:
    dtype = getattr(cd, name)
    if half is cd.float64:  # rounded to single precision on the way
        x = cd.randn(4000, dtype=cd.float64) * cd.logspace(-20, 20, 4000, 2, dtype=cd.float64)
    else:
        x = cd.from_numpy(np.arange(2**16, dtype=np.uint16).view(np.int16)).view(half)
    before = on_host.library.launches
    found = x.to("cuda").to(dtype)
    assert on_host.library.launches == before + 1
    assert found.cpu().view(cd.uint8).tolist() == x.to(dtype).view(cd.uint8).tolist()
    back = found.to(half).cpu()
    cd.testing.assert_close(back, x.to(dtype).to(half), rtol=0, atol=0, equal_nan=True)


def test_between_devices_and_in_page_locked_memory(on_host: Any) -> None:
    x = cd.arange(64, dtype=cd.uint8).view(cd.float8_e5m2).reshape(8, 8)
    for y in (x.to("cuda:0").to("cuda:1"), x.pin_memory().to("cuda", non_blocking=True)):
        cd.cuda.synchronize()
        assert y.t().cpu().view(cd.uint8).tolist() == x.t().contiguous().view(cd.uint8).tolist()
    target = cd.zeros(8, 8, dtype=cd.float8_e5m2).pin_memory()
    target.copy_(x.to("cuda"), non_blocking=True)
    cd.cuda.synchronize()
    assert target.view(cd.uint8).tolist() == x.view(cd.uint8).tolist()


def test_arithmetic_is_refused(on_host: Any) -> None:
    x = cd.ones(4, dtype=cd.float8_e4m3fn, device="cuda")
    for call in (
        lambda: x + x,
        lambda: x * 2,
        lambda: x.sum(),
        lambda: x.view(2, 2) @ x.view(2, 2),
        lambda: x.index_put((cd.tensor([0], device="cuda"),), x[:1], accumulate=True),
    ):
        with pytest.raises(NotImplementedError, match="float8_e4m3fn.*storage"):
            call()


def matrices(m: int, k: int, n: int, second: Any = cd.float8_e4m3fn) -> tuple[Any, Any]:
    return cd.randn(m, k).to(cd.float8_e4m3fn), cd.randn(n, k).to(second).t()


def agrees(*given: Any, **options: Any) -> Any:
    """The call on the device and on the CPU, up to the order of sums."""
    found = cd._scaled_mm(*(None if x is None else x.to("cuda") for x in given), **options)
    wanted = cd._scaled_mm(*given, **options)
    assert found.dtype is wanted.dtype
    near = 2**-3 if found.element_size() == 1 else 2**-7 if found.element_size() == 2 else 1e-5
    cd.testing.assert_close(found.cpu().float(), wanted.float(), rtol=near, atol=1e-2)
    return found


@pytest.mark.parametrize("out", [cd.float32, cd.bfloat16, cd.float16, cd.float8_e5m2], ids=str)
@pytest.mark.parametrize("second", [cd.float8_e4m3fn, cd.float8_e5m2], ids=str)
def test_products_are_the_library_s(lt, on_host, out, second) -> None:
    a, b = matrices(24, 32, 48, second)
    two, half = cd.tensor(2.0), cd.tensor([0.5])
    agrees(a, b, two, half, out_dtype=out)
    agrees(a, b, two, half, cd.randn(48).to(cd.bfloat16), out_dtype=out)
    agrees(a, b, two, half, cd.randn(48), out_dtype=out)
    agrees(a, b.contiguous(), two, half, None, cd.tensor(4.0), out_dtype=out)
    agrees(a, b, cd.rand(24, 1), cd.rand(1, 48), cd.randn(48), out_dtype=out)
    agrees(a, b, two, half, out_dtype=out, use_fast_accum=True)
    assert len(lt.calls) == 6 and [call["fast"] for call in lt.calls] == [0] * 5 + [1]
    with_bias = [call["epilogue"] for call in lt.calls]
    assert with_bias[1] == (stand_in_library.BIAS if out is cd.bfloat16 else 1)


def test_a_product_in_a_capture_leaves_nothing_to_later_ones(lt, on_host) -> None:
    a, b = (x.to("cuda") for x in matrices(16, 16, 16))
    rows, columns = cd.rand(16, 1), cd.rand(1, 16)
    given = [a, b, rows.to("cuda"), columns.to("cuda")]
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        cd._scaled_mm(*given, out_dtype=cd.float32)
    g.reset()
    cd.full((64,), 9.0, device="cuda")
    agrees(a.cpu(), b.cpu(), rows, columns, out_dtype=cd.float32)


@pytest.mark.parametrize("sizes", [(3, 16, 5), (5, 7, 16), (16, 0, 16)], ids=str)
def test_what_the_library_does_not_take_is_multiplied_in_float32(lt, on_host, sizes) -> None:
    a, b = matrices(*sizes)
    agrees(a, b, cd.tensor(2.0), cd.tensor(3.0), out_dtype=cd.float32)
    both = (x.to(cd.float8_e5m2) for x in matrices(16, 16, 16))
    agrees(*both, cd.tensor(2.0), cd.tensor(3.0), out_dtype=cd.float32)
    assert lt.calls == []


def test_older_devices_multiply_in_float32_and_explain_shows_both(
    lt, on_host, stand_in, monkeypatch
) -> None:
    a, b = matrices(16, 16, 16)
    one = cd.tensor(1.0)
    given = [x.to("cuda") for x in (a, b, one, one)]
    assert "scaled_products.py" in str(cd.explain("_scaled_mm", *given))
    runtime = stand_in.cupy.cuda.runtime
    properties = runtime.getDeviceProperties
    old = {"major": 8, "minor": 6}
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda i: properties(i) | old)
    agrees(a, b, one, one, out_dtype=cd.float32)
    assert lt.calls == []


def test_misfits_are_refused_as_on_the_cpu(lt, on_host) -> None:
    a, b = (x.to("cuda") for x in matrices(16, 16, 16))
    with pytest.raises(ValueError, match="scales of shapes"):
        cd._scaled_mm(a, b, cd.ones(16, device="cuda"), cd.ones(16, device="cuda"))
    assert lt.calls == []


GROUPED = {
    "rows": ((70, 48), (3, 48, 33), (70,), (3, 33), 70),
    "columns": ((3, 33, 20), (20, 130), (3, 33), (130,), 130),
    "inner": ((33, 80), (80, 17), (99,), (51,), 80),
    "even": ((2, 65, 16), (2, 16, 70), (2, 65), (2, 70), 0),
}


@pytest.mark.parametrize("out", [cd.float32, cd.bfloat16, cd.float16], ids=str)
@pytest.mark.parametrize("ends", [(20, 64, 70), (0, 5, 1), (200, 3, 90), (64, 64, 128)], ids=str)
@pytest.mark.parametrize("form", GROUPED)
def test_products_of_groups(on_host, form, ends, out) -> None:
    *shapes, divided = GROUPED[form]
    a, b, scale_a, scale_b = (cd.rand(s) + 0.5 for s in shapes)
    offs = cd.tensor(ends, dtype=cd.int32) if divided else None
    given = [a.to(cd.float8_e4m3fn), b.to(cd.float8_e5m2), scale_a, scale_b, offs]
    MACHINE.syncs.clear()
    before = on_host.library.launches
    on_device = [None if x is None else x.to("cuda") for x in given]
    found = cd._scaled_grouped_mm(*on_device, out_dtype=out)
    assert MACHINE.syncs == [] and on_host.library.launches == before + 1
    wanted = cd._scaled_grouped_mm(*given, out_dtype=out)
    assert found.dtype is out and found.shape == wanted.shape
    near = 1e-5 if out is cd.float32 else 2**-8
    cd.testing.assert_close(found.cpu().float(), wanted.float(), rtol=near, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_groups_of_every_type_read_where_they_lie(on_host, name) -> None:
    a, b = (x.to(getattr(cd, name)) for x in (cd.rand(5, 40) + 0.5, cd.rand(2, 7, 40) + 0.5))
    given = [a[:, 3:35], b[..., 3:35].mT, cd.ones(5), cd.ones(2, 7), cd.tensor([2, 5])]
    found = cd._scaled_grouped_mm(*(x.to("cuda") for x in given), out_dtype=cd.float32)
    wanted = cd._scaled_grouped_mm(*given, out_dtype=cd.float32)
    cd.testing.assert_close(found.cpu(), wanted)


def test_groups_that_do_not_fit_are_refused_as_on_the_cpu(on_host) -> None:
    a, b = (x.to("cuda") for x in (cd.ones(5, 3), cd.ones(2, 3, 4)))
    a, b, ends = a.to(cd.float8_e4m3fn), b.to(cd.float8_e4m3fn), cd.tensor([2, 5], device="cuda")
    with pytest.raises(ValueError, match="scales of shapes"):
        cd._scaled_grouped_mm(a, b, cd.ones(4, device="cuda"), cd.ones(2, 4, device="cuda"), ends)
