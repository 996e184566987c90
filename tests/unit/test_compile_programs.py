"""Programs over Python's objects, each called several times beside its eager twin."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from compile_programs import X, check, check_served, collection, comp, same

import coredispatch as cd
from coredispatch import nn

CASES, case = collection()


@case
def dataclass_arg():
    @dataclasses.dataclass
    class B:
        x: object
        k: int

    def f(b):
        return B(b.x * b.k, b.k + 1)

    def mk():
        return lambda x: dataclasses.astuple(f(B(x, 3))) if False else (f(B(x, 3)).x, f(B(x, 3)).k)

    return check(mk, [X()] * 4)


@case
def returns_dataclass():
    @dataclasses.dataclass
    class B:
        x: object
        k: int

    c = comp(lambda x: B(x * 2, 5))
    for _i in range(3):
        x = cd.randn(3)
        r = c(x)
        assert type(r) is B and r.k == 5
        same(r.x, x * 2)
    return c


@case
def rng_python():
    def mk():
        def f(x):
            return x * random.random()

        return f

    return check(mk, [X()] * 4)


@case
def process_dependent():
    def f(x):
        return x + os.getpid() * 0

    return check(lambda: f, [X()] * 3)


@case
def default_mutable():
    def mk():
        def f(x, acc=None):
            if acc is None:
                acc = []
            acc.append(1)
            return x * len(acc)

        return f

    return check(mk, [X()] * 5)


@case
def nonlocal_counter():
    def mk():
        n = 0

        def f(x):
            nonlocal n
            n += 1
            return x + n

        return f

    return check(mk, [X()] * 6)


@case
def generator_closure():
    def mk():
        it = iter(range(100))

        def f(x):
            return x * next(it)

        return f

    return check(mk, [X()] * 4)


@case
def itertools_cycle():
    def mk():
        it = itertools.cycle([1, 2, 3])

        def f(x):
            return x * next(it)

        return f

    return check(mk, [X()] * 4)


@case
def lru():
    def mk():
        @functools.lru_cache
        def k(n):
            return n * 2

        def f(x):
            return x * k(3)

        return f

    return check(mk, [X()] * 4)


@case
def dictcfg():
    def mk():
        cfg = {"a": 1, "l": [1, 2]}

        def f(x):
            cfg["a"] += 1
            cfg["l"].append(3)
            return x * cfg["a"] + len(cfg["l"])

        return f

    return check(mk, [X()] * 5)


@case
def contextm():
    def mk():
        @contextlib.contextmanager
        def ctx():
            yield 3

        def f(x):
            with ctx() as k:
                return x * k

        return f

    return check(mk, [X()] * 4)


@case
def enum_():
    class E(enum.Enum):
        A = 1
        B = 2

    def mk():
        def f(x, e):
            return x * 2 if e is E.A else x * e.value

        return f

    return check(mk, [lambda: (cd.randn(3), E.A), lambda: (cd.randn(3), E.B)] * 3)


@case
def property_():
    class C:
        def __init__(s):
            s._k = 2

        @property
        def k(s):
            s._k += 1
            return s._k

    def mk():
        c = C()

        def f(x):
            return x * c.k

        return f

    return check(mk, [X()] * 5)


@case
def getattr_dyn():
    class C:
        pass

    def mk():
        c = C()
        c.v0 = 1.0
        c.v1 = 2.0

        def f(x, i):
            setattr(c, f"v{i}", getattr(c, f"v{i}") + 1)
            return x * getattr(c, f"v{i}")

        return f

    return check(mk, [lambda: (cd.randn(3), 0), lambda: (cd.randn(3), 1)] * 3)


@case
def slots():
    class C:
        __slots__ = ("v",)

        def __init__(s):
            s.v = 1

    def mk():
        c = C()

        def f(x):
            c.v *= 2
            return x * c.v

        return f

    return check(mk, [X()] * 5)


@case
def rnn_state():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            cd.manual_seed(0)
            s.net = nn.Linear(4, 4)
            s.h = cd.zeros(4)

        def forward(s, x):
            s.h = cd.tanh(s.net(x) + s.h).detach()
            return s.h

    return check(M, [X(4)] * 6)


@case
def shapes():
    def mk():
        def f(x):
            return x.view(x.shape[0], -1).sum(1) * x.numel()

        return f

    return check(mk, [X(n, 2, 3) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])


@case
def numarg():
    def mk():
        def f(x, k, s):
            return x * k + s

        return f

    return check(mk, [(lambda i=i: (cd.randn(3), i, i * 0.5)) for i in range(10)])


@case
def numarg_branch():
    def mk():
        def f(x, k):
            for _ in range(k):
                x = x + 1
            return x.reshape(k, -1) if k > 1 else x

        return f

    return check(mk, [(lambda i=i: (cd.randn(12), i)) for i in (1, 2, 3, 4, 1, 2, 3)])


#: those that run eagerly as long as they do what they do
EAGER: set[str] = set("rng_python process_dependent generator_closure itertools_cycle lru".split())
#: those that depend on what each call changes, so that no graph serves a second call
MOVING: set[str] = set("default_mutable dictcfg shapes".split())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_program_gives_what_it_gives_eagerly(case: Callable[[], Any]) -> None:
    check_served(case, EAGER, MOVING)
