"""``fully_shard`` over tensor parallelism: layouts, gradients, clipping, checkpoints."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.compat.torch.places import PLACES
from coredispatch.distributed import checkpoint as dcp
from coredispatch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from coredispatch.distributed.fsdp import fully_shard
from coredispatch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from coredispatch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from coredispatch.distributed.tensor.placements import _StridedShard


def plain(seed: int) -> Any:
    with seeded(seed):
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.LayerNorm(3))


def mesh_of(shape: tuple[int, ...] = (2, 2)) -> Any:
    names = ("copies", "dp", "tp")[-len(shape) :]
    return dist.init_device_mesh("cpu", shape, mesh_dim_names=names)


def divided(seed: int, mesh: Any) -> Any:
    """The norm stays out of the plan: its weights lie on the rows of the mesh only."""
    model = plain(seed)
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    rows = mesh[mesh.mesh_dim_names[:-1]]
    fully_shard(model[0], mesh=rows)
    return fully_shard(model, mesh=rows)


def train(model: Any, optimizer: Any, part: slice = slice(None)) -> list[float]:
    norms = []
    for step in range(2):
        optimizer.zero_grad()
        x = (cd.arange(20.0).view(4, 5) * (step + 1)).sin()[part]
        (model(x).exp().mean()).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        optimizer.step()
    return norms


def part_of_batch(mesh: Any) -> slice:
    row = mesh["dp"].get_local_rank() if mesh["dp"].size() > 1 else 0
    return slice(row * 4 // mesh["dp"].size(), (row + 1) * 4 // mesh["dp"].size())


def adam(model: Any) -> Any:
    return cd.optim.AdamW(model.parameters(), lr=0.01)


def test_layouts() -> None:
    def program(rank: int) -> None:
        mesh = mesh_of()
        model = divided(1, mesh)
        weight, bias = model[0].weight, model[2].bias
        assert weight.device_mesh == mesh and weight.shape == (7, 5)
        assert weight.placements == (_StridedShard(0, split_factor=2), Shard(0))
        # Tensor parallelism gave rows 0-3 and 4-6; each is cut in two.
        first, rows = [(0, 2), (4, 2), (2, 2), (6, 1)][rank]
        assert weight.to_local().shape == (rows, 5)
        assert weight.__create_chunk_list__() == [((first, 0), (rows, 5))]
        assert model[2].weight.placements == (Shard(0), Shard(1))
        assert bias.placements == (Shard(0), Replicate())
        assert model[3].weight.device_mesh == mesh["dp"]
        whole = plain(1)
        assert cd.equal(weight.full_tensor(), whole[0].weight)
        model(cd.ones(2, 5)).exp().sum().backward()
        whole(cd.ones(2, 5)).exp().sum().backward()
        for own, other in zip(model.parameters(), whole.parameters(), strict=True):
            assert own.grad.placements == own.placements
            assert cd.allclose(own.grad.full_tensor(), other.grad, atol=1e-6)

    dist.threads.spawn(program, nprocs=4)


@pytest.mark.parametrize("shape", [(2, 2), (2, 1, 2), (1, 2)])
def test_training_and_clipping(shape: tuple[int, ...]) -> None:
    """The norm of all gradients, though they lie on two meshes."""
    reference = plain(2)
    expected = train(reference, adam(reference))

    def program(rank: int) -> None:
        mesh = mesh_of(shape)
        model = divided(2, mesh)
        part = slice(None) if shape == (2, 1, 2) else part_of_batch(mesh)
        assert train(model, adam(model), part) == pytest.approx(expected, rel=1e-4)
        for own, other in zip(model.parameters(), reference.parameters(), strict=True):
            assert cd.allclose(own.full_tensor(), other, atol=1e-5)

    count = 1
    for length in shape:
        count *= length
    dist.threads.spawn(program, nprocs=count)


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }


def test_checkpoints_for_any_form(tmp_path: Path) -> None:
    """Written on a mesh of 2 x 2; read on 3 x 1, on 1 x 2, sharded over 3, and by one process."""
    reference = plain(3)
    optimizer = adam(reference)
    train(reference, optimizer)
    train(reference, optimizer)

    def write(rank: int) -> None:
        mesh = mesh_of()
        model = divided(3, mesh)
        optimizer = adam(model)
        train(model, optimizer, part_of_batch(mesh))
        dcp.save(state_of(model, optimizer), checkpoint_id=tmp_path / "last")

    def go_on(model: Any) -> None:
        optimizer = adam(model)
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=tmp_path / "last")
        set_model_state_dict(model, state["model"])
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        train(model, optimizer)
        for own, other in zip(model.parameters(), reference.parameters(), strict=True):
            whole = own.full_tensor() if hasattr(own, "full_tensor") else own
            assert cd.allclose(whole, other, atol=1e-5)

    dist.threads.spawn(write, nprocs=4)
    dist.threads.spawn(lambda rank: go_on(divided(4, mesh_of((3, 1)))), nprocs=3)
    dist.threads.spawn(lambda rank: go_on(divided(5, mesh_of((1, 2)))), nprocs=2)
    dist.threads.spawn(lambda rank: go_on(fully_shard(plain(6))), nprocs=3)
    go_on(plain(7))


def gathered(tensor: Any) -> Any:
    return tensor.full_tensor()


placement = st.sampled_from([Replicate(), Shard(0), Shard(1), _StridedShard(0, split_factor=3)])


@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(0, 9), st.integers(1, 4)),
    start=st.tuples(placement, placement),
    target=st.tuples(placement, placement),
)
def test_from_any_layout_to_any_other(shape: Any, start: Any, target: Any) -> None:
    whole = cd.arange(float(shape[0] * shape[1])).view(shape)

    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2, 3))
        x = distribute_tensor(whole, mesh, start, src_data_rank=None)
        y = x.redistribute(placements=target)
        assert y.placements == target
        sizes, begin = y.__create_chunk_list__()[0][::-1]
        own = whole[begin[0] : begin[0] + sizes[0], begin[1] : begin[1] + sizes[1]]
        assert cd.equal(y.to_local(), own)
        assert cd.equal(gathered(y * 2 + x), whole * 3)
        assert cd.equal(gathered(y.sum(0)), whole.sum(0))
        y.add_(x)
        assert y.placements == target and cd.equal(y.full_tensor(), whole * 2)

    dist.threads.spawn(program, nprocs=6)


def test_a_sum_is_no_parameter() -> None:
    def program(rank: int) -> None:
        mesh = mesh_of()
        model = nn.Linear(2, 2)
        made = dist.tensor.DTensor.from_local(cd.ones(2, 2), mesh["tp"], [Partial()])
        model.weight = nn.Parameter(made)
        with pytest.raises(ValueError, match="is no tensor yet"):
            fully_shard(model, mesh=mesh["dp"])

    dist.threads.spawn(program, nprocs=4)


def test_pytorchs_places_have_the_placements_that_compute() -> None:
    for name in ("distributed.tensor.placement_types", "distributed._tensor"):
        for kind, where in PLACES[name].items():
            found = getattr(importlib.import_module(where), kind)
            assert found is _StridedShard or found is getattr(dist.tensor, kind)
