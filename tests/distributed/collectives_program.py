"""Every collective, on whatever ranks there are, against NumPy: a program, run by the tests.

python collectives_program.py local 3
python collectives_program.py spawn 2
mpiexec -n 2 python collectives_program.py mpi
"""

from __future__ import annotations

import os
import sys
import warnings

import numpy as np

import coredispatch as cd
import coredispatch.distributed as dist
import coredispatch.distributed.nn.functional as F

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool", "float16", "bfloat16",
          "complex64"]  # fmt: skip
SHAPES = [(), (1,), (5,), (0,), (3, 4), (70, 300)]
REDUCTIONS = {
    "SUM": lambda a: a.sum(0),
    "PRODUCT": lambda a: a.prod(0),
    "MIN": lambda a: a.min(0),
    "MAX": lambda a: a.max(0),
    "AVG": lambda a: a.mean(0),
}


def value(rank: int, shape: tuple[int, ...], dtype: str) -> cd.Tensor:
    """What `rank` has: small numbers, so that all dtypes hold all results exactly."""
    rng = np.random.default_rng([rank, *shape, len(dtype)])
    array = np.asarray(rng.integers(0, 3, shape))
    if dtype == "complex64":
        array = array + 1j * np.asarray(rng.integers(0, 3, shape))
    return cd.tensor(array).to(getattr(cd, dtype))


def wide(tensor: cd.Tensor) -> np.ndarray:
    kind = cd.complex128 if tensor.dtype.is_complex else cd.float64
    return tensor.to(kind).numpy()


def same(got: cd.Tensor, expected: np.ndarray, what: str) -> None:
    shown = np.asarray(expected)
    assert wide(got).shape == shown.shape, (what, got.shape, shown.shape)
    np.testing.assert_allclose(wide(got), shown, rtol=1e-2 if "16" in what else 1e-6, err_msg=what)


def everybody(shape: tuple[int, ...], dtype: str, size: int) -> np.ndarray:
    return np.stack([wide(value(r, shape, dtype)) for r in range(size)])


def reductions(rank: int, size: int) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            every = everybody(shape, dtype, size)
            for name, combine in REDUCTIONS.items():
                if dtype == "complex64" and name not in ("SUM", "AVG"):
                    continue
                if dtype in ("bool", "int64", "int32", "uint8") and name == "AVG":
                    continue
                what = f"all_reduce {dtype} {shape} {name}"
                expected = combine(every)
                if dtype == "bool":
                    expected = expected != 0
                op = getattr(dist.ReduceOp, name)
                x = value(rank, shape, dtype)
                dist.all_reduce(x, op)
                same(x, expected, what)
                y = value(rank, shape, dtype)
                dist.reduce(y, size - 1, op)
                same(y, expected if rank == size - 1 else every[rank], f"reduce {what}")
                same(value(rank, shape, dtype), every[rank], "input")
    x = value(rank, (4, 5), "float32").t()
    before = x._version
    dist.all_reduce(x)
    assert x._version > before
    same(x, everybody((4, 5), "float32", size).sum(0).T, "strides")
    bits = cd.tensor([1 << rank, 3])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    assert bits.tolist() == [(1 << size) - 1, 3]
    average = cd.tensor([7 + rank])
    dist.all_reduce(average, dist.ReduceOp.AVG)
    assert average.item() == sum(7 + r for r in range(size)) // size
    for bad in (lambda: dist.all_reduce(cd.ones(2) * 1j, dist.ReduceOp.MAX),
                lambda: dist.all_reduce(cd.ones(2), dist.ReduceOp.BAND),
                lambda: dist.all_reduce(cd.ones(2) > 0, dist.ReduceOp.AVG)):  # fmt: skip
        refused(ValueError, bad)
    refused(TypeError, lambda: dist.all_reduce([1.0]))
    pair = [value(rank, (3,), "float32"), value(rank, (2, 2), "float32")]
    dist.all_reduce_coalesced(pair)
    same(pair[1], everybody((2, 2), "float32", size).sum(0), "coalesced")


def long_ones(rank: int, size: int) -> None:
    """Arrays that an engine may cut into pieces; begun together, waited for in any order."""
    lengths = [1, 524288, 524289, 2300001]
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64", "int16", "complex64", "bfloat16"):
        every = rng.integers(0, 4, (size, sum(lengths)))
        tensors = cd.tensor(every[rank]).to(getattr(cd, dtype)).split(lengths)
        works = [dist.all_reduce(x, async_op=True) for x in tensors[:2]]
        token = cd.tensor([rank])
        works.append(dist.broadcast(token, 0, async_op=True))
        works += [dist.all_reduce(x, async_op=True) for x in tensors[2:]]
        for work in works[:: -1 if rank % 2 else 1]:
            work.wait()
        same(cd.cat(tensors), every.sum(0), f"all_reduce in pieces {dtype}")
        assert token.item() == 0
    x = cd.ones(300001)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        work.wait()  # the others make progress with it while they wait for something else
    dist.barrier()
    work.wait()
    assert x.eq(float(size)).all()
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        work.wait()  # and while they make a group
    dist.new_group(list(range(size)))
    work.wait()
    assert x.eq(float(size) ** 2).all()


def infinite(rank: int, size: int) -> None:
    """What float16 cannot hold is infinite, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value, op in ((60000.0, dist.ReduceOp.SUM), (3000.0, dist.ReduceOp.PRODUCT)):
            x = cd.full((3,), value, dtype=cd.float16)
            dist.all_reduce(x, op)
            assert x.isinf().all() or size == 1, (op, x)
        x = cd.full((2,), 3e38)
        dist.all_reduce(x)
        assert x.isinf().all() or size == 1, x


def not_numbers(rank: int, size: int) -> None:
    """NaN of any rank reaches all ranks, whatever their order."""
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        for name in ("MIN", "MAX"):
            for guilty in range(size):
                x = cd.tensor([1.0 + rank, float("nan") if rank == guilty else 2.0])
                x = x.to(getattr(cd, dtype))
                dist.all_reduce(x, getattr(dist.ReduceOp, name))
                assert x[0].item() == (1 if name == "MIN" else size), (dtype, name, x)
                assert x[1].isnan().item() is True, (dtype, name, guilty, x)


def refused(kind: type, call: object) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def copies(rank: int, size: int) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            every = everybody(shape, dtype, size)
            own = value(rank, shape, dtype)
            what = f"{dtype} {shape}"
            b = own.clone()
            dist.broadcast(b, size - 1)
            same(b, every[-1], f"broadcast {what}")
            into = cd.empty((size, *shape), dtype=own.dtype)
            dist.all_gather_into_tensor(into, own)
            same(into, every, f"all_gather_into_tensor {what}")
            out = [cd.zeros_like(own) for _ in range(size)]
            dist.all_gather(out, own)
            same(cd.stack(out), every, f"all_gather {what}")
            out = [cd.zeros_like(own) for _ in range(size)] if rank == 0 else None
            dist.gather(own, out, dst=0)
            if out is not None:
                same(cd.stack(out), every, f"gather {what}")
            t = cd.zeros_like(own)
            dist.scatter(
                t, [value(r + 10, shape, dtype) for r in range(size)] if not rank else None
            )
            same(t, wide(value(rank + 10, shape, dtype)), f"scatter {what}")
            source = [value(rank * size + r, shape, dtype) for r in range(size)]
            came = [cd.zeros_like(own) for _ in range(size)]
            dist.all_to_all(came, source)
            for r in range(size):
                same(came[r], wide(value(r * size + rank, shape, dtype)), f"all_to_all {what}")
            if dtype != "bool":
                total = cd.zeros_like(own)
                dist.reduce_scatter(total, source)
                expected = sum(wide(value(r * size + rank, shape, dtype)) for r in range(size))
                same(total, expected, f"reduce_scatter {what}")
                again = cd.zeros_like(own)
                dist.reduce_scatter_tensor(again, cd.stack(source))
                same(again, expected, f"reduce_scatter_tensor {what}")
    uneven(rank, size)


def uneven(rank: int, size: int) -> None:
    out = [cd.zeros(r + 1, 2) for r in range(size)]
    dist.all_gather(out, cd.full((rank + 1, 2), float(rank)))
    assert all(o.eq(float(r)).all() for r, o in enumerate(out))
    into = [r + rank + 1 for r in range(size)]  # rows for rank r; symmetric
    x = cd.cat([cd.full((n, 3), float(10 * rank + r)) for r, n in enumerate(into)])
    y = cd.empty(sum(into), 3)
    dist.all_to_all_single(y, x, into, into)
    assert [p[0, 0].item() for p in y.split(into)] == [10.0 * r + rank for r in range(size)]


def messages(rank: int, size: int) -> None:
    token = cd.zeros(3)
    if rank == 0:
        for dst in range(1, size):
            dist.send(cd.full((3,), float(dst)), dst)
        seen = {dist.recv(token, tag=5) for _ in range(1, size)}
        assert seen == set(range(1, size))
    else:
        assert dist.recv(token, 0) == 0
        assert token.tolist() == [float(rank)] * 3
        dist.send(token, 0, tag=5)
    right, left = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        got = cd.zeros(2, dtype=cd.bfloat16)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, cd.full((2,), rank, dtype=cd.bfloat16), right),
                dist.P2POp(dist.irecv, got, left),
            ]
        )
        for work in works:
            work.wait()
        assert got.tolist() == [float(left)] * 2
    a, b = cd.ones(40000) * rank, cd.ones(5)
    first, second = dist.all_reduce(a, async_op=True), dist.all_reduce(b, async_op=True)
    assert second.get_future().then(lambda f: f.value()[0].sum()).wait().item() == 5.0 * size
    assert first.wait() and first.is_completed() and first.is_success()
    assert a[0].item() == sum(range(size))
    dist.barrier()
    dist.monitored_barrier()


def objects(rank: int, size: int) -> None:
    got = [None] * size
    dist.all_gather_object(got, {"rank": rank, "text": "x" * rank})
    assert got == [{"rank": r, "text": "x" * r} for r in range(size)]
    there = [rank, "hello" * (rank + 1)]
    dist.broadcast_object_list(there, src=size - 1)
    assert there == [size - 1, "hello" * size]
    collected = [None] * size if rank == 0 else None
    dist.gather_object((rank,), collected)
    assert rank or collected == [(r,) for r in range(size)]
    part = [None]
    dist.scatter_object_list(part, ["a" * r for r in range(size)] if rank == 0 else None)
    assert part == ["a" * rank]
    if rank == 0:
        dist.send_object_list([1, {"k": 2}], size - 1) if size > 1 else None
    elif rank == size - 1:
        box = [None, None]
        assert dist.recv_object_list(box, 0) == 0
        assert box == [1, {"k": 2}]


def groups(rank: int, size: int) -> None:
    last = dist.new_group([size - 1])
    pair = dist.new_group([size - 1, 0]) if size > 1 else dist.new_group()
    if rank == size - 1:
        assert dist.get_rank(last) == 0 and dist.get_world_size(last) == 1
        x = cd.ones(2)
        dist.all_reduce(x, group=last)
        assert x.tolist() == [1.0, 1.0]
    else:
        assert last == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(last) == -1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert dist.all_reduce(cd.ones(2), dist.ReduceOp.MAX, last) is None
            dist.recv_object_list([None], 0, group=last)
        for warning, name in zip(caught, ("all_reduce", "recv_object_list"), strict=True):
            assert f"Running {name} on global rank {rank} which does not" in str(warning.message)
    if rank in (0, size - 1):
        x = cd.tensor([rank])
        dist.broadcast(x, src=size - 1, group=pair)
        assert x.item() == size - 1
        assert dist.get_process_group_ranks(pair) == sorted({0, size - 1})
    mesh = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("dp", "tp"))
    x = cd.ones(1)
    dist.all_reduce(x, group=mesh.get_group("dp"))
    dist.all_reduce(x, group=mesh["tp"].get_group())
    assert x.item() == size
    assert mesh.get_coordinate() == (rank, 0) and mesh["dp"].get_local_rank() == rank
    mine, every = dist.new_subgroups(group_size=1)
    assert len(every) == size and dist.get_process_group_ranks(mine) == [rank]


def derivatives(rank: int, size: int) -> None:
    """The loss is the sum over the ranks; differences are taken in every rank's input in turn."""
    weights = np.random.default_rng(5).standard_normal((size, size, 4))

    def loss(name: str, x: cd.Tensor) -> cd.Tensor:
        w = cd.tensor(weights[rank])
        rows = [x * (i + 1) for i in range(size)]
        if name == "all_reduce":
            return (F.all_reduce(x) ** 2 * w[0]).sum()
        if name == "average":
            return (F.all_reduce(x, dist.ReduceOp.AVG).sin() * w[0]).sum()
        if name == "product":
            return (F.all_reduce(x, dist.ReduceOp.PRODUCT) * w[0]).sum()
        if name == "max":
            return (F.all_reduce(x, dist.ReduceOp.MAX) ** 2 * w[0]).sum()
        if name == "broadcast":
            return (F.broadcast(x, size - 1) ** 3 * w[0]).sum()
        if name == "reduce":
            y = F.reduce(x, 0)
            return (y**2 * w[0]).sum() if rank == 0 else (y * 0).sum()
        if name == "all_gather":
            return (cd.stack(F.all_gather(x)) ** 2 * w).sum()
        if name == "gather":
            return (cd.stack(F.gather(x, size - 1)) ** 2 * w).sum()
        if name == "scatter":
            return (F.scatter(rows, 0) ** 2 * w[0]).sum()
        if name == "reduce_scatter":
            return (F.reduce_scatter(cd.empty(4), rows) ** 2 * w[0]).sum()
        if name == "all_to_all":
            return (
                cd.stack(F.all_to_all([cd.empty(4, dtype=x.dtype)] * size, rows)) ** 2 * w
            ).sum()
        return (F.all_to_all_single(cd.empty(size, 4), cd.stack(rows)) ** 2 * w).sum()

    names = ["all_reduce", "average", "product", "max", "broadcast", "reduce", "all_gather",
             "gather", "scatter", "reduce_scatter", "all_to_all", "all_to_all_single"]  # fmt: skip
    for name in names:
        start = np.random.default_rng([rank, 9]).uniform(0.5, 1.5, 4)
        x = cd.tensor(start, requires_grad=True)
        loss(name, x).backward()
        for r in range(size):
            for i in range(4):
                values = []
                for step in (1e-5, -1e-5):
                    moved = start.copy()
                    moved[i] += step * (r == rank)
                    total = loss(name, cd.tensor(moved)).detach().clone()
                    dist.all_reduce(total)
                    values.append(total.item())
                if r == rank:
                    slope = (values[0] - values[1]) / 2e-5
                    assert abs(x.grad[i].item() - slope) < 1e-5 * (1 + abs(slope)), (name, r, i)


def differing(rank: int, size: int) -> None:
    """Collectives of MPI with other sizes on the last rank: it would say nothing, or little."""
    own, row = cd.ones(3 + (rank == size - 1)), [cd.ones(3) for _ in range(size)]
    rows = [cd.empty_like(own) for _ in range(size)]
    everywhere = [
        lambda: dist.all_gather(rows, own),
        lambda: dist.reduce_scatter(cd.empty_like(own), rows),
        lambda: dist.all_to_all(rows, rows),
    ]
    for call in everywhere:
        refused(dist.DistBackendError, call)
    for call, raising in (
        (lambda: dist.broadcast(own, 0), rank == size - 1),
        (lambda: dist.scatter(own, row if rank == 0 else None, 0), rank == size - 1),
        (lambda: dist.gather(own, rows if rank == 0 else None, 0), rank == 0),
        (lambda: dist.reduce(own, 0), rank == 0),
    ):
        if raising:
            refused(dist.DistBackendError, call)
        else:
            call()
    if rank == 0:
        dist.send(row[0], size - 1)
    elif rank == size - 1:
        refused(dist.DistBackendError, lambda: dist.recv(own, 0))


def check_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in (reductions, long_ones, infinite, not_numbers, copies, messages, objects, groups,
                  derivatives):  # fmt: skip
        check(rank, size)
        dist.barrier()
    if dist.get_backend() == "mpi" and 2 <= size <= 4:  # which says it unasked
        for lengths in ((2, 3), (5, 300000), (300001, 300000)):
            refused(dist.DistBackendError, lambda n=lengths[rank > 0]: dist.all_reduce(cd.ones(n)))
        refused(dist.DistBackendError, lambda: dist.all_reduce(cd.ones(3).to(
            cd.float64 if rank else cd.int64)))  # fmt: skip
        differing(rank, size)
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    x = cd.ones(3)
    dist.all_reduce(x)
    if size > 1:
        refused(dist.DistBackendError, lambda: dist.all_reduce(cd.ones(2 + rank)))
        refused(dist.DistBackendError, lambda: dist.barrier() if rank else dist.all_reduce(x))
    dist.set_debug_level(dist.DebugLevel.OFF)
    engine = dist.group.WORLD.communicators["cpu"].name
    print(f"rank {rank} of {size} over {engine}: all collectives agree")


def spawned(rank: int, size: int, where: str) -> None:
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
    check_all()
    dist.destroy_process_group()


def main() -> None:
    how = sys.argv[1]
    if how == "local":
        dist.threads.spawn(lambda rank: check_all(), nprocs=int(sys.argv[2]))
    elif how == "spawn":
        size = int(sys.argv[2])
        cd.multiprocessing.spawn(spawned, (size, sys.argv[3]), nprocs=size)
    else:
        dist.init_process_group(how)
        check_all()
        dist.destroy_process_group()
    os.sys.stdout.flush()


if __name__ == "__main__":
    main()
