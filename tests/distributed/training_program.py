"""One seed, one process or several ranks: the same losses. Run as collectives_program.py is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from coredispatch.distributed.fsdp import fully_shard
from coredispatch.distributed.optim import ZeroRedundancyOptimizer
from coredispatch.frontend.distributed import buckets
from coredispatch.nn.parallel import DistributedDataParallel as DDP

BATCH, STEPS = 12, 4


class Block(nn.Module):
    """A transformer block over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        mask = cd.triu(cd.ones(6, 6, dtype=cd.bool), 1)
        x = x + self.attend(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(x + self.mlp(self.norm(x)))


def model_and_data(kind: str) -> tuple[Any, Any, Any, Any]:
    cd.manual_seed(3)
    if kind == "mlp":
        model: Any = nn.Sequential(nn.Linear(5, 300), nn.Tanh(), nn.Linear(300, 2))
        x, y = cd.randn(STEPS, BATCH, 5), cd.randn(STEPS, BATCH, 2)
        return model, x, y, nn.MSELoss()
    if kind == "cnn":
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        )
        x, y = cd.randn(STEPS, BATCH, 1, 6, 6), cd.randint(0, 3, (STEPS, BATCH))
        return model, x, y, nn.CrossEntropyLoss()
    tokens = cd.randint(0, 11, (STEPS, BATCH, 7))

    def loss(out: Any, target: Any) -> Any:
        return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())

    return Block(), tokens[:, :, :-1], tokens[:, :, 1:], loss


def adam(parameters: Any) -> Any:
    return cd.optim.Adam(parameters, lr=0.01)


def losses(
    kind: str, make: Any, rank: int, size: int, optimizer: Any = adam
) -> tuple[list[float], Any]:
    """The loss of each step over the whole batch, and the model at the end."""
    model, x, y, loss_of = model_and_data(kind)
    if make is not None:
        model = make(model)
    opt = optimizer(model.parameters())
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    found = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(model(x[step, share]), y[step, share])
        loss.backward()
        opt.step()
        total = loss.detach().clone()
        if make is not None:
            dist.all_reduce(total, dist.ReduceOp.AVG)
        found.append(total.item())
    return found, model


def close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    assert all(abs(p - q) <= tolerance * (1 + abs(q)) for p, q in zip(a, b, strict=True)), (a, b)


@contextlib.contextmanager
def large_from(nbytes: int) -> Iterator[None]:
    """Let gradients of as many bytes be reduced where they are, rather than in buckets."""
    before, buckets.LARGE = buckets.LARGE, nbytes
    try:
        yield
    finally:
        buckets.LARGE = before


def forms_of_training(rank: int, size: int) -> None:
    for kind in ("mlp", "cnn", "gpt"):
        expected, _ = losses(kind, None, 0, 1)

        def ddp(model: Any, **options: Any) -> Any:
            return DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model), **options)

        for large, options in (
            (buckets.LARGE, {}),
            (buckets.LARGE, {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True}),
            (64, {}),
            (64, {"find_unused_parameters": True}),
            (64, {"static_graph": True}),
        ):
            with large_from(large):
                found, model = losses(kind, lambda m, o=options: ddp(m, **o), rank, size)
            close(found, expected)
        zero, _ = losses(
            kind, ddp, rank, size,
            optimizer=lambda p: ZeroRedundancyOptimizer(p, optimizer_class=cd.optim.Adam, lr=0.01),
        )  # fmt: skip
        close(zero, expected)
        if kind == "mlp":
            assert all(name.startswith("module.") for name in model.state_dict())
    single = nn.SyncBatchNorm(3)
    x = cd.randn(4 + rank, 3, 5, generator=cd.Generator().manual_seed(rank))
    single(x)
    parts = [cd.randn(4 + r, 3, 5, generator=cd.Generator().manual_seed(r)) for r in range(size)]
    whole = nn.BatchNorm1d(3)
    whole(cd.cat(parts))
    close(single.running_var.tolist(), whole.running_var.tolist())


def hooks(rank: int, size: int) -> None:
    expected, _ = losses("mlp", None, 0, 1)
    for hook in (
        default_hooks.allreduce_hook,
        default_hooks.fp16_compress_hook,
        default_hooks.bf16_compress_hook,
        default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    ):

        def make(model: Any, hook: Any = hook) -> Any:
            made = DDP(model)
            made.register_comm_hook(None, hook)
            return made

        exact = hook is default_hooks.allreduce_hook
        close(losses("mlp", make, rank, size)[0], expected, 1e-6 if exact else 2e-2)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)

    def power(model: Any) -> Any:
        made = DDP(model)
        made.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return made

    found, _ = losses("mlp", power, rank, size)
    assert state.total_numel_after_compression < state.total_numel_before_compression
    close(found, expected, 0.3)
    for hook in (powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook):
        exact_with_all_columns(hook, rank)


def exact_with_all_columns(hook: Any, rank: int) -> None:
    """Factors as wide as the matrix lose nothing."""
    cd.manual_seed(1)
    model = DDP(nn.Linear(40, 40))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=41, start_powerSGD_iter=2,
                                        min_compression_rate=0)  # fmt: skip
    model.register_comm_hook(state, hook)
    x = cd.randn(9, 40) * (rank + 1)
    for _ in range(4):
        model.zero_grad()
        model(x).square().sum().backward()
    plain = DDP(nn.Linear(40, 40))
    plain.module.load_state_dict(model.module.state_dict())
    plain(x).square().sum().backward()
    close(model.module.weight.grad.flatten().tolist(), plain.module.weight.grad.flatten().tolist(),
          1e-3)  # fmt: skip
    assert state.total_numel_after_compression > 0


def passes(rank: int, size: int) -> None:
    cd.manual_seed(rank)  # other weights on each rank, made alike by DDP
    model = DDP(nn.Linear(3, 1))
    every = [None] * size
    dist.all_gather_object(every, model.module.weight.tolist())
    assert all(other == every[0] for other in every)
    x = cd.full((2, 3), rank + 1.0)
    mean = sum(r + 1.0 for r in range(size)) / size
    with model.no_sync():
        model(x).sum().backward()
    assert model.module.weight.grad.flatten().tolist() == [2.0 * (rank + 1)] * 3
    model(x).sum().backward()
    close(model.module.weight.grad.flatten().tolist(), [4.0 * mean] * 3)
    with cd.no_grad():
        model(x)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x: Any, which: str) -> Any:
            return getattr(self, which)(x)

    two = DDP(Two(), find_unused_parameters=True)
    for _ in range(2):
        two.zero_grad()
        two(cd.ones(1, 2), "a" if rank == 0 else "b").sum().backward()
    close(two.module.a.weight.grad.flatten().tolist(), [1.0 / size] * 2)
    if size > 1:
        close(two.module.b.weight.grad.flatten().tolist(), [(size - 1.0) / size] * 2)
        assert two.module.c.weight.grad is None
    strict = DDP(Two())
    strict(cd.ones(1, 2), "a").sum().backward()
    try:
        strict(cd.ones(1, 2), "a")
    except RuntimeError as error:
        assert "find_unused_parameters=True" in str(error) and "b.weight" in str(error)
    else:
        raise AssertionError("unused parameters were not noticed")
    if size > 1:
        try:
            DDP(nn.Linear(2 + rank, 1))
        except RuntimeError as error:
            assert "same model across all ranks" in str(error)
        else:
            raise AssertionError("different models were not noticed")


def uneven(rank: int, size: int) -> None:
    cd.manual_seed(0)
    model = DDP(nn.Linear(2, 1, bias=False))
    opt = cd.optim.SGD(model.parameters(), lr=0.1)
    reference = nn.Linear(2, 1, bias=False)
    reference.load_state_dict(model.module.state_dict())
    steps = [3 + r for r in range(size)]
    with model.join():
        for step in range(steps[rank]):
            opt.zero_grad()
            model(cd.full((1, 2), step + rank + 1.0)).sum().backward()
            opt.step()
    weight = reference.weight.detach()
    for step in range(max(steps)):
        total = sum(step + r + 1.0 for r in range(size) if step < steps[r])
        weight = weight - 0.1 * total / size
    close(model.module.weight.flatten().tolist(), weight.flatten().tolist())


def states(rank: int, size: int) -> None:
    def train(opt: Any, model: Any, steps: int) -> None:
        for step in range(steps):
            opt.zero_grad()
            model(cd.full((2, 4), step + 1.0)).square().sum().backward()
            opt.step()

    cd.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    other = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    other.load_state_dict(model.state_dict())
    zero = ZeroRedundancyOptimizer(model.parameters(), cd.optim.Adam, lr=0.01)
    plain = cd.optim.Adam(other.parameters(), lr=0.01)
    train(zero, model, 2)
    train(plain, other, 2)
    zero.consolidate_state_dict(to=0)
    box = [zero.state_dict() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    again = cd.optim.Adam(other.parameters(), lr=0.5)
    again.load_state_dict(box[0])
    fresh = ZeroRedundancyOptimizer(model.parameters(), cd.optim.Adam, lr=0.5)
    fresh.load_state_dict(plain.state_dict())
    train(again, other, 2)
    train(fresh, model, 2)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        close(a.flatten().tolist(), b.flatten().tolist())


def scaled(rank: int, size: int) -> None:
    """One rank's loss overflows: the average does, and all ranks leave the step out."""

    def train(make: Any, optimizer: Any, alone: bool, low: bool) -> tuple[list[float], float]:
        model, x, y, loss_of = model_and_data("mlp")
        model = make(model)
        opt = optimizer(model.parameters())
        scaler = cd.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        share = slice(None) if alone else slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        found = []
        for step in range(STEPS):
            opt.zero_grad()
            with cd.autocast("cpu", cd.bfloat16, enabled=low):
                out = model(x[step, share])
            loss = loss_of(out.float(), y[step, share])
            found.append(loss.detach())
            overflow = step == 1 and (alone or rank == 0)
            scaler.scale(loss * (float("inf") if overflow else 1.0)).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
        if not alone:
            for loss in found:
                dist.all_reduce(loss, dist.ReduceOp.AVG)
        return [loss.item() for loss in found], scaler.get_scale()

    def zero(parameters: Any) -> Any:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=cd.optim.Adam, lr=0.01)

    for low in (False, True):
        expected, scale = train(lambda m: m, adam, True, low)
        for make, optimizer in ((DDP, adam), (DDP, zero), (fully_shard, adam)):
            found, other = train(make, optimizer, False, low)
            assert other == scale
            # Adam divides by the roots of small squares, whose sums are rounded in another order.
            close(found, expected, 2e-2 if low else 1e-5)


def check_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in (forms_of_training, hooks, passes, uneven, states, scaled):
        check(rank, size)
        dist.barrier()
    with large_from(1):
        passes(rank, size)
        uneven(rank, size)
    engine = dist.group.WORLD.communicators["cpu"].name
    print(f"rank {rank} of {size} over {engine}: training agrees")


def spawned(rank: int, size: int, where: str) -> None:
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
    check_all()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        cd.multiprocessing.spawn(spawned, (int(sys.argv[2]), sys.argv[3]), nprocs=int(sys.argv[2]))
    else:
        dist.init_process_group(sys.argv[1])
        check_all()
        dist.destroy_process_group()
