"""The stand-in itself: what a device would do wrong, it does wrong too, each time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy_stand_in import MACHINE, make_cupy
from stand_in_streams import CUDARuntimeError


@pytest.fixture
def cupy():
    made, _ = make_cupy(2, "14.2.0")
    MACHINE.delay()
    return made


def test_work_runs_when_something_waits_for_it_and_not_before(cupy):
    side, x = cupy.cuda.Stream(non_blocking=True), cupy.asarray([1.0, 2.0])
    event = cupy.cuda.Event()
    with side:
        y = x + 1
        event.record()
    assert not event.done and not side.done
    assert np.isnan(cupy.asnumpy(y)).all()  # the null stream waited, the other did not
    event.synchronize()
    assert event.done and side.done
    assert cupy.asnumpy(y).tolist() == [2, 3]
    assert MACHINE.syncs == ["ndarray.get", "Event.synchronize", "ndarray.get"]


def test_a_stream_that_does_not_wait_reads_memory_that_was_not_written(cupy):
    side = cupy.cuda.Stream(non_blocking=True)
    x = cupy.asarray([1.0, 2.0])
    with side:
        early = (x * 2).get()
        side.wait_event(cupy.cuda.Stream.null.record())
        late = (x * 2).get()
    assert np.isnan(early).all()
    assert late.tolist() == [2, 4]


def test_a_blocking_stream_waits_for_the_null_stream_by_itself(cupy):
    x = cupy.asarray([1.0, 2.0])
    with cupy.cuda.Stream():
        assert (x * 2).get().tolist() == [2, 4]


def test_a_block_that_is_handed_out_again_too_early_is_overwritten(cupy):
    side, main = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.null
    x = cupy.asarray([1.0, 2.0])
    with side:
        side.wait_event(main.record())
        y = x * 2
    del x  # the other stream has not read it yet
    other = cupy.asarray([7.0, 7.0])
    main.synchronize()
    side.synchronize()
    assert y.get().tolist() == [14, 14]
    del other


def test_views_share_memory_also_in_calls_that_wait(cupy):
    x = cupy.zeros((2, 3))
    x.T[1:] += 1
    x.reshape(6)[0] = 5
    assert x.get().tolist() == [[5, 1, 1], [0, 1, 1]]
    assert x.T.base is x and x[1:].data.ptr == x.data.ptr + 24


def test_a_graph_runs_what_was_captured_with_the_memory_of_then(cupy):
    stream, x = cupy.cuda.Stream(non_blocking=True), cupy.asarray([1.0, 2.0])
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        y = x * 2
        y += 1
        for refused in (lambda: y.get(), lambda: cupy.asarray([3.0]), stream.synchronize):
            with pytest.raises(RuntimeError, match=r"captur"):
                refused()
        graph = stream.end_capture()
        assert np.isnan(y.get()).all()
        x.set(np.array([10.0, 20.0]))
        graph.launch()
        graph.launch()
        assert y.get().tolist() == [21, 41]
    with pytest.raises(RuntimeError, match="default"):
        cupy.cuda.Stream.null.begin_capture()


def test_memory_is_limited_and_counted(cupy):
    pool = cupy.get_default_memory_pool()
    x = cupy.empty(1000, np.uint8)
    assert (pool.used_bytes(), pool.total_bytes()) == (1024, 1024)
    del x
    assert (pool.used_bytes(), pool.free_bytes(), pool.n_free_blocks()) == (0, 1024, 1)
    pool.set_limit(size=2048)
    with pytest.raises(MemoryError, match="4,096"):
        cupy.empty(4096, np.uint8)
    assert pool.total_bytes() == 0
    with pytest.raises(CUDARuntimeError, match="out of memory"):
        cupy.cuda.Memory(MACHINE.capacity + 1)
    with cupy.cuda.Device(1), pytest.raises(RuntimeError, match="does not match"):
        cupy.cuda.Stream().use()
        with cupy.cuda.Device(0):
            cupy.cuda.get_current_stream(1).use()


def test_pinned_memory_is_copied_in_the_order_of_the_stream(cupy):
    import stand_in_memory as memory

    host = memory.empty_pinned((2,), np.float64)
    host[:] = [1, 2]
    x = cupy.empty(2)
    MACHINE.syncs.clear()
    x.set(host)
    host[:] = [3, 4]  # too early: nothing has been copied
    back = memory.empty_pinned((2,), np.float64)
    x.get(out=back, blocking=False)
    assert MACHINE.syncs == []
    cupy.cuda.Stream.null.synchronize()
    assert back.tolist() == [3, 4]
