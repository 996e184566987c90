"""Print the polynomial coefficients of ``coredispatch_cpu_numba/elementary``.

Weighted minimax fits by the Remez exchange algorithm (Remez 1934; de Dinechin's and Muller's
"Elementary Functions", chapter 3) in 50-digit arithmetic. Needs mpmath::

    python plugins/cpu_numba/tools/minimax.py

Each line gives the fitted function, the largest weighted error and the coefficients, lowest
power first, rounded to the precision that uses them.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 50

Real = Callable[[mp.mpf], mp.mpf]


def remez(
    function: Real, weight: Real, low: mp.mpf, high: mp.mpf, degree: int, grid: int = 1000
) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients ``c`` that minimise ``max |weight(x) (function(x) - sum c_k x^k)|``.

    Returns the coefficients, lowest power first, and that maximum, taken over a Chebyshev
    grid of ``grid + 1`` points of ``[low, high]``. ``weight`` must not vanish.
    """
    middle, radius = (low + high) / 2, (high - low) / 2
    xs = [middle - radius * mp.cos(mp.pi * i / grid) for i in range(grid + 1)]
    fs, ws = [function(x) for x in xs], [weight(x) for x in xs]
    count = degree + 2
    nodes = [round(grid * i / (count - 1)) for i in range(count)]
    previous = mp.inf
    for _ in range(40):
        system = mp.matrix(count, count)
        values = mp.matrix(count, 1)
        for row, node in enumerate(nodes):
            for power in range(degree + 1):
                system[row, power] = xs[node] ** power
            system[row, degree + 1] = (-1) ** row / ws[node]
            values[row] = fs[node]
        solution = mp.lu_solve(system, values)
        coefficients = [solution[power] for power in range(degree + 1)]
        errors = [
            w * (f - mp.polyval(coefficients[::-1], x)) for x, f, w in zip(xs, fs, ws, strict=True)
        ]
        nodes = alternation(errors, count) or nodes
        largest = max(abs(error) for error in errors)
        if abs(previous - largest) <= largest / 1000:
            break
        previous = largest
    return coefficients, largest


def alternation(errors: list[mp.mpf], count: int) -> list[int] | None:
    """Indices of ``count`` extrema of alternating sign, or None when there are fewer."""
    extrema: list[int] = []
    for index, error in enumerate(errors):
        if extrema and (error > 0) == (errors[extrema[-1]] > 0):
            if abs(error) > abs(errors[extrema[-1]]):
                extrema[-1] = index
        else:
            extrema.append(index)
    while len(extrema) > count:
        first_is_smaller = abs(errors[extrema[0]]) < abs(errors[extrema[-1]])
        extrema.pop(0 if first_is_smaller else -1)
    return extrema if len(extrema) == count else None


def exp_tail(r: mp.mpf) -> mp.mpf:
    """``(e^r - 1 - r) / r^2``."""
    return (mp.expm1(r) - r) / r**2 if abs(r) > 1e-12 else mp.mpf(1) / 2 + r / 6


def log_tail(f: mp.mpf) -> mp.mpf:
    """``(log(1 + f) - f + f^2/2) / f^3``."""
    return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-9 else mp.mpf(1) / 3 - f / 4


def atanh_tail(z: mp.mpf) -> mp.mpf:
    """``(2 atanh(s) / s - 2) / s^2`` at ``s = sqrt(z)``."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2) / z if z > 1e-16 else mp.mpf(2) / 3 + 2 * z / 5


def tanh_tail(z: mp.mpf) -> mp.mpf:
    """``(tanh(x) - x) / x^3`` at ``x = sqrt(z)``."""
    x = mp.sqrt(z)
    return (mp.tanh(x) - x) / x**3 if z > 1e-16 else -mp.mpf(1) / 3 + 2 * z / 15


def erf_small(z: mp.mpf) -> mp.mpf:
    """``erf(x) / x - 1`` at ``x = sqrt(z)``."""
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1 if z else 2 / mp.sqrt(mp.pi) - 1


def erfc_log(t: mp.mpf) -> mp.mpf:
    """``-log(erfc(t)) / t - 1``."""
    return -mp.log(mp.erfc(t)) / t - 1


def mills(pivot: int) -> Real:
    """``P(N <= -u) exp(u^2/2) (u+p)`` for a standard normal N, as a function of (u-p)/(u+p)."""

    def ratio(t: mp.mpf) -> mp.mpf:
        u = pivot * (1 + t) / (1 - t)
        return mp.erfc(u / mp.sqrt(2)) / 2 * mp.exp(u * u / 2) * (u + pivot)

    return ratio


def mills_share(t: mp.mpf) -> mp.mpf:
    """``P(N <= -u) exp(u^2/2) (u+3)`` as a function of ``u / (u+3) - 3/8``."""
    share = t + mp.mpf(3) / 8
    u = 3 * share / (1 - share)
    return mp.erfc(u / mp.sqrt(2)) / 2 * mp.exp(u * u / 2) * (u + 3)


def exp2_tail(r: mp.mpf) -> mp.mpf:
    """``(2^r - 1) / r``."""
    return (mp.mpf(2) ** r - 1) / r if abs(r) > 1e-12 else mp.log(2)


def sine_tail(z: mp.mpf) -> mp.mpf:
    """``(sin(r) - r) / r^3`` at ``r = sqrt(z)``."""
    r = mp.sqrt(z)
    return (mp.sin(r) - r) / r**3 if z > 1e-16 else -mp.mpf(1) / 6 + z / 120


def cosine_tail(z: mp.mpf) -> mp.mpf:
    """``(cos(r) - 1 + z / 2) / z^2`` at ``r = sqrt(z)``."""
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > 1e-12 else mp.mpf(1) / 24 - z / 720


def lgamma_middle(t: mp.mpf) -> mp.mpf:
    """``lgamma(x) / ((x - 1) (x - 2))`` at ``x = t + 3/2``."""
    x = t + mp.mpf(3) / 2
    if abs(x - 1) < 1e-20:
        return mp.euler + 0
    return mp.loggamma(x) / ((x - 1) * (x - 2)) if abs(x - 2) > 1e-20 else 1 - mp.euler


def stirling_rest(z: mp.mpf) -> mp.mpf:
    """``x`` times what Stirling's formula leaves of ``lgamma(x)``, at ``x = 1 / sqrt(z)``."""
    if z < mp.mpf("1e-12"):
        return mp.mpf(1) / 12 - z / 360
    x = 1 / mp.sqrt(z)
    main = (x - mp.mpf(1) / 2) * (mp.log(x) - 1) + (mp.log(2 * mp.pi) - 1) / 2
    return (mp.loggamma(x) - main) * x


def inverse_near(t: mp.mpf) -> mp.mpf:
    """``erfinv(x) / x`` at ``t + 5/2 = -log(1 - x^2)``."""
    w = t + mp.mpf(5) / 2
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x if w > 1e-20 else mp.sqrt(mp.pi) / 2


def inverse_far(t: mp.mpf) -> mp.mpf:
    """The same at ``(t + 3)^2 = -log(1 - x^2)``."""
    return inverse_near((t + 3) ** 2 - mp.mpf(5) / 2)


def one(x: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def at_least(power: int, floor: float) -> Real:
    """The weight ``|x|^power``, held above ``floor`` near 0."""
    return lambda x: max(abs(x) ** power, mp.mpf(floor))


def relative(function: Real) -> Real:
    return lambda x: 1 / function(x)


def main() -> None:
    half_ln2 = mp.log(2) / 2 * mp.mpf("1.0005")
    low, high = (1 / mp.sqrt(2) - 1) * mp.mpf("1.001"), (mp.sqrt(2) - 1) * mp.mpf("1.001")
    fifth, half = mills(5), mp.mpf("0.5003")
    middle, deep = mp.mpf("0.5"), mp.mpf("2.5")
    eighth = (mp.pi / 4) ** 2 * mp.mpf("1.0005")  # the square of an eighth of a turn

    def exp_weight(r: mp.mpf) -> mp.mpf:
        return max(r * r, mp.mpf("1e-3")) * mp.exp(-r)

    def exp2_weight(r: mp.mpf) -> mp.mpf:
        return max(abs(r), mp.mpf("1e-3")) / mp.mpf(2) ** r

    def erfc_weight(t: mp.mpf) -> mp.mpf:
        return mp.erfc(t) * t

    fits = [
        ("exp", np.float32, exp_tail, exp_weight, -half_ln2, half_ln2, 4),
        ("exp", np.float64, exp_tail, exp_weight, -half_ln2, half_ln2, 10),
        ("log", np.float32, log_tail, at_least(2, 1e-3), low, high, 8),
        ("log", np.float64, atanh_tail, at_least(1, 1e-4), mp.mpf(0), mp.mpf("0.02945"), 6),
        ("tanh", np.float32, tanh_tail, at_least(1, 1e-3), mp.mpf(0), mp.mpf("0.391"), 4),
        ("tanh", np.float64, tanh_tail, at_least(1, 1e-3), mp.mpf(0), mp.mpf("0.391"), 10),
        ("erf, small", np.float32, erf_small, one, mp.mpf(0), mp.mpf("0.93") ** 2, 5),
        ("erf, small", np.float64, erf_small, one, mp.mpf(0), mp.mpf(1), 12),
        ("erf, large", np.float32, erfc_log, erfc_weight, mp.mpf("0.92"), mp.mpf(4), 5),
        ("erf, large", np.float64, erfc_log, erfc_weight, mp.mpf(1), mp.mpf(6), 18),
        ("sin", np.float32, sine_tail, at_least(1, 1e-3), mp.mpf(0), eighth, 2),
        ("sin", np.float64, sine_tail, at_least(1, 1e-3), mp.mpf(0), eighth, 5),
        ("cos", np.float32, cosine_tail, at_least(2, 1e-3), mp.mpf(0), eighth, 2),
        ("cos", np.float64, cosine_tail, at_least(2, 1e-3), mp.mpf(0), eighth, 5),
        (
            "mills",
            np.float32,
            mills_share,
            relative(mills_share),
            -mp.mpf(3) / 8,
            mp.mpf("14.5") / mp.mpf("17.5") - mp.mpf(3) / 8,
            8,
        ),
        ("exp2", np.float32, exp2_tail, exp2_weight, -half, half, 4),
        (
            "mills, short",
            np.float64,
            mills_share,
            relative(mills_share),
            -mp.mpf(3) / 8,
            mp.mpf("14.5") / mp.mpf("17.5") - mp.mpf(3) / 8,
            10,
        ),
        ("exp, short", np.float64, exp_tail, exp_weight, -half_ln2, half_ln2, 5),
        ("lgamma", np.float64, lgamma_middle, relative(lgamma_middle), -middle, middle, 20),
        ("stirling", np.float64, stirling_rest, one, mp.mpf(0), mp.mpf(1) / 9, 10),
        ("erfinv, near", np.float32, inverse_near, relative(inverse_near), -deep, deep, 9),
        (
            "erfinv, far",
            np.float32,
            inverse_far,
            relative(inverse_far),
            mp.sqrt(5) - 3,
            mp.mpf("4.08") - 3,
            9,
        ),
        ("mills", np.float64, fifth, relative(fifth), mp.mpf(-1), mp.mpf(35) / 45, 22),
    ]
    for name, dtype, function, weight, start, stop, degree in fits:
        coefficients, error = remez(function, weight, start, stop, degree)
        rounded = ", ".join(repr(float(dtype(float(c)))) for c in coefficients)
        print(f"{name} {np.dtype(dtype).name}: error {mp.nstr(error, 3)}\n    {rounded}")


if __name__ == "__main__":
    main()
