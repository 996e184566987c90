"""Models that are cut into stages, and several stages on each rank."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
    SplitPoint,
    pipe_split,
    pipeline,
)

BEGINNING, END = SplitPoint.BEGINNING, SplitPoint.END
FOUR = {"layers.1": BEGINNING, "layers.1.b": BEGINNING, "layers.2": BEGINNING}
TWO = {"layers.0": END}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x: Any, scale: Any = None) -> Any:
        y = self.b(self.a(x).relu())
        if scale is not None:  # a branch, in a module that no cut lies in
            y = y * scale
        return x + y


class Net(nn.Module):
    """A path past all stages, an input that several need, a size that passes between them."""

    def __init__(self, marked: bool = False) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 6)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.gain, self.marked = nn.Parameter(cd.ones(6)), marked

    def forward(self, tokens: Any, scale: Any, also: Any = None) -> Any:
        first = x = self.emb(tokens)
        length = tokens.shape[1]
        for i, layer in enumerate(self.layers):
            if self.marked and i == 1:
                pipe_split()
            x = layer(x, scale)
        return (x + first * self.gain).view(-1, length * 6)


def inputs() -> tuple[Any, Net, cd.Tensor, cd.Tensor, cd.Tensor]:
    with seeded(0):
        net, tokens, scale = Net(), cd.randint(0, 7, (8, 4)), cd.rand(8, 4, 1)
        target = cd.rand(8, 24)
    return nn.functional.mse_loss, net, tokens, scale, target


def test_stages_together_are_the_model_and_hold_its_parameters() -> None:
    _, net, tokens, scale, _ = inputs()
    for spec, count in ((FOUR, 4), (TWO, 2), ({"emb": BEGINNING}, 1)):
        pipe = pipeline(net, (tokens[:2],), {"scale": scale[:2]}, split_spec=spec)
        assert pipe.num_stages == count
        cd.testing.assert_close(pipe(tokens, scale=scale), net(tokens, scale))
        held = [dict(pipe.get_stage_module(i).named_parameters()) for i in range(count)]
        assert {n: p for part in held for n, p in part.items()} == dict(net.named_parameters())
        assert sum(map(len, held)) == len(list(net.parameters()))
    assert pipeline(Net(marked=True), (tokens, scale)).num_stages == 2
    with pytest.raises(ValueError, match="no submodule 'layers.7'"):
        pipeline(net, (tokens, scale), split_spec={"layers.7": END})
    with pytest.raises(ValueError, match="Invalid stage index 2"):
        pipeline(net, (tokens, scale), split_spec=TWO).get_stage_module(2)


def test_looking_for_marks_leaves_no_trace() -> None:
    class Marked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop, self.last = nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            x = self.drop(self.norm(x))
            pipe_split()
            return self.last(x)

    model = nn.Sequential(nn.Linear(3, 3), Marked())
    before = copy.deepcopy(model.state_dict())
    with seeded(1):
        pipe = pipeline(model, (cd.ones(4, 3),))
        drawn = cd.rand(2)
    with seeded(1):
        assert cd.equal(drawn, cd.rand(2))
    assert all(cd.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [*pipe.submod_1.state_dict()] == ["1.last.weight", "1.last.bias"]


@pytest.mark.parametrize(
    ("kind", "size", "parts"),
    [(ScheduleGPipe, 2, 4), (Schedule1F1B, 4, 2), (ScheduleInterleaved1F1B, 2, 4),
     (ScheduleInterleaved1F1B, 1, 2), (ScheduleLoopedBFS, 2, 3)],
)  # fmt: skip
def test_gradients_are_those_of_one_process(kind: Any, size: int, parts: int) -> None:
    loss_fn, net, tokens, scale, target = inputs()
    several = kind in (ScheduleInterleaved1F1B, ScheduleLoopedBFS)
    parts_of = [
        pipeline(copy.deepcopy(net), (tokens[:2], scale[:2]),
                 split_spec=FOUR if several or size == 4 else TWO)
        for _ in range(size)
    ]  # fmt: skip
    whole = net(tokens, scale)
    loss = cd.stack([
        loss_fn(a, b) for a, b in zip(
            whole.tensor_split(parts), target.tensor_split(parts), strict=True)
    ]).mean()  # fmt: skip
    loss.backward()

    def program(rank: int) -> dict[str, Any]:
        pipe = parts_of[rank]
        stages = [pipe.build_stage(i, "cpu") for i in range(rank, pipe.num_stages, size)]
        schedule = kind(stages if several else stages[0], parts, loss_fn=loss_fn)
        losses: list[Any] = []
        last = {"target": target, "losses": losses} if stages[-1].is_last else {}
        out = schedule.step(*(() if rank else (tokens, scale)), **last)
        if last:
            cd.testing.assert_close(out, whole.detach())
            cd.testing.assert_close(cd.stack(losses).mean(), loss.detach())
        return {n: p.grad for stage in stages for n, p in stage.submod.named_parameters()}

    found: dict[str, Any] = {}
    for part in dist.threads.spawn(program, nprocs=size):
        found |= part
    assert found.keys() == dict(net.named_parameters()).keys()
    for name, param in net.named_parameters():
        cd.testing.assert_close(found[name], param.grad, msg=name)


@pytest.mark.parametrize("kind", [ScheduleInterleaved1F1B, ScheduleLoopedBFS])
@pytest.mark.parametrize(("size", "count", "parts"), [(2, 2, 4), (4, 3, 8), (3, 2, 2), (4, 2, 10)])
def test_no_rank_waits_for_ever(kind: Any, size: int, count: int, parts: int) -> None:
    """Ranks do in turn what they can; what a stage waits for is done by another one in time."""

    def order(rank: int) -> list[Any]:
        store = dist.HashStore()
        with dist.world.separate_world():
            dist.init_process_group("fake", store=store, rank=rank, world_size=size)
            stages = [PipelineStage(nn.Identity(), rank + i * size, size * count)
                      for i in range(count)]  # fmt: skip
            found = [(what, rank + at * size, part) for what, at, part in
                     kind(stages, parts, loss_fn=nn.MSELoss()).order()]  # fmt: skip
            dist.destroy_process_group()
        return found

    left, done = [order(rank) for rank in range(size)], set()
    assert sorted(step for steps in left for step in steps) == sorted(
        (what, stage, part) for what in ("forward", "backward")
        for stage in range(size * count) for part in range(parts)
    )  # fmt: skip
    while any(left):
        before = len(done)
        for steps in left:
            while steps:
                what, stage, part = steps[0]
                needed = (what, stage - 1, part) if what == "forward" else (what, stage + 1, part)
                if what == "backward" and stage == size * count - 1:
                    needed = ("forward", stage, part)
                if not (what == "forward" and stage == 0) and needed not in done:
                    break
                done.add(steps.pop(0))
        assert len(done) > before, [steps[:1] for steps in left]


def test_schedules_refuse_what_they_cannot_do() -> None:
    def program(rank: int) -> None:
        stages = [PipelineStage(nn.Identity(), rank + i * 2, 4) for i in range(2)]
        with pytest.raises(ValueError, match="one stage on each rank, or ScheduleInterleaved"):
            ScheduleGPipe(stages[0], 2)
        with pytest.raises(ValueError, match="multiple of the number of rounds"):
            ScheduleInterleaved1F1B(stages, 5)
        with pytest.raises(ValueError, match="must be on rank"):
            PipelineStage(nn.Identity(), 1 - rank, 4)

    dist.threads.spawn(program, nprocs=2)
