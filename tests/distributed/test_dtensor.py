"""Tensors in parts on the ranks of a mesh: every layout gives what one process computes."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from coredispatch.distributed.tensor.experimental import implicit_replication

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
F = nn.functional


def on_mesh(shape: tuple[int, ...], program: Callable[[Any], Any]) -> list[Any]:
    """What `program(mesh)` returns on each of the ranks of a mesh of threads."""

    def run(rank: int) -> Any:
        return program(dist.init_device_mesh("cpu", shape))

    return dist.threads.spawn(run, nprocs=int(np.prod(shape)))


def numbers(*shape: int, seed: int = 0) -> Any:
    return cd.tensor(np.random.default_rng([seed, *shape]).standard_normal(shape))


def placements(ndim: int, mesh_ndim: int) -> Any:
    one = st.one_of(st.just(R), st.integers(0, ndim - 1).map(Shard))
    return st.tuples(*[one] * mesh_ndim)


@settings(max_examples=25)
@given(st.data())
def test_any_layout_becomes_any_other(data: st.DataObject) -> None:
    mesh_shape = data.draw(st.sampled_from([(2,), (3,), (2, 2)]))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    source = data.draw(placements(len(shape), len(mesh_shape)))
    target = data.draw(placements(len(shape), len(mesh_shape)))
    whole = numbers(*shape)

    def program(mesh: Any) -> tuple[Any, Any]:
        placed = distribute_tensor(whole, mesh, source)
        moved = placed.redistribute(placements=target)
        assert moved.placements == target and moved.shape == tuple(shape)
        assert cd.equal(distribute_tensor(whole, mesh, target).to_local(), moved.to_local())
        return placed.full_tensor(), moved.full_tensor()

    for before, after in on_mesh(mesh_shape, program):
        assert cd.equal(before, whole) and cd.equal(after, whole)


#: functions of one or two tensors, and the shapes that they get
CALLS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "add": (lambda a, b: a + b * 2, [(4, 6), (6,)]),
    "mul": (lambda a, b: (a * b).exp() - a, [(4, 6), (4, 1)]),
    "where": (lambda a, b: cd.where(a > b, a, b * 3), [(4, 6), (4, 6)]),
    "type_as": (lambda a, b: a.type_as(b) + b.sum(), [(3, 4), (2,)]),
    "relu": (lambda a: a.relu().tanh(), [(5, 3)]),
    "gelu": (lambda a: F.gelu(a) + F.silu(a), [(5, 3)]),
    "matmul": (lambda a, b: a @ b, [(5, 4), (4, 6)]),
    "linear": (lambda a, b: F.linear(a, b), [(2, 3, 4), (6, 4)]),
    "bmm": (lambda a, b: a @ b, [(4, 2, 3), (4, 3, 2)]),
    "sum": (lambda a: a.sum(1) + a.sum(0).sum(), [(4, 4)]),
    "mean": (lambda a: a.mean(0) * a.mean(), [(4, 3)]),
    "amax": (lambda a: a.amax(1) + a.amin(1), [(4, 6)]),
    "softmax": (lambda a: a.softmax(1) + a.log_softmax(0), [(4, 6)]),
    "layer_norm": (lambda a, b: F.layer_norm(a, (6,), b, b), [(4, 6), (6,)]),
    "rms_norm": (lambda a, b: F.rms_norm(a, (6,), b), [(4, 6), (6,)]),
    "transpose": (lambda a: a.t().unsqueeze(0).permute(2, 1, 0).squeeze(-1), [(4, 6)]),
    "reshape": (lambda a: a.reshape(2, 2, 6).flatten(1) + a.view(2, 12), [(4, 6)]),
    "expand": (lambda a: a.unsqueeze(1).expand(4, 3, 6).clone(), [(4, 6)]),
    "split": (lambda a: cd.cat([p * i for i, p in enumerate(a.split(2, 1))], 1), [(4, 6)]),
    "index": (lambda a: a[1:3, ::2] + a[:2, 1:4], [(4, 6)]),
    "cumsum": (lambda a: a.cumsum(0), [(4, 6)]),
    "norm": (lambda a: a / a.norm(), [(4, 6)]),
    "attention": (
        lambda a, b: F.scaled_dot_product_attention(a, b, b, is_causal=True),
        [(2, 2, 3, 4), (2, 2, 3, 4)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_in_every_layout(name: str) -> None:
    function, shapes = CALLS[name]
    values = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    plain = [value.clone().requires_grad_() for value in values]
    out = function(*plain)
    weights = numbers(*out.shape, seed=9)
    (out * weights).sum().backward()
    layouts = list(
        itertools.product(*[[R, *(Shard(d) for d in range(len(shape)))] for shape in shapes])
    )

    def program(mesh: Any) -> None:
        whole = distribute_tensor(weights, mesh, [R])
        for layout in layouts:
            given = [
                distribute_tensor(value.clone(), mesh, [p]).requires_grad_()
                for value, p in zip(values, layout, strict=True)
            ]
            found = function(*given)
            assert isinstance(found, DTensor) and found.shape == out.shape, layout
            cd.testing.assert_close(found.full_tensor(), out)
            (found * whole).sum().backward()
            for tensor, expected in zip(given, plain, strict=True):
                assert isinstance(tensor.grad, DTensor)
                cd.testing.assert_close(tensor.grad.full_tensor(), expected.grad)

    on_mesh((2,), program)


def test_nothing_is_gathered_where_parts_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, then rows: one all_reduce forward, none of a weight."""
    from coredispatch.frontend.distributed.tensor import transfers

    seen: list[Any] = []
    real = transfers._step

    def watch(local: Any, shape: Any, mesh: Any, dim: int, source: Any, target: Any) -> Any:
        if source != target:
            seen.append((source, target))
        return real(local, shape, mesh, dim, source, target)

    monkeypatch.setattr(transfers, "_step", watch)

    def program(mesh: Any) -> Any:
        x = distribute_tensor(numbers(3, 4), mesh, [R], src_data_rank=None)
        up = distribute_tensor(numbers(8, 4), mesh, [S0], src_data_rank=None).requires_grad_()
        down = distribute_tensor(numbers(4, 8), mesh, [S1], src_data_rank=None).requires_grad_()
        if mesh.get_rank() == 0:
            seen.clear()
        dist.barrier()
        out = F.linear(F.relu(F.linear(x, up)), down)
        assert out.placements == (P,)
        out.redistribute(placements=[R]).sum().backward()
        return up.grad.placements, down.grad.placements

    assert on_mesh((2,), program) == [((S0,), (S1,))] * 2
    assert set(seen) <= {(P, R), (R, S0), (R, S1)}, seen


def test_rows_of_a_divided_table() -> None:
    """``padding_idx`` may be a row of another rank; an index leaves whole dimensions divided."""

    def program(mesh: Any) -> None:
        table = numbers(5, 4)
        rows = distribute_tensor(table, mesh, [S0]).requires_grad_()
        plain = table.clone().requires_grad_()
        at = cd.tensor([[4, 0, 1], [1, 2, 4]])
        for make in (F.embedding, cd.no_grad()(F.embedding)):
            found = make(at, rows, padding_idx=4)
            cd.testing.assert_close(found.full_tensor(), make(at, plain, padding_idx=4))
        F.embedding(at, rows, padding_idx=4).sum().backward()
        F.embedding(at, plain, padding_idx=4).sum().backward()
        cd.testing.assert_close(rows.grad.full_tensor(), plain.grad)
        assert rows[:, None, 1:3].placements == (S0,) and rows[..., 0].placements == (S0,)
        assert rows[1:].placements == (R,)

    on_mesh((2,), program)


def test_parts_given_and_taken_are_differentiable() -> None:
    def program(mesh: Any) -> None:
        rank = mesh.get_local_rank()
        local = cd.full((2, 3), rank + 1.0, requires_grad=True)
        rows = DTensor.from_local(local, mesh, [S0])
        assert rows.shape == (4, 3)
        (rows * 2).full_tensor().sum().backward()
        assert local.grad.tolist() == [[2.0] * 3] * 2
        part = cd.full((2,), rank + 1.0, requires_grad=True)
        total = DTensor.from_local(part, mesh, [P])
        assert total.full_tensor().tolist() == [3.0, 3.0]
        (total.redistribute(placements=[R]).to_local() * cd.tensor([1.0, 5.0])).sum().backward()
        assert part.grad.tolist() == [1.0, 5.0]
        average = DTensor.from_local(cd.full((2,), rank + 1.0), mesh, [Partial("avg")])
        assert average.full_tensor().tolist() == [1.5, 1.5]
        uneven = DTensor.from_local(cd.ones(2 - rank, 3), mesh, [S0], shape=(3, 3))
        assert uneven.full_tensor().tolist() == [[1.0] * 3] * 3

    on_mesh((2,), program)


@pytest.mark.parametrize("make", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_optimizers_step_on_parts(make: str) -> None:
    cd.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    options = {"lr": 0.05, **({"momentum": 0.9} if make == "SGD" else {})}
    x = numbers(5, 4).to(cd.float32)
    plain, kept = copy.deepcopy(model), copy.deepcopy(model)

    def train(model: Any, x: Any) -> None:
        opt = getattr(cd.optim, make)(model.parameters(), **options)
        for _ in range(3):
            opt.zero_grad()
            model(x).square().sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()

    train(plain, x)

    def program(mesh: Any) -> None:
        def rows(name: str, part: nn.Module, mesh: Any) -> None:
            for key, param in list(part._parameters.items()):
                part.register_parameter(key, nn.Parameter(distribute_tensor(param, mesh, [S0])))

        mine = distribute_module(copy.deepcopy(kept), mesh, rows)
        train(mine, distribute_tensor(x, mesh, [R]))
        for ours, theirs in zip(mine.parameters(), plain.parameters(), strict=True):
            assert isinstance(ours, nn.Parameter) and ours.placements == (S0,)
            cd.testing.assert_close(ours.full_tensor(), theirs.detach())

    on_mesh((2,), program)


def test_writing_and_copies() -> None:
    def program(mesh: Any) -> None:
        x = distribute_tensor(numbers(4, 3), mesh, [S0])
        expected = numbers(4, 3)
        assert x.mul_(2) is x and x.placements == (S0,)
        x.cumsum_(0)
        x.detach().add_(distribute_tensor(cd.ones(3), mesh, [R]))
        cd.testing.assert_close(x.full_tensor(), (expected * 2).cumsum(0) + 1)
        twin = copy.deepcopy(x)
        twin.zero_()
        with pytest.raises(RuntimeError, match="only leaf tensors"):
            copy.deepcopy(distribute_tensor(cd.ones(2, requires_grad=True), mesh) * 2)
        assert x.full_tensor().abs().sum() > 0 and twin.full_tensor().abs().sum() == 0
        assert x.sum().item() == pytest.approx(float(((expected * 2).cumsum(0) + 1).sum()))
        assert "placements=(Shard(dim=0),)" in repr(x) and "local_tensor=" in repr(x)

    on_mesh((2,), program)


def test_dtypes_and_layouts_of_what_is_sent() -> None:
    """``redistribute`` in other dtypes, and the layout in which ``from_local`` wants gradients."""

    def program(mesh: Any) -> None:
        x = distribute_tensor(numbers(4, 3).float(), mesh, [S0]).requires_grad_()
        y = x.redistribute(placements=[R], forward_dtype=cd.bfloat16, backward_dtype=cd.float16)
        assert y.dtype is cd.bfloat16 and y.placements == (R,)
        cd.testing.assert_close(y.to_local(), numbers(4, 3).bfloat16())
        (y * 1.0078125).sum().backward()
        assert x.grad.dtype is cd.float32 and x.grad.placements == (S0,)
        assert (x.grad.full_tensor() == 1.0078125).all()

        a = cd.ones(2, requires_grad=True)
        whole = DTensor.from_local(a, mesh, [R], grad_placements=[P])
        (whole.redistribute(placements=[S0]) * (mesh.get_rank() + 1)).to_local().sum().backward()
        every = [cd.zeros(2) for _ in range(2)]
        dist.all_gather(every, a.grad)
        assert sum(every).tolist() == [1.0, 2.0]

    on_mesh((2,), program)


def test_gradients_do_not_share_memory() -> None:
    """Two leaves get the same gradient, and a second pass adds to each."""

    def program(mesh: Any) -> None:
        a, b = cd.zeros(2, requires_grad=True), cd.zeros(2, requires_grad=True)
        c = distribute_tensor(cd.zeros(4), mesh, [S0]).requires_grad_()
        d = distribute_tensor(cd.zeros(2, 2), mesh, [S0]).requires_grad_()

        def loss() -> Any:
            both = DTensor.from_local(a, mesh, [S0]) + DTensor.from_local(b, mesh, [S0])
            return (both + c + d.view(4)).sum()

        loss().backward()
        (loss() + c.sum()).backward()
        assert a.grad.tolist() == b.grad.tolist() == [2.0, 2.0]
        assert c.grad.full_tensor().tolist() == [3.0] * 4
        assert d.grad.full_tensor().tolist() == [[2.0] * 2] * 2

    on_mesh((2,), program)


def test_what_is_refused() -> None:
    def program(mesh: Any) -> None:
        x = distribute_tensor(numbers(4, 3), mesh, [S0])
        with pytest.raises(RuntimeError, match="mixed Tensor and DTensor"):
            x + numbers(4, 3)
        square = distribute_tensor(numbers(3, 3), mesh, [S0]).requires_grad_()
        with pytest.raises(RuntimeError, match="lu_solve: got mixed Tensor and DTensor"):
            cd.lu_solve(numbers(3, 2), square, cd.tensor([1, 2, 3]).int())
        assert isinstance(cd.linalg.matrix_exp(square), DTensor)  # which makes an identity
        assert (x + cd.tensor(1.0)).placements == (S0,)
        with implicit_replication():
            assert (x + numbers(4, 3)).placements == (S0,)
        with pytest.raises(ValueError, match="same length as `device_mesh.ndim`"):
            distribute_tensor(numbers(4), mesh, [S0, R])
        with pytest.raises(IndexError, match="2 dimensions"):
            distribute_tensor(numbers(4, 3), mesh, [Shard(2)])
        with pytest.raises(RuntimeError, match="no whole tensor"):
            distribute_tensor(numbers(4), mesh, [P])
        with pytest.raises(RuntimeError, match="non-Partial to Partial"):
            x.redistribute(placements=[P])
        with pytest.raises(NotImplementedError, match="cannot be pickled"):
            copy.copy(x).__reduce_ex__(2)

    on_mesh((2,), program)


def test_a_single_row_stays_on_its_rank() -> None:
    """Rank 1 has no row of it; what it computes is no copy of rank 0's."""

    def program(mesh: Any) -> Any:
        x = distribute_tensor(cd.tensor([3.0]), mesh, [S0])
        rows = [t.to_local().shape[0] for t in (x * 2, x.detach(), x + x, nn.Parameter(x), x.exp())]
        assert all(t.placements == (S0,) for t in (x * 2, x.detach(), nn.Parameter(x)))
        assert (x * 2).full_tensor().tolist() == [6.0]
        assert (x * cd.ones(())).full_tensor().tolist() == [3.0]
        return rows

    assert on_mesh((2,), program) == [[1] * 5, [0] * 5]
