"""Arguments, modes and attributes change between the calls of a program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from compile_programs import check_changes, collection

import coredispatch as cd
from coredispatch import nn

CASES, case = collection()


@case
def args_kinds():
    def p(x, *a, k=1, **kw):
        return x * k + len(a) + sum(kw.values())

    c = cd.compile(p, backend="eager")
    x = cd.randn(2)
    for a, k in [
        ((1,), {}),
        ((1, 2), {"k": 2}),
        ((), {"z": 3}),
        ((), {"z": 4}),
        ((), {"k": True}),
        ((), {"k": 1}),
        ((), {"k": 1.0}),
        ((), {"z": -0.0}),
        ((), {"z": 0.0}),
    ]:
        for _ in range(2):
            cd.testing.assert_close(c(x, *a, **k), p(x, *a, **k))


@case
def grad_modes():
    w = cd.randn(3, requires_grad=True)

    def p(x):
        return x * w

    c = cd.compile(p, backend="eager")
    for m in (
        contextlib.nullcontext,
        cd.no_grad,
        cd.inference_mode,
        contextlib.nullcontext,
        cd.enable_grad,
    ):
        with m():
            a, b = c(cd.ones(3)), p(cd.ones(3))
        assert a.requires_grad == b.requires_grad


@case
def grad_reads():
    w = cd.randn(3, requires_grad=True)

    def p(x):
        return x if w.grad is None else x + w.grad

    def a():
        w.grad = cd.ones(3)

    def b():
        w.grad = cd.full((3,), 4.0)

    def c():
        w.grad = None

    check_changes(p, [a, b, c], lambda: (cd.randn(3),))


@case
def slots_dyn():
    class S:
        __slots__ = ("a", "__dict__")

    s = S()
    s.a = 1
    s.b = 2

    def p(x):
        return x * s.a + s.b + getattr(s, "c", 0)

    def a():
        s.a = 5

    def b():
        s.b = 7

    def c():
        s.c = 9

    check_changes(p, [a, b, c], lambda: (cd.randn(3),))


@case
def versions():
    w = cd.randn(3, requires_grad=True)
    c = cd.compile(lambda x: (x * w).exp(), backend="eager")
    c(cd.ones(3))
    y = c(cd.ones(3))
    with cd.no_grad():
        w.mul_(2)
    cd.ones(3)
    try:
        y.sum().backward()
    except RuntimeError:
        pass


@case
def set_order():
    s = {"a", "b"}

    def p(x):
        return x * len(s) + ("q" in s)

    def a():
        s.add("q")

    check_changes(p, [a], lambda: (cd.randn(3),))


@case
def tensor_attr():
    w = cd.randn(3)
    w.scale = 2

    def p(x):
        return x * w * w.scale

    def a():
        w.scale = 5

    check_changes(p, [a], lambda: (cd.randn(3),))


@case
def arg_attr():
    def p(x):
        return x * x.scale

    c = cd.compile(p, backend="eager")
    for s in (1, 1, 2, 2, 3):
        x = cd.randn(3)
        x.scale = s
        cd.testing.assert_close(c(x), p(x))


@case
def subclass():
    class T(cd.Tensor):
        pass

    def p(x):
        return x * 2

    c = cd.compile(p, backend="eager")
    for k in (0, 1, 0, 1):
        x = cd.randn(3)
        x = x.as_subclass(T) if k else x
        assert type(c(x)) is type(p(x)), (type(c(x)), type(p(x)))


@case
def metacls():
    class M(type):
        @property
        def k(c):
            return c._k

    class A(metaclass=M):
        _k = 1

    def p(x):
        return x * A.k

    def a():
        A._k = 5

    def b():
        M.k = property(lambda c: 11)

    check_changes(p, [a, b], lambda: (cd.randn(3),))


@case
def env():
    import os

    os.environ["ZZ"] = "1"

    def p(x):
        return x * int(os.environ["ZZ"]) + int(os.getenv("ZZ"))

    def a():
        os.environ["ZZ"] = "4"

    check_changes(p, [a], lambda: (cd.randn(3),))


@case
def threshold_cls():
    class Net(nn.Module):
        factor = 2

        def forward(s, x):
            return x * s.factor

    m = Net()

    def a():
        Net.factor = 3

    def b():
        m.factor = 4

    def c():
        del m.factor

    def d():
        Net.forward = lambda s, x: x * 100

    def e():
        m.forward = lambda x: x * 200

    check_changes(m, [a, b, c, d, e], lambda: (cd.randn(3),))


@case
def classcounter():
    def mk():
        class A:
            n = 0

        def p(x):
            A.n += 1
            return x * A.n

        return p

    p, q = mk(), mk()
    c = cd.compile(q, backend="eager")
    for _ in range(6):
        x = cd.randn(3)
        cd.testing.assert_close(c(x), p(x))


@case
def sets_attr():
    def p(x):
        y = x * 2
        x.tag = 5
        return y

    c = cd.compile(p, backend="eager")
    for _ in range(4):
        x = cd.randn(3)
        c(x)
        assert x.tag == 5
    w = cd.zeros(3)

    def p(x):
        w.tag = w.__dict__.get("tag", 0) + 1
        return x

    c = cd.compile(p, backend="eager")
    for i in range(4):
        c(cd.ones(1))
        assert w.tag == i + 1


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_change_is_seen(case: Callable[[], Any]) -> None:
    case()
