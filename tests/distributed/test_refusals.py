"""What calls refuse: with PyTorch's classes of errors, the value, and what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms.ddp_comm_hooks import default_hooks
from coredispatch.futures import Future


def x(count: int = 4) -> Any:
    return cd.ones(count)


BOTH = {  # gloo raises RuntimeError, and other checks of PyTorch ValueError: these are both
    "broadcast from 5": lambda: dist.broadcast(x(), 5),
    "broadcast from -1": lambda: dist.broadcast(x(), -1),
    "broadcast from 5 of the group": lambda: dist.broadcast(x(), group_src=5),
    "reduce to 5": lambda: dist.reduce(x(), 5),
    "gather to 5": lambda: dist.gather(x(), [x()], dst=5),
    "a list of 2 to gather": lambda: dist.gather(x(), [x(), x()]),
    "gather into 3 elements": lambda: dist.gather(x(), [x(3)]),
    "a list of 2 to scatter": lambda: dist.scatter(x(), [x(), x()]),
    "scatter 3 elements": lambda: dist.scatter(x(), [x(3)]),
    "a list of 2 to all_gather": lambda: dist.all_gather([x(), x()], x()),
    "an empty list to all_gather": lambda: dist.all_gather([], x()),
    "all_gather into 3 elements": lambda: dist.all_gather([x(3)], x()),
    "all_gather into a tensor of 5": lambda: dist.all_gather_into_tensor(x(5), x()),
    "all_gather into float64": lambda: dist.all_gather_into_tensor(x().double(), x()),
    "a list of 2 to reduce_scatter": lambda: dist.reduce_scatter(x(), [x(), x()]),
    "reduce_scatter of 5": lambda: dist.reduce_scatter_tensor(x(), x(5)),
    "lists of 2 and 1 to all_to_all": lambda: dist.all_to_all([x(), x()], [x()]),
    "all_to_all into 3 elements": lambda: dist.all_to_all([x(3)], [x()]),
    "parts that are no whole": lambda: dist.all_to_all_single(x(), x(), [3], [4]),
    "two parts for one rank": lambda: dist.all_to_all_single(x(), x(), [2, 2], [4]),
    "all_to_all_single into 3": lambda: dist.all_to_all_single(x(3), x()),
    "objects from 5": lambda: dist.broadcast_object_list([1], src=5),
    "two objects to scatter": lambda: dist.scatter_object_list([None], [1, 2]),
}
VALUE = {
    "no root": lambda: dist.broadcast(x()),
    "two roots": lambda: dist.broadcast(x(), 0, group_src=0),
    "no list to gather into": lambda: dist.gather(x(), None),
    "no list to scatter": lambda: dist.scatter(x(), None),
    "to itself": lambda: dist.send(x(), 0),
}


def test_roots_and_lists() -> None:
    def program(rank: int) -> None:
        for name, call in BOTH.items():
            for kind in (ValueError, RuntimeError):
                with pytest.raises(kind, match="\n  fix: "):
                    pytest.fail(f"{name} is accepted: {call()}")
        for name, call in VALUE.items():
            with pytest.raises(ValueError):
                pytest.fail(f"{name} is accepted: {call()}")
        with pytest.raises(TypeError, match="src='0' is no integer"):
            dist.broadcast(x(), "0")  # type: ignore[arg-type]

    dist.threads.spawn(program, nprocs=1)


def test_outputs_whose_elements_share_memory() -> None:
    def program(rank: int) -> None:
        def wide(count: int = 4) -> Any:
            return cd.ones(1).expand(count)

        for call in (
            lambda: dist.all_reduce(wide()),
            lambda: dist.all_reduce(wide().bfloat16()[:1].expand(4)),
            lambda: dist.all_reduce_coalesced([wide(), wide()]),
            lambda: dist.broadcast(wide(), 0),
            lambda: dist.reduce(wide(), rank),
            lambda: dist.all_gather([wide(), wide()], x()),
            lambda: dist.all_gather_into_tensor(wide(8), x()),
            lambda: dist.reduce_scatter_tensor(wide(), x(8)),
            lambda: dist.scatter(wide(), [x(), x()] if rank == 0 else None),
            lambda: dist.all_to_all_single(wide(), x()),
            lambda: dist.recv(wide(), 1 - rank),
        ):
            with pytest.raises(
                RuntimeError, match="elements of an output .* share memory.*\n.*clone"
            ):
                call()
        assert dist.all_gather_into_tensor(x(8), wide()) is None  # as an input it will do

    dist.threads.spawn(program, nprocs=2)


def test_names_of_backends() -> None:
    def program(rank: int) -> None:
        half = dist.new_group([0])
        if rank == 0:
            assert half.name() == "local" and dist.get_backend_config(half) == "cpu:local"
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        world = dist.group.WORLD
        assert world is not None and world.name() == dist.get_backend(world) == "gloo"
        assert dist.get_backend_config(world) == dist.get_backend_config() == "cpu:gloo"
        assert "over socket" in repr(world)

    store = dist.HashStore()
    dist.threads.spawn(program, nprocs=2)


def model() -> Any:
    return nn.parallel.DistributedDataParallel(nn.Linear(2, 1))


def done(value: Any) -> Any:
    future = Future()
    future.set_result(value)
    return future


def test_hooks_that_give_no_future() -> None:
    def program(rank: int) -> None:
        for hook, text in (
            (lambda state, bucket: bucket.buffer(), "returned a Tensor, and a Future is needed"),
            (lambda state, bucket: None, "returned a NoneType, and a Future is needed"),
            (lambda state, bucket: done("x"), "has a str as its value"),
            (lambda state, bucket: done(x(7)), "has a Tensor of 7 elements as its value"),
        ):
            wrapped = model()
            wrapped.register_comm_hook(None, hook)
            with pytest.raises(TypeError, match=f"communication hook.*{text}.*\n  fix: "):
                wrapped(cd.ones(1, 2)).sum().backward()

    dist.threads.spawn(program, nprocs=1)


def test_signatures_of_hooks() -> None:
    def other_bucket(state: Any, bucket: int) -> Any: ...
    def other_result(state: Any, bucket: dist.GradBucket) -> cd.Tensor: ...  # type: ignore[empty-body]
    def one_argument(bucket: Any) -> Any: ...

    class Callable:
        def __call__(self, state: object, bucket: dist.GradBucket) -> Future[cd.Tensor]:  # type: ignore[type-arg]
            return default_hooks.allreduce_hook(None, bucket)

        def method(self, state: object, bucket: dist.GradBucket) -> Future:
            return default_hooks.allreduce_hook(None, bucket)

    def program(rank: int) -> None:
        with pytest.raises(ValueError, match="bucket annotation should be dist.GradBucket"):
            model().register_comm_hook(None, other_bucket)
        with pytest.raises(ValueError, match="return annotation should be"):
            model().register_comm_hook(None, other_result)
        with pytest.raises(TypeError, match="cannot be called with a state and a bucket"):
            model().register_comm_hook(None, one_argument)
        with pytest.raises(TypeError, match="must be callable"):
            model().register_comm_hook(None, 5)
        for hook in (
            Callable(), Callable().method, default_hooks.fp16_compress_hook,
            lambda state, grads: done(grads.buffer()), lambda *args: done(args[1].buffer()),
        ):  # fmt: skip
            wrapped = model()
            wrapped.register_comm_hook(None, hook)
            wrapped(cd.ones(1, 2)).sum().backward()
            assert wrapped.module.weight.grad.tolist() == [[1.0, 1.0]]

    dist.threads.spawn(program, nprocs=1)
