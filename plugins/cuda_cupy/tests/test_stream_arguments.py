"""Streams, events and pools: what they are told, and what is refused."""

from __future__ import annotations

import threading

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch import nn


def test_threads_that_make_streams_at_once_get_different_ones(stand_in, monkeypatch):
    usual, found = stand_in.cupy.cuda.Stream, []

    def make(*args, **kwargs):
        # While the driver makes a stream other threads run: none of them may count meanwhile.
        assert stand_in.streams._lock.locked()
        return usual(*args, **kwargs)

    monkeypatch.setattr(stand_in.cupy.cuda, "Stream", make)
    threads = [threading.Thread(target=lambda: found.append(cd.cuda.Stream())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stream.cuda_stream for stream in found}) == 4


def test_the_current_stream_knows_its_priority(stand_in):
    high = cd.cuda.Stream(priority=-1)
    with high:
        assert cd.cuda.current_stream() == high
        assert cd.cuda.current_stream().priority == -1
    assert cd.cuda.current_stream().priority == cd.cuda.default_stream().priority == 0


def test_what_is_no_stream_or_event_is_refused_by_name(stand_in):
    stream, x = cd.cuda.Stream(), cd.ones(2, device="cuda")
    calls = (
        ("record_stream takes a Stream, got 3 of type int", lambda: x.record_stream(3)),
        ("wait_stream takes a Stream, got None", lambda: stream.wait_stream(None)),
        ("wait_event takes an Event, got", lambda: stream.wait_event(stream)),
    )
    for text, call in calls:
        with pytest.raises(cd.DTypeError, match=text):
            call()


def test_an_event_that_moves_to_another_device_stays_what_it_is(stand_in, monkeypatch):
    made = []
    monkeypatch.setattr(
        stand_in, "make_event", lambda *args: made.append(args) or stand_in.cupy.cuda.Event()
    )
    last = cd.cuda.device_count() - 1
    event = cd.cuda.Event(blocking=True)
    event.record(cd.cuda.current_stream(last))
    assert made == [(False, True)] * (1 + last)
    assert event.device == cd.device("cuda", last)


def test_options_that_no_pool_or_graph_has_are_refused(stand_in):
    for name in ("use_on_oom", "no_split"):
        with pytest.raises(NotImplementedError, match=f"{name}=True"):
            cd.cuda.MemPool(**{name: True})
    with pytest.raises(TypeError):
        cd.cuda.MemPool(nonsense=True)
    with pytest.raises(NotImplementedError, match="external=True"):
        cd.cuda.Event(external=True)
    with pytest.raises(NotImplementedError, match="enable_annotations=True"):
        cd.cuda.graph(cd.cuda.CUDAGraph(), enable_annotations=True)
    with pytest.raises(NotImplementedError, match="check_input_liveness=True"):
        with cd.cuda.graph(cd.cuda.CUDAGraph(), check_input_liveness=True):
            raise AssertionError("the block is not entered")
    assert not cd.cuda.is_current_stream_capturing()
    with pytest.raises(NotImplementedError, match=r"cublas_workspace_size\(size\)"):
        cd.backends.cuda.blas_workspace_size(1 << 20)
    assert cd.backends.cuda.blas_workspace_size(backend="cublaslt") == 0
    with pytest.raises(RuntimeError, match="Unknown backend string"):
        cd.backends.cuda.blas_workspace_size(backend="mkl")


def test_each_graphed_callable_has_its_sample_arguments(stand_in):
    x = cd.ones(1, 2, device="cuda")
    layers = nn.Linear(2, 2).to("cuda"), nn.Linear(2, 2).to("cuda")
    with pytest.raises(cd.ArgumentError, match="for each of 2 callables, got tuple of 1"):
        cd.cuda.make_graphed_callables(layers, ((x,),))


def test_threads_enter_and_leave_one_stream_by_themselves(stand_in):
    side, other = cd.cuda.Stream(), cd.cuda.Stream()
    inside, outside = threading.Event(), threading.Event()
    found, last = [], cd.cuda.device_count() - 1

    def work():
        cd.cuda.set_device(last)
        with side:
            inside.set()
            outside.wait()
            with other:
                found.append(cd.cuda.current_stream() == other)
            found.append(cd.cuda.current_stream() == side)
        found.append(cd.cuda.current_device() == last)

    thread = threading.Thread(target=work)
    with side:
        thread.start()
        inside.wait()
    here = cd.cuda.current_stream() == cd.cuda.default_stream(), cd.cuda.current_device()
    outside.set()
    thread.join()
    assert here == (True, 0)
    with side, other, side:
        assert cd.cuda.current_stream() == side
    assert cd.cuda.current_stream() == cd.cuda.default_stream()
    assert found == [True] * 3


def test_a_backward_pass_waits_for_the_streams_of_the_forward_pass(stand_in):
    """As in PyTorch, where each step runs on the stream of the forward pass."""
    MACHINE.delay()
    w = cd.full((4,), 2.0, device="cuda", requires_grad=True)
    x = cd.full((4,), 3.0, device="cuda")
    for way in (lambda loss: loss.backward(), lambda loss: cd.autograd.grad(loss, w)[0]):
        side, more = cd.cuda.Stream(), cd.cuda.Stream()
        side.wait_stream(cd.cuda.current_stream())
        w.grad = None
        with side:
            y = w * x
        more.wait_stream(side)
        with more:
            loss = (y * w).sum()
        MACHINE.syncs.clear()
        found = way(loss)
        assert not MACHINE.syncs
        assert (w.grad if found is None else found).tolist() == [12] * 4


def test_a_backward_pass_in_a_graph_waits_for_what_is_captured(stand_in):
    MACHINE.delay()
    w = cd.full((4,), 2.0, device="cuda", requires_grad=True)
    with cd.cuda.Stream():
        w * 2  # a stream that the graph knows nothing of
    side, g = cd.cuda.Stream(), cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        side.wait_stream(cd.cuda.current_stream())
        with side:
            loss = (w * w * w).sum()
        (found,) = cd.autograd.grad(loss, w)
    g.replay()
    assert found.tolist() == [12] * 4
