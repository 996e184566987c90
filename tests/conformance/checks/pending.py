"""Faults that two checks found when they were new: the operators to mend, name by name.

Their cases are left out of a run until then, visibly: here. A name goes with its fix; a test fails
for one that stands here without need. When both sets are empty, this file goes.
"""

from __future__ import annotations

__all__ = ["DECOMPOSITION", "INPLACE"]

#: a kernel of NumPy's differs from the body of the operator (check 24, ``decomposition``)
DECOMPOSITION: frozenset[str] = frozenset()
#: the gradient of the in-place form is refused or wrong (check 12, ``in-place-form``)
INPLACE = frozenset(
    "addbmm addcdiv addmv addr baddbmm clamp_max clamp_min deg2rad gammaln index_reduce "
    "ldexp logit rad2deg renorm rrelu scatter_reduce".split()
)
