"""Writing to DTensors: no rank's copy drifts, views show what was written or refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
F = nn.functional
VALUES = cd.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=cd.float64)


def on_two_ranks(program: Callable[[Any], Any]) -> list[Any]:
    def run(rank: int) -> Any:
        return program(dist.init_device_mesh("cpu", (2,)))

    return dist.threads.spawn(run, nprocs=2)


def placed(mesh: Any, placement: Any, values: Any = VALUES) -> Any:
    """The values as a DTensor in memory of its own; of ``Partial()`` a third is on rank 0."""
    if placement == P:
        share = (mesh.get_local_rank() + 1) / 3
        return DTensor.from_local(values * share, mesh, [P])
    return distribute_tensor(values.clone(), mesh, [placement], src_data_rank=None)


def same(tensor: Any, expected: Any) -> None:
    found = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    cd.testing.assert_close(found.detach(), expected)


def equal_on_all(tensor: Any) -> None:
    """What is replicated is equal on all ranks."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, tensor.to_local().tolist())
    assert all(value == every[0] for value in every)


def test_replicated_tensors_stay_equal_when_sums_are_written() -> None:
    def program(mesh: Any) -> None:
        x = placed(mesh, R)
        x.mul_(placed(mesh, P))
        same(x, VALUES * VALUES)
        equal_on_all(x)
        out = placed(mesh, R)
        cd.mul(placed(mesh, P), placed(mesh, R), out=out)
        same(out, VALUES * VALUES)
        equal_on_all(out)
        row = cd.ones(1, 2, dtype=cd.float64)
        bias = placed(mesh, R, row)
        bias.addmm_(placed(mesh, S0, cd.ones(1, 3, dtype=cd.float64)), placed(mesh, R))
        same(bias, row + VALUES.sum(0, keepdim=True))

    on_two_ranks(program)


def test_parts_lie_in_memory_of_their_own() -> None:
    def program(mesh: Any) -> None:
        whole = VALUES.clone()
        distribute_tensor(whole, mesh, [S0], src_data_rank=None).zero_()
        assert cd.equal(whole, VALUES)
        x = placed(mesh, R)
        x.redistribute(placements=[S0]).zero_()
        same(x, VALUES)
        equal_on_all(x)

    on_two_ranks(program)


def test_what_is_not_linear_adds_the_parts_first() -> None:
    def program(mesh: Any) -> None:
        same(placed(mesh, P) + 1j, VALUES + 1j)
        same(2j / placed(mesh, P), 2j / VALUES)
        same(placed(mesh, P).to(cd.int64), VALUES.long())

    on_two_ranks(program)


def test_rows_of_a_sharded_table() -> None:
    def program(mesh: Any) -> None:
        table = VALUES.clone()
        table[0, 0], table[2, 1] = float("inf"), float("nan")
        rows = placed(mesh, S0, table)
        same(F.embedding(cd.tensor([1, 0]), rows), table[[1, 0]])
        for index in (3, -1):
            with pytest.raises(IndexError, match="out of range for 3 embeddings"):
                F.embedding(cd.tensor([1, index]), rows)

    on_two_ranks(program)


def test_writes_to_indexed_parts_reach_the_whole() -> None:
    def program(mesh: Any) -> None:
        x, expected = placed(mesh, S0), VALUES.clone()
        row, plain = x[0], expected[0]
        for tensor in (row, plain):
            tensor.add_(1)
            tensor[1].mul_(3)
        same(x, expected)
        x[:2].zero_()
        x[2] += 1
        x[0] = 7.0
        expected[:2], expected[0] = 0, 7
        expected[2] += 1
        same(x, expected)
        x.t().mul_(2)
        x.view(3, 1, 2).sub_(1)
        same(x, expected * 2 - 1)
        x[0].clone().zero_()
        x[0].float().zero_()
        same(x, expected * 2 - 1)

    on_two_ranks(program)


def test_writes_to_gathered_views_are_refused() -> None:
    def program(mesh: Any) -> None:
        x = placed(mesh, S0)
        for write in (
            lambda: x.select(1, 0).zero_(),
            lambda: x.unbind(0)[1].mul_(2),
            lambda: x.squeeze().contiguous().add_(1),
        ):
            with pytest.raises(RuntimeError, match="the DTensor would not change"):
                write()
        same(x, VALUES)
        for name in ("t_", "squeeze_", "resize_"):
            with pytest.raises(NotImplementedError, match=f"{name} of a DTensor"):
                getattr(x, name)()

    on_two_ranks(program)


def test_histories_that_lack_a_write_are_refused() -> None:
    def program(mesh: Any) -> None:
        x = placed(mesh, S0).requires_grad_()
        doubled = x * 2
        turned = doubled.t()
        assert turned.relu_() is turned
        turned.t().sum().backward()  # what was written to has its history
        same(x.grad, cd.full_like(VALUES, 2.0))
        with pytest.raises(RuntimeError, match="autograd does not follow"):
            doubled.sum()
        doubled = x * 2
        turned = doubled.t()
        doubled.mul_(3).sum().backward()
        with pytest.raises(RuntimeError, match="autograd does not follow"):
            turned.sum()
        with cd.no_grad():
            x.t().mul_(2)
        x.sum().backward()

    on_two_ranks(program)


def test_random_values_are_equal_on_all_ranks_whatever_their_seeds() -> None:
    def program(mesh: Any) -> None:
        dist.barrier()
        cd.manual_seed(5 + mesh.get_local_rank())
        x = placed(mesh, R)
        for made in (F.dropout(x), cd.randn_like(x), x.normal_(), cd.bernoulli(x.sigmoid())):
            equal_on_all(made)
        rows = placed(mesh, S0)
        nn.init.orthogonal_(rows)
        whole = rows.full_tensor()
        cd.testing.assert_close(whole.t() @ whole, cd.eye(2, dtype=cd.float64))
        q = placed(mesh, S0, cd.ones(2, 2, 3, 4))
        assert F.scaled_dot_product_attention(q, q, q).placements == (S0,)
        assert F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).placements == (S0,)

    on_two_ranks(program)


@pytest.mark.parametrize("layout", [R, S0, S1])
def test_dropout_of_every_kind_takes_the_same_everywhere(layout: Any) -> None:
    """Also of channels, which lie on several ranks; gradients are those of what was kept."""
    drops = [F.alpha_dropout, F.feature_alpha_dropout, F.dropout1d, F.dropout2d, F.dropout3d]

    def program(mesh: Any) -> None:
        dist.barrier()
        cd.manual_seed(9 + mesh.get_local_rank())
        for drop in drops:
            shape = (6, 8, 2, 3, 1)[: 3 if drop is F.dropout1d else 4 if drop is F.dropout2d else 5]
            x = placed(mesh, layout, cd.ones(shape, dtype=cd.float64)).requires_grad_()
            y = drop(x, 0.5, training=True)
            whole = y.full_tensor()
            if layout is R:
                equal_on_all(y)
            assert whole.unique().numel() == 2, drop
            if drop is not F.alpha_dropout:
                channels = whole.flatten(2)
                assert cd.equal(channels, channels[..., :1].expand(channels.shape)), drop
            y.sum().backward()
            assert x.grad.full_tensor().ne(0).equal(whole == whole.max())
        noisy = F.gumbel_softmax(placed(mesh, layout, cd.zeros(4, 5)), hard=True)
        assert noisy.full_tensor().sum(-1).tolist() == [1.0] * 4

    on_two_ranks(program)


def test_several_results_and_new_tensors() -> None:
    def program(mesh: Any) -> None:
        x = placed(mesh, S0)
        ordered = x.sort(0, descending=True)
        same(ordered.values, VALUES.flip(0))
        assert ordered.indices.full_tensor().tolist() == [[2, 2], [1, 1], [0, 0]]
        same(x.topk(1, 1).values, VALUES[:, 1:])
        same(cd.linalg.svdvals(x), cd.linalg.svdvals(VALUES))
        same(x.new_zeros(2).add_(1), cd.ones(2, dtype=cd.float64))
        empty = placed(mesh, S1, cd.zeros(0, 3))
        assert [t.shape for t in empty.chunk(2)] == [t.shape for t in cd.zeros(0, 3).chunk(2)]
        target = cd.tensor([0, 1, 1])
        for layout in (S0, S1, P):
            loss = F.nll_loss(placed(mesh, layout).requires_grad_().log_softmax(1), target)
            same(loss, F.nll_loss(VALUES.log_softmax(1), target))

    on_two_ranks(program)


def test_data_that_is_set_and_modules_that_are_converted() -> None:
    def program(mesh: Any) -> None:
        x = nn.Parameter(placed(mesh, S0))
        x.data = placed(mesh, S1, VALUES * 2)
        same(x, VALUES * 2)
        assert x.placements == (S1,) and x.is_leaf and x.requires_grad
        x.data.add_(1)
        (x * x).sum().backward()
        same(x.grad, 2 * (VALUES * 2 + 1))
        with pytest.raises(TypeError, match="must be a DTensor"):
            x.data = VALUES
        model = nn.Linear(2, 3)
        for name, param in list(model._parameters.items()):
            values = cd.full_like(param.detach(), 0.5)
            model.register_parameter(name, nn.Parameter(placed(mesh, S0, values)))
        model.double()
        assert model.weight.dtype == model.weight.to_local().dtype == cd.float64
        out = model(placed(mesh, R))
        same(out, VALUES.sum(1, keepdim=True).expand(3, 3) * 0.5 + 0.5)
        optimizer = cd.optim.SGD(model.parameters(), lr=1.0)
        out.sum().backward()
        optimizer.step()
        same(model.weight, 0.5 - VALUES.sum(0).expand(3, 2))

    on_two_ranks(program)
