"""Functional collectives: new tensors, any form of a group, derivatives."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
import coredispatch.distributed._functional_collectives as funcol


def on_ranks(count: int, program: Any) -> list[Any]:
    return dist.threads.spawn(program, nprocs=count)


def test_values_and_what_is_given_stays() -> None:
    def program(rank: int) -> None:
        world = dist.group.WORLD
        x = cd.arange(6.0).reshape(3, 2) + 10 * rank
        kept = x.clone()
        every = [cd.arange(6.0).reshape(3, 2) + 10 * r for r in range(3)]
        assert cd.equal(funcol.all_reduce(x, "SUM", world), sum(every))
        assert cd.equal(funcol.all_reduce(x, "max", world), every[2])
        assert cd.equal(funcol.broadcast(x, 1, world), every[1])
        assert cd.equal(funcol.all_gather_tensor(x, 1, world), cd.cat(every, 1))
        whole = sum(every)
        assert cd.equal(funcol.reduce_scatter_tensor(x, "sum", 0, world), whole[rank : rank + 1])
        wide = funcol.reduce_scatter_tensor(x.t().contiguous(), "avg", 1, world)
        cd.testing.assert_close(wide, whole.t()[:, rank : rank + 1] / 3)
        swapped = funcol.all_to_all_single(x, None, None, world)
        assert cd.equal(swapped, cd.stack([e[rank] for e in every]))
        assert cd.equal(funcol.permute_tensor(x, [1, 2, 0], world), every[(rank - 1) % 3])
        assert funcol.wait_tensor(x) is x
        first, second = funcol.all_reduce_coalesced([x, x[0]], "sum", world)
        assert cd.equal(first, whole) and cd.equal(second, whole[0])
        assert cd.equal(x, kept)

    on_ranks(3, program)


def test_uneven_parts_and_forms_of_groups() -> None:
    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        x = cd.full((2,), float(rank))
        pair = [0, 1] if rank < 2 else [2, 3]
        total = float(sum(pair))
        for group in (mesh["b"], (mesh, 1), mesh.get_group("b"), pair, [[0, 1], [2, 3]]):
            assert funcol.all_reduce(x, "sum", group).tolist() == [total] * 2, group
        came = funcol.all_to_all_single(
            cd.full((3,), float(rank)), [1, 1] if rank % 2 == 0 else [2, 2], [1, 2], mesh["b"]
        )
        assert came.tolist() == ([pair[0], pair[1]] if rank % 2 == 0 else sorted(pair * 2))
        with pytest.raises(AssertionError, match="Only 1D mesh"):
            funcol.all_reduce(x, "sum", mesh)
        with pytest.raises(ValueError, match="no group of the ranks"):
            funcol.all_reduce(x, "sum", [0, 3])
        with pytest.raises(AssertionError, match="multiple of group_size"):
            funcol.reduce_scatter_tensor(cd.ones(3), "sum", 0, mesh["a"])
        with pytest.raises(AssertionError, match="together or both"):
            funcol.all_to_all_single(x, [1, 1], None, mesh["a"])
        with pytest.raises(ValueError, match="no permutation"):
            funcol.permute_tensor(x, [0, 0], mesh["a"])

    on_ranks(4, program)


@pytest.mark.parametrize("rows", [2, 0])
def test_derivatives_are_of_the_sum_of_all_losses(rows: int) -> None:
    calls = [
        lambda x: funcol.all_reduce(x, "sum", dist.group.WORLD),
        lambda x: funcol.all_gather_tensor(x, 0, dist.group.WORLD),
        lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD),
        lambda x: funcol.all_to_all_single(x, None, None, dist.group.WORLD),
        lambda x: funcol.permute_tensor(x, [1, 0], dist.group.WORLD),
    ]

    def program(rank: int) -> None:
        for number, call in enumerate(calls):
            x = cd.ones(rows, 3, requires_grad=True)
            out = call(x)
            (out * (rank + 1)).sum().backward()
            # each element is read by both ranks, by one, by this one's half, by the other
            expected = [
                cd.full((rows, 3), 3.0),
                cd.full((rows, 3), 3.0),
                cd.tensor([[1.0] * 3, [2.0] * 3])[:rows],
                cd.tensor([[1.0] * 3, [2.0] * 3])[:rows],
                cd.full((rows, 3), 2.0 - rank),
            ][number]
            assert cd.equal(x.grad, expected), number

    on_ranks(2, program)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("dtype", [cd.float64, cd.float32])
def test_derivatives_of_a_product(ranks: int, dtype: Any) -> None:
    """Column c has c zeros among the ranks. The product over one process' rows is the measure."""
    cd.manual_seed(ranks)
    rows = cd.rand(ranks, 4, dtype=dtype) + 0.5
    for column in range(4):
        rows[:column, column] = 0.0
    weights, slopes = cd.rand(ranks, 4, dtype=dtype), cd.rand(ranks, 4, dtype=dtype)
    whole = rows.clone().requires_grad_()
    (first,) = cd.autograd.grad((weights * whole.prod(0)).sum(), whole, create_graph=True)
    (second,) = cd.autograd.grad((slopes * first).sum(), whole, allow_unused=True)
    second = cd.zeros_like(rows) if second is None else second

    def program(rank: int) -> None:
        x = rows[rank].clone().requires_grad_()
        product = dist.nn.functional.all_reduce(x, dist.ReduceOp.PRODUCT)
        (found,) = cd.autograd.grad((weights[rank] * product).sum(), x, create_graph=True)
        cd.testing.assert_close(found, first[rank])
        if found.requires_grad:
            (again,) = cd.autograd.grad((slopes[rank] * found).sum(), x, allow_unused=True)
            cd.testing.assert_close(
                cd.zeros(4, dtype=dtype) if again is None else again, second[rank]
            )

    on_ranks(ranks, program)


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_product_passes_gradcheck(ranks: int, zeros: int) -> None:
    """All ranks' values are the inputs; each rank of the group has a row of them."""

    class Product(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, rows: Any) -> Any:
            ctx.save_for_backward(rows)
            return cd.stack(on_ranks(ranks, lambda r: _product(rows[r])))

        @staticmethod
        def backward(ctx: Any, grads: Any) -> Any:
            (rows,) = ctx.saved_tensors

            def program(rank: int) -> Any:
                x = rows[rank].detach().requires_grad_()
                with cd.enable_grad():
                    out = _product(x)
                return cd.autograd.grad(out, x, grads[rank])[0]

            return cd.stack(on_ranks(ranks, program))

    rows = cd.rand(ranks, 2, dtype=cd.float64) + 0.5
    rows[:zeros, 0] = 0.0
    assert cd.autograd.gradcheck(Product.apply, (rows.requires_grad_(),))


def _product(x: Any) -> Any:
    return dist.nn.functional.all_reduce(x, dist.ReduceOp.PRODUCT)
