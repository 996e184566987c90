"""Hooks of gradients, modules and steps that come and go between calls of compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn

#: a program, told how to compile: what its calls gave, and what its hooks saw
Story = Callable[[Callable[[Any], Any]], tuple[list[Any], list[Any]]]


def outside(compile: Any) -> Any:
    """The backward pass is not a part of the program; hooks of the parameter see its gradients."""
    w, seen, out = nn.Parameter(cd.ones(2)), [], []
    w.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    step = compile(lambda x: (w * x).sum())

    def go() -> None:
        w.grad = None
        step(cd.ones(2)).backward()
        out.append(w.grad.tolist())

    go(), go(), go()
    handle = w.register_hook(lambda g: g + 5)
    go(), go()
    handle.remove()
    go()
    return out, seen


def of_an_input_with_a_history(compile: Any) -> Any:
    w, seen, out = nn.Parameter(cd.ones(2)), [], []
    step = compile(lambda x: (x * 3).sum())
    for _ in range(3):
        w.grad, h = None, w * 1
        h.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
        h.retain_grad()
        step(h).backward()
        out.append((w.grad.tolist(), h.grad.tolist()))
    return out, seen


def inside(compile: Any) -> Any:
    w, seen, out = nn.Parameter(cd.ones(2)), [], []

    def program(x: Any) -> Any:
        w.grad = None
        (w * x).sum().backward()
        return w.grad + 0

    step = compile(program)

    def go() -> None:
        for k in range(3):
            out.append(step(cd.full((2,), float(k))).tolist())

    go()
    handle = w.register_hook(lambda g: seen.append(g.sum().item()) or g * 2)
    go()
    handle.remove()
    go()
    handle = w.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(10))
    go()
    handle.remove()
    go()
    return out, seen


def through_autograd_grad(compile: Any) -> Any:
    w, seen, out = nn.Parameter(cd.ones(2)), [], []
    step = compile(lambda x: cd.autograd.grad((w * x).sum(), w)[0])
    for hooked in (False, True, False):
        handle = w.register_hook(lambda g: seen.append(1) or g * 2) if hooked else None
        out += [step(cd.ones(2)).tolist() for _ in range(3)]
        if handle is not None:
            handle.remove()
    return out, seen


def of_an_argument(compile: Any) -> Any:
    seen, out = [], []

    def program(x: Any) -> Any:
        (x * 2).sum().backward()
        return x.grad + 0

    step = compile(program)
    for k in range(6):
        x = cd.ones(2, requires_grad=True)
        if k % 2:
            x.register_hook(lambda g: seen.append(1) or g * 3)
        out.append(step(x).tolist())
    return out, seen


def of_modules(compile: Any) -> Any:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    nn.init.ones_(net[0].weight)
    seen, out = [], []
    step = compile(net)

    def go() -> None:
        for _ in range(3):
            net.zero_grad()
            step(cd.ones(1, 2)).sum().backward()
            out.append(net[0].weight.grad.tolist())

    go()
    handle = net[0].register_full_backward_hook(lambda module, gi, go: seen.append(go[0].tolist()))
    go()
    handle.remove()
    go()
    handle = net[1].register_forward_hook(lambda module, inputs, output: output * 2)
    go()
    handle.remove()
    go()
    return out, seen


def of_an_optimizer(compile: Any) -> Any:
    w, seen, out = nn.Parameter(cd.ones(2)), [], []
    optimizer = cd.optim.SGD([w], lr=0.1)

    def program(x: Any) -> Any:
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        return w.detach().clone()

    step = compile(program)
    for hooked in (False, True, False):
        handles = []
        if hooked:
            handles.append(optimizer.register_step_post_hook(lambda *given: seen.append(1)))
            handles.append(optimizer.register_step_pre_hook(lambda *g: (w.grad.mul_(3), None)[1]))
        out += [step(cd.ones(2)).tolist() for _ in range(3)]
        for handle in handles:
            handle.remove()
    return out, seen


STORIES = [
    outside,
    of_an_input_with_a_history,
    inside,
    through_autograd_grad,
    of_an_argument,
    of_modules,
    of_an_optimizer,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_hooks_see_what_they_see_without_compiling(story: Story) -> None:
    wanted = story(lambda program: program)
    got = story(lambda program: cd.compile(program, backend="eager"))
    assert got == wanted
    assert wanted[1]  # there was something to see
