"""Branches, loops, early returns."""

from typing import List, Optional, Tuple

from script_cases import registry

import coredispatch as torch
from coredispatch import Tensor

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


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
