"""Programs whose branches and loops depend on values of tensors and on open sizes.

They have no annotations of results: the compiler finds those.
"""
# ruff: noqa: UP006, UP035, UP045, B007
# mypy: ignore-errors

import math
from typing import Dict, List, Optional

import coredispatch as cd
from coredispatch import Tensor


def early_returns(x):
    if bool(x.sum() > 0):
        return x.relu()
    y = x * 2
    if bool(y.min() < -3):
        return y - 1
    return y + 1


def counts(x):
    k = 0
    y = x
    while bool(y.abs().sum() < 100):
        y = y * 2 + 1
        k += 1
    return y, y * k, cd.tensor(k)


def rows(x):
    h = cd.zeros(3)
    out = cd.zeros_like(x)
    for i in range(x.size(0)):
        h = (x[i] + h).tanh()
        out[i] = h
    return out, h


def nested(x):
    t = cd.zeros(3)
    for i in range(x.size(0)):
        for j in range(i):
            if bool(x[i, j % 3] > 0):
                t = t + x[j]
            else:
                t = t - x[i] * j
            if j > 1:
                continue
            t = t * 0.5
    return t


def breaks(x):
    y = x
    n = 0
    for i in range(x.size(0)):
        y = y + i
        n = i
        if bool(y.sum() > 5):
            break
    return y, y * float(n)


def rows_by_themselves(x):
    s = cd.zeros(3)
    for row in x:
        s = s + row.relu()
    for i, row in enumerate(x):
        s += row * i
    return s


def ranges(x):
    s = x
    for i in range(1, int(x.sum().abs().item()), 2):
        s = s + i
    for i in range(5, x.size(0), -1):
        s = s - i
    return s


def lists(x):
    a = [x, x + 1]
    if bool(x.sum() > 0):
        a[0] = x * 3
        b = {"k": x}
    else:
        a[1] = x - 7
        b = {"k": x * 2}
    for i in range(x.size(0)):
        a[1] = a[1] + i
    return a[0] + a[1] + b["k"]


def grows_in_known_turns(x):
    a: List[Tensor] = []
    for i in range(3):
        if bool(x.sum() > 0):
            a.append(x * i)
        else:
            a.append(x + i)
    return cd.stack(a)


def mixes(x):
    z = 1.5
    k = 3
    for i in range(x.size(0)):
        z = z / 2 + float(i) - min(k, 3) + abs(k - 7)
        k = (k * 3 + i) % 5
        if k > 2 and z < 8.0 or not bool(x.any()):
            k = k - 1
    return x * z + k, cd.tensor(z), cd.clamp(x, max=z)


def writes(x):
    y = x.clone()
    if bool(y.sum() > 0):
        y.add_(1)
        y[0] = 5
    else:
        y *= 2
    for i in range(x.size(0)):
        y[i, 0] += i
    return y


def many_turns(x):
    y = x
    for i in range(100):
        y = y * 0.9 + i
    return y


def optional_of_a_loop(x, m: Optional[Tensor] = None):
    if m is not None:
        x = x * m
    s: Optional[Tensor] = None
    for i in range(3):
        if s is None:
            s = x
        else:
            s = s + x
        if bool(s.sum() > 10):
            break
    assert s is not None
    return s


def while_true(x):
    y = x
    i = 0
    while True:
        y = y + 1
        i += 1
        if bool(y.sum() > 50) or i > 20:
            break
    return y


def branches_in_branches(x):
    r = 0.0
    if bool(x.sum() > 0):
        if bool(x.max() > 1):
            r = 1.0
        else:
            r = 2.0
        y = x * r
    elif bool(x.sum() > -3):
        y = x - 1
    else:
        y, r = x + 1, float(x.sum())
    return y * r


def returns_of_a_loop(x):
    y = x
    for i in range(x.size(0)):
        y = y * 2
        if bool(y.sum() > 5):
            return y
    return y - 1


def returns_of_a_known_loop(x):
    for i in range(4):
        x = x * 2
        if bool(x.sum() > 5):
            return x
    return x - 1


def best_row(x):
    best: Optional[Tensor] = None
    for row in x:
        if best is None:
            best = row
        elif bool(row.sum() > best.sum()):
            best = row
    if best is None:
        return x[0]
    return best


def returns_two(x):
    for i in range(x.size(0)):
        if bool(x[i].sum() > 0.5):
            return x[i], i * x
    return x[-1], x


def dicts(x):
    d: Dict[str, Tensor] = {}
    for i in range(2):
        if bool(x[i].sum() > 0):
            d[str(i)] = x[i]
        else:
            d[str(i)] = -x[i]
    return d["0"] + d["1"]


def maths(x):
    n = x.size(0)
    k = 0
    for i in range(n):
        k += min(i, 2) * max(n, 5)
    v = float(x.sum())
    if v > 1.0:
        w = int(v) // 2
    else:
        w = math.floor(v) % 3
    return x * w + k + math.exp(min(v, 1.0))
