"""Products of groups of matrices on the host, beside float64 on the CPU; nothing waits."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import DTYPES, close
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch.nn.functional import grouped_mm

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
FORMS = {
    "rows": ((70, 48), (3, 48, 33)),
    "columns": ((3, 33, 20), (20, 130)),
    "inner": ((33, 80), (80, 17)),
}


def scaled(shape: tuple[int, ...], dtype: Any) -> Any:
    return (cd.rand(shape) * 0.2 - 0.05).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ends", [(20, 64, 70), (0, 5, 1), (200, 3, 90), (64, 64, 128)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_groups(on_host: Any, form: str, ends: tuple[int, ...], dtype: Any) -> None:
    a, b = (scaled(shape, dtype) for shape in FORMS[form])
    offs = cd.tensor(ends, dtype=cd.int32)
    # meta tensors have no ends, and need none
    assert cd.ops.grouped_products(a.to("meta"), b.to("meta"), offs.to("meta")).dtype is dtype
    on_host(lambda a, b, offs: grouped_mm(a, b, offs=offs), a, b, offs, **close(dtype, 0.2))


@pytest.mark.parametrize("dtype", [cd.float32, cd.float16], ids=str)
@pytest.mark.parametrize("start", [0, 3])
def test_operands_are_read_where_they_lie(on_host: Any, start: int, dtype: Any) -> None:
    offs = cd.tensor([9, 72])
    near = close(dtype, 0.2)

    def program(a: Any, b: Any, offs: Any) -> Any:
        part = slice(start, start + 64)
        return (
            grouped_mm(a[:, part], b[:, part], offs=offs),
            grouped_mm(a.t()[:, part], b.mT[:, :80, part].mT, offs=offs),
            grouped_mm(b[:, part].mT, a[:, part].t(), offs=offs),
            grouped_mm(a[part].t(), a[part], offs=offs),
            grouped_mm(a.flip(0)[:, part], b[:1, part].expand(2, 64, 96), offs=offs),
        )

    on_host(program, scaled((80, 80), dtype), scaled((2, 80, 96), dtype), offs, launches=5, **near)


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_experts_waits_for_nothing(on_host: Any, form: str, dtype: Any) -> None:
    a, b = (scaled(shape, dtype).to("cuda").requires_grad_() for shape in FORMS[form])
    offs = cd.tensor([5, 5, 12], device="cuda")
    MACHINE.syncs.clear()
    before = on_host.library.launches
    grouped_mm(a, b, offs=offs).square().sum().backward()
    assert MACHINE.syncs == [] and on_host.library.launches == before + 3
    wide = [x.detach().cpu().double().requires_grad_() for x in (a, b)]
    grouped_mm(*wide, offs=offs.cpu()).square().sum().backward()
    for x, y in zip((a, b), wide, strict=True):
        cd.testing.assert_close(x.grad.cpu(), y.grad.to(dtype), **close(dtype, 0.5))


def test_what_has_no_elements_and_what_is_left_to_others(on_host: Any) -> None:
    multiply = cd.ops.grouped_products
    none, ends = cd.zeros(0, dtype=cd.int32), cd.tensor([1, 2])
    for a, b, offs in (
        ((0, 3), (2, 3, 4), ends),
        ((5, 0), (2, 0, 4), ends),
        ((5, 3), (0, 3, 4), none),
        ((0, 5, 3), (3, 4), none),
        ((5, 3), (3, 4), none),
    ):
        on_host(multiply, cd.ones(a), cd.ones(b), offs, launches=0)
    on_host(multiply, cd.ones(5, 3, dtype=cd.int64), cd.ones(2, 3, 4).long(), ends, launches=0)
    on_host(multiply, cd.ones(5, 3), cd.ones(2, 3, 4, dtype=cd.float64), ends, launches=0)
    with pytest.raises(ValueError, match="offs has 2 ends"):
        multiply(cd.ones(5, 3).to("cuda"), cd.ones(3, 3, 4).to("cuda"), ends.to("cuda"))


def test_older_devices_multiply_halves_group_by_group(
    on_host: Any, stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = stand_in.cupy.cuda.runtime
    properties = runtime.getDeviceProperties
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda i: properties(i) | {"major": 7})
    for dtype, launches in ((cd.float16, 0), (cd.float32, 1)):
        given = [scaled((70, 48), dtype), scaled((2, 48, 33), dtype), cd.tensor([3, 70])]
        on_host(cd.ops.grouped_products, *given, launches=launches, **close(dtype))
