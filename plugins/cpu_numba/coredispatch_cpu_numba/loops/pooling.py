"""The gradient of max pooling by windows of 2 by 2 side by side. Counts planes.

The first maximum of a window, in row order, gets the gradient; a NaN is larger than every number.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import fill, item, part, put

__all__ = ["LOOPS"]


def _halving_backward(char: str) -> Callable[..., None]:
    """A last row or column that no window covers gets 0."""
    zero = elementary[char].T(0.0)

    def loop(grad, x, out, h, w, lo, hi):
        full_vectors()
        oh, ow = h // 2, w // 2
        for plane in range(lo, hi):
            if h % 2:
                fill(part(out, ((plane + 1) * h - 1) * w, (plane + 1) * h * w), zero)
            for y in range(oh):
                base = (plane * h + 2 * y) * w
                given = part(grad, (plane * oh + y) * ow, (plane * oh + y + 1) * ow)
                above, below = part(x, base, base + w), part(x, base + w, base + 2 * w)
                upper, lower = part(out, base, base + w), part(out, base + w, base + 2 * w)
                if w % 2:
                    upper[w - 1] = zero
                    lower[w - 1] = zero
                for z in range(ow):
                    a, b = item(above, 2 * z), item(above, 2 * z + 1)
                    c, d = item(below, 2 * z), item(below, 2 * z + 1)
                    g = item(given, z)
                    # Whether the later one is larger, or the first NaN.
                    right = (b > a) | ((b != b) & (a == a))
                    first = choose(right, b, a)
                    beside = (d > c) | ((d != d) & (c == c))
                    second = choose(beside, d, c)
                    low = (second > first) | ((second != second) & (first == first))
                    put(upper, 2 * z, choose(low | right, zero, g))
                    put(upper, 2 * z + 1, choose((not low) & right, g, zero))
                    put(lower, 2 * z, choose(low & (not beside), g, zero))
                    put(lower, 2 * z + 1, choose(low & beside, g, zero))

    return loop


LOOPS: dict[str, Loop] = {
    "halving_backward": Loop("aaann", _halving_backward),
}
