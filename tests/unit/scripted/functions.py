"""Functions that call others, classes, enums."""

import math
from enum import Enum
from typing import Dict, List, Tuple, Union

from script_cases import registry

import coredispatch as torch
from coredispatch import Tensor

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


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
