"""``cd.cuda.nccl``: NCCL over several devices of one process, two of them in the stand-in."""

from __future__ import annotations

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd

nccl = cd.cuda.nccl
pytestmark = pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True)


def on_each(values, dtype=cd.float32):
    return [cd.tensor(x, dtype=dtype, device=k) for k, x in enumerate(values)]


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64, cd.float16, cd.int64, cd.uint8], ids=str)
def test_collectives(stand_in, dtype):
    MACHINE.delay()
    xs = on_each([[1, 2], [5, 3]], dtype)
    outs = on_each([[0, 0], [0, 0]], dtype)
    nccl.all_reduce(xs, outs)
    nccl.reduce(xs, cd.zeros(2, dtype=dtype, device=1), root=1)
    assert [x.tolist() for x in outs] == [[6, 5]] * 2
    for op, wanted in ((1, [5, 6]), (2, [5, 3]), (3, [1, 2])):
        nccl.all_reduce(xs, outs, op=op)
        assert [x.tolist() for x in outs] == [wanted] * 2
    into = cd.zeros(2, dtype=dtype, device=1)
    nccl.reduce(xs, into, root=1)
    assert into.tolist() == [6, 5]
    assert [x.tolist() for x in xs] == [[1, 2], [5, 3]]
    every = on_each([[0] * 4] * 2, dtype)
    nccl.all_gather(xs, every)
    assert [x.tolist() for x in every] == [[1, 2, 5, 3]] * 2
    parts = on_each([[0], [0]], dtype)
    nccl.reduce_scatter(xs, parts)
    assert [x.tolist() for x in parts] == [[6], [5]]
    nccl.broadcast(xs, root=1)
    assert [x.tolist() for x in xs] == [[5, 3]] * 2
    nccl.all_reduce(xs)
    assert [x.tolist() for x in xs] == [[10, 6]] * 2
    nccl.reduce(xs, root=0)
    assert [x.tolist() for x in xs] == [[20, 12], [10, 6]]


def test_calls_are_on_the_current_streams_and_wait_for_nothing(stand_in):
    MACHINE.delay()
    xs = on_each([[1.0], [2.0]])
    sides = [cd.cuda.Stream(k) for k in range(2)]
    for side in sides:
        side.wait_stream(cd.cuda.current_stream(side.device))
    MACHINE.syncs.clear()
    nccl.all_reduce(xs, streams=sides)
    nccl.all_reduce(xs, streams=[None, sides[1]])  # behind the first one
    assert not MACHINE.syncs
    for side in sides:
        cd.cuda.current_stream(side.device).wait_stream(side)
    assert [x.tolist() for x in xs] == [[6.0]] * 2


def test_what_is_written_counts_as_written(stand_in):
    xs = on_each([[1.0], [2.0]])
    x = xs[0].requires_grad_()
    y = x * x
    with cd.no_grad():
        nccl.broadcast([x.detach(), xs[1]], root=1)
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


def test_tensors_that_do_not_go_together_are_refused(stand_in):
    a, b = on_each([[1.0, 2.0], [5.0, 3.0]])
    cases = (
        (TypeError, "Inputs should be a collection of tensors", lambda: nccl.all_reduce(a)),
        (ValueError, "inputs is empty", lambda: nccl.all_reduce([])),
        (ValueError, r"inputs\[1\] is on cuda:0", lambda: nccl.all_reduce([a, a])),
        (ValueError, "no dense tensor on a CUDA", lambda: nccl.all_reduce([a, b.cpu()])),
        (ValueError, "not contiguous", lambda: nccl.all_reduce([a, cd.ones(4, device=1)[::2]])),
        (TypeError, "is cd.float64", lambda: nccl.all_reduce([a, b.double()])),
        (ValueError, "3 elements, and 2", lambda: nccl.all_reduce([a, cd.ones(3, device=1)])),
        (ValueError, "outputs on cuda:1, cuda:0", lambda: nccl.all_reduce([a, b], [b, a])),
        (ValueError, "no operation 9", lambda: nccl.all_reduce([a, b], op=9)),
        (ValueError, "root 2 is none of 2", lambda: nccl.broadcast([a, b], root=2)),
        (ValueError, "outputs.0. has 2 elements, and 4", lambda: nccl.all_gather([a, b], [a, b])),
        (ValueError, "1 streams for 2", lambda: nccl.broadcast([a, b], streams=[None])),
        (TypeError, "no complex64", lambda: nccl.broadcast(on_each([[1], [2]], cd.complex64))),
        (ValueError, "can not be both", lambda: nccl.reduce([a, b], a, outputs=[a, b])),
        (ValueError, "no rank 2 of 2", lambda: nccl.init_rank(2, nccl.unique_id(), 2)),
    )
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    with pytest.warns(FutureWarning, match="list is deprecated"):
        nccl.reduce([a, b], [a, b], root=1)
    assert b.tolist() == [6, 5]


def test_what_nccl_is_asked(stand_in, monkeypatch):
    a, b = on_each([[1.0], [2.0]])
    assert nccl.is_available([a, b])
    assert nccl.version() == (2, 27, 3)
    for tensors in ([a, a], [a, b.cpu()], [a, cd.ones(4, device=1)[::2]]):
        assert not nccl.is_available(tensors)
    uid = nccl.unique_id()
    assert isinstance(uid, bytes)
    assert (len(uid), uid != nccl.unique_id()) == (128, True)
    assert nccl.init_rank(1, uid, 0).size == 1
    monkeypatch.setattr(stand_in.cupy.cuda.nccl, "available", False)
    assert not nccl.is_available([a, b])
    with pytest.raises(RuntimeError, match="CuPy has no NCCL"):
        nccl.all_reduce([a, b])
