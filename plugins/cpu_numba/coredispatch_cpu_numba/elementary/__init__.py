"""Elementary functions of one float32 or float64, written so that loops over them vectorize.

NumPy's and the C library's functions are either opaque calls, which stop LLVM from
vectorizing a loop, or not there at all (erf). These are branch-free: every special case is a
select, every polynomial a chain of multiply-adds. Coefficients are this project's own weighted
minimax fits (Remez exchange in 50-digit arithmetic, ``plugins/cpu_numba/tools/minimax.py``).

Largest error in units in the last place (ULP) of the result's dtype, over all inputs tried,
subnormal results included; ``tests/test_elementary.py`` and ``tests/test_special.py`` hold the
code to it. On CPUs with fused multiply-add, that is; without it, the far tails of gelu lose up to
two digits.

============  =======  =======  =====================================================
function      float32  float64
============  =======  =======  =====================================================
exp           1        1
log           1        1
tanh          1.5      1.5
erf           1.5      1.5
sin, cos      1.6      1.6      up to ``FAR``; the C library's farther away
sigmoid       2.5      2.5
silu          3.5      3.5      where sigmoid(x) is a normal number (float32: x > -87)
gelu          6        6        both tails; the tanh form: absolutely, 4 ULP of x
erfc, ndtr    1        3.5      both tails
erfcx         0.51     3.5
erfinv        3.5      4.7
lgamma        0.51     5        above 0; below: 8 of the result or of 1
digamma       0.51     10       the same
trigamma      0.51     4        the same
log1p         1.6      1.5
sinc          0.51     3
============  =======  =======  =====================================================

All of them return NaN for NaN, the limits at infinity, and keep the sign of zero where the
function is odd. None is compiled with ``nnan``, ``ninf`` or ``nsz``: the one relaxation is
``contract``, which lets ``x * y + z`` round once.
"""
