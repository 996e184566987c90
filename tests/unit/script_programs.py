"""Programs for ``jit.script`` as PyTorch's users write them; the tests run them under both names.

``FUNCTIONS`` and ``MODULES`` are ``(program, inputs)``: functions without arguments that make them.
"""

import math
from enum import Enum
from typing import Dict, Final, List, NamedTuple, Optional, Tuple, Union

import coredispatch as torch
import coredispatch.nn.functional as F
from coredispatch import Tensor, nn

FUNCTIONS = []
MODULES = []


def function(*inputs):
    def add(fn):
        FUNCTIONS.append((fn, list(inputs)))
        return fn

    return add


def module(*inputs, **options):
    def add(cls):
        MODULES.append((cls, list(inputs)))
        return cls

    return add


def ramp(*shape):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.float32).view(*shape) * 0.37).sin()


# ---- control flow ------------------------------------------------------------------------------


@function((3,), (0,), (11,))
def loop_break_continue(n: int) -> List[int]:
    found: List[int] = []
    for i in range(n):
        if i % 2 == 1:
            continue
        if i > 6:
            break
        found.append(i)
    return found


@function((5,), (-1,), (100,))
def early_return(n: int) -> str:
    if n < 0:
        return "negative"
    if n > 50:
        return "large"
    for i in range(n):
        if i == 3:
            return f"found {i} of {n}"
    return "small"


@function((27,), (1,))
def collatz(n: int):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps, n


@function((lambda: ramp(2, 3),), (lambda: -ramp(2, 3).abs(),))
def by_value(x):
    if x.sum() > 0:
        y = x * 2
    elif x.sum() < -100:
        y = x
    else:
        y = x - 1
        y = y.abs()
    return y


@function((1, 2, 3), (3, 2, 1), (2, 2, 2))
def chained(a: int, b: int, c: int):
    return a < b < c, a <= b <= c, a == b == c, not a < b, a < b and b < c or a == c


@function(
    (4,),
)
def nested_loops(n: int):
    out: List[Tuple[int, int]] = []
    for i in range(n):
        for j in range(i, n, 2):
            if (i + j) % 3 == 0:
                continue
            if j > 3:
                break
            out.append((i, j))
        else_count = len(out)
        if else_count > 5:
            return out, else_count
    return out, -1


@function((10,), (3,))
def while_true(limit: int):
    a, b = 0, 1
    while True:
        a, b = b, a + b
        if a > limit:
            break
    return a


@function((lambda: ramp(4, 2),))
def loop_tensor(x):
    total = torch.zeros(2)
    for row in x:
        total += row.abs()
    return total


@function((2,), (-2,))
def ternary(n: int):
    return n if n > 0 else -n, "pos" if n > 0 else "neg"


@function((lambda: ramp(3),))
def asserting(x):
    assert x.dim() == 1, f"wrong dim {x.dim()}"
    assert x.size(0) == 3
    return x


@function(([3, 1, 2],), ([],))
def find_max(xs: List[int]) -> Optional[int]:
    if len(xs) == 0:
        return None
    best = xs[0]
    for x in xs[1:]:
        if x > best:
            best = x
    return best


@function((5, None), (5, 3))
def optional_argument(a: int, b: Optional[int] = None) -> int:
    if b is None:
        b = 10
    return a + b


@function((lambda: ramp(3), None), (lambda: ramp(3), lambda: ramp(3)))
def optional_tensor(x: Tensor, bias: Optional[Tensor]) -> Tensor:
    if bias is not None and bias.dim() == 1:
        return x + bias
    return x


@function((None,), (4,))
def optional_assert(x: Optional[int]):
    y: Optional[int] = None
    if x is not None:
        y = x + 1
    if y is None:
        return -1
    assert y is not None
    return y * 2


@function((6,))
def short_circuit(n: int):
    xs = [1, 2, 3]
    return n < len(xs) and xs[n] == 2, n >= len(xs) or xs[n] == 2


@function((3,), (8,))
def return_in_nested(n: int):
    for i in range(10):
        if i > n:
            for j in range(5):
                if j * i > 12:
                    return i, j
    return -1, -1


@function((4,))
def while_complex(n: int):
    out: List[int] = []
    i = 0
    while i < n and len(out) < 3:
        j = i
        while j > 0:
            j -= 2
            if j == 1:
                break
        out.append(j)
        i += 1
    return out


# ---- containers --------------------------------------------------------------------------------


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


# ---- text and numbers --------------------------------------------------------------------------


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


# ---- tensors -----------------------------------------------------------------------------------


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


# ---- functions, classes, enums -----------------------------------------------------------------


def helper(x: int, scale: int = 2) -> int:
    if x > 10:
        return x
    return x * scale


@function((3,), (30,))
def calls(n: int):
    return helper(n), helper(n, 5), helper(scale=1, x=n)


def apply_twice(x, k: float):
    for _ in range(2):
        x = x * k
    return x


@function((lambda: ramp(2),))
def calls_tensor(x):
    return apply_twice(x, 2.0) + apply_twice(k=0.5, x=x)


class Color(Enum):
    RED = 1
    GREEN = 2


@function((3,))
def enums(n: int):
    c = Color.RED
    if n > 2:
        c = Color.GREEN
    return c == Color.GREEN, Color.RED.value, c.name


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.value = start
        self.names: List[str] = []

    def add(self, n: int) -> int:
        self.value += n
        self.names.append(str(n))
        return self.value

    def total(self) -> int:
        return self.value * 2

    def __add__(self, other: int) -> int:
        return self.value + other


@function((3,))
def classes(n: int):
    c = Counter(n)
    c.add(2)
    for i in range(3):
        c.add(i)
    c.value = c.value + 1
    return c.value, c.total(), c.names, c + 4


@function((1,))
def union_types(n: int):
    x: Union[int, str] = n
    if n > 0:
        x = "text"
    if isinstance(x, str):
        return len(x)
    return x


@function(())
def annotated():
    a = torch.jit.annotate(List[int], [])
    a.append(1)
    b: Dict[int, float] = {}
    b[1] = 2.0
    if torch.jit.is_scripting():
        a.append(2)
    return a, b


@function((2,))
def global_constants(n: int):
    return n * 3 + int(math.pi)


@function((lambda: ramp(4, 4),))
def typed_comment(x):
    # type: (Tensor) -> Tuple[Tensor, int]
    y = x.sum(0)
    return y, x.size(0)


@function((lambda: ramp(5, 4) * 4 + torch.tensor([0.0, 0.0, 5.0, 5.0]), lambda: ramp(5), 0.3))
def nms_loop(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    order = torch.argsort(scores, descending=True)
    keep: List[int] = []
    suppressed = torch.zeros(boxes.size(0), dtype=torch.bool)
    for k in range(order.size(0)):
        i = int(order[k])
        if bool(suppressed[i]):
            continue
        keep.append(i)
        for m in range(k + 1, order.size(0)):
            j = int(order[m])
            lt = torch.max(boxes[i, :2], boxes[j, :2])
            rb = torch.min(boxes[i, 2:], boxes[j, 2:])
            wh = (rb - lt).clamp(min=0)
            inter = wh[0] * wh[1]
            area = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
            if float(inter / area) > threshold:
                suppressed[j] = True
    return torch.tensor(keep)


@function(
    (lambda: ramp(5, 7).log_softmax(-1), 3),
)
def beam_search(log_probs: Tensor, beam: int) -> List[Tuple[float, List[int]]]:
    start: List[int] = []
    beams: List[Tuple[float, List[int]]] = [(0.0, start)]
    for t in range(log_probs.size(0)):
        candidates: List[Tuple[float, List[int]]] = []
        for score, tokens in beams:
            values, indices = log_probs[t].topk(beam)
            for k in range(beam):
                candidates.append((score + float(values[k]), tokens + [int(indices[k])]))
        found: List[Tuple[float, List[int]]] = []
        for _ in range(beam):
            best = 0
            for k in range(len(candidates)):
                if candidates[k][0] > candidates[best][0]:
                    best = k
            found.append(candidates.pop(best))
        beams = found
    return beams


@function(
    (
        lambda: ramp(3, 4),
        lambda: ramp(3, 8),
        lambda: ramp(3, 8),
        lambda: ramp(32, 4),
        lambda: ramp(32, 8),
    )
)
def lstm_cell(
    input: Tensor, hx: Tensor, cx: Tensor, w_ih: Tensor, w_hh: Tensor
) -> Tuple[Tensor, Tensor]:
    gates = torch.mm(input, w_ih.t()) + torch.mm(hx, w_hh.t())
    ingate, forgetgate, cellgate, outgate = gates.chunk(4, 1)
    ingate = torch.sigmoid(ingate)
    forgetgate = torch.sigmoid(forgetgate)
    cellgate = torch.tanh(cellgate)
    outgate = torch.sigmoid(outgate)
    cy = (forgetgate * cx) + (ingate * cellgate)
    hy = outgate * torch.tanh(cy)
    return hy, cy


@function((lambda: ramp(3),))
def forked(x):
    f = torch.jit.fork(apply_twice, x, 2.0)
    y = x + 1
    return torch.jit.wait(f) + y


# ---- modules -----------------------------------------------------------------------------------


@module((lambda: ramp(2, 4),), (lambda: -ramp(2, 4),))
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.alpha = 0.5
        self.register_buffer("scale", torch.ones(4) * 2)

    def forward(self, x):
        if x.sum() > 0:
            return self.fc(x) * self.scale
        return -x * self.alpha


@module((lambda: ramp(2, 4), lambda: ramp(2, 4)))
class MyCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.dg = Gate()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, h):
        new_h = torch.tanh(self.dg(self.linear(x)) + h)
        return new_h, new_h


@module((lambda: ramp(3, 2, 4),))
class MyRNNLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = MyCell()

    def forward(self, xs):
        h, y = torch.zeros(2, 4), torch.zeros(2, 4)
        for i in range(xs.size(0)):
            y, h = self.cell(xs[i], h)
        return y, h


@module((lambda: ramp(2, 4),))
class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.ReLU()})
        self.seq = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        out: List[Tensor] = []
        for name, head in self.heads.items():
            out.append(head(x))
        for layer, other in zip(self.layers, self.layers):
            x = x + (layer(x) * other(x)).tanh()
        return self.seq(x), out, self.layers[0](x), len(self.layers), self.heads["a"](x)


@module((lambda: ramp(2, 3, 8, 8),))
class BasicBlock(nn.Module):
    expansion: int = 1

    def __init__(self, inplanes: int = 3, planes: int = 4, stride: int = 2):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride), nn.BatchNorm2d(planes)
            )
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        out = self.relu(out)
        return out


@module((lambda: ramp(2, 3, 16, 16),))
class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(4, 4, 2, 1)
        self.layer2 = self._make_layer(4, 8, 2, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 10)

    def _make_layer(self, inplanes, planes, blocks, stride):
        layers = [BasicBlock(inplanes, planes, stride)]
        for _ in range(1, blocks):
            layers.append(BasicBlock(planes, planes, 1))
        return nn.Sequential(*layers)

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


@module((lambda: ramp(2, 4),), (lambda: ramp(3, 4),))
class Mutating(nn.Module):
    names: List[str]

    def __init__(self):
        super().__init__()
        self.count = 0
        self.names = []
        self.table: Dict[str, int] = {"a": 1}
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.count += 1
        self.total += x.sum(0)
        self.names.append(str(self.count))
        self.table["n"] = self.count
        return self.total * 1, self.count, self.names, self.table["n"]


@module((lambda: ramp(2, 4),))
class Exported(nn.Module):
    scale: Final[int]

    def __init__(self):
        super().__init__()
        self.scale = 4
        self.fc = nn.Linear(4, 4)
        self.use = True
        self.bias: Optional[Tensor] = None

    def forward(self, x):
        y = self.encode(x)
        if self.training:
            y = y * 2
        if self.use:
            y = y + 1
        bias = self.bias
        if bias is not None:
            y = y + bias
        return y

    @torch.jit.export
    def encode(self, x):
        for _ in range(self.scale):
            x = self.fc(x)
        return x**2

    @torch.jit.unused
    def never(self, x):
        import os

        return os.listdir(x)

    @property
    def width(self) -> int:
        return self.scale * 2


@module((lambda: ramp(3, 2, 4), None))
class LSTMLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight_ih = nn.Parameter(ramp(32, 4))
        self.weight_hh = nn.Parameter(ramp(32, 8))
        self.bias = nn.Parameter(torch.zeros(32))

    def step(
        self, input: Tensor, state: Tuple[Tensor, Tensor]
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        gates = torch.mm(input, self.weight_ih.t()) + torch.mm(hx, self.weight_hh.t()) + self.bias
        i, f, g, o = gates.chunk(4, 1)
        cy = torch.sigmoid(f) * cx + torch.sigmoid(i) * torch.tanh(g)
        hy = torch.sigmoid(o) * torch.tanh(cy)
        return hy, (hy, cy)

    def forward(
        self, input: Tensor, state: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        if state is None:
            zeros = torch.zeros(input.size(1), 8, dtype=input.dtype, device=input.device)
            state = (zeros, zeros)
        inputs = input.unbind(0)
        outputs = torch.jit.annotate(List[Tensor], [])
        for i in range(len(inputs)):
            out, state = self.step(inputs[i], state)
            outputs += [out]
        return torch.stack(outputs), state


@module((lambda: torch.tensor([[1, 2, 3], [4, 5, 0]]),))
class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.gru = nn.GRU(6, 5)
        self.out = nn.Linear(5, 10)
        self.max_len = 4

    def forward(self, ids):
        x = self.embed(ids)
        y, (h, c) = self.rnn(x)
        z, hz = self.gru(x)
        tokens: List[int] = []
        state = h[0]
        for _ in range(self.max_len):
            logits = self.out(state)
            token = int(logits[0].argmax())
            if token == 3:
                break
            tokens.append(token)
            state = torch.tanh(state + self.embed(torch.tensor([token, token]))[:, :5])
        return tokens, state, y, z


@module((lambda: ramp(2, 5, 8),))
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_head = 2
        self.qkv = nn.Linear(8, 24)
        self.proj = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.0)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(self.norm(x)).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = self.drop(F.softmax(att, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return x + self.proj(y)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def pre(self, x):
        return x * 2

    def forward(self, x):
        return self.fc(self.pre(x))


@module((lambda: ramp(2, 4),))
class Derived(Base):
    def pre(self, x):
        return x + 1


@module((lambda: {"a": ramp(2, 4), "b": ramp(2, 4)},))
class DictInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
        out: Dict[str, Tensor] = {}
        for name, x in batch.items():
            out[name + "_out"] = self.fc(x)
        return out


@module((lambda: ramp(2, 4), 3), (lambda: ramp(2, 4), 0))
class MixedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
        self.acts = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Identity()])

    def forward(self, x, which: int):
        for i, (expert, act) in enumerate(zip(self.experts, self.acts)):
            if i != which:
                x = act(expert(x))
        return x


@module((lambda: ramp(1, 4),))
class TracedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))
        self.scripted = torch.jit.script(Gate())

    def forward(self, x):
        for _ in range(2):
            x = self.scripted(self.traced(x))
        return x
