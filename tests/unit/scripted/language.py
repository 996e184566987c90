"""Parts of the language that well-known code uses."""

import math
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple, Union

from script_cases import registry

import coredispatch as torch
import coredispatch.nn.functional as F
from coredispatch import Tensor, nn
from coredispatch.nn import Parameter

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


@module((lambda: ramp(2, 3),))
class ParameterContainers(nn.Module):
    def __init__(self):
        super().__init__()
        self.params = nn.ParameterList([Parameter(ramp(3) + i) for i in range(3)])
        self.scales = nn.ParameterDict({"a": Parameter(torch.ones(3)), "b": Parameter(ramp(3))})

    def forward(self, x):
        for i, p in enumerate(self.params):
            x = x * p + i
        return x + self.scales["a"] * self.scales["b"]


class Shape(nn.Module):
    def __init__(self, sides: int):
        super().__init__()
        self.sides = sides
        self.weight = Parameter(ramp(3))

    @staticmethod
    def scale(x, by: float):
        return x * by

    @property
    def area(self) -> int:
        return self.sides * self.sides

    def forward(self, x):
        return x * self.area


@module((lambda: ramp(3),))
class Square(Shape):
    def __init__(self):
        super().__init__(3)

    def forward(self, x):
        y = super().forward(x)
        return self.scale(y, 0.5) + self.area * self.weight


@module((lambda: ramp(2, 3), "double"), (lambda: ramp(2, 3), "none"))
class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = F.relu
        self.table: Dict[str, int] = {"double": 2, "triple": 3}
        self.weights = [0.5, 1.5]
        self.pair = (1, 2.0)
        self.fc = nn.Linear(3, 3)
        self.dtype = torch.float32
        self.maybe: Optional[int] = None

    def forward(self, x, key: str):
        k = 1
        if key in self.table:
            k = self.table[key]
        for w in self.weights:
            x = self.act(x) * w + k
        a, b = self.pair
        return (self.fc(x) + a * b).to(self.dtype), self.maybe is None


@torch.jit.script
@dataclass
class Config:
    width: int
    rate: float = 0.5


@function((3,))
def dataclasses_are_classes(n: int):
    c = Config(n)
    d = Config(width=2, rate=1.5)
    return c.width * d.width, c.rate + d.rate


@torch.jit.script
class Vector:
    def __init__(self, x: float, y: float):
        self.x = x
        self.y = y

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.x + other.x, self.y + other.y)

    def __len__(self) -> int:
        return 2

    def __lt__(self, other: "Vector") -> bool:
        return self.norm < other.norm

    @property
    def norm(self) -> float:
        return math.sqrt(self.x * self.x + self.y * self.y)


@function((3.0, 4.0))
def operators_of_classes(a: float, b: float):
    v = Vector(a, b) + Vector(1.0, 1.0)
    w = Vector(0.0, 1.0)
    vs = [v, w]
    total = 0.0
    for item in vs:
        total += item.norm
    return v.x, v.y, v.norm, len(v), w < v, total


@function(([1, 2, 3],), ("text",), (5,))
def any_of(x: Union[List[int], str, int]) -> int:
    if isinstance(x, str):
        return len(x)
    elif isinstance(x, int):
        return x
    else:
        return sum(x)


@function((lambda: {"a": [ramp(2), ramp(2)], "b": [ramp(2)]},))
def nested_types(d: Dict[str, List[Tensor]]) -> Dict[str, Tuple[int, Tensor]]:
    out: Dict[str, Tuple[int, Tensor]] = {}
    for key in d.keys():
        values = d[key]
        total = values[0]
        for v in values[1:]:
            total = total + v
        out[key] = (len(values), total)
    return out


@function((4,))
def primes(limit: int) -> List[int]:
    found: List[int] = []
    n = 2
    while len(found) < limit:
        is_prime = True
        for p in found:
            if p * p > n:
                break
            if n % p == 0:
                is_prime = False
                break
        if is_prime:
            found.append(n)
        n += 1
    return found


@function((lambda: ramp(4, 4),))
def power_iteration(a):
    v = torch.ones(a.size(0))
    last = -1.0
    steps = 0
    while True:
        w = a.t() @ (a @ v)
        norm = float(w.norm())
        v = w / norm
        steps += 1
        if abs(norm - last) < 1e-3 * norm or steps >= 50:
            break
        last = norm
    return v.abs(), steps


@function(("3 + 4 * 2",))
def calculator(text: str) -> int:
    numbers: List[int] = []
    operators: List[str] = []
    for token in text.split(" "):
        if token.isdigit():
            value = int(token)
            if len(operators) > 0 and operators[-1] == "*":
                operators.pop()
                value = numbers.pop() * value
            numbers.append(value)
        else:
            operators.append(token)
    total = 0
    for n in numbers:
        total += n
    return total


@function((lambda: ramp(3, 5),))
def viterbi(scores: Tensor) -> Tuple[List[int], float]:
    backpointers: List[Tensor] = []
    best = scores[0]
    for t in range(1, scores.size(0)):
        values, pointers = (best.unsqueeze(1) + 0.1 * torch.eye(5)).max(0)
        best = values + scores[t]
        backpointers.append(pointers)
    tag = int(best.argmax())
    path = [tag]
    for k in range(len(backpointers) - 1, -1, -1):
        tag = int(backpointers[k][tag])
        path.append(tag)
    path.reverse()
    return path, float(best.max())


@function((lambda: ramp(3), 2), (lambda: ramp(3), 0))
def annotated_variables(x, n: int):
    y: Optional[Tensor] = None
    z = torch.jit.annotate(Optional[Tensor], None)
    for i in range(n):
        if y is None:
            y = x
        else:
            y = y + i
        z = y
    if y is not None and z is not None:
        return y + z
    return x


@function((2,))
def optional_of_lists(n: int) -> List[Optional[int]]:
    out: List[Optional[int]] = []
    for i in range(n):
        out.append(i)
        out.append(None)
    return out


@function((lambda: ramp(2, 3),))
def shapes(x):
    shape = x.shape
    a = list(shape)
    a[0] = 7
    return (
        shape,
        a,
        x.size()[0],
        x.shape[-1] * 2,
        len(x.shape),
        x.view(x.shape[::-1]),
        [2] + x.shape[1:],
    )
