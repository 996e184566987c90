"""Programs that look at values or reach outside, each beside its eager twin."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compile_programs import X, check, check_served, collection, comp, same

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import nn

CASES, case = collection()


@case
def set_attr_tensor():
    def mk():
        class Holder:
            pass

        o = Holder()

        def f(x):
            o.last = x * 2
            o.hist = getattr(o, "hist", []) + [x.sum().item()]
            return o.last, list(o.hist)

        return f

    return check(mk, [X()] * 6)


@case
def fstring():
    def mk():
        def f(x):
            return f"{x.sum().item():.3f}", x

        return f

    return check(mk, [X()] * 5)


@case
def math_item():
    def mk():
        def f(x):
            return x * math.sqrt(abs(x.sum().item()))

        return f

    return check(mk, [X()] * 5)


@case
def tolist():
    def mk():
        def f(x):
            return [v * 2 for v in x.tolist()], x.argmax().item(), x[x.argmax().item()]

        return f

    return check(mk, [X(4)] * 5)


@case
def item_cmp():
    def mk():
        def f(x):
            v = x.sum().item()
            return (x + 1, v) if v > 0 else (x - 1, -v)

        return f

    return check(mk, [X(4)] * 8)


@case
def minmax():
    def mk():
        def f(x):
            a, b = x[0].item(), x[1].item()
            return max(a, b), sum([a, b, 1]), round(a, 2), int(b), isinstance(a, float), [a] * 2

        return f

    return check(mk, [X(4)] * 5)


@case
def while_loop():
    def mk():
        def f(x):
            n = 0
            while x.abs().max() > 1:
                x = x / 2
                n += 1
            return x, n

        return f

    return check(mk, [(lambda i=i: (cd.randn(3) * i,)) for i in range(1, 9)])


@case
def bool_mask():
    def mk():
        def f(x):
            m = x > 0
            return x[m], m.nonzero(), x.unique()

        return f

    return check(mk, [X(6)] * 6)


@case
def autocast_out():
    def mk():
        net = None
        cd.manual_seed(0)
        net = nn.Linear(3, 3)

        def f(x):
            return net(x)

        return f

    p, q = mk(), mk()
    c = comp(q)
    for i in range(6):
        x = cd.randn(2, 3)
        if i % 2:
            with cd.autocast("cpu"):
                same(c(x), p(x))
                assert c(x).dtype is cd.bfloat16
        else:
            same(c(x), p(x))
    return c


@case
def infmode():
    def mk():
        cd.manual_seed(0)
        net = nn.Linear(3, 3)
        return lambda x: net(x)

    p = mk()
    c = comp(p)
    for i in range(6):
        x = cd.randn(2, 3)
        m = [cd.no_grad, cd.inference_mode, contextlib.nullcontext][i % 3]
        with m():
            a, b = c(x), p(x)
        same(a, b)
        assert a.requires_grad == b.requires_grad and a.is_inference() == b.is_inference(), (
            i,
            a.is_inference(),
            b.is_inference(),
        )
    return c


@case
def vmapped():
    def mk():
        def f(x):
            return cd.vmap(lambda r: r.sin().sum())(x), cd.func.grad(lambda y: (y**2).sum())(x)

        return f

    return check(mk, [X()] * 4)


@case
def under_vmap():
    c = comp(lambda r: (r.sin()).sum())
    for _ in range(3):
        x = cd.randn(3, 4)
        same(cd.vmap(c)(x), x.sin().sum(1))
    return c


@case
def dup_out():
    def mk():
        def f(x):
            y = x * 2
            return y, y, [y]

        return f

    c = check(mk, [X()] * 3)
    a, b, net = c(cd.randn(3, 4))
    assert a is b is net[0]
    return c


@case
def frozen_const():
    def mk():
        def f(x):
            t = cd.tensor([1.0, 2, 3])
            t += x
            return t

        return f

    return check(mk, [X(3)] * 4)


@case
def requires_out():
    c = comp(lambda: cd.ones(3, requires_grad=True) * 2)
    for _ in range(3):
        assert c().requires_grad
    return c


@case
def new_param():
    def mk():
        def f(x):
            return nn.Parameter(x.clone())

        return f

    return check(mk, [X(3)] * 4)


@case
def lambda_loop():
    fs = [comp(lambda x, i=i: x * i) for i in range(5)]
    for i, f in enumerate(fs):
        for _ in range(2):
            same(f(cd.ones(2)), cd.full((2,), float(i)))
    return fs[0]


@case
def exec_src():
    ns = {"cd": cd}
    exec("def f(x):\n  return x.sin()+K\nK=2", ns)
    c = comp(ns["f"])
    for k in (2, 2, 3, 3):
        ns["K"] = k
        same(c(cd.zeros(2)), cd.full((2,), float(k)))
    return c


@case
def cfunc():
    c = comp(math.sqrt)
    assert [c(4), c(9), c(16)] == [2, 3, 4]
    c2 = comp(cd.relu)
    same(c2(cd.ones(2)), cd.ones(2))
    same(c2(cd.ones(2)), cd.ones(2))
    return c2


@case
def strfn():
    def mk():
        def f(x, s):
            return {"a" + s: x + len(s.split(","))}

        return f

    return check(mk, [lambda: (cd.ones(2), "x,y"), lambda: (cd.ones(2), "z")] * 2)


@case
def deque_():
    def mk():
        d = collections.deque(maxlen=3)

        def f(x):
            d.append(x.sum().item())
            return sum(d), len(d)

        return f

    return check(mk, [X()] * 6)


@case
def multihead():
    def mk():
        cd.manual_seed(0)
        m = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        return lambda x: m(x)

    return check(mk, [X(2, 5, 8)] * 4)


@case
def lstm():
    def mk():
        cd.manual_seed(0)
        m = nn.LSTM(4, 6, 2, batch_first=True)
        return lambda x: m(x)

    return check(mk, [X(2, 5, 4)] * 4)


@case
def conv():
    def mk():
        cd.manual_seed(0)
        m = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 3 * 3, 2)
        )
        return lambda x: F.cross_entropy(m(x), cd.tensor([0, 1]))

    return check(mk, [X(2, 1, 8, 8)] * 4)


@case
def gclip_hist():
    def mk():
        log = []

        def f(x):
            log.append({"loss": x.sum().item(), "n": len(log)})
            return list(log)

        return f

    return check(mk, [X()] * 5)


@case
def str_key_tensor_attr():
    def mk():
        cache = {}

        def f(x, k):
            if k not in cache:
                cache[k] = x * 2
            return cache[k] + 1

        return f

    return check(mk, [(lambda k=k: (cd.ones(2) * 3, k)) for k in "aabbab"])


@case
def global_list_pop():
    def mk():
        net = [1, 2, 3, 4, 5, 6]

        def f(x):
            return x * net.pop()

        return f

    return check(mk, [X()] * 5)


@case
def type_of_item():
    def mk():
        def f(x):
            return type(x.sum().item()) is float, type(x.sum().item()).__name__

        return f

    return check(mk, [X()] * 3)


@case
def np_in():

    def mk():
        A = np.arange(3.0)

        def f(x):
            return x + cd.from_numpy(A) + float(np.sqrt(4.0))

        return f

    return check(mk, [lambda: (cd.randn(3).double(),)] * 3)


@case
def np_out():
    def mk():
        def f(x):
            return x.numpy() * 2

        return f

    return check(mk, [X()] * 3)


@case
def jsonned():
    def mk():
        log = []
        w = cd.zeros(3)

        def f(x):
            w.add_(x.mean())
            log.append(1)
            return len(json.dumps({"a": x.sum().item()})), len(log), w.clone() + cd.rand(3)

        return f

    return check(mk, [X()] * 4)


@case
def foreign_after_item():
    def mk():
        log = []
        w = cd.zeros(3)

        def f(x):
            w.add_(x.mean())
            log.append(1)
            v = x.sum().item()
            os.getpid()
            return v, len(log), w.clone() + cd.rand(3)

        return f

    return check(mk, [X()] * 4)


@case
def np_of_item():

    def mk():
        def f(x):
            return (
                float(np.asarray(x.sum().item())) + 1,
                float(np.float64(x.sum().item())),
                {x.sum().item(): 1}.popitem()[0],
            )

        return f

    return check(mk, [X()] * 4)


@case
def fullgraph_clean():
    w = cd.zeros(3)
    log = []

    def f(x):
        log.append(1)
        w.add_(1)
        print("x")

    c = comp(f, fullgraph=True)
    try:
        c(cd.ones(3))
        assert 0
    except RuntimeError:
        pass
    assert not log and w.sum() == 0
    return c


@case
def numpy_numbers():
    def mk():
        return lambda x: (x * np.sqrt(2.0) + np.log(3.0)).sum() * np.complex128(1 + 2j)

    return check(mk, [X()] * 3)


#: those that run eagerly as long as they do what they do
EAGER: set[str] = set(
    "requires_out new_param np_out foreign_after_item under_vmap fullgraph_clean".split()
)
#: those that depend on what each call changes, so that no graph serves a second call
MOVING: set[str] = set(
    "set_attr_tensor deque_ gclip_hist fstring global_list_pop "
    "type_of_item math_item tolist minmax jsonned np_of_item bool_mask".split()
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_program_gives_what_it_gives_eagerly(case: Callable[[], Any]) -> None:
    check_served(case, EAGER, MOVING)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "prod", "logsumexp", "softmax"])
def test_reductions_of_a_tensor_without_dimensions(name: str) -> None:
    x = cd.tensor(1.5)
    for program in (lambda t: getattr(t, name)(-1), lambda t: getattr(t * 2, name)(0)):
        assert cd.compile(program)(x).equal(program(x))
