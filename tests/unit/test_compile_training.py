"""Programs that write and train, each called several times beside its eager twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compile_programs import X, check, check_served, collection, comp, same

import coredispatch as cd
from coredispatch import nn

CASES, case = collection()


@case
def aliased():
    def f(x, y):
        x.add_(1)
        return x + y

    def mk():
        return f

    def same_():
        x = cd.randn(3)
        return (x, x)

    def view_():
        x = cd.randn(4)
        return (x[:3], x[1:])

    return check(
        mk,
        [
            same_,
            lambda: (cd.randn(3), cd.randn(3)),
            view_,
            same_,
            view_,
            lambda: (cd.randn(3), cd.randn(3)),
        ],
    )


@case
def returns_input():
    c = comp(lambda x: (x, x.add_(1), x.view(-1)))
    for _ in range(3):
        x = cd.zeros(2, 2)
        a, b, v = c(x)
        assert a is x and b is x, (a is x, b is x)
        v[0] = 9
        assert x[0, 0] == 9
    return c


@case
def inplace_grad_input():
    def f(x):
        y = x * 2
        y.mul_(3)
        return y.sum()

    c = comp(f)
    for _ in range(3):
        x = cd.randn(3, requires_grad=True)
        f(x).backward()
        g = x.grad.clone()
        x.grad = None
        c(x).backward()
        same(x.grad, g)
    return c


@case
def nonleaf_inplace():
    def f(y):
        y.mul_(3)
        return y.sum()

    c = comp(f)
    for _ in range(3):
        x = cd.randn(3, requires_grad=True)
        c(x * 2).backward()
        same(x.grad, cd.full((3,), 6.0))
    return c


@case
def double_backward():
    c = comp(lambda x: (x**3).sum())
    out = []
    for _ in range(3):
        x = cd.randn(3, requires_grad=True)
        try:
            (g,) = cd.autograd.grad(c(x), x, create_graph=True)
            g.sum().backward()
            out.append("ok")
        except RuntimeError as e:
            out.append(str(e).split(" (")[0])
    assert out == ["ok", *["the gradients of a compiled program are not differentiable"] * 2]
    return c


@case
def retain():
    c = comp(lambda x: (x**3).sum())
    for _ in range(3):
        x = cd.randn(3, requires_grad=True)
        y = c(x)
        y.backward(retain_graph=True)
        y.backward()
        same(x.grad, 6 * x.detach() ** 2)
        try:
            y.backward()
            assert 0
        except RuntimeError:
            pass
    return c


@case
def customfn():
    class Sq(cd.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x * 5

    def f(x):
        return Sq.apply(x).sum()

    c = comp(f)
    for _ in range(3):
        x = cd.randn(3, requires_grad=True)
        c(x).backward()
        same(x.grad, 10 * x.detach())
    return c


@case
def hook_in():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(1))
        return y.sum()

    c = comp(f)
    for i in range(3):
        x = cd.randn(3, requires_grad=True)
        c(x).backward()
        assert len(seen) == i + 1, (len(seen), i)
    return c


@case
def param_hook():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        cnt = []
        net.weight.register_hook(lambda g: cnt.append(1))
        opt = cd.optim.SGD(net.parameters(), 0.1)

        def f(x):
            opt.zero_grad()
            net(x).sum().backward()
            opt.step()
            return net.weight.detach().clone(), len(cnt)

        return f

    return check(mk, [X(2, 3)] * 5)


@case
def fwd_hook():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        net.cnt = 0

        def h(m, a, o):
            m.cnt += 1
            return o * 2

        net.register_forward_hook(h)

        def f(x):
            return net(x), net.cnt

        return f

    return check(mk, [X(2, 3)] * 5)


@case
def lr_sched():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = cd.optim.Adam(net.parameters(), 0.1)
        sch = cd.optim.lr_scheduler.StepLR(opt, 2, 0.5)

        def f(x):
            opt.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            opt.step()
            sch.step()
            return loss.detach(), net.weight.detach().clone(), sch.get_last_lr()[0]

        return f

    return check(mk, [X(2, 3)] * 9)


@case
def lr_outside():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = cd.optim.Adam(net.parameters(), 0.1)

        def f(x, lr):
            opt.param_groups[0]["lr"] = lr
            opt.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            opt.step()
            return loss.detach(), net.weight.detach().clone()

        return f

    return check(mk, [(lambda i=i: (cd.randn(2, 3), 0.1 / (i + 1))) for i in range(9)])


@case
def clip():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = cd.optim.SGD(net.parameters(), 0.1)

        def f(x):
            opt.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            n = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            opt.step()
            return loss, n, net.weight.detach().clone()

        return f

    return check(mk, [X(2, 3)] * 6)


@case
def scaler():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = cd.optim.SGD(net.parameters(), 0.1)
        sc = cd.amp.GradScaler("cpu", enabled=True)

        def f(x):
            opt.zero_grad()
            with cd.autocast("cpu"):
                loss = net(x).pow(2).mean()
            sc.scale(loss).backward()
            sc.step(opt)
            sc.update()
            return loss.detach(), net.weight.detach().clone(), sc.get_scale()

        return f

    return check(mk, [X(2, 3)] * 6)


@case
def accum():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = cd.optim.SGD(net.parameters(), 0.1)

        def f(x, do):
            net(x).sum().backward()
            if do:
                opt.step()
                opt.zero_grad()
            return (
                net.weight.detach().clone(),
                None if net.weight.grad is None else net.weight.grad.clone(),
            )

        return f

    return check(mk, [(lambda i=i: (cd.randn(2, 3), i % 3 == 2)) for i in range(12)])


@case
def train_eval():
    def mk():
        cd.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))

        def f(x, t):
            net.train(t)
            return net(x)

        return f

    return check(mk, [(lambda i=i: (cd.randn(4, 3), i % 2 == 0)) for i in range(8)])


#: those that run eagerly as long as they do what they do
EAGER: set[str] = set("nonleaf_inplace hook_in".split())
#: those that depend on what each call changes, so that no graph serves a second call
MOVING: set[str] = set("param_hook lr_sched".split())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_program_gives_what_it_gives_eagerly(case: Callable[[], Any]) -> None:
    check_served(case, EAGER, MOVING)


@pytest.mark.parametrize("returned", [1, 2])
def test_results_that_a_step_went_back_through_refuse_another_pass(returned: int) -> None:
    """Eager and compiled: they require grad, know where they came from, and kept nothing."""
    layer = nn.Linear(3, 2)
    optimizer = cd.optim.SGD(layer.parameters(), 0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        made = layer(x)
        loss = made.pow(2).sum()
        loss.backward()
        optimizer.step()
        return (loss, made)[:returned]

    fast = cd.compile(step, backend="eager", fullgraph=True)
    for call in (step, fast, fast, fast):
        for tensor in call(cd.ones(4, 3)):
            assert tensor.requires_grad
            assert not tensor.is_leaf
            with pytest.raises(RuntimeError, match="second time"):
                tensor.sum().backward()
            with pytest.raises(RuntimeError, match="second time"):
                cd.autograd.grad(tensor.sum(), layer.weight)
    assert "Compiled" in tensor.grad_fn.name()


def _leaf_and_loss(x: Any, w: Any) -> Any:
    x = x.clone().requires_grad_()
    return x, (x * w).sum()


def _leaf_after_backward(x: Any, w: Any) -> Any:
    x = x.clone().requires_grad_()
    y = (x * w).sum()
    y.backward(retain_graph=True)
    return x, y


def _loss_after_backward(x: Any, w: Any) -> Any:
    x = x.clone().requires_grad_()
    y = (x * w.detach()).sum()
    y.backward()
    return x.grad, y.detach() * w.sum()


def _retained(x: Any, w: Any) -> Any:
    y = x * w
    y.retain_grad()
    z = (y * y).sum()
    z.backward(retain_graph=True)
    return y, z


@pytest.mark.parametrize(
    "program", [_leaf_and_loss, _leaf_after_backward, _loss_after_backward, _retained]
)
@pytest.mark.parametrize("wanted", [True, False], ids=["weights", "no weights"])
def test_gradients_of_what_the_program_makes(program: Any, wanted: bool) -> None:
    """A leaf that the program makes and returns has its gradient, and gets those that follow."""
    fast: Any = cd.compile(program, backend="eager")
    for number in (2.0, 3.0, 4.0):
        seen = []
        for run in (program, fast):
            w = cd.full((3,), number, requires_grad=wanted or program is _retained)
            first, loss = run(cd.ones(3), w)
            gradients = [first.grad] if program is not _loss_after_backward else [first]
            if loss.requires_grad:
                loss.backward()
            gradients += [first.grad, w.grad] if first.requires_grad else [w.grad]
            seen.append([None if g is None else g.tolist() for g in gradients])
        assert seen[1] == seen[0]


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_steps_large_enough_for_kernels_of_plugins_run_by_graphs(kind: str) -> None:
    if kind == "linear":
        layers: list[Any] = [
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.BatchNorm1d(128),
            nn.Linear(128, 10),
        ]
        x = cd.randn(64, 784)
    else:
        layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()]
        layers.append(nn.Linear(16 * 30 * 30, 10))
        x = cd.randn(8, 3, 32, 32)
    net = nn.Sequential(*layers)
    optimizer = cd.optim.Adam(net.parameters())

    def whole(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    forward = cd.compile(net.forward)
    step = cd.compile(whole)
    for _ in range(5):
        step(x)
        forward(x).sum().backward()
    assert step.eager_calls == forward.eager_calls == 0
    assert step.captures <= 3
    assert forward.captures <= 3
