"""``cd.compile``: programs give through their graphs what they give eagerly."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.graph import compile_code


def compiled(fn: Any, **options: Any) -> Any:
    return cd.compile(fn, backend="eager", **options)


def report(fn: Any, *args: Any) -> Any:
    return cd.compiler.explain(fn, *args)


def same(a: Any, b: Any) -> None:
    cd.testing.assert_close(a, b)


def branches(x: Any) -> Any:
    if x.sum() > 0:
        return x.sin()
    return x.cos() - 1


def reads(x: Any) -> Any:
    return x * x.mean().item() + 1


def loops(x: Any) -> Any:
    for i in range(3):
        x = x * i + x.tanh()
    return x


def writes(x: Any) -> Any:
    y = x.clone()
    y[0] = 3
    y.t().mul_(2)
    y += 1
    return y


def structured(x: Any) -> Any:
    return {"a": x + 1, "b": (x * 2, [x.sum(), None, 3])}


def made(x: Any) -> Any:
    return x + cd.tensor([1.0, 2.0, 3.0]) + cd.arange(3.0) + cd.zeros(2, 3)


def caught(x: Any) -> Any:
    try:
        return x @ cd.ones(7, 7)
    except RuntimeError:
        return x + 5


def comprehended(x: Any) -> Any:
    return cd.stack([row * i for i, row in enumerate(x)]).sum(0)


def closed(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return y * scale

    scale = 3
    return inner(x) + sum(p.sum() for p in x.split(1))


def counted(x: Any) -> Any:
    total = 0.0
    for row in x:
        total += row.sum().item()
    return total, x * total


def nograd(x: Any) -> Any:
    with cd.no_grad():
        y = x * 2
    return y + x


def cast(x: Any) -> Any:
    with cd.autocast("cpu"):
        return (x @ x.t()).float()


def gradient(x: Any) -> Any:
    y = x.detach().requires_grad_()
    (g,) = cd.autograd.grad((y**3).sum(), y)
    return g


def viewed(x: Any) -> Any:
    return x.view(-1), x[0], x.t()


PROGRAMS = [
    branches,
    reads,
    loops,
    writes,
    structured,
    made,
    caught,
    comprehended,
    closed,
    counted,
    nograd,
    cast,
    gradient,
    viewed,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("grad", [False, True])
def test_a_program_gives_what_it_gives_eagerly(program: Callable[..., Any], grad: bool) -> None:
    fast = compiled(program)
    for seed in range(5):
        cd.manual_seed(seed)
        x = cd.randn(2, 3)
        a, b = (x.clone().requires_grad_(grad) for _ in range(2))
        wanted, got = program(a), fast(b)
        same(got, wanted)
        assert tuple(got) == tuple(wanted) if isinstance(wanted, dict) else True
        if grad and isinstance(wanted, cd.Tensor) and wanted.requires_grad:
            wanted.sum().backward()
            got.sum().backward()
            same(b.grad, a.grad)
    found = report(fast, x)
    assert found.calls >= 2 and not found.problems, str(found)


def make_step(optimizer: Any) -> Any:
    cd.manual_seed(0)
    # Without a bias, whose gradient before the norm is nothing but rounding.
    first = nn.Linear(4, 8, bias=False)
    net = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    opt = optimizer(net.parameters())

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.item()

    return net, opt, step


OPTIMIZERS = {
    "SGD": lambda p: cd.optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: cd.optim.Adam(p, 0.01),
    "AdamW": lambda p: cd.optim.AdamW(p, 0.01, amsgrad=True),
    "RMSprop": lambda p: cd.optim.RMSprop(p, 0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step(name: str) -> None:
    plain, plain_opt, step = make_step(OPTIMIZERS[name])
    net, opt, other = make_step(OPTIMIZERS[name])
    fast = compiled(other)
    batches = [cd.randn(5, 4) for _ in range(7)]
    losses = []
    for run in (step, fast):
        cd.manual_seed(3)
        losses.append([run(x, x[:, :1].clone()) for x in batches])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)  # BLAS may sum in another order
    assert all(type(loss) is float for loss in losses[1])
    for a, b in zip(plain.state_dict().values(), net.state_dict().values()):
        same(a, b)
    for a, b in zip(plain_opt.state.values(), opt.state.values()):
        assert {k: v for k, v in a.items() if isinstance(v, int)} == {
            k: v for k, v in b.items() if isinstance(v, int)
        }
    assert report(fast, batches[0], batches[0][:, :1].clone()).calls >= 4


def test_a_module_trains_through_its_graphs() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))
    fast = compiled(net)
    assert fast.state_dict().keys() == {f"_orig_mod.{k}" for k in net.state_dict()}
    x = cd.randn(6, 4, requires_grad=True)
    for _ in range(3):
        grads = []
        for run in (net, fast):
            net.zero_grad()
            x.grad = None
            run(x).pow(2).sum().backward()
            grads.append([p.grad.clone() for p in net.parameters()] + [x.grad.clone()])
        for a, b in zip(*grads):
            same(a, b)
    net.eval()
    same(fast(x), net(x))
    assert len(fast._compiled.programs) == 1
    assert "training changed: True -> False" in report(fast, x).recompilations[0]


SCALE = 2.0


def test_globals_closures_and_attributes_are_guarded() -> None:
    global SCALE
    offset = 1.0

    class Config:
        power = 2

    config = Config()

    def program(x: Any) -> Any:
        return (x * SCALE + offset) ** config.power

    fast = compiled(program)
    x = cd.randn(3)
    for change in range(8):
        same(fast(x), program(x))
        same(fast(x), program(x))
        if change == 0:
            SCALE = 3.0
        elif change == 1:
            offset = 7.0
        elif change == 2:
            config.power = 3
        elif change == 3:
            Config.power = 1
        elif change == 4:
            del config.power
    SCALE = 2.0


def test_side_effects_are_replayed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.last: Any = None
            self.register_buffer("seen", cd.zeros(3))

        def forward(self, x: Any, log: list[Any]) -> Any:
            self.calls += 1
            self.last = x * 2
            self.seen += x
            log.append(self.last)
            return x + self.calls

    a, b = Net(), Net()
    fast = compiled(b)
    logs: Any = ([], [])
    for i in range(6):
        x = cd.full((3,), float(i))
        same(fast(x, logs[1]), a(x, logs[0]))
        assert a.calls == b.calls == i + 1 and type(b.calls) is int
        same(a.last, b.last)
        same(a.seen, b.seen)
        if i == 3:
            logs = ([], [])
    same(logs[0], logs[1])


def test_what_cannot_be_captured_runs_eagerly_and_is_told(capsys: Any) -> None:
    def program(x: Any) -> Any:
        print("here")
        return x + 1

    fast = compiled(program)
    for _ in range(3):
        same(fast(cd.ones(2)), cd.full((2,), 2.0))
    assert capsys.readouterr().out == "here\n" * 3
    found = report(fast, cd.ones(2))
    assert "print" in found.problems[0][0] and found.problems[0][1][0] == __file__
    with pytest.raises(RuntimeError, match="print"):
        compiled(program, fullgraph=True)(cd.ones(2))


def test_fullgraph_names_the_line() -> None:
    line = branches.__code__.co_firstlineno + 1
    with pytest.raises(RuntimeError, match=f"test_compile.py:{line} in branches"):
        compiled(branches, fullgraph=True)(cd.ones(2))


def test_splits_are_told_with_their_lines() -> None:
    found = cd.compiler.explain(branches, cd.ones(2))
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    assert found.break_reasons[0][1][1] == branches.__code__.co_firstlineno + 1
    assert "Split at" in str(found)


def test_random_numbers_stay_random_and_from_one_stream() -> None:
    def program(x: Any) -> Any:
        y = cd.nn.functional.dropout(x, 0.5)
        if y.sum() > 5:
            return y + cd.rand(20)
        return y - cd.rand(20)

    fast = compiled(program)
    x = cd.ones(20)
    results = []
    for run in (program, fast):
        cd.manual_seed(0)
        results.append([run(x) for _ in range(10)])
    same(*results)
    assert not results[1][0].equal(results[1][1])


def test_exceptions_leave_nothing_behind() -> None:
    class Broken(Exception):
        pass

    fail = True

    def program(x: Any) -> Any:
        y = x + 1
        if fail:
            raise Broken
        return y

    fast = compiled(program)
    with pytest.raises(Broken):
        fast(cd.ones(2))
    import sys

    assert sys.getprofile() is None and not cd.compiler.is_compiling()
    fail = False
    for _ in range(3):
        same(fast(cd.ones(2)), cd.full((2,), 2.0))


def test_two_threads_compile_one_function() -> None:
    fast = compiled(loops)
    x = cd.randn(4, 3)
    wanted, wrong = loops(x), []

    def run() -> None:
        for _ in range(20):
            if not fast(x).equal(wanted):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_compiler_is_a_function_of_a_graph() -> None:
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append((graph, inputs))
        run = compile_code(graph.python_code(), "<mine>")
        return lambda *values: run(None, *values)

    fast = cd.compile(lambda x: x.exp() + 1, backend=backend)
    x = cd.randn(3)
    same(fast(x), x.exp() + 1)
    same(fast(x), x.exp() + 1)
    ((graph, inputs),) = seen
    assert [n.op for n in graph.nodes][0] == "placeholder" and inputs[0] is x
    with pytest.raises(RuntimeError, match="no compiler 'nobody'"):
        cd.compile(loops, backend="nobody")


def test_a_plugin_brings_a_compiler() -> None:
    from coredispatch.graph.compilers import eager
    from coredispatch.plugin import hookimpl

    class Plugin:
        graphs = 0

        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            pass

        @hookimpl
        def coredispatch_compile(self, graph: Any, inputs: Any) -> Any:
            Plugin.graphs += 1
            return eager(graph, inputs)

    cd.plugins.load("mine", Plugin())
    try:
        assert "mine" in cd.compiler.list_backends()
        fast = cd.compile(loops, backend="mine")
        same(fast(cd.ones(2)), loops(cd.ones(2)))
        assert Plugin.graphs == 1
    finally:
        cd.plugins.unload("mine")


SCHEDULES = {
    "StepLR": lambda opt: cd.optim.lr_scheduler.StepLR(opt, 2, 0.5),
    "ExponentialLR": lambda opt: cd.optim.lr_scheduler.ExponentialLR(opt, 0.9),
    "OneCycleLR": lambda opt: cd.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=40),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_inside_a_training_step(name: str) -> None:
    """A step whose schedule takes a new way is taken back, the optimizer's state included."""

    def make() -> Any:
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = cd.optim.Adam(net.parameters(), 0.1)
        schedule = SCHEDULES[name](opt)

        def step(x: Any) -> Any:
            opt.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            opt.step()
            schedule.step()
            return loss.detach(), net.weight.detach().clone()

        return step, opt

    (plain, plain_opt), (twin, opt) = make(), make()
    fast = compiled(twin)
    for _ in range(12):
        x = cd.randn(2, 3)
        same(fast(x), plain(x))
        assert opt.param_groups[0]["lr"] == plain_opt.param_groups[0]["lr"]
    if name != "OneCycleLR":  # it takes the cosine of its number, in Python
        assert report(fast, x).calls >= 6


def test_a_list_that_is_appended_to_is_no_guard() -> None:
    log: list[Any] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history: list[Any] = []

        def forward(self, x: Any) -> Any:
            self.history.append(x * 2)
            return x + 1

    net = Net()

    def program(x: Any) -> Any:
        y = net(x)
        log.append(y.sum().item())
        return y

    fast = compiled(program)
    for i in range(12):
        x = cd.randn(3)
        y = fast(x)
        assert len(log) == len(net.history) == i + 1
        assert type(log[-1]) is float and log[-1] == y.sum().item()
        same(net.history[-1], x * 2)
    assert fast.captures == 1


def test_a_list_that_is_read_is_a_guard() -> None:
    log = [1]

    def program(x: Any) -> Any:
        log.append(2)
        return x * len(log)

    fast = compiled(program)
    for _ in range(4):
        assert fast(cd.ones(1)).item() == len(log)


def test_numbers_in_a_list_become_inputs() -> None:
    counts = [0, 10.0]

    def program(x: Any) -> Any:
        counts[0] += 1
        counts[1] *= 2
        return x * counts[0] + counts[1]

    fast = compiled(program)
    for i in range(1, 7):
        assert fast(cd.ones(1)).item() == i + 10.0 * 2**i
        assert counts == [i, 10.0 * 2**i] and type(counts[0]) is int
    assert fast.captures == 2


def test_shapes_that_depend_on_values() -> None:
    fast = cd.compile(lambda x: (x[x > 0] * 2, x.nonzero(), x.unique()))
    for _ in range(5):
        x = cd.randn(8).round()
        same(fast(x), (x[x > 0] * 2, x.nonzero(), x.unique()))


def test_inputs_that_overlap() -> None:
    def program(x: Any, y: Any) -> Any:
        x.add_(1)
        return x + y

    fast = cd.compile(program)
    for _ in range(2):
        for begin in (0, 1, 2):
            results = []
            for run in (program, fast):
                memory = cd.arange(6.0)
                results.append((run(memory[:3], memory[begin : begin + 3]), memory))
            same(results[1], results[0])


def test_the_garbage_collector_is_no_part_of_a_program() -> None:
    phases = []

    def callback(phase: str, info: Any) -> None:
        phases.append((phase, os.getpid()))  # written in C, and not known

    fast = cd.compile(lambda x: [x + i for i in range(20)][-1] * 2, backend="eager")
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        results = [fast(cd.ones(3)) for _ in range(2)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
    assert phases and gc.callbacks == callbacks
    assert all(bool((r == 40).all()) for r in results)
    assert not fast.problems and not fast.eager_calls
