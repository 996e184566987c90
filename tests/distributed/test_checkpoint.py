"""Checkpoints in parts: any number of ranks writes, any other reads; a failure leaves the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed import checkpoint as dcp
from coredispatch.distributed.checkpoint.loading import read_whole
from coredispatch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from coredispatch.distributed.fsdp import full_state_dict, fully_shard
from coredispatch.distributed.tensor import Shard, distribute_tensor

pytestmark = pytest.mark.once


def model_and_optimizer(seed: int) -> tuple[Any, Any]:
    with seeded(seed):
        # A bias before the norm would have a gradient of rounding errors, which Adam scales up.
        model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7), nn.Linear(7, 3))
    if dist.is_initialized():
        fully_shard(model)
    return model, cd.optim.Adam(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any) -> None:
    for step in range(2):
        optimizer.zero_grad()
        model(cd.arange(20.0).view(4, 5).sin() * (step + 1)).square().sum().backward()
        optimizer.step()


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
        "epoch": 0,
    }


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_training_goes_on_with_another_number_of_ranks(tmp_path: Path, readers: int) -> None:
    reference: dict[str, Any] = {}

    def write(rank: int) -> None:
        model, optimizer = model_and_optimizer(1)
        train(model, optimizer)
        dcp.save({**state_of(model, optimizer), "epoch": 7}, checkpoint_id=tmp_path / "last")
        train(model, optimizer)
        state = full_state_dict(model)
        if rank == 0:
            reference.update(state)

    def read(rank: int) -> dict[str, Any]:
        model, optimizer = model_and_optimizer(2)
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=tmp_path / "last")
        assert state["epoch"] == 7
        set_model_state_dict(model, state["model"])
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        train(model, optimizer)
        return full_state_dict(model)

    dist.threads.spawn(write, nprocs=3)
    for state in dist.threads.spawn(read, nprocs=readers):
        for name, value in reference.items():
            assert cd.allclose(state[name], value, atol=1e-5), name
    plain, optimizer = model_and_optimizer(3)  # one process without a group
    state = state_of(plain, optimizer)
    dcp.load(state, checkpoint_id=tmp_path / "last")
    set_optimizer_state_dict(plain, optimizer, state["optimizer"])
    train(plain, optimizer)
    assert cd.allclose(plain[0].weight, reference["0.weight"], atol=1e-5)


def rows(size: int, count: int, whole: cd.Tensor) -> list[dict[str, Any]]:
    per = -(-size // count)
    found = []
    for r in range(count):
        begin, end = min(r * per, size), min((r + 1) * per, size)
        part = dcp.ShardedPart(whole[begin:end].clone(), tuple(whole.shape), (begin, 0))
        found.append({"w": part})
    return found


def written(folder: Path, states: list[dict[str, Any]]) -> None:
    folder.mkdir()
    every = [dcp.write_part(folder, rank, state) for rank, state in enumerate(states)]
    dcp.write_metadata(folder, every)


def test_a_thousand_ranks_then_seven_hundred_and_back(tmp_path: Path) -> None:
    whole = cd.arange(2311 * 2.0).view(2311, 2)
    states = rows(2311, 1000, whole)
    for turn, count in enumerate((1000, 700, 1000)):
        empty = rows(2311, count, cd.zeros_like(whole))
        if turn:
            read = [0, 1, count // 2, count - 1]
            for rank in read:
                dcp.read_into(tmp_path / str(turn - 1), empty[rank])
                expected = rows(2311, count, whole)[rank]["w"].tensor
                assert cd.equal(empty[rank]["w"].tensor, expected)
        states = rows(2311, count, whole)
        written(tmp_path / str(turn), states)
    back = {"w": cd.zeros_like(whole)}
    dcp.read_into(tmp_path / "2", back)
    assert cd.equal(back["w"], whole)


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=3),
    st.data(),
)
def test_blocks_in_any_division(shape: list[int], data: st.DataObject) -> None:
    import itertools
    import tempfile

    whole = cd.randn(*shape)

    def blocks() -> list[dcp.ShardedPart]:
        cuts = []
        for length in shape:
            inner = data.draw(st.sets(st.integers(1, max(length - 1, 1)), max_size=3))
            edges = sorted({0, length, *(c for c in inner if c < length)})
            cuts.append(list(itertools.pairwise(edges)))
        return [
            dcp.ShardedPart(
                whole[tuple(slice(a, b) for a, b in block)].clone(),
                tuple(shape),
                tuple(a for a, _ in block),
            )
            for block in itertools.product(*cuts)
        ]

    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder) / "c", [{"t": part} for part in blocks()])
        for part in blocks():
            blank = dcp.ShardedPart(cd.zeros_like(part.tensor), part.global_shape, part.offsets)
            dcp.read_into(Path(folder) / "c", {"t": blank})
            assert cd.equal(blank.tensor, part.tensor)


def test_a_rank_that_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    target = tmp_path / "last"
    dist.threads.spawn(lambda r: dcp.save({"x": cd.ones(2)}, checkpoint_id=target), nprocs=2)
    real = cd.save

    def full(obj: Any, file: Any) -> None:
        if threading.current_thread().name == "rank 0":
            raise OSError(28, "No space left on device")
        real(obj, file)

    monkeypatch.setattr(cd, "save", full)

    def program(rank: int) -> None:
        with pytest.raises(
            dcp.CheckpointException, match="last' was not .* rank 0: .*No space left"
        ):
            dcp.save({"x": cd.zeros(2)}, checkpoint_id=target)

    dist.threads.spawn(program, nprocs=2)
    assert [p.name for p in tmp_path.iterdir()] == ["last"]  # what was begun takes no space
    state = {"x": cd.zeros(2)}
    dcp.load(state, checkpoint_id=target)
    assert state["x"].tolist() == [1.0, 1.0]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    dcp.save({"a": cd.ones(2), "n": 3}, checkpoint_id=tmp_path / "c")
    with pytest.raises(dcp.CheckpointException, match="no 'b'"):
        dcp.load({"b": cd.ones(1)}, checkpoint_id=tmp_path / "c")
    with pytest.raises(dcp.CheckpointException, match=r"is \(2,\) in the checkpoint and \(3,\)"):
        dcp.load({"a": cd.ones(3)}, checkpoint_id=tmp_path / "c")
    with pytest.raises(dcp.CheckpointException, match="no checkpoint in"):
        dcp.load({"a": cd.ones(2)}, checkpoint_id=tmp_path / "other")
    part = dcp.ShardedPart(cd.ones(1), (2,), (0,))
    with pytest.raises(dcp.CheckpointException, match="2 elements, and the ranks have parts of 1"):
        dcp.save({"p": part}, checkpoint_id=tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_rank_lost_while_the_name_is_given_keeps_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a row: after the old folder was moved away, before the new one has its name."""
    where = tmp_path / "state"
    dcp.save({"step": 1}, checkpoint_id=where)
    rename = Path.rename

    def lost(self: Path, target: Any) -> Any:
        if self.name.endswith(".part"):
            raise KeyboardInterrupt
        return rename(self, target)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", lost)
            with pytest.raises(KeyboardInterrupt):
                dcp.save({"step": 2}, checkpoint_id=where)
        state = {"step": 0}
        dcp.load(state, checkpoint_id=where)
        assert state == {"step": 1}
    dcp.save({"step": 3}, checkpoint_id=where)
    dcp.load(state, checkpoint_id=where)
    assert state == {"step": 3} and [p.name for p in tmp_path.iterdir()] == ["state"]


def test_sharded_tensors_without_elements(tmp_path: Path) -> None:
    """No rank has a part of them, and they are in the checkpoint."""

    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        empty, row = cd.zeros(0, 3), cd.tensor([5.0])

        def placed(values: cd.Tensor) -> Any:
            return distribute_tensor(values, mesh, [Shard(0)], src_data_rank=None)

        dcp.save({"empty": placed(empty), "row": placed(row)}, checkpoint_id=tmp_path / "c")
        state = {"empty": cd.zeros(0, 3), "row": placed(cd.zeros(1))}
        dcp.load(state, checkpoint_id=tmp_path / "c")
        assert state["row"].full_tensor().tolist() == [5.0]
        with pytest.raises(dcp.CheckpointException, match=r"\(0, 3\) in the checkpoint"):
            dcp.load({"empty": cd.zeros(0, 4)}, checkpoint_id=tmp_path / "c")

    dist.threads.spawn(program, nprocs=2)
    found = read_whole(tmp_path / "c")
    assert found["empty"].shape == (0, 3) and found["row"].tolist() == [5.0]


def test_a_place_without_a_tensor_gets_the_whole(tmp_path: Path) -> None:
    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        rows = distribute_tensor(cd.arange(4.0), mesh, [Shard(0)])
        dcp.save({"rows": rows, "own": cd.ones(3)}, checkpoint_id=tmp_path / "c")

    dist.threads.spawn(program, nprocs=2)
    state: dict[str, Any] = {"rows": None, "own": None}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert state["rows"].tolist() == [0.0, 1.0, 2.0, 3.0] and state["own"].tolist() == [1.0] * 3


def test_a_checkpoint_that_is_not_to_be_overwritten(tmp_path: Path) -> None:
    writer = dcp.FileSystemWriter(tmp_path / "c", overwrite=False)
    dcp.save({"step": 1}, storage_writer=writer)
    with pytest.raises(dcp.CheckpointException, match="already exists"):
        dcp.save({"step": 2}, storage_writer=writer)
    state = {"step": 0}
    dcp.load(state, storage_reader=dcp.FileSystemReader(tmp_path / "c"))
    assert state == {"step": 1}


def test_save_says_what_the_checkpoint_has(tmp_path: Path) -> None:
    def program(rank: int) -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        table = distribute_tensor(cd.arange(6.0).reshape(3, 2), mesh, [Shard(0)])
        state = {"model": {"table": table, "bias": cd.ones(2, dtype=cd.float64)}, "step": 3}
        return dcp.save(state, checkpoint_id=tmp_path / "all")

    first, second = dist.threads.spawn(program, nprocs=2)
    assert isinstance(first, dcp.Metadata) and first == second
    table = first.state_dict_metadata["model.table"]
    assert table.size == cd.Size([3, 2]) and table.properties.dtype == cd.float32
    assert [(c.offsets, c.sizes) for c in table.chunks] == [((0, 0), (2, 2)), ((2, 0), (1, 2))]
    bias = first.state_dict_metadata["model.bias"]
    assert bias.properties.dtype == cd.float64 and len(bias.chunks) == 1
    assert isinstance(first.state_dict_metadata["step"], dcp.BytesStorageMetadata)
    assert first.planner_data["model.table"] == ("model", "table")
    assert {str(name) for name in first.storage_data.values()} == {"000000.cd", "000001.cd"}
    assert dcp.FileSystemReader(tmp_path / "all").read_metadata() == first
    alone = dcp.async_save({"x": cd.ones(1)}, checkpoint_id=tmp_path / "one").result()
    assert list(alone.state_dict_metadata) == ["x"]
