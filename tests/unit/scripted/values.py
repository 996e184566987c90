"""Lists, dicts, tuples, text, numbers and tensors."""

import math
from typing import Dict, List, NamedTuple, Tuple

from script_cases import registry

import coredispatch as torch
import coredispatch.nn.functional as F
from coredispatch import Tensor

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


# ---- containers ----------------------------------------------------------------------------------


@function((["b", "a", "b"],))
def count_words(words: List[str]) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for word in words:
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = 1
    return counts


@function(({"a": 1, "b": 2},))
def dictionaries(d: Dict[str, int]):
    keys = list(d.keys())
    total = 0
    for k, v in d.items():
        total += v
    d2 = {k: v * 2 for k, v in d.items()}
    missing = d.get("zz", -1)
    d2.pop("a")
    d2.update({"q": 7})
    d2["w"] = 1
    del d2["w"]
    return keys, total, d2, missing, "a" in d, len(d), sorted(list(d.values()))


@function(([1, 2, 3, 4],))
def lists(xs: List[int]):
    ys = xs.copy()
    ys.append(5)
    ys.extend([6, 7])
    ys.insert(0, 0)
    last = ys.pop()
    ys[1] = 10
    ys[2] += 5
    ys.reverse()
    zs = [y * 2 for y in ys]
    zs.sort()
    return (
        ys,
        last,
        zs,
        ys[1:3],
        ys[-1],
        ys[::2],
        3 in xs,
        xs + zs,
        [0] * 3,
        max(xs),
        min(xs),
        sum(xs),
    )


@function(())
def comprehensions():
    squares = [i * i for i in range(5)]
    pairs = [(i, s) for i, s in enumerate(squares)]
    names = {str(i): i for i in range(3)}
    both = [a + b for a, b in zip(squares, [1, 2, 3])]
    return squares, pairs, names, both


@function(
    ((1, 2.5), "x"),
)
def tuples(pair: Tuple[int, float], s: str):
    a, b = pair
    t = (a, b, s)
    (c, d), e = (b, a), s
    return t[0], t[1:], t + (1,), len(t), (c, d, e)


class Point(NamedTuple):
    x: Tensor
    y: int = 3


@function((lambda: ramp(2),))
def named_tuples(x):
    p = Point(x, 2)
    q = Point(x * 2)
    x2, y2 = q
    return p.x + q.x, p.y + q.y, p[1], x2, y2


@function((lambda: [ramp(2), ramp(2)],))
def list_of_tensors(xs: List[Tensor]):
    out = []
    for i, x in enumerate(xs):
        out.append(x * i)
    return torch.stack(out), torch.cat(xs, dim=0), len(out)


@function((3,))
def reversed_enumerate(n: int):
    out: List[int] = []
    for i, x in enumerate([10, 20, 30], 1):
        out.append(i * x)
    for i in range(n, 0, -1):
        out.append(i)
    for x in [1, 2][::-1]:
        out.append(x)
    return out


# ---- text and numbers ----------------------------------------------------------------------------


@function(
    ("Hello World", 3),
)
def strings(s: str, n: int):
    parts = s.split(" ")
    return (
        s.lower(),
        s.upper(),
        s[1:4],
        s[-1],
        len(s),
        parts,
        "-".join(parts),
        s.replace("o", "0"),
        s.startswith("He"),
        s.find("W"),
        "lo" in s,
        s + "!",
        f"{s}:{n}:{1.5}",
        "{} {}".format(n, s),
        "%s and %d" % (s, n),
        s == "x",
        s.strip(),
        str(n),
        int("12"),
        float("1.5"),
        ord("a"),
        chr(98),
    )


@function((7, 2.5), (-7, 0.5))
def numbers(a: int, b: float):
    return (
        a + b,
        a * 2,
        a / 2,
        a // 2,
        a % 3,
        -a,
        abs(a),
        int(b),
        float(a),
        bool(a),
        min(a, 3),
        max(b, 1.0),
        math.sqrt(abs(b)),
        math.floor(b),
        math.ceil(b),
        math.pi,
        int(round(b * 10)),
        a & 3,
        a | 8,
        a ^ 1,
        a << 1,
        b**2,
        math.exp(b),
        math.inf > b,
        not a,
        divmod(a, 3),
    )


# ---- tensors -------------------------------------------------------------------------------------


@function((lambda: ramp(4, 6),))
def tensor_methods(x):
    b, c = x.shape
    y = x.view(b, 2, c // 2).transpose(1, 2).contiguous()
    v, i = x.max(dim=1)
    w = x.sort(dim=1, descending=True)[0]
    a, z = torch.topk(x, 2)
    q = x.max(1).values
    n = x.numel()
    return (
        y,
        v,
        i,
        w,
        a,
        z,
        q,
        n,
        x.size(),
        x.shape[0],
        x.size(1),
        x.dim(),
        x.mean().item(),
        x.device,
    )


@function((lambda: ramp(3, 4),))
def tensor_indexing(x):
    y = x.clone()
    y[0] = 1.0
    y[1, 2] = 5
    y[:, 0] += 2
    y[y > 0.5] = 0.25
    z = x[None, :, ::2]
    return y, z, x[..., -1], x[1], x[1:, 1:3], x[torch.tensor([0, 2])]


@function((lambda: ramp(6),))
def splits(x):
    parts = x.chunk(3)
    out = []
    for p in parts:
        out.append(p.sum())
    a, b = x.split(3)
    return torch.stack(out), len(parts), a - b, torch.unbind(x.view(2, 3))[1]


@function((lambda: ramp(2, 3),))
def creations(x):
    a = torch.zeros(x.shape, dtype=x.dtype)
    b = torch.ones_like(x)
    c = torch.arange(x.size(1))
    d = torch.full((2, 3), 1.5)
    e = torch.tensor([1.0, 2.0, 3.0])
    f = torch.empty(0)
    return a + b + c + d + e, f.numel(), torch.eye(2), torch.linspace(0, 1, 3)


@function(
    (lambda: ramp(3, 3), 2),
)
def in_place(x, n: int):
    y = x.clone()
    for _ in range(n):
        y.mul_(2).add_(1)
        y += x
        y *= 0.5
    return y


@function((lambda: ramp(2, 4),))
def functional(x):
    y = F.relu(x)
    y = F.softmax(y, dim=-1)
    y = F.dropout(y, 0.5, training=False)
    y = F.layer_norm(y, [4])
    z = F.pad(y, [1, 1])
    return y, z, F.gelu(x), F.mse_loss(x, y), F.one_hot(torch.tensor([0, 2]), 3)
