"""What a program read of Python is changed between its calls, in every way that comes to mind."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from compile_programs import check_changes, collection

import coredispatch as cd
from coredispatch import nn

CASES, case = collection()


def H(x):
    return x * 2


class Cfg:
    k = 1
    d = {"a": 1, "b": [1, 2]}


cfg = Cfg()


@case
def params():
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    m.eval()

    def setp():
        m[0].weight = nn.Parameter(cd.randn(3, 3))

    def setd():
        m[0].weight.data = cd.randn(3, 3)

    def rg():
        m.requires_grad_(False)

    def rg2():
        m[0].bias.requires_grad_(True)

    def inplace():
        with cd.no_grad():
            m[0].weight.mul_(2)

    def buf():
        m[1].running_mean = cd.ones(3)

    def bias():
        m[0].bias = None

    def mod():
        m[0] = nn.Linear(3, 3)

    def app():
        m.append(nn.ReLU())

    def hook():
        m[0].register_forward_hook(lambda a, b, o: o * 3)

    def load():
        m[0].load_state_dict(nn.Linear(3, 3).state_dict())

    check_changes(
        m,
        [setp, setd, rg, rg2, inplace, buf, bias, mod, app, hook, load],
        lambda: (cd.randn(2, 3),),
    )


@case
def dtype_module():
    m = nn.Linear(3, 3)
    c = cd.compile(m, backend="eager")
    for t in (cd.float32, cd.float64, cd.float32):
        m.to(t)
        for _ in range(2):
            x = cd.randn(2, 3, dtype=t)
            cd.testing.assert_close(c(x), m(x))


@case
def monkey():
    global H

    def p(x):
        return H(x) + 1

    def ch():
        global H

        def H(x):
            return x * 5

    def code():
        H.__code__ = (lambda x: x * 7).__code__

    def dflt():
        global H

        def H(x, k=2):
            return x * k

    def dflt2():
        H.__defaults__ = (9,)

    check_changes(p, [ch, code, dflt, dflt2], lambda: (cd.randn(3),))


@case
def cfgs():
    def p(x):
        s = 0
        for _k, v in cfg.d.items():
            s += v if isinstance(v, int) else len(v)
        return x * cfg.k + s + ("c" in cfg.d)

    def a():
        cfg.k = 3

    def b():
        Cfg.k = 9
        del cfg.k

    def d():
        cfg.d["b"].append(3)

    def e():
        cfg.d["c"] = 5

    def f():
        Cfg.d = {"q": 1}

    def g():
        cfg.__class__ = type("C2", (Cfg,), {"k": 77})

    check_changes(p, [a, b, d, e, f, g], lambda: (cd.randn(3),))


@case
def methods():
    class A:
        def f(s, x):
            return x + 1

        def __mul__(s, o):
            return o * 3

        def __len__(s):
            return 2

    a = A()

    def p(x):
        return a.f(a * x) * len(a) + bool(a)

    def m1():
        A.f = lambda s, x: x + 100

    def m2():
        a.f = lambda x: x - 1

    def m3():
        A.__mul__ = lambda s, o: o * 9

    def m4():
        A.__len__ = lambda s: 5

    def m5():
        A.__bool__ = lambda s: False

    check_changes(p, [m1, m2, m3, m4, m5], lambda: (cd.randn(3),))


@case
def closure():
    k = 1
    t = cd.ones(3)
    box = [cd.ones(3)]

    def p(x):
        return x * k + t + box[0]

    def a():
        nonlocal k
        k = 2

    def b():
        nonlocal t
        t = cd.zeros(3)

    def c():
        box[0] = cd.full((3,), 5.0)

    def d():
        box[0].add_(1)

    def e():
        nonlocal t
        t = cd.ones(1, dtype=cd.float64)

    def f():
        nonlocal t
        t = 3

    check_changes(p, [a, b, c, d, e, f], lambda: (cd.randn(3),))


@case
def defaults():
    def p(x):
        return x + cd.ones(3) + cd.zeros(3) * cd.tensor([1.0, 2, 3])

    def a():
        cd.set_default_dtype(cd.float64)

    def b():
        cd.set_default_dtype(cd.float32)

    check_changes(p, [a, b], lambda: (cd.randn(3),))


@case
def prop():
    class P:
        v = 1

        @property
        def q(s):
            return s.v

        def __getattr__(s, n):
            if n == "dyn":
                return s.w
            raise AttributeError(n)

    o = P()
    o.w = 2

    def p(x):
        return x * o.q + o.dyn

    def a():
        o.v = 4

    def b():
        o.w = 7

    def c():
        o.dyn = 1

    def d():
        P.q = property(lambda s: 99)

    check_changes(p, [a, b, c, d], lambda: (cd.randn(3),))


@case
def builtin_shadow():
    g = {"cd": cd, "__builtins__": __builtins__}
    exec("def p(x): return x*len([1,2])+abs(-1)", g)
    p = g["p"]

    def a():
        g["len"] = lambda box: 50

    def b():
        del g["len"]
        g["abs"] = lambda box: 50

    check_changes(p, [a, b], lambda: (cd.randn(3),))


@case
def imported():
    m = types.ModuleType("zz_mod")
    m.K = 2
    sys.modules["zz_mod"] = m

    def p(x):
        import zz_mod
        from zz_mod import K

        return x * zz_mod.K + K

    def a():
        m.K = 5

    check_changes(p, [a], lambda: (cd.randn(3),))


@case
def lambdas_dict():
    fns = {"a": lambda x: x + 1, "b": lambda x: x * 2}

    def p(x):
        return sum(f(x) for f in fns.values())

    def a():
        fns["a"] = lambda x: x - 5

    def b():
        fns.pop("b")

    def c():
        fns["z"] = lambda x: x * x

    check_changes(p, [a, b, c], lambda: (cd.randn(3),))


@case
def bound():
    class A:
        def __init__(s):
            s.k = 1

        def f(s, x):
            return x * s.k

    a, b = A(), A()
    b.k = 5
    h = [a.f]

    def p(x):
        return h[0](x)

    def c():
        h[0] = b.f

    def d():
        b.k = 6

    check_changes(p, [c, d], lambda: (cd.randn(3),))
    z = cd.compile(a.f, backend="eager")
    assert z(cd.ones(1)).item() == 1
    a.k = 3
    assert z(cd.ones(1)).item() == 3


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_change_is_seen(case: Callable[[], Any]) -> None:
    case()


def test_an_attribute_of_a_computed_name_that_comes_to_hide_one_of_the_class() -> None:
    class Rates:
        rate_a, rate_b = 1.0, 2.0

    rates, kind = Rates(), ["b"]
    fast: Any = cd.compile(lambda x: x * getattr(rates, "rate_" + kind[0]), backend="eager")
    assert fast(cd.ones(1)).item() == 2
    rates.rate_b = 9.0
    assert fast(cd.ones(1)).item() == 9
    del rates.rate_b
    assert fast(cd.ones(1)).item() == 2
    kind[0] = "a"
    assert fast(cd.ones(1)).item() == 1
