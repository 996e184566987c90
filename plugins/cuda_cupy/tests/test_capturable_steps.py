"""Adam with every number on the device: one kernel for all parameters, in graphs too."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import DTYPES, close
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch import nn

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
#: of one part, of several, with and without elements
SHAPES: list[tuple[int, ...]] = [(5,), (3, 70), (), (0, 2), (8200,), (40_000,)]
OPTIONS = [
    (False, 0.9, 0.99, 1e-8, 0.0, False, False),
    (False, 0.9, 0.999, 1e-6, 0.1, True, True),
    (True, 0.8, 0.9, 1e-6, 0.1, False, False),
    (True, 0.0, 0.0, 1e-6, 0.1, True, False),
]


def drawn(dtype: Any, shapes: Any = SHAPES) -> list[list[Any]]:
    """Parameters, gradients, averages, squares and the largest of these."""
    lists = [[cd.randn(shape).to(dtype) for shape in shapes] for _ in range(3)]
    return lists + [[(cd.rand(shape) + 0.1).to(dtype) for shape in shapes] for _ in range(2)]


def stepped(lists: Any, steps: Any, found: Any, lr: Any, options: Any, device: str) -> Any:
    """What a step on ``device`` makes of copies of the lists."""
    amsgrad, *numbers = options
    mine = [[x.clone().to(device) for x in members] for members in lists]
    counted = [x.clone().to(device) for x in steps]
    found, lr = (x.to(device) if isinstance(x, cd.Tensor) else x for x in (found, lr))
    largest = mine[4] if amsgrad else []
    cd.ops.capturable_adam_steps(*mine[:4], largest, counted, found, lr, *numbers)
    return [x.cpu() for members in (*mine, counted) for x in members]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_step_is_one_kernel(on_host: Any, options: Any, dtype: Any) -> None:
    lists = drawn(dtype)
    exact = [[x.double() for x in members] for members in lists]
    numbers = ((cd.float32, 0.01), (cd.float64, cd.tensor(0.01)), (cd.float32, cd.tensor([0.02])))
    for counter, lr in numbers:
        steps = [cd.tensor(float(k), dtype=counter) for k in (0, 3, 1, 7, 2, 5)]
        before = on_host.library.launches
        got = stepped(lists, steps, None, lr, options, "cuda")
        assert on_host.library.launches == before + 1
        wanted = stepped(exact, [x.double() for x in steps], None, lr, options, "cpu")
        for x, y in zip(got, wanted, strict=True):
            cd.testing.assert_close(x.double(), y, **close(x.dtype, 0.5))
        assert [x.item() for x in got[-6:]] == [1.0, 4.0, 2.0, 8.0, 3.0, 6.0]
        assert all(x.dtype is counter for x in got[-6:])


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0])
def test_an_overflow_leaves_everything_as_it_is(on_host: Any, value: float) -> None:
    lists, steps = drawn(cd.float32), [cd.tensor(4.0) for _ in SHAPES]
    lists[1][0].fill_(float("nan") if value else 1.0)
    before = on_host.library.launches
    got = stepped(lists, steps, cd.tensor(value), 0.01, OPTIONS[2], "cuda")
    assert on_host.library.launches == before + 1
    if value:
        wanted = [x for members in (*lists, steps) for x in members]
    else:
        wanted = stepped(lists, steps, None, 0.01, OPTIONS[2], "cpu")
    cd.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_blocks_are_counted_anew_in_each_step(on_host: Any) -> None:
    """Tensors of several parts: the last block of each counts the step, in step after step."""
    lists = [[x.to("cuda") for x in members] for members in drawn(cd.float32, [(40_000,), (9000,)])]
    steps = [cd.zeros((), device="cuda") for _ in range(2)]
    for number in range(1, 6):
        cd.ops.capturable_adam_steps(*lists, steps, None, 0.01, 0.9, 0.99, 1e-8, 0.0, False, False)
        assert [x.item() for x in steps] == [number, number]


def test_what_the_kernel_does_not_take_is_made_of_operators(on_host: Any) -> None:
    lists, options = drawn(cd.float32, [(3, 4), (4,)]), OPTIONS[1]
    steps = [cd.tensor(1.0), cd.tensor(2.0)]
    one = cd.tensor(1.0)
    halves = [x.half() for x in steps]
    for given, counters, found in (
        (lists, halves, None),
        (lists, [steps[0], halves[1]], None),
        (lists, steps, one.double()),
    ):
        before = on_host.library.launches
        got = stepped(given, counters, found, 0.01, options, "cuda")
        assert on_host.library.launches == before
        wanted = stepped(given, counters, found, 0.01, options, "cpu")
        cd.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    mine = [[x.to("cuda") for x in members] for members in lists]
    turned = [[members[0].t()] for members in mine]
    counter = cd.tensor(1.0).to("cuda")
    wanted = stepped(lists, steps, None, 0.01, options, "cpu")
    cd.ops.capturable_adam_steps(*turned[:4], [], [counter], None, 0.01, *options[1:])
    cd.testing.assert_close(mine[0][0].cpu(), wanted[0], rtol=1e-4, atol=1e-5)
    shared = cd.tensor(0.0).to("cuda")  # counted twice, one after the other
    cd.ops.capturable_adam_steps(*mine[:4], [], [shared, shared], None, 0.01, *options[1:])
    assert shared.item() == 2.0 and on_host.library.launches == before


class Mixed(nn.Module):
    """Parameters of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3).double()

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x).tanh().double())


def training(name: str, lr: Any, **options: Any) -> tuple[Any, Any, Any]:
    cd.manual_seed(0)
    model = Mixed().to("cuda")
    optimizer = getattr(cd.optim, name)(model.parameters(), lr=lr, capturable=True, **options)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def steps_taken(on_host: Any, monkeypatch: Any) -> list[str]:
    """The dtypes of the optimizer's kernels that run from now on."""
    ran: list[str] = []
    launch = on_host.library.launch

    def counting(kernel: Any, *args: Any) -> None:
        if kernel.name == "adam_counted":
            ran.append(kernel.name)
        launch(kernel, *args)

    monkeypatch.setattr(on_host.library, "launch", counting)
    return ran


VARIANTS = [
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("AdamW", {"weight_decay": 0.1, "amsgrad": True}),
]


@pytest.mark.parametrize("tensor_lr", [False, True])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_a_captured_step_is_one_kernel_for_each_dtype(
    on_host: Any, monkeypatch: Any, name: str, options: Any, tensor_lr: bool
) -> None:
    data = [(cd.randn(4, 6).to("cuda"), cd.randn(4, 3).double().to("cuda")) for _ in range(5)]
    found = []
    ran = steps_taken(on_host, monkeypatch)
    for graphed in (False, True):
        lr = cd.tensor(0.05).to("cuda") if tensor_lr else 0.05
        model, optimizer, step = training(name, lr, **options)
        x, y = data[0][0].clone(), data[0][1].clone()
        step(x, y)
        g = cd.cuda.CUDAGraph()
        if graphed:
            with cd.cuda.graph(g):
                step(x, y)
        for number, (one, two) in enumerate(data):
            x.copy_(one)
            y.copy_(two)
            if tensor_lr and number == 3:
                lr.fill_(0.01)  # is seen by replays
            ran.clear()
            waited = len(MACHINE.syncs)
            g.replay() if graphed else step(x, y)
            assert MACHINE.syncs[waited:] == []
            assert len(ran) == 2
        counters = [optimizer.state[p]["step"] for p in model.parameters()]
        assert all(c.device.type == "cuda" and c.dtype is cd.float32 for c in counters)
        assert [c.item() for c in counters] == [6.0] * 4
        found.append([p.detach().cpu() for p in model.parameters()])
    cd.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_a_compiled_step_is_one_kernel_for_each_dtype(on_host: Any, monkeypatch: Any) -> None:
    data = [(cd.randn(4, 6), cd.randn(4, 3).double()) for _ in range(7)]
    found = []
    ran = steps_taken(on_host, monkeypatch)
    for compiled in (False, True):
        model, optimizer, step = training("AdamW", cd.tensor(0.05).to("cuda"))
        run = (
            cd.compile(step, fullgraph=True, backend="cuda", mode="reduce-overhead")
            if compiled
            else step
        )
        losses = []
        for x, y in data:
            x, y = x.to("cuda"), y.to("cuda")
            ran.clear()
            losses.append(run(x, y).item())
            assert len(ran) in ((2,) if not compiled else (2, 4)), losses  # 4: captured, replayed
        assert len(ran) == 2
        assert [optimizer.state[p]["step"].item() for p in model.parameters()] == [7.0] * 4
        found.append((losses, [p.detach().cpu() for p in model.parameters()]))
    told = "\n".join(cd.compiler.explain(run, x, y).told)
    assert "CUDA graphs: 1 captured" in told and "No CUDA graph" not in told
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    cd.testing.assert_close(found[1][1], found[0][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("capturable", [False, True])
def test_a_scaled_step_decides_in_the_kernel(
    on_host: Any, monkeypatch: Any, capturable: bool
) -> None:
    weights = [nn.Parameter(cd.ones(3, device="cuda")) for _ in range(3)]
    optimizer = cd.optim.Adam(weights, lr=0.1, capturable=capturable, fused=True)
    scaler = cd.amp.GradScaler("cuda", init_scale=8.0, growth_interval=100)
    ran = steps_taken(on_host, monkeypatch)
    x = cd.ones(3, device="cuda")
    for number, (value, expected) in enumerate(((1.0, 1), (float("inf"), 1), (1.0, 2))):
        x.fill_(value)
        before = [w.tolist() for w in weights]
        ran.clear()
        waited = len(MACHINE.syncs)
        optimizer.zero_grad()
        scaler.scale(sum((w * x).sum() for w in weights)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert len(ran) == 1
        assert number == 0 or MACHINE.syncs[waited:] == []
        assert [optimizer.state[w]["step"].item() for w in weights] == [expected] * 3
        assert ([w.tolist() for w in weights] == before) == (number == 1)


def test_an_overflow_on_two_devices_counts_once(on_host: Any, stand_in: Any) -> None:
    """The flags of both come to 2: the numbers of steps stay as they are."""
    weights = [nn.Parameter(cd.ones(2, device=f"cuda:{i}")) for i in (0, 1)]
    optimizer = cd.optim.Adam(weights, lr=0.5, fused=True)
    scaler = cd.amp.GradScaler("cuda", init_scale=4.0)
    for overflow in (True, False):
        cd.autograd.backward(scaler.scale([w.sum() for w in weights]))
        if overflow:
            for w in weights:
                w.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert [optimizer.state[w]["step"].item() for w in weights] == [1.0, 1.0]
    assert [w.tolist() for w in weights] == [[pytest.approx(0.5, abs=1e-5)] * 2] * 2


def test_complex_parameters_join_as_pairs_of_numbers(on_host: Any, monkeypatch: Any) -> None:
    found = []
    for device in ("cpu", "cuda"):
        cd.manual_seed(1)
        weights = [
            nn.Parameter(cd.randn(3, dtype=d).to(device)) for d in (cd.complex64, cd.float32)
        ]
        optimizer = cd.optim.AdamW(weights, lr=0.1, capturable=True)
        ran = steps_taken(on_host, monkeypatch)
        for _ in range(3):
            for w in weights:
                w.grad = w.detach() * 0.5 + 1
            optimizer.step()
        assert len(ran) == (3 if device == "cuda" else 0)
        found.append([w.detach().cpu() for w in weights])
    cd.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
