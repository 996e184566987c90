"""Memory, streams, events and pinned memory over the stand-in, whose streams run late."""

from __future__ import annotations

import gc
import os
import re
import threading

import numpy as np
import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd

MIB = 1 << 20


@pytest.fixture
def late(stand_in):
    """The stand-in with work that waits until something synchronizes with it."""
    MACHINE.delay()
    return stand_in


def filled(value, size=4):
    return cd.full((size,), float(value), device="cuda")


# -- blocks ------------------------------------------------------------------------------------


def test_a_freed_block_is_not_used_again_before_the_other_stream_is_done(late):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    x = filled(2)
    side.wait_stream(main)
    with cd.cuda.stream(side):
        y = x * 3
    del x  # y has not been computed
    other = filled(7)
    main.synchronize()
    side.synchronize()
    assert y.cpu().tolist() == [6] * 4
    assert other.cpu().tolist() == [7] * 4


def test_a_block_made_on_a_side_stream_and_read_on_the_main_one_is_kept_too(late):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    with cd.cuda.stream(side):
        y = filled(5)
    main.wait_stream(side)
    z = y + 1
    del y
    with cd.cuda.stream(side):
        over = filled(9)
    side.synchronize()
    assert z.cpu().tolist() == [6] * 4
    assert over.cpu().tolist() == [9] * 4


def test_a_block_is_used_again_once_the_streams_are_done(late):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    x = filled(2)
    place = x.data_ptr()
    side.wait_stream(main)
    with cd.cuda.stream(side):
        y = x * 3
    del x
    stats = cd.cuda.memory_stats()
    assert stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"] == 512
    held = filled(7)
    assert held.data_ptr() != place
    cd.cuda.synchronize()
    again = filled(8)
    assert again.data_ptr() == place
    assert y.cpu().tolist() == [6] * 4


def test_with_one_stream_no_block_waits_and_no_event_is_made(late, monkeypatch):
    made = []
    event = late.cupy.cuda.Event
    monkeypatch.setattr(late.cupy.cuda, "Event", lambda **k: made.append(1) or event(**k))
    x = filled(1)
    place = x.data_ptr()
    del x
    assert filled(2).data_ptr() == place
    with cd.cuda.stream(cd.cuda.Stream()):  # temporaries of one stream, while it is current
        a = filled(1)
        place = a.data_ptr()
        del a
        assert filled(2).data_ptr() == place
    assert not made


def test_streams_that_cannot_be_known_of_are_told(late):
    side = late.cupy.cuda.Stream(non_blocking=True)  # CuPy's own, and nothing is allocated on it
    x, out = filled(2), filled(0)
    cd.cuda.synchronize()
    with side:
        late.cupy.multiply(x.raw, 3, out=out.raw)
    x.record_stream(cd.cuda.Stream.of(side, 0))
    del x
    over = filled(7)
    cd.cuda.current_stream().synchronize()
    side.synchronize()
    assert out.cpu().tolist() == [6] * 4
    assert over.cpu().tolist() == [7] * 4


def test_each_thread_has_a_current_stream_of_its_own(late):
    side, seen = cd.cuda.Stream(), []
    with cd.cuda.stream(side):
        thread = threading.Thread(target=lambda: seen.append(cd.cuda.current_stream()))
        thread.start()
        thread.join()
        assert cd.cuda.current_stream() == side
    assert seen == [cd.cuda.default_stream()]


# -- counts ------------------------------------------------------------------------------------


def test_memory_in_use_and_at_its_peak(stand_in):
    base = cd.cuda.memory_allocated()
    x = cd.zeros(MIB, dtype=cd.uint8, device="cuda")
    assert cd.cuda.memory_allocated() - base == MIB
    assert cd.cuda.max_memory_allocated() >= base + MIB
    del x
    assert cd.cuda.memory_allocated() == base
    assert cd.cuda.memory_reserved() >= MIB
    cd.cuda.reset_peak_memory_stats()
    assert cd.cuda.max_memory_allocated() == base
    stats = cd.cuda.memory_stats()
    assert (
        stats["allocation.all.allocated"] - stats["allocation.all.freed"]
        == (stats["allocation.all.current"])
    )
    for what in ("active", "active_bytes", "allocated_bytes"):
        made, gone = stats[f"{what}.all.allocated"], stats[f"{what}.all.freed"]
        assert made - gone == stats[f"{what}.all.current"]
    assert stats["max_split_size"] == -1 and stats["num_sync_all_streams"] == 0
    assert cd.cuda.memory_stats_as_nested_dict()["reserved_bytes"]["all"]["current"] >= MIB
    cd.cuda.empty_cache()
    assert cd.cuda.memory_reserved() < MIB <= cd.cuda.max_memory_reserved()
    cd.cuda.reset_accumulated_memory_stats()
    stats = cd.cuda.memory_stats()
    for what in COUNTED:
        assert stats[f"{what}.all.allocated"] == stats[f"{what}.all.freed"] == 0
    assert "Allocated memory" in cd.cuda.memory_summary()
    assert "Tot Freed" not in cd.cuda.memory_summary(abbreviated=True)
    assert cd.cuda.mem_get_info()[1] == MACHINE.capacity
    assert cd.accelerator.max_memory_allocated() == cd.cuda.max_memory_allocated()


COUNTED = ("active", "active_bytes", "allocated_bytes", "allocation", "requested_bytes")


def test_each_count_has_what_there_is_its_peak_and_its_totals(late):
    cd.cuda.reset_peak_memory_stats()
    cd.cuda.reset_accumulated_memory_stats()
    before = cd.cuda.memory_stats()
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    x = cd.zeros(700, dtype=cd.uint8, device="cuda")
    y = cd.zeros(300, dtype=cd.uint8, device="cuda")
    side.wait_stream(main)
    with cd.cuda.stream(side):
        kept = cd.zeros(100, dtype=cd.uint8, device="cuda")
    del x  # the side stream may still work with it
    stats = cd.cuda.memory_stats()

    def grown(name):
        return stats[name] - before[name]

    blocks = {"allocated": 3, "current": 2, "freed": 1, "peak": 3}
    for last, number in blocks.items():
        assert grown(f"allocation.all.{last}") == number
    for last, number in {"allocated": 2048, "current": 1024, "freed": 1024, "peak": 2048}.items():
        assert grown(f"allocated_bytes.all.{last}") == number
    for last, number in {"allocated": 1100, "current": 400, "freed": 700, "peak": 1100}.items():
        assert grown(f"requested_bytes.all.{last}") == number
    for last, number in {"allocated": 3, "current": 3, "freed": 0, "peak": 3}.items():
        assert grown(f"active.all.{last}") == number
    for last, number in {"allocated": 2048, "current": 2048, "freed": 0, "peak": 2048}.items():
        assert grown(f"active_bytes.all.{last}") == number
    rest = stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"]
    assert stats["inactive_bytes.all.current"] == rest
    cd.cuda.synchronize()
    stats = cd.cuda.memory_stats()
    assert grown("active_bytes.all.current") == 1024 and grown("active.all.freed") == 1
    cd.cuda.reset_peak_memory_stats()
    stats = cd.cuda.memory_stats()
    for what in COUNTED:
        assert stats[f"{what}.all.peak"] == stats[f"{what}.all.current"]
    del y, kept


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("segment.all.current", "asks the driver"),
        ("num_device_alloc", "asks the driver"),
        ("reserved_bytes.all.freed", "asks the driver"),
        ("inactive_split_bytes.all.peak", "inactive_bytes.all.current"),
        ("allocated_bytes.large_pool.current", "one for all sizes"),
        ("nothing", "^'nothing'$"),
    ],
)
def test_what_the_pool_does_not_tell_is_not_there_and_says_why(stand_in, name, reason):
    stats = cd.cuda.memory_stats()
    assert name not in stats and stats.get(name) is None
    with pytest.raises(KeyError, match=reason):
        stats[name]


def test_devices_are_counted_apart(stand_in):
    if stand_in.device_count() < 2:
        pytest.skip("the stand-in has one device here")
    before = cd.cuda.memory_allocated(0), cd.cuda.memory_allocated(1)
    x = cd.zeros(MIB, dtype=cd.uint8, device="cuda:1")
    assert cd.cuda.memory_allocated("cuda:1") == before[1] + MIB
    assert cd.cuda.memory_allocated("cuda:0") == before[0]
    del x


def test_an_exhausted_device_says_who_holds_what_and_what_helps(stand_in):
    model = cd.nn.Linear(1024, 1024, device="cuda")
    model(cd.ones(1, 1024, device="cuda")).sum().backward()
    kept = [cd.zeros(6 * MIB, device="cuda") for _ in range(2)]
    before = cd.cuda.memory_allocated()
    with pytest.raises(cd.cuda.OutOfMemoryError) as caught:
        cd.zeros(25 * MIB, device="cuda")
    text = str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    for part in (
        r"CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 64",
        r"parameters 4.00 MiB; gradients 4.00 MiB; 2 x float32\[6291456\] 48.00 MiB",
        r"fix: use smaller batches",
    ):
        assert re.search(part, text), (part, text)
    assert cd.cuda.memory_allocated() == before
    assert cd.cuda.memory_stats()["num_ooms"] == 1
    del kept
    cd.cuda.set_per_process_memory_fraction(0.25)
    try:
        with pytest.raises(
            cd.cuda.OutOfMemoryError, match=r"allows 16.00 MiB[\s\S]*allow more with"
        ):
            cd.zeros(5 * MIB, device="cuda")
    finally:
        cd.cuda.set_per_process_memory_fraction(1.0)


def test_memory_that_streams_keep_is_waited_for_before_the_device_is_exhausted(late):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    x = cd.zeros(10 * MIB, device="cuda")
    side.wait_stream(main)
    with cd.cuda.stream(side):
        y = x[:1] + 1
    del x
    again = cd.zeros(10 * MIB, device="cuda")
    assert cd.cuda.memory_stats()["num_alloc_retries"] == 1
    assert "Event.synchronize" in MACHINE.syncs
    assert y.cpu().tolist() == [1]
    del again


def test_an_allocator_that_the_program_has_set_stays(stand_in):
    import coredispatch_cuda_cupy as plugin

    cuda = stand_in.cupy.cuda
    own = cuda.MemoryPool()
    cuda.set_allocator(own.malloc)
    other = plugin.CudaBackend(plugin.Detection(stand_in.cupy, 1))
    assert not other.owns_memory and cuda.get_allocator() == own.malloc
    with pytest.raises(cd.plugin.ArgumentError, match="set CuPy's allocator itself"):
        other.memory_statistics(0)


def test_pools_apart_from_the_rest(stand_in):
    pool = cd.cuda.MemPool()
    with cd.cuda.use_mem_pool(pool):
        x = cd.ones(4, device="cuda")
    place = x.data_ptr()
    del x
    assert all(cd.ones(4, device="cuda").data_ptr() != place for _ in range(3))
    with cd.cuda.use_mem_pool(pool):
        assert cd.ones(4, device="cuda").data_ptr() == place
    assert pool.use_count() == 1
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g, pool=pool.id, stream=cd.cuda.Stream()):
        y = cd.zeros(4, device="cuda") + 1
    assert pool.use_count() == 2
    before = cd.cuda.memory_reserved()
    del y, pool
    g.reset()
    assert cd.cuda.memory_reserved() < before
    with pytest.raises(NotImplementedError, match="comes from CuPy"):
        cd.cuda.MemPool(object())


def test_blocks_by_their_addresses(stand_in):
    before = cd.cuda.memory_allocated()
    side = cd.cuda.Stream()
    places = [cd.cuda.caching_allocator_alloc(1000, stream=s) for s in (None, side, side.raw.ptr)]
    assert len(set(places)) == 3 and cd.cuda.memory_allocated() == before + 3 * 1024
    for place in places:
        cd.cuda.caching_allocator_delete(place)
    cd.cuda.synchronize()
    assert cd.cuda.memory_allocated() == before
    with pytest.raises(ValueError, match="no block at"):
        cd.cuda.caching_allocator_delete(places[0])


# -- streams and events ------------------------------------------------------------------------


def test_events_order_streams_and_take_the_time(late):
    side, start, end = cd.cuda.Stream(), cd.cuda.Event(True), cd.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    x = filled(1)
    side.wait_event(cd.cuda.current_stream().record_event())
    with cd.cuda.stream(side):
        y = x + 1
        end.record()
    with pytest.raises(ValueError, match="must be completed"):
        start.elapsed_time(end)
    assert not end.query() and not side.query()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0
    assert y.raw.view(np.ndarray).tolist() == [2] * 4
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(cd.cuda.Event())
    with side:
        assert cd.cuda.current_stream() == side
    assert cd.cuda.current_stream() == cd.cuda.default_stream()


def test_streams_of_other_libraries(stand_in):
    other = stand_in.cupy.cuda.Stream(non_blocking=True)
    stream = cd.cuda.ExternalStream(other.ptr)
    assert stream.cuda_stream == other.ptr == cd.cuda.get_stream_from_external(other.ptr).raw.ptr
    with cd.cuda.stream(stream):
        assert cd.cuda.current_stream().cuda_stream == other.ptr
        x = cd.ones(2, device="cuda") + 1
    stream.synchronize()
    assert x.tolist() == [2, 2]


def test_streams_are_made_once_and_given_in_turn(stand_in):
    streams = [cd.cuda.Stream() for _ in range(33)]
    assert streams[0] == streams[32] and len(set(streams)) == 32
    if stand_in.cupy.__version__ >= "14":
        assert cd.cuda.Stream.priority_range() == (0, -5)
    assert cd.cuda.Stream(priority=-1).raw.priority == -1
    assert cd.cuda.Stream(priority=-1) not in streams


# -- copies ------------------------------------------------------------------------------------


def test_pinned_memory(stand_in):
    x = cd.arange(4.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.pin_memory() is pinned and pinned[1:].is_pinned()
    assert pinned.untyped_storage().is_pinned() and x.untyped_storage().pin_memory().is_pinned()
    assert pinned.tolist() == x.tolist() and not pinned.requires_grad
    assert cd.zeros(3, pin_memory=True).is_pinned() and cd.tensor([1], pin_memory=True).is_pinned()
    assert cd.tensor([1.5, 2], dtype=cd.bfloat16).pin_memory().tolist() == [1.5, 2]
    with pytest.raises(cd.OpError, match="only dense CPU tensors"):
        x.to("cuda").pin_memory()


def test_copies_from_pinned_memory_wait_only_when_asked_to(late):
    host = cd.arange(4.0).pin_memory()
    MACHINE.syncs.clear()
    x = host.to("cuda", non_blocking=True)
    assert MACHINE.syncs == []
    assert x.raw.view(np.ndarray).tolist() != [0, 1, 2, 3]  # it has not been copied
    cd.cuda.current_stream().synchronize()
    assert x.raw.view(np.ndarray).tolist() == [0, 1, 2, 3]
    MACHINE.syncs.clear()
    y = host.to("cuda")
    host.zero_()
    assert y.cpu().tolist() == [0, 1, 2, 3]
    assert "Stream.synchronize" in MACHINE.syncs
    z = cd.arange(4.0).to("cuda")  # staged: the tensor may go at once
    assert z.cpu().tolist() == [0, 1, 2, 3]
    MACHINE.syncs.clear()
    large = cd.arange(5 << 20).float()
    there = large.to("cuda", non_blocking=True)
    large.zero_()
    assert MACHINE.syncs == ["copy from pageable memory"]
    assert there[-1].item() == (5 << 20) - 1


def test_pinned_memory_is_not_used_again_before_the_copy_is_done(late):
    host = cd.arange(4.0).pin_memory()
    x = host.to("cuda", non_blocking=True)
    del host
    other = cd.full((4,), 9.0).pin_memory()
    assert x.cpu().tolist() == [0, 1, 2, 3]
    del other
    late.pinned.release()
    assert cd.full((4,), 8.0).pin_memory().is_pinned()


def test_copies_to_main_memory_that_do_not_wait(late):
    x = filled(3) + 0.125
    MACHINE.syncs.clear()
    host = x.to("cpu", non_blocking=True)
    assert host.is_pinned() and MACHINE.syncs == []
    assert host.tolist() != [3.125] * 4
    cd.cuda.current_stream().synchronize()
    assert host.tolist() == [3.125] * 4
    assert x.t().to("cpu", non_blocking=True).shape == (4,)
    assert cd.zeros(0, device="cuda").to("cpu", non_blocking=True).shape == (0,)


def test_copies_into_pinned_memory_that_do_not_wait(late):
    host, x = cd.zeros(4).pin_memory(), filled(3) + 0.25
    MACHINE.syncs.clear()
    version = host._version
    assert host.copy_(x, non_blocking=True) is host
    assert MACHINE.syncs == [] and host.tolist() == [0] * 4 and host._version > version
    cd.cuda.current_stream().synchronize()
    assert host.tolist() == [3.25] * 4
    plain, wide = cd.zeros(4), cd.zeros(2, 4).pin_memory()
    for target in (plain, wide, cd.zeros(4, dtype=cd.float64).pin_memory(), wide[:, 0][:1]):
        target.copy_(x if target.ndim == 2 or len(target) == 4 else x[:1], non_blocking=True)
        assert target.flatten()[-1].item() == 3.25  # no such place: it waited
    weight = cd.ones(4, device="cuda", requires_grad=True)
    host = cd.zeros(4).pin_memory().copy_(weight * 2, non_blocking=True)
    host.sum().backward()
    assert weight.grad.tolist() == [2] * 4


def test_a_loader_pins_its_batches(stand_in):
    dataset = cd.utils.data.TensorDataset(cd.arange(6.0), cd.arange(6))
    for x, y in cd.utils.data.DataLoader(dataset, batch_size=3, pin_memory=True):
        assert x.is_pinned() and y.is_pinned()
        assert x.to("cuda", non_blocking=True).cpu().tolist() == x.tolist()


class Numbered(cd.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return Recorded(index)


class Recorded:
    """Says in which thread it was pinned, and on which device."""

    def __init__(self, index, where=None):
        self.index, self.where = index, where

    def pin_memory(self):
        if self.index == 99:
            raise OSError("cannot be pinned")
        return Recorded(self.index, (threading.current_thread().name, cd.cuda.current_device()))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_with_workers_pins_in_a_thread(stand_in, persistent):
    device = cd.cuda.device_count() - 1
    loader = cd.utils.data.DataLoader(
        Numbered(), None, num_workers=2, pin_memory=True, persistent_workers=persistent
    )
    with cd.cuda.device(device):
        for _ in range(2):
            batches = list(loader)
            assert [x.index for x in batches] == list(range(8))
            assert {x.where for x in batches} == {("DataLoader receiver", device)}
            next(iter(loader))  # a pass that is given up
    data = cd.utils.data.TensorDataset(cd.arange(40.0).reshape(8, 5))
    for (batch,) in cd.utils.data.DataLoader(data, 4, num_workers=1, pin_memory=True):
        assert batch.is_pinned()
    del loader
    gc.collect()
    assert "DataLoader receiver" not in [thread.name for thread in threading.enumerate()]


def test_what_cannot_be_pinned_in_the_thread_is_raised_here(stand_in):
    data = [Recorded(0), Recorded(99), Recorded(1)]
    loader = cd.utils.data.DataLoader(data, None, num_workers=1, pin_memory=True)
    batches = iter(loader)
    assert next(batches).index == 0
    with pytest.raises(OSError, match="cannot be pinned") as failed:
        next(batches)
    assert "thread that pins memory" in failed.value.__notes__[0]
    assert next(batches).index == 1


def test_workers_that_die_or_hang_beside_a_thread_that_pins(stand_in):
    class Hangs:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            if index:
                os._exit(3)
            return index

    loader = cd.utils.data.DataLoader(Hangs(), None, num_workers=1, pin_memory=True)
    with pytest.raises(RuntimeError, match="exited with code 3 without an answer"):
        list(loader)

    class Waits(Hangs):
        def __getitem__(self, index):
            return threading.Event().wait()

    loader = cd.utils.data.DataLoader(Waits(), None, num_workers=1, pin_memory=True, timeout=0.2)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        list(loader)


def test_copies_between_devices_order_both_streams(late):
    if late.device_count() < 2:
        pytest.skip("the stand-in has one device here")
    x = filled(3)
    MACHINE.syncs.clear()
    there = x.to("cuda:1")
    del x
    over = filled(9)
    assert MACHINE.syncs == []
    assert there.cpu().tolist() == [3] * 4
    assert over.cpu().tolist() == [9] * 4
    wide = cd.ones(3, 2, device="cuda").t()
    assert wide.to("cuda:1").cpu().tolist() == wide.cpu().tolist()


def test_what_lies_on_a_device_is_not_pinned(stand_in):
    for make in (
        lambda: cd.zeros(3, device="cuda", pin_memory=True),
        lambda: cd.tensor([1.0], device="cuda", pin_memory=True),
        lambda: cd.ones(2, device="cuda").pin_memory(),
    ):
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            make()
    assert cd.zeros(3, device="meta", pin_memory=True).is_meta
