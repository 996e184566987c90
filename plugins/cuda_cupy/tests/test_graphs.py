"""CUDA graphs over the stand-in: a capture records calls, a replay runs them."""

from __future__ import annotations

import gc
import threading

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch import nn


@pytest.fixture(autouse=True)
def own_capture_stream(monkeypatch):
    monkeypatch.setattr(cd.cuda.graph, "default_capture_stream", None)


def test_a_replay_reads_and_writes_the_memory_of_the_capture(stand_in):
    MACHINE.delay()
    x = cd.tensor([1.0, 2.0], device="cuda")
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        assert cd.cuda.is_current_stream_capturing()
        y = (x * 2).relu() + 1
    assert not cd.cuda.is_current_stream_capturing()
    for values in ([3.0, 4.0], [-5.0, 6.0]):
        x.copy_(cd.tensor(values))
        g.replay()
        assert y.tolist() == [max(2 * v, 0) + 1 for v in values]


def test_temporaries_of_a_graph_are_nobody_elses(stand_in):
    x = cd.ones(4, device="cuda")
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y = (x + 1) * 3
    others = [cd.full((4,), 9.0, device="cuda") for _ in range(8)]
    g.replay()
    assert y.tolist() == [6] * 4
    assert all(other.tolist() == [9] * 4 for other in others)
    held = cd.cuda.memory_reserved()
    del y
    g.reset()
    assert cd.cuda.memory_reserved() < held


def test_graphs_share_a_pool_by_its_handle(stand_in):
    x = cd.ones(4, device="cuda")
    first, second = cd.cuda.CUDAGraph(), cd.cuda.CUDAGraph()
    handle = cd.cuda.graph_pool_handle()
    with cd.cuda.graph(first, pool=handle):
        y = (x + 1) * 2
    with cd.cuda.graph(second, pool=first.pool()):
        z = y - 1
    assert first.pool() == second.pool() == handle != cd.cuda.graph_pool_handle()
    first.replay()
    second.replay()
    assert z.tolist() == [3] * 4


def step_of(model, optimizer, x, y):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


OPTIMIZERS = {
    "sgd": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: cd.optim.Adam(p, lr=0.05, capturable=True),
    "adamw": lambda p: cd.optim.AdamW(p, lr=0.05, capturable=True, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step_is_captured(stand_in, name):
    losses, weights = [], []
    data = [cd.randn(8, 3) for _ in range(6)]
    for graphed in (False, True):
        cd.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to("cuda")
        optimizer = OPTIMIZERS[name](model.parameters())
        x, y = cd.zeros(8, 3, device="cuda"), cd.zeros(8, 1, device="cuda")
        step, found = step_of(model, optimizer, x, y), []
        side = cd.cuda.Stream()
        with cd.cuda.stream(side):
            for _ in range(2):
                step()
        cd.cuda.current_stream().wait_stream(side)
        g = cd.cuda.CUDAGraph()
        if graphed:
            with cd.cuda.graph(g):
                loss = step()
        for batch in data:
            x.copy_(batch)
            y.copy_(batch.sum(1, keepdim=True))
            if graphed:
                g.replay()
            else:
                loss = step()
            found.append(loss.item())
        losses.append(found)
        weights.append([p.cpu() for p in model.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    # Products of the host depend on where operands lie, by one unit.
    cd.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    assert losses[0][-1] != losses[0][0]


def test_a_scaled_step_is_captured_with_its_overflows(stand_in):
    weight = nn.Parameter(cd.ones(2, device="cuda"))
    optimizer = cd.optim.Adam([weight], lr=0.1, capturable=True)
    scaler = cd.amp.GradScaler("cuda", init_scale=8.0, growth_interval=100)
    x = cd.ones(2, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale((weight * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step()
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        step()
    before = weight.tolist()
    x.fill_(float("inf"))
    g.replay()
    assert weight.tolist() == before and scaler.get_scale() == 4.0
    x.fill_(1.0)
    g.replay()
    assert weight.tolist() != before and scaler.get_scale() == 4.0


def test_an_optimizer_that_keeps_numbers_on_the_host_is_refused(stand_in):
    weight = nn.Parameter(cd.ones(2, device="cuda"))
    weight.grad = cd.ones(2, device="cuda")
    for make, reason in (
        (cd.optim.Adam, "for an instance of Adam but param_groups' capturable is False"),
        (cd.optim.NAdam, "NAdam but it keeps numbers on the host"),
    ):
        optimizer = make([weight])
        with pytest.raises(RuntimeError, match=reason), cd.cuda.graph(cd.cuda.CUDAGraph()):
            optimizer.step()
        optimizer.step()


def test_random_numbers_go_on_from_replay_to_replay(on_host):
    cd.manual_seed(0)
    x, own = cd.ones(64, device="cuda"), cd.Generator("cuda").manual_seed(3)
    with pytest.raises(cd.OpError, match="draw a number with it before"):
        with cd.cuda.graph(cd.cuda.CUDAGraph()):
            cd.rand(4, device="cuda", generator=own)
    cd.rand(4, device="cuda", generator=own)
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y, z = nn.functional.dropout(x, 0.5), cd.rand(4, device="cuda", generator=own)
    found = []
    for _ in range(3):
        g.replay()
        found.append((y.tolist(), z.tolist()))
    assert len({str(pair[0]) for pair in found}) == len({str(pair[1]) for pair in found}) == 3


def test_masks_of_replays_are_those_of_as_many_calls(on_host):
    x, own = cd.ones(64, device="cuda"), cd.Generator("cuda").manual_seed(2**63 + 5)
    other = cd.Generator("cuda").manual_seed(1)
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        (x * 2).sum()  # memory that kernels before the draws have written to
        masks = [cd.ops.native_dropout(x, 0.5, each)[1] for each in (own, other, own)]
    found = []
    for seed in (2**63 + 5, None, 4):
        if seed is not None:
            own.manual_seed(seed)
        g.replay()
        found += [masks[0].tolist(), masks[2].tolist()]
        found.append(cd.ops.native_dropout(x, 0.5, own)[1].tolist())
    wanted = []
    for seed in (2**63 + 5, None, 4):
        if seed is not None:
            own.manual_seed(seed)
        wanted += [cd.ops.native_dropout(x, 0.5, own)[1].tolist() for _ in range(3)]
    assert found == wanted and len(set(map(str, found))) == len(found)
    state = own.get_state()
    g.replay()
    again = masks[0].tolist()
    own.set_state(state)
    g.replay()
    assert masks[0].tolist() == again


def test_draws_on_several_streams_follow_each_other(stand_in):
    seen = []
    for several in (False, True):
        own = cd.Generator("cuda").manual_seed(3)
        cd.rand(1, device="cuda", generator=own)
        cd.cuda.synchronize()
        MACHINE.delay()
        streams = [cd.cuda.Stream() if several else None for _ in range(2)]
        drawn = []
        for stream in streams:
            with cd.cuda.stream(stream):
                drawn.append(cd.rand(4, device="cuda", generator=own))
        for stream, x in reversed(list(zip(streams, drawn))):
            with cd.cuda.stream(stream):
                seen.append(x.tolist())
    assert seen[:2] == seen[2:]


def test_a_replay_draws_after_what_was_drawn_on_another_stream(stand_in):
    own = cd.Generator("cuda").manual_seed(3)
    expected = [cd.rand(4, device="cuda", generator=own).tolist() for _ in range(3)]
    own.manual_seed(3)
    first = cd.rand(4, device="cuda", generator=own)
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        z = cd.rand(4, device="cuda", generator=own)
    MACHINE.delay()
    with cd.cuda.stream(cd.cuda.Stream()):
        second = cd.rand(4, device="cuda", generator=own)
    g.replay()
    assert z.tolist() == expected[2]
    cd.cuda.synchronize()
    assert [first.tolist(), second.tolist()] == expected[:2]


def test_another_thread_may_draw_during_a_capture(stand_in):
    own = cd.Generator("cuda").manual_seed(3)
    expected = [cd.rand(4, device="cuda", generator=own).tolist() for _ in range(3)]
    own.manual_seed(3)
    assert cd.rand(4, device="cuda", generator=own).tolist() == expected[0]
    found = []
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        z = cd.rand(4, device="cuda", generator=own)
        other = threading.Thread(
            target=lambda: found.append(cd.rand(4, device="cuda", generator=own).tolist())
        )
        other.start()
        other.join()
    g.replay()
    assert [found[0], z.tolist()] == expected[1:]


def test_a_graph_copies_from_and_to_pinned_memory_at_each_replay(stand_in):
    source, target = cd.tensor([1.0, 2.0]).pin_memory(), cd.zeros(2).pin_memory()
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        target.copy_(source.to("cuda", non_blocking=True) * 2, non_blocking=True)
    MACHINE.delay()
    for values in ([3.0, 4.0], [5.0, 6.0]):
        source.copy_(cd.tensor(values))
        g.replay()
        cd.cuda.synchronize()
        assert target.tolist() == [2 * v for v in values]


def test_other_memory_of_the_host_is_not_captured_but_for_one_number(stand_in):
    x, one = cd.ones(3, device="cuda"), cd.tensor(4.0)
    with pytest.raises(RuntimeError, match="unless the CPU tensor is pinned"):
        with cd.cuda.graph(cd.cuda.CUDAGraph()):
            cd.tensor([1.0, 2.0], device="cuda")
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y = x * one + cd.tensor(2, device="cuda")
    g.replay()
    assert y.tolist() == [6] * 3


def test_numbers_are_no_copies_of_the_hosts_memory(stand_in):
    x = cd.tensor([-1.0, 2.0], device="cuda")
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y = cd.where(x > 0, 1.0, 0.5)
    g.replay()
    assert y.tolist() == [0.5, 1]


def test_the_first_integer_division_may_be_in_a_capture(stand_in):
    x, by = cd.tensor([7, 8], device="cuda"), cd.tensor([2, 4], device="cuda")
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y = x // by
    g.replay()
    assert y.tolist() == [3, 2]
    by.zero_()
    g.replay()
    with pytest.raises(ZeroDivisionError):
        y.tolist()


def test_what_waits_cannot_be_captured_and_the_device_goes_on(stand_in):
    x = cd.ones(2, device="cuda")
    for wait in (lambda: x.sum().item(), lambda: x.cpu(), cd.cuda.synchronize, lambda: x.nonzero()):
        g = cd.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match=r"captur"), cd.cuda.graph(g):
            wait()
        assert not cd.cuda.is_current_stream_capturing()
    assert (x + 1).tolist() == [2, 2]


def test_the_driver_s_handle_of_a_graph(stand_in):
    x, g = cd.ones(2, device="cuda"), cd.cuda.CUDAGraph()
    with pytest.raises(ValueError, match="nothing was captured"):
        g.raw_cuda_graph_exec()
    with cd.cuda.graph(g):
        x + 1
    assert g.raw_cuda_graph_exec() != 0
    with pytest.raises(NotImplementedError, match="raw_cuda_graph_exec"):
        g.raw_cuda_graph()


def test_calls_out_of_turn(stand_in, tmp_path):
    g = cd.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        g.replay()
    with pytest.raises(RuntimeError, match="non-default stream"):
        g.capture_begin()
    with pytest.raises(RuntimeError, match="without capture_begin"):
        g.capture_end()
    with pytest.raises(ValueError, match="Unknown capture error mode"):
        g.capture_begin(capture_error_mode="strict")
    with pytest.raises(ValueError, match="enable_debug_mode"):
        g.debug_dump(str(tmp_path / "graph.dot"))
    with cd.cuda.graph(g):
        pass
    with (
        pytest.raises(RuntimeError, match="already owns a captured graph"),
        cd.cuda.stream(cd.cuda.Stream()),
    ):
        g.capture_begin()
    g.reset()
    with cd.cuda.graph(g):
        pass


def test_indices_out_of_range_are_found_in_replays(on_host):
    table, index = cd.ones(4, 2, device="cuda"), cd.zeros(3, dtype=cd.int64, device="cuda")
    nn.functional.embedding(index, table)
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y = nn.functional.embedding(index, table)
    g.replay()
    assert y.tolist() == [[1, 1]] * 3
    index.fill_(4)
    g.replay()
    with pytest.raises(IndexError, match="index 4 is out of range for 4 embeddings"):
        cd.cuda.synchronize()


def test_graphed_callables_train_as_the_callables_do(stand_in):
    outcomes = []
    data = [cd.randn(5, 3) for _ in range(3)]
    for graphed in (False, True):
        cd.manual_seed(0)
        first, last = nn.Linear(3, 4).to("cuda"), nn.Linear(4, 2).to("cuda")
        parameters = [*first.parameters(), *last.parameters()]
        optimizer = cd.optim.SGD(parameters, lr=0.1)
        head = lambda x: cd.tanh(x) * 2  # noqa: E731
        if graphed:
            sample = cd.randn(5, 3, device="cuda")
            hidden = cd.randn(5, 4, device="cuda", requires_grad=True)
            first, head, last = cd.cuda.make_graphed_callables(
                (first, head, last), ((sample,), (hidden,), (hidden.detach().requires_grad_(),))
            )
        for batch in data:
            optimizer.zero_grad()
            loss = last(head(first(batch.to("cuda")))).pow(2).sum()
            loss.backward()
            optimizer.step()
        outcomes.append([loss.item(), *(p.tolist() for p in parameters)])
    for graphed, usual in zip(outcomes[1], outcomes[0], strict=True):
        cd.testing.assert_close(cd.tensor(graphed), cd.tensor(usual))


def test_a_graphed_module_runs_as_usual_in_the_other_mode_and_refuses_other_shapes(stand_in):
    layer = nn.Sequential(nn.Linear(2, 2), nn.Dropout(1.0)).to("cuda")
    made = cd.cuda.make_graphed_callables(layer, (cd.ones(3, 2, device="cuda"),))
    assert made is layer
    assert layer(cd.ones(3, 2, device="cuda")).tolist() == [[0, 0]] * 3
    with pytest.raises(cd.OpError, match=r"captured with \S*\[3, 2\] and called with \S*\[4, 2\]"):
        layer(cd.ones(4, 2, device="cuda"))
    layer.eval()
    assert layer(cd.ones(4, 2, device="cuda")).shape == (4, 2)


def test_what_cannot_be_graphed(stand_in):
    layer = nn.Linear(2, 2).to("cuda")
    handle = layer.register_forward_hook(lambda *_: None)
    x = cd.ones(1, 2, device="cuda")
    with pytest.raises(AssertionError, match="must not have hooks"):
        cd.cuda.make_graphed_callables(layer, (x,))
    handle.remove()
    with pytest.raises(AssertionError, match="must contain only Tensors"):
        cd.cuda.make_graphed_callables(layer, (3,))
    with cd.autocast("cuda"), pytest.raises(RuntimeError, match="cache_enabled=False"):
        cd.cuda.make_graphed_callables(layer, (x,))


def in_a_thread(work):
    """What ``work`` gives in a thread of its own."""
    found = []

    def run():
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_a_thread_frees_and_reads_while_another_one_captures(stand_in):
    """Neither an event nor a question may go to a stream that is captured."""
    MACHINE.delay()
    side = cd.cuda.Stream()
    whole = cd.tensor([9, 4], device="cuda")
    with cd.cuda.stream(side):
        x = cd.tensor([1.0, 2.0], device="cuda")
        whole // 2  # a kernel that checks, on the stream that is captured later

    def work():
        for _ in range(3):  # freed while `side` is somebody's current stream
            cd.full((4,), 7.0, device="cuda")
        return (whole // 3).tolist()

    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g, stream=side):
        y = x * 2
        assert in_a_thread(work) == [3, 1]
        z = (whole // y.long()) + 1
    g.replay()
    assert z.tolist() == [5, 2]
    held = cd.cuda.memory_stats()["active_bytes.all.current"]
    cd.cuda.synchronize()  # what waited for the end of the capture is free now
    assert cd.cuda.memory_stats()["active_bytes.all.current"] < held


def test_a_capture_that_cannot_begin_or_end_leaves_nothing_behind(stand_in):
    x = cd.ones(4, device="cuda")
    first, second = cd.cuda.CUDAGraph(), cd.cuda.CUDAGraph()
    side = cd.cuda.Stream()
    pools = stand_in.allocator.private
    with cd.cuda.stream(side):
        first.capture_begin()
        with pytest.raises(RuntimeError, match="capturing"):
            second.capture_begin()
        y = x + 1
        first.capture_end()
    assert len(pools) == 1
    second.reset()
    first.replay()
    assert y.tolist() == [2] * 4
    first.reset()
    assert not pools


def test_memory_that_is_kept_unused_serves_a_pool_of_ones_own(stand_in):
    megabytes = 20 << 18
    cd.zeros(megabytes, device="cuda")  # 20 of 64 MiB, which the main pool keeps
    pool = cd.cuda.MemPool()
    with cd.cuda.use_mem_pool(pool):
        made = cd.zeros(50 << 18, device="cuda")
    assert made.sum().item() == 0


def test_a_graph_that_nobody_has_any_more_gives_its_memory_back(stand_in):
    x = cd.ones(1 << 18, device="cuda")

    def captured():
        g = cd.cuda.CUDAGraph()
        with cd.cuda.graph(g):
            kept = (x * 2 + 1) * 3
        g.replay()
        return kept

    def failed():
        with cd.cuda.graph(cd.cuda.CUDAGraph()):
            held = [x * k for k in range(100)]
        return held

    pools = stand_in.allocator.private
    kept = captured()
    gc.collect()
    assert not pools
    assert kept[:2].tolist() == [9, 9]  # what an array holds is not given back
    del kept
    with pytest.raises(cd.cuda.OutOfMemoryError):
        failed()
    gc.collect()
    assert not pools
    assert cd.zeros(12 << 20, device="cuda").sum().item() == 0
    layer = cd.cuda.make_graphed_callables(nn.Linear(2, 2).to("cuda"), (cd.ones(1, 2).cuda(),))
    assert pools
    del layer
    gc.collect()
    assert not pools


def test_a_graph_that_is_collected_during_a_capture_gives_its_memory_back_later(stand_in):
    """``cudaFree`` ends a capture, and garbage may be collected in the midst of one."""
    side, x = cd.cuda.Stream(), cd.ones(64, device="cuda")
    first, second = cd.cuda.CUDAGraph(), cd.cuda.CUDAGraph()
    with cd.cuda.graph(first, stream=side):
        y = x * 2
    kept = cd.cuda.memory_reserved()
    del y
    with cd.cuda.graph(second, stream=side):
        del first
        gc.collect()
        z = x + 1
    second.replay()
    assert z.tolist() == [2.0] * 64
    assert cd.cuda.memory_reserved() <= kept
