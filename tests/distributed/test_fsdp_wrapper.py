"""``FullyShardedDataParallel`` as PyTorch's tutorials use it, on ranks in threads."""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from coredispatch.distributed.fsdp import (
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from coredispatch.distributed.fsdp import FullyShardedDataParallel as FSDP
from coredispatch.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    always_wrap_policy,
    enable_wrap,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
    wrap,
)
from coredispatch.distributed.tensor import DTensor

pytestmark = pytest.mark.once


class Pair(NamedTuple):
    values: Any
    name: str


class Block(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gain = nn.Parameter(cd.tensor(1.5))

    def forward(self, x: Any) -> Any:
        return x + self.gain * self.down(cd.relu(self.up(x)))


@functools.cache
def first() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), Block(), Block(), nn.Linear(6, 2))


def network() -> nn.Module:
    return copy.deepcopy(first())


def inputs(ranks: int, seed: int = 1) -> Any:
    return cd.randn(4 * ranks, 3, generator=cd.Generator().manual_seed(seed))


def trained(model: Any, optimizer: Any, ranks: int, rank: int, steps: int = 4) -> list[float]:
    losses = []
    for step in range(steps):
        x = inputs(ranks, step)[4 * rank : 4 * (rank + 1)]
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def alone(ranks: int, steps: int = 4) -> tuple[list[float], dict[str, Any]]:
    model = network()
    optimizer = cd.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(inputs(ranks, step)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


POLICIES = {
    "none": None,
    "blocks": ModuleWrapPolicy({Block}),
    "transformer": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
    "size": functools.partial(size_based_auto_wrap_policy, min_num_params=100),
    "always": always_wrap_policy,
    "custom": CustomPolicy(lambda module: isinstance(module, Block)),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"])
def test_training_is_that_of_one_process(policy: str, strategy: str) -> None:
    ranks = 2
    want, state = alone(ranks)

    def program(rank: int) -> Any:
        model = FSDP(
            network(),
            auto_wrap_policy=POLICIES[policy],
            sharding_strategy=ShardingStrategy[strategy],
            use_orig_params=True,
        )
        optimizer = cd.optim.Adam(model.parameters(), lr=0.01)
        return trained(model, optimizer, ranks, rank), model.state_dict()

    found = dist.threads.spawn(program, nprocs=ranks)
    means = [sum(losses) / ranks for losses in zip(*(losses for losses, _ in found), strict=True)]
    assert means == pytest.approx(want, abs=1e-6)
    for _, got in found:
        assert list(got) == list(state)
        for name, value in state.items():
            assert not isinstance(got[name], DTensor) and got[name].shape == value.shape
            assert cd.allclose(got[name], value, atol=1e-6), name


def test_which_modules_are_wrapped() -> None:
    def program(rank: int) -> list[str]:
        model = FSDP(network(), auto_wrap_policy=POLICIES["blocks"])
        assert isinstance(model.module[1], FSDP) and isinstance(model.module[1].module, Block)
        assert not isinstance(model.module[0], FSDP)
        assert [m is model for m in FSDP.fsdp_modules(model)] == [True, False, False]
        assert FSDP.fsdp_modules(model, root_only=True) == [model]
        assert model.check_is_root() and not model.module[1].check_is_root()
        assert model[0] is model.module[0]  # what it has not, the module has
        names = [name for name, _ in model.named_parameters()]
        assert "_fsdp_wrapped_module.1._fsdp_wrapped_module.up.weight" in names
        with FSDP.summon_full_params(model):
            names = [name for name, _ in model.named_parameters()]
            assert names == [name for name, _ in network().named_parameters()]
        sized = FSDP(network(), auto_wrap_policy=POLICIES["size"])
        return [type(m).__name__ for m in sized.module]

    assert dist.threads.spawn(program, nprocs=2)[0] == [
        "Linear",
        "FullyShardedDataParallel",
        "FullyShardedDataParallel",
        "Linear",
    ]


def test_wrapping_by_hand() -> None:
    assert isinstance(wrap(nn.Linear(2, 2)), nn.Linear)

    def program(rank: int) -> str:
        with enable_wrap(wrapper_cls=FSDP, mixed_precision=None):
            inner = wrap(nn.Linear(2, 2))
            model = wrap(nn.Sequential(inner, nn.ReLU(), nn.Linear(2, 1)))
        assert isinstance(inner, FSDP) and model.check_is_root() and not inner.check_is_root()
        model(cd.ones(1, 2)).sum().backward()
        return repr(model)

    text = dist.threads.spawn(program, nprocs=2)[0]
    assert text.startswith("FullyShardedDataParallel(\n  (_fsdp_wrapped_module): Sequential(")


def test_states_of_model_and_optimizer_go_into_another_run() -> None:
    def program(rank: int) -> None:
        model = FSDP(network(), auto_wrap_policy=POLICIES["blocks"])
        optimizer = cd.optim.Adam(model.parameters(), lr=0.01)
        trained(model, optimizer, 2, rank)
        everywhere = FSDP.optim_state_dict(model, optimizer)
        whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        whole_too = FullOptimStateDictConfig(rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole, whole_too):
            weights = model.state_dict()
            moments = FSDP.optim_state_dict(model, optimizer)
        assert bool(weights) is bool(moments) is (rank == 0)
        assert everywhere["state"]["1.up.weight"]["exp_avg"].shape == (12, 6)
        assert "0.weight" in everywhere["param_groups"][0]["params"]
        weights = model.state_dict()

        other = FSDP(zeros(), auto_wrap_policy=POLICIES["blocks"])
        again = cd.optim.Adam(other.parameters(), lr=0.5)
        assert not other.load_state_dict(weights).missing_keys
        loaded = FSDP.optim_state_dict_to_load(other, again, everywhere)
        assert not again.state and again.param_groups[0]["lr"] == 0.5
        again.load_state_dict(loaded)
        assert again.param_groups[0]["lr"] == 0.01
        assert trained(model, optimizer, 2, rank) == trained(other, again, 2, rank)
        moments = again.state[next(other.parameters())]["exp_avg"].full_tensor()
        FSDP.optim_state_dict_to_load(other, again, everywhere)
        assert cd.equal(again.state[next(other.parameters())]["exp_avg"].full_tensor(), moments)

        with pytest.raises(RuntimeError, match="size mismatch"):
            other.load_state_dict(weights | {"0.weight": weights["0.weight"].t()})
        plain = network()
        plain.load_state_dict(other.state_dict())

    def zeros() -> nn.Module:
        model = network()
        for p in model.parameters():
            p.data.zero_()
        return model

    dist.threads.spawn(program, nprocs=2)


def test_states_in_parts() -> None:
    def program(rank: int) -> None:
        model = FSDP(network(), auto_wrap_policy=POLICIES["blocks"])
        before = FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
        assert before.state_dict_type is StateDictType.FULL_STATE_DICT
        state = model.state_dict()
        assert isinstance(state["0.weight"], DTensor)
        assert state["0.weight"].to_local().shape == (3, 3)
        assert list(state) == list(network().state_dict())
        changed = {k: v.clone().mul_(2) for k, v in state.items()}
        model.load_state_dict(changed)
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)
        assert cd.allclose(model.state_dict()["0.weight"], 2 * network()[0].weight)
        with pytest.raises(NotImplementedError, match="LOCAL_STATE_DICT"):
            FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
        with pytest.raises(RuntimeError, match="Expected state_dict_config of type"):
            FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, FullStateDictConfig())

    dist.threads.spawn(program, nprocs=2)


def test_whole_parameters_for_a_block() -> None:
    def program(rank: int) -> None:
        model = FSDP(network(), auto_wrap_policy=POLICIES["blocks"])
        with FSDP.summon_full_params(model):
            assert model.module[1].module.gain.shape == ()
            assert model.module[1].module.up.weight.shape == (12, 6)
            model.module[1].module.up.weight.data.fill_(2.0)
        assert (model.state_dict()["1.up.weight"] == 2).all()
        with FSDP.summon_full_params(model, writeback=False):
            model.module[1].module.up.weight.data.fill_(3.0)
        assert (model.state_dict()["1.up.weight"] == 2).all()
        with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
            assert isinstance(model.module[0].weight, DTensor) is (rank == 1)
        with pytest.raises(NotImplementedError, match="rank0_only"):
            with FSDP.summon_full_params(model, rank0_only=True):
                pass
        model.apply(lambda m: isinstance(m, nn.Linear) and m.bias.data.fill_(7.0))
        assert (model.state_dict()["3.bias"] == 7).all()

    dist.threads.spawn(program, nprocs=2)


def test_norms_and_accumulated_gradients() -> None:
    def program(rank: int) -> None:
        x = inputs(2)[4 * rank : 4 * (rank + 1)]
        plain = network()
        (plain(inputs(2)).pow(2).mean() * 1).backward()
        want = cd.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        model = FSDP(network(), auto_wrap_policy=POLICIES["blocks"])
        model(x).pow(2).mean().backward()
        assert model.clip_grad_norm_(0.1).item() == pytest.approx(want.item(), rel=1e-5)
        for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert cd.allclose(mine.grad.full_tensor().reshape(other.shape), other.grad, atol=1e-6)
        kept = [p.grad.full_tensor() for p in model.parameters()]
        model.zero_grad()
        with model.no_sync():
            (model(x).pow(2).mean() / 2).backward()
        assert all(p.grad is None for p in model.parameters())
        (model(x).pow(2).mean() / 2).backward()
        model.clip_grad_norm_(0.1)
        for p, grad in zip(model.parameters(), kept, strict=True):
            assert cd.allclose(p.grad.full_tensor(), grad, atol=1e-6)

    dist.threads.spawn(program, nprocs=2)


def test_mixed_precision() -> None:
    seen: list[Any] = []

    class Looking(nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(x.dtype)
            return x

    def program(rank: int) -> None:
        half = MixedPrecision(cd.bfloat16, cd.float32, cd.bfloat16)
        inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Looking())
        with pytest.warns(UserWarning, match="mixed precision disabled"):
            model = FSDP(
                inner, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), mixed_precision=half
            )
        assert isinstance(model.module[1], FSDP) and isinstance(model.module[0], FSDP)
        assert model.module[1].module.running_mean.dtype is cd.float32
        out = model(cd.randn(8, 4))
        out.float().sum().backward()
        assert all(p.dtype is cd.float32 and p.grad.dtype is cd.float32 for p in model.parameters())

        class Shifted(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(2, 2)
                self.register_buffer("shift", cd.ones(2))

            def forward(self, x: Any) -> Any:
                seen.append(x.dtype)
                return self.linear(x) + self.shift

        model = FSDP(Shifted(), mixed_precision=half)
        assert model(cd.ones(1, 2)).dtype is cd.bfloat16 and seen[-1] is cd.bfloat16
        assert model.module.shift.dtype is cd.bfloat16
        assert model.state_dict()["shift"].dtype is cd.float32
        assert model.state_dict()["linear.weight"].dtype is cd.float32

        class Named(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(2, 2)

            def forward(self, pair: Pair) -> Pair:
                return Pair(self.linear(pair.values), pair.name)

        found = FSDP(Named(), mixed_precision=half)(Pair(cd.ones(1, 2), "x"))
        assert isinstance(found, Pair) and found.values.dtype is cd.bfloat16
        with pytest.raises(NotImplementedError, match="keep_low_precision_grads"):
            FSDP(Shifted(), mixed_precision=MixedPrecision(keep_low_precision_grads=True))

    dist.threads.spawn(program, nprocs=1)


def test_modules_that_stay_whole_and_modules_without_values() -> None:
    def program(rank: int) -> None:
        kept = nn.Linear(6, 6)
        model = FSDP(nn.Sequential(nn.Linear(3, 6), kept), ignored_modules=[kept])
        assert not isinstance(kept.weight, DTensor) and isinstance(model[0].weight, DTensor)
        free = nn.Linear(3, 6)
        model = FSDP(free, ignored_states=[free.bias], cpu_offload=CPUOffload(True))
        assert not isinstance(model.module.bias, DTensor)
        model(cd.ones(1, 3)).sum().backward()
        with cd.device("meta"):
            empty = nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 2))
        with pytest.raises(ValueError, match="Linear is on the meta device"):
            FSDP(copy.deepcopy(empty))

        def init(module: Any) -> None:
            module.to_empty(device="cpu", recurse=False)
            module.reset_parameters()

        model = FSDP(empty, param_init_fn=init)
        assert model(cd.ones(1, 3)).shape == (1, 2)
        with pytest.raises(NotImplementedError, match="register_comm_hook"):
            model.register_comm_hook(None, print)

    dist.threads.spawn(program, nprocs=2)


@pytest.mark.parametrize("kind", [*CheckpointImpl, "offload"])
def test_activations_that_are_computed_again(kind: Any) -> None:
    want, state = alone(2)
    wrapper = (
        offload_wrapper
        if kind == "offload"
        else functools.partial(checkpoint_wrapper, checkpoint_impl=kind)
    )

    def program(rank: int) -> Any:
        model = FSDP(network(), auto_wrap_policy=POLICIES["blocks"])
        apply_activation_checkpointing(
            model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: isinstance(m, Block)
        )
        assert "_checkpoint_wrapped_module" in repr(model[1])
        assert isinstance(model[1].up, nn.Linear)
        optimizer = cd.optim.Adam(model.parameters(), lr=0.01)
        losses = trained(model, optimizer, 2, rank)
        moments = FSDP.optim_state_dict(model, optimizer)
        assert set(moments["state"]) == set(state)
        assert not model.load_state_dict(model.state_dict()).missing_keys
        return losses, model.state_dict()

    found = dist.threads.spawn(program, nprocs=2)
    means = [sum(losses) / 2 for losses in zip(*(losses for losses, _ in found), strict=True)]
    assert means == pytest.approx(want, abs=1e-6)
    for name, value in state.items():
        assert cd.allclose(found[0][1][name], value, atol=1e-6), name


def test_a_wrapper_for_activations_alone() -> None:
    runs = []

    class Counted(nn.Linear):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            runs.append(scale)
            return super().forward(x) * scale

    for kind in CheckpointImpl:
        runs.clear()
        inside = Counted(2, 2)
        module = checkpoint_wrapper(inside, checkpoint_impl=kind)
        assert [name for name, _ in module.named_parameters()] == ["weight", "bias"]
        assert list(module.state_dict()) == ["weight", "bias"]
        module.load_state_dict({"weight": cd.zeros(2, 2), "bias": cd.ones(2)})
        module(cd.ones(1, 2, requires_grad=True), scale=3.0).sum().backward()
        assert runs == [3.0, 3.0]
        assert inside.bias.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("offload", [True, False])
def test_whole_states_of_optimizers_go_to_the_memory_of_the_cpu(
    offload: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cd.Tensor, "cpu", lambda t: t + 100)  # as if it came from elsewhere

    def program(rank: int) -> float:
        model = FSDP(nn.Linear(3, 2))
        optimizer = cd.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(cd.ones(1, 3)).sum().backward()
        optimizer.step()
        config = FullOptimStateDictConfig(offload_to_cpu=offload)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, config):
            state = FSDP.optim_state_dict(model, optimizer)["state"]
        return float(state["bias"]["momentum_buffer"][0].item())

    assert dist.threads.spawn(program, nprocs=2) == [101.0 if offload else 1.0] * 2
