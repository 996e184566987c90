"""Reading, writing and adding by indices on the host, beside the CPU; errors at the next wait."""

from __future__ import annotations

from typing import Any

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch_cuda_cupy import device_checks as checks

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
ALL = [cd.float32, cd.float64, cd.float16, cd.bfloat16, cd.int64, cd.int32]
MOVED = [*ALL, cd.uint8, cd.bool, cd.complex64, cd.complex128]


def of(dtype: Any, *shape: int) -> Any:
    """Small whole numbers, whose sums are exact."""
    return cd.randint(-2 if dtype not in (cd.uint8, cd.bool) else 0, 3, shape).to(dtype)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_moving_in_every_dtype(on_host: Any, dtype: Any) -> None:
    x, i, j = of(dtype, 6, 5), cd.randint(0, 6, (4,)), cd.randint(0, 5, (6, 33))
    on_host(lambda x, i: x.index_select(0, i), x, i)
    on_host(lambda x, i: x.index_select(1, i), x, i.clamp_max(4).int())
    on_host(lambda x, i: x[i], x, i - 6)
    on_host(lambda x, j: cd.gather(x, 1, j), x, j)
    on_host(lambda x, j: cd.gather(x, 0, j), x.t(), cd.randint(0, 5, (33, 4)))
    on_host(lambda x, i: cd.take(x, i), x, cd.tensor([[-1, 29], [0, 7]]))
    k = cd.tensor([4, 0, 2])
    on_host(lambda x, k, v: x.index_copy(0, k, v), x, k, of(dtype, 3, 5), launches=2)
    on_host(lambda x, k, v: x.index_put((k,), v), x, k, of(dtype, 3, 5), launches=2)
    on_host(lambda x, k: x.index_put((k,), 1), x, k, launches=2)
    on_host(
        lambda x, k, v: x.scatter(0, k, v),
        x,
        k.view(3, 1).expand(3, 5),
        of(dtype, 4, 5),
        launches=2,
    )
    on_host(lambda x, k: x.scatter(0, k, 1), x, k.view(3, 1).expand(3, 5), launches=2)


def test_an_index_that_is_shorter_outside_its_dimension(on_host: Any) -> None:
    x, k, v = cd.randn(6, 5), cd.tensor([[4, 0], [2, 2]]), cd.randn(3, 4)
    on_host(lambda x, k, v: x.scatter(0, k, v), x, k, v, launches=2)
    on_host(lambda x, k: x.scatter(1, k, 0.5), x, k, launches=2)
    on_host(lambda x, k, v: x.scatter_add(0, k, v), x, k, v)
    on_host(lambda x, k: cd.gather(x, 0, k), x, k)
    for wrong in (k.expand(2, 2).repeat(1, 4), k[0]):
        with pytest.raises(cd.ShapeError):
            x.to("cuda").scatter(0, wrong.to("cuda"), 1.0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_adding_to_repeated_places(on_host: Any, dtype: Any) -> None:
    x, i = of(dtype, 4, 3), cd.randint(0, 4, (70,))
    rows = of(dtype, 70, 3)
    on_host(lambda x, i, v: x.index_add(0, i, v), x, i, rows)
    on_host(lambda x, i, v: x.t().index_add(1, i, v.t()), x, i, rows)
    on_host(lambda x, i, v: x.index_put((i,), v, accumulate=True), x, i - 4, rows)
    on_host(lambda x, i: x.index_put((i,), 1, accumulate=True), x, i)
    on_host(lambda x, i, v: x.scatter_add(0, i, v), x, i.view(70, 1).expand(70, 3), rows)
    o = cd.ops
    if dtype.is_floating_point:
        on_host(lambda g, i: o.embedding_backward(g, i, 5, 3, False), rows, i.view(7, 10))
        on_host(lambda g, i: o.getitem_backward(g, (i,), (4, 3)), rows, i - 4)


def test_int64_sums_do_not_leave_their_width(on_host: Any) -> None:
    x, values = cd.tensor([0, -7]), cd.tensor([-(2**62), 5, -3])
    on_host(lambda x, i, v: x.index_add(0, i, v), x, cd.tensor([1, 1, 0]), values)


def test_subscripts(on_host: Any) -> None:
    x, i, j = cd.randn(4, 5, 6), cd.tensor([[3], [0]]), cd.tensor([1, -5, 2])
    on_host(lambda x, i, j: x[i, j], x, i, j, launches=3)
    on_host(lambda x, i, j: x[:, i, j], x, i, j, launches=3)
    on_host(lambda x, i: x[:, i], x, i)
    on_host(lambda x, i: x[:, :, i], x[1:, ::2], i)
    on_host(lambda x, i, j: x.index_put((i, j), cd.ones(2, 3, 6).to(x), True), x, i, j, launches=3)
    on_host(lambda x, i: x[i, :, i], x, i, launches=3)  # in front
    on_host(lambda x, i: x[1, i], x, i)
    on_host(lambda x, i: x[None, i], x, i)
    on_host(lambda x, i: x[..., 2, i], x, i)
    on_host(lambda x, i, j: x[1:3, i, ::2], x, i, j)
    on_host(lambda x, i: x[1:, i, j.to(x.device), None], x, i, launches=3)
    v = cd.randn(3, 2, 1, 3)
    on_host(lambda x, i, v: x.index_put((slice(1, 4), i, slice(0, 6, 2)), v), x, i, v, launches=2)
    on_host(lambda x, i: x.index_put((..., 0, i), cd.ones(4, 2, 1).to(x), True), x, i)
    on_host(lambda g, i: cd.ops.getitem_backward(g, (0, i), (4, 5, 6)), cd.randn(2, 1, 6), i)
    on_host(lambda x: x[cd.zeros(0, dtype=cd.int64).to(x.device)], x, launches=0)
    on_host(lambda x: x[x[:, 0, 0] > 0], x, launches=0)

    def written(x: Any, i: Any) -> Any:
        x = x.clone()
        x[i.flatten()] = 7
        return x

    on_host(written, x, i, launches=2)


ROWS, TWO, COLUMNS = cd.tensor([0, 2, -1]), cd.tensor([[1], [0]]), cd.tensor([1, 1, 0])
SUBSCRIPTS = {
    "apart": (ROWS, slice(None), COLUMNS),
    "apart behind": (slice(None), ROWS, slice(1, None), COLUMNS),
    "behind": (..., ROWS, COLUMNS),
    "around": (ROWS, ..., COLUMNS),
    "beside an integer": (0, slice(None), ROWS, COLUMNS),
    "with a new dimension": (ROWS, None, COLUMNS),
    "at steps": (slice(None, None, 2), ROWS, slice(2), TWO),
    "in lists": ([0, 1], slice(None), [1, 0]),
    "a nested list": ([[0, 1]],),
}


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16, cd.int64, cd.complex64], ids=str)
@pytest.mark.parametrize("name", SUBSCRIPTS)
def test_subscripts_of_all_forms_wait_for_nothing(on_host: Any, name: str, dtype: Any) -> None:
    index, x = SUBSCRIPTS[name], of(dtype, 3, 4, 5, 3)
    there, at = x.to("cuda"), [i.to("cuda") if isinstance(i, cd.Tensor) else i for i in index]
    values = of(dtype, *x[index].shape)

    def written(x: Any, index: Any, values: Any) -> Any:
        x, one = x.clone(), x.clone()
        x[index] = values
        one[index] = 7
        return x, one

    def gradient(x: Any, index: Any, values: Any) -> Any:
        x = x.detach().requires_grad_()
        return cd.autograd.grad(x[index], x, values)

    programs = [lambda x, i, _: x[i], written]
    programs += [gradient] if dtype.is_floating_point or dtype.is_complex else []
    for program in programs:
        wanted, given = program(x, index, values), (there, tuple(at), values.to("cuda"))
        program(*given)
        MACHINE.syncs.clear()
        got = program(*given)
        assert not MACHINE.syncs
        got = [t.cpu() for t in got] if isinstance(got, tuple) else got.cpu()
        cd.testing.assert_close(got, list(wanted) if isinstance(wanted, tuple) else wanted)


@pytest.mark.parametrize("shape", [(500,), (4, 500), (500, 3)])
def test_the_last_of_several_values_stays(on_host: Any, shape: tuple[int, ...]) -> None:
    dim = shape.index(500)
    x = cd.zeros([40 if n == 500 else n for n in shape])
    index, values = cd.randint(0, 40, (500,)), cd.randn(shape)
    on_host(lambda x, i, v: x.index_copy(dim, i, v), x, index, values, launches=2)
    on_host(lambda x, i, v: x.scatter(dim, i, v), x, cd.randint(0, 40, shape), values, launches=2)
    if dim == 0:
        on_host(lambda x, i, v: x.index_put((i - 40,), v), x, index, values, launches=2)


def test_embedding_and_its_gradient(on_host: Any) -> None:
    def gradient(table: Any, i: Any) -> Any:
        table = table.detach().requires_grad_()
        rows = cd.nn.functional.embedding(i, table, padding_idx=2)
        (rows * rows).sum().backward()
        return table.grad

    on_host(gradient, cd.randn(7, 9), cd.tensor([[0, 2, 2], [6, 6, 1]]), launches=2)
    on_host(lambda t, i: cd.nn.functional.embedding(i, t), cd.randn(7, 9), cd.tensor(3))


BAD = [
    ("gather", lambda x, i: cd.gather(x, 0, i.view(-1, 1)), 3, "size 3"),
    ("gather", lambda x, i: cd.gather(x, 0, i.view(-1, 1)), -1, "size 3"),
    ("scatter", lambda x, i: x.scatter(0, i.view(-1, 1).expand(2, 4), 1.0), 4, "size 3"),
    (
        "scatter_add",
        lambda x, i: x.scatter_add(0, i.view(-1, 1).expand(2, 4), x[:2]),
        -3,
        "size 3",
    ),
    ("index_select", lambda x, i: x.index_select(1, i), -1, "size 4"),
    ("index_add", lambda x, i: x.index_add(0, i, x[:2]), 3, "size 3"),
    ("getitem", lambda x, i: x[i], -4, "size 3"),
    ("getitem", lambda x, i: x[i, i], 3, "size 3"),
    ("getitem", lambda x, i: x.view(3, 2, 2)[i, :, i], 3, "size 3"),
    ("getitem", lambda x, i: x[..., i, i], -4, "size 3"),
    ("getitem", lambda x, i: x[i.tolist()], 3, "size 3"),
    (
        "index_put",
        lambda x, i: x.view(3, 2, 2).clone().__setitem__((i, slice(None), i), 1),
        2,
        "size 2",
    ),
    ("index_put", lambda x, i: x.index_put((i,), x[:2]), 7, "size 3"),
    ("take", lambda x, i: cd.take(x, i), 12, "size 12"),
    ("embedding", lambda x, i: cd.nn.functional.embedding(i, x), 3, "3 embeddings"),
    ("nll_loss", lambda x, i: cd.nn.functional.nll_loss(x[:2], i), 4, "4 classes"),
]


@pytest.mark.parametrize(("op", "call", "value", "text"), BAD)
def test_bad_indices_are_errors_at_the_next_wait_or_at_once(
    on_host: Any,
    stand_in: Any,
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    call: Any,
    value: int,
    text: str,
) -> None:
    monkeypatch.setattr(checks, "_devices", {})
    monkeypatch.delenv(checks.VARIABLE, raising=False)
    x = cd.arange(12.0).view(3, 4).to("cuda")
    index = cd.tensor([0, value]).to("cuda")
    call(x, index)
    with pytest.raises(IndexError, match=rf"{value} is out of (bounds|range) for {text}"):
        checks.raise_pending(stand_in.cupy)
    cd.testing.assert_close(x.cpu(), cd.arange(12.0).view(3, 4))
    monkeypatch.setenv(checks.VARIABLE, "1")
    with pytest.raises(cd.DimError, match=str(value)) as error:
        call(x, index)
    assert op in str(error.value)


def test_nothing_is_read_back(on_host: Any, stand_in: Any, monkeypatch: Any) -> None:
    x, i = cd.randn(5, 4).to("cuda"), cd.tensor([1, 2]).to("cuda")
    monkeypatch.setattr(stand_in.cupy, "asnumpy", lambda x: pytest.fail("it was read"))
    monkeypatch.setattr(type(x.raw), "__bool__", lambda x: pytest.fail("it was read"))
    monkeypatch.setattr(type(x.raw), "__int__", lambda x: pytest.fail("it was read"))
    x[i] = x.index_select(0, i) + x[i]
    table = x.detach().requires_grad_()
    rows = cd.nn.functional.embedding(i, table)
    cd.nn.functional.nll_loss(rows.log_softmax(1), i).backward()
    cd.gather(x, 0, i.view(1, 2)).sum()


def test_kernels_run_on_the_device_of_their_arguments(
    on_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_devices", {})
    monkeypatch.delenv(checks.VARIABLE, raising=False)
    x, i = cd.randn(5, 4), cd.tensor([3, 0])
    there, index = x.to("cuda:1"), i.to("cuda:1")
    before = on_host.library.launches
    for got, wanted in (
        (there[index], x[i]),
        (there.softmax(1), x.softmax(1)),
        (there.index_add(0, index, there[:2]), x.index_add(0, i, x[:2])),
        (cd.nn.functional.layer_norm(there, (4,)), cd.nn.functional.layer_norm(x, (4,))),
    ):
        assert str(got.device) == "cuda:1"
        cd.testing.assert_close(got.cpu(), wanted)
    assert on_host.library.launches == before + 4
    there[index + 5]
    cd.cuda.synchronize(0)
    with pytest.raises(cd.DimError, match="getitem: index [58]"):
        cd.cuda.synchronize(1)
