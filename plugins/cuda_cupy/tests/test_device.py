"""On a real GPU: ``make gpu-test``. Elsewhere every test here is skipped with the reason."""

from __future__ import annotations

import re

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn

pytestmark = pytest.mark.gpu

KINDS = [cd.float32, cd.float64, cd.float16, cd.complex64, cd.int64, cd.int32, cd.uint8, cd.bool]


def drawn(kind, size, seed=0):
    """A CPU tensor with small values."""
    return cd.tensor(np.random.default_rng(seed).integers(0, 5, size)).to(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arithmetic_and_indexing_give_what_the_cpu_gives(cuda, kind):
    a, b, i = drawn(kind, (64, 33)), drawn(kind, (33,), 1), cd.tensor([5, 0, 5, 63])
    x, y, j = a.to(cuda), b.to(cuda), i.to(cuda)
    for on_device, on_cpu in (
        (x + y, a + b),
        (x * 0.5, a * 0.5),
        (x == y, a == b),
        (x.sum(0), a.sum(0)),
        (x.t()[1:, ::3], a.t()[1:, ::3]),
        (x[j], a[i]),
        (cd.cat([x, x], 1), cd.cat([a, a], 1)),
        (cd.where(x == y, x, y), cd.where(a == b, a, b)),
    ):
        assert on_device.device.type == "cuda"
        assert on_device.dtype == on_cpu.dtype
        cd.testing.assert_close(on_device.cpu(), on_cpu)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != cd.bool], ids=str)
def test_adding_to_repeated_places(cuda, kind):
    values = drawn(kind, (500,))
    index = drawn(cd.int64, (500,), 1)
    base = cd.zeros(5, dtype=kind)
    on_device = base.to(cuda).index_put((index.to(cuda),), values.to(cuda), accumulate=True)
    cd.testing.assert_close(on_device.cpu(), base.index_put((index,), values, accumulate=True))


def test_a_small_network_learns_as_on_the_cpu(cuda):
    losses = []
    for device in ("cpu", cuda):
        cd.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
        )
        x = cd.from_numpy(np.random.default_rng(0).random((8, 1, 8, 8), np.float32)).to(device)
        y = cd.tensor([0, 1, 2, 0, 1, 2, 0, 1]).to(device)
        model.to(device)
        optimizer = cd.optim.Adam(model.parameters(), lr=0.01)
        run = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            run.append(loss.item())
        losses.append(run)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    assert losses[1][-1] < losses[1][0]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(cuda, kind):
    module, x = getattr(cd.nn, kind)(3, 4, num_layers=2, bidirectional=True), cd.randn(5, 3, 3)

    def run(module, x):
        packed = cd.nn.utils.rnn.pack_padded_sequence(x, cd.tensor([2, 5, 3]), False, False)
        out = module(packed)[0].data
        return [out, *cd.autograd.grad(out.square().sum(), list(module.parameters()))]

    wanted = run(module, x)
    got = run(module.to(cuda), x.to(cuda))
    cd.testing.assert_close([t.cpu() for t in got], wanted, rtol=1e-4, atol=1e-4)


def test_autocast_computes_in_float16(cuda):
    a = cd.rand(8, 8, device=cuda)
    with cd.autocast("cuda"):
        assert (a @ a).dtype == cd.float16
    cd.testing.assert_close(
        (a.half() @ a.half()).float().cpu(), (a @ a).cpu(), rtol=1e-2, atol=1e-2
    )


def test_random_numbers(cuda):
    generator = cd.Generator(cuda).manual_seed(3)
    uniform = cd.rand(100_000, device=cuda, generator=generator)
    assert 0 <= uniform.min().item() and uniform.max().item() < 1
    assert abs(uniform.mean().item() - 0.5) < 0.01
    state = generator.get_state()
    normal = cd.randn(100_000, device=cuda, generator=generator)
    assert abs(normal.std().item() - 1) < 0.02
    generator.set_state(state)
    cd.testing.assert_close(cd.randn(100_000, device=cuda, generator=generator), normal)
    integers = cd.randint(-2, 3, (1000,), device=cuda, generator=generator)
    assert set(integers.cpu().tolist()) == {-2, -1, 0, 1, 2}


def test_singular_matrices_and_bad_indices_are_noticed(cuda):
    with pytest.raises(cd.OpError, match=r"(?i)singular"):
        cd.linalg.solve(cd.zeros(2, 2, device=cuda), cd.ones(2, device=cuda))
    with pytest.raises(cd.DimError, match="out of bounds"):
        cd.zeros(3, device=cuda)[cd.tensor([3]).to(cuda)].cpu()


def test_streams_run_beside_each_other_and_wait(cuda):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    a = cd.ones(1000, 1000, device=cuda)
    side.wait_stream(main)
    with cd.cuda.stream(side):
        assert cd.cuda.current_stream() == side
        b = a @ a
    main.wait_stream(side)
    assert (b + 0)[0, 0].item() == 1000
    side.synchronize()
    assert side.query()


def test_memory_is_counted_and_given_back(cuda):
    cd.cuda.empty_cache()
    before = cd.cuda.memory_allocated()
    x = cd.zeros(1 << 20, device=cuda)
    assert cd.cuda.memory_allocated() - before >= 4 << 20
    del x
    cd.cuda.synchronize()
    assert cd.cuda.memory_allocated() == before
    cd.cuda.empty_cache()
    assert cd.cuda.memory_reserved() <= before + (1 << 20)


def test_dlpack_shares_the_memory(cuda):
    cupy = pytest.importorskip("cupy")
    x = cd.zeros(3, device=cuda)
    array = cupy.from_dlpack(x)
    array[1] = 5
    assert x.cpu().tolist() == [0, 5, 0]
    back = cd.from_dlpack(array)
    back.add_(1)
    assert x.cpu().tolist() == [1, 6, 1]


def test_two_devices(cuda):
    if cd.cuda.device_count() < 2:
        pytest.skip("this machine has one CUDA device")
    here, there = cd.ones(2, device="cuda:0"), cd.ones(2, device="cuda:1")
    assert str((there * 2).device) == "cuda:1"
    with pytest.raises(cd.DeviceError, match=r"on cuda:0 and \S+ on cuda:1"):
        here + there


def test_a_compiled_program_gives_what_eager_gives(cuda):
    def program(x, w):
        y = (x @ w).tanh() * 2 + x
        return nn.functional.softmax(y, -1), nn.functional.layer_norm(y, (64,)).relu()

    fast = cd.compile(program, backend="cuda")
    x, w = cd.randn(33, 64, device=cuda), cd.randn(64, 64, device=cuda)
    for _ in range(3):
        for got, wanted in zip(fast(x, w), program(x, w), strict=True):
            cd.testing.assert_close(got, wanted)


def test_a_compiled_step_is_a_graph(cuda):
    batches = [(cd.randn(16, 32), cd.randint(0, 5, (16,))) for _ in range(8)]

    def trained(compile):
        cd.manual_seed(0)
        layers = nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(64), nn.Linear(64, 5)
        model = nn.Sequential(*layers).to(cuda)
        optimizer = cd.optim.AdamW(model.parameters(), lr=0.01, capturable=True)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        run = compile(step)
        losses = [run(x.to(cuda), y.to(cuda)) for x, y in batches]
        return run, [*losses, *(p.detach().clone() for p in model.parameters())]

    run, found = trained(lambda step: cd.compile(step, mode="reduce-overhead"))
    cd.testing.assert_close(found, trained(lambda step: step)[1], rtol=1e-3, atol=1e-4)
    told = "\n".join(cd.compiler.explain(run, *(x.to(cuda) for x in batches[0])).told)
    # Where batches lie is the pool's choice, and may change after the first capture.
    assert re.search("captured, [1-9]+ calls replayed", told) and "No CUDA graph" not in told


# ---- the runtime -------------------------------------------------------------------------------


def test_a_freed_block_is_kept_until_the_other_stream_has_read_it(cuda):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    work = cd.ones(2048, 2048, device=cuda)
    for _ in range(20):
        x = cd.full((1 << 20,), 2.0, device=cuda)
        side.wait_stream(main)
        with cd.cuda.stream(side):
            for _ in range(5):
                work = work @ work * 0 + 1  # keeps the side stream busy
            y = x * 3
        del x
        over = cd.full((1 << 20,), 7.0, device=cuda)
        main.wait_stream(side)
        assert (y == 6).all().item()
        del over


def test_peaks_are_counted_and_limits_are_kept(cuda):
    cd.cuda.empty_cache()
    cd.cuda.reset_peak_memory_stats()
    base = cd.cuda.memory_allocated()
    x = cd.zeros(1 << 22, device=cuda)
    del x
    assert cd.cuda.max_memory_allocated() - base >= 16 << 20
    assert cd.cuda.memory_allocated() == base
    total = cd.cuda.mem_get_info()[1]
    with pytest.raises(cd.cuda.OutOfMemoryError, match="CUDA out of memory. Tried to allocate"):
        cd.empty(total, device=cuda)
    assert (cd.ones(2, device=cuda) + 1).tolist() == [2, 2]


def test_copies_from_and_to_pinned_memory(cuda):
    host = cd.arange(1 << 20).float().pin_memory()
    assert host.is_pinned() and not cd.ones(1).is_pinned()
    event = cd.cuda.Event(enable_timing=True)
    x = host.to(cuda, non_blocking=True)
    back = (x + 1).to("cpu", non_blocking=True)
    event.record()
    event.synchronize()
    assert back.is_pinned()
    cd.testing.assert_close(back, host + 1)


def test_events_take_the_time(cuda):
    start, end = (cd.cuda.Event(enable_timing=True) for _ in range(2))
    a = cd.randn(2048, 2048, device=cuda)
    start.record()
    a @ a
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert cd.cuda.Stream.priority_range()[1] < 0


@pytest.mark.parametrize("capturable", [False, True])
def test_a_training_step_is_captured_and_replayed(cuda, capturable):
    cd.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)).to(cuda)
    if capturable:
        optimizer = cd.optim.AdamW(model.parameters(), lr=0.01, capturable=True)
    else:
        optimizer = cd.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = cd.randn(64, 16, device=cuda), cd.randn(64, 1, device=cuda)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = cd.cuda.Stream()
    side.wait_stream(cd.cuda.current_stream())
    with cd.cuda.stream(side):
        for _ in range(3):
            step()
    cd.cuda.current_stream().wait_stream(side)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        loss = step()
    for name, value in model.state_dict().items():
        cd.testing.assert_close(value, state[name])  # nothing ran yet
    losses = []
    for _ in range(20):
        g.replay()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_graphed_callables_give_what_the_callables_give(cuda):
    cd.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(cuda)
    graphed = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(cuda)
    graphed.load_state_dict(plain.state_dict())
    graphed = cd.cuda.make_graphed_callables(graphed, (cd.randn(4, 8, device=cuda),))
    x = cd.randn(4, 8, device=cuda)
    for module in (plain, graphed):
        module(x).pow(2).sum().backward()
    for a, b in zip(plain.parameters(), graphed.parameters(), strict=True):
        cd.testing.assert_close(a.grad, b.grad)


def test_a_scaled_step_in_float16(cuda):
    model = nn.Linear(8, 8).to(cuda)
    optimizer = cd.optim.Adam(model.parameters(), fused=True)
    scaler = cd.amp.GradScaler("cuda", init_scale=2.0**30, growth_interval=1000)
    for _ in range(30):
        optimizer.zero_grad()
        with cd.autocast("cuda"):
            loss = model(cd.ones(4, 8, device=cuda)).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() < 2.0**30
    assert all(p.isfinite().all().item() for p in model.parameters())


def test_checks_of_values_are_raised_at_the_next_wait(cuda):
    x = cd.tensor([1, 2], device=cuda)
    x % (x - 1)
    with pytest.raises(ZeroDivisionError):
        cd.cuda.synchronize()
    assert (x // 2).tolist() == [0, 1]


def test_products_in_tf32_when_that_is_allowed(cuda):
    if not cd.cuda.is_tf32_supported():
        pytest.skip("this device has no TF32")
    a = cd.randn(512, 512, device=cuda)
    exact = (a.double() @ a.double()).float()
    try:
        cd.backends.cuda.matmul.allow_tf32 = True
        rough = (a @ a - exact).abs().max().item()
    finally:
        cd.backends.cuda.matmul.allow_tf32 = False
    fine = (a @ a - exact).abs().max().item()
    assert fine * 4 < rough < 1.0
