"""What libraries compute otherwise than the operators say, where their functions are called so.

A kernel of this package is a function of the namespace, and as good as that. Where a library's
function has fewer digits than the operator promises, or takes an argument for something else, the
operator runs over NumPy, on the host. :data:`ON_THE_HOST` says for which it does. What a library
does otherwise everywhere is a policy (:data:`POLICIES`), and a dtype that it has once it is asked
for is named with the way to ask (:data:`WITH_INT64`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["ON_THE_HOST", "OWN", "POLICIES", "WITH_INT64", "over_numpy"]

#: operators by the name of their library
ON_THE_HOST: dict[str, tuple[str, ...]] = {
    # XLA on a CPU. `any` and `all` of complex numbers look at real parts, `pow` of int64 wraps
    # otherwise, `dot` adds up one after the other, NaN and infinite rows reach finite ones in
    # transforms, subnormal numbers are zeros to `nonzero`, and a quotient by one number is the
    # product with its inverse; the others have fewer digits.
    "jax.numpy": (
        *("all", "any", "atan", "atan2", "atanh", "cosh", "div", "dot"),
        *("fft_c2c", "fft_c2r", "fft_r2c", "log", "log10", "log1p", "log2", "nonzero", "pow"),
        *("remainder", "sinh", "sqrt", "tanh"),
    ),
    # PyTorch asks MKL for roots on x86, which does not give the nearest number.
    "torch": ("sqrt",),
}

#: policies of the conformance suite by the name of their library
POLICIES: dict[str, dict[str, Any]] = {
    # XLA counts subnormal numbers as zero, and compiles a program for each shape.
    "jax.numpy": {"flush_to_zero": ["bfloat16", "float32", "float64"], "compiles": True},
}

#: how a library is brought to have integers of 64 bits
WITH_INT64: dict[str, str] = {
    "jax.numpy": (
        'call jax.config.update("jax_enable_x64", True) before the first array is made, '
        "or set JAX_ENABLE_X64=1 in the environment"
    ),
}


def _dot(a: Any, b: Any) -> Any:
    """The product of two vectors, added up in float64 where they have fewer digits."""
    import numpy

    if a.dtype.kind in "iub":
        return numpy.dot(a, b)
    wide = numpy.result_type(a.dtype if a.dtype.kind == "c" else numpy.float64, numpy.float64)
    return numpy.dot(a.astype(wide), b.astype(wide)).astype(a.dtype)


#: kernels over NumPy of operators for which no namespace needs one
OWN: dict[str, Callable[..., Any]] = {"dot": _dot}


def over_numpy(
    kernel: Callable[..., Any],
    array_type: type,
    to_numpy: Callable[[Any], Any],
    from_numpy: Callable[[Any], Any],
) -> Callable[..., Any]:
    """``kernel`` of NumPy's arrays as one of another library's arrays."""
    import numpy

    @functools.wraps(kernel)
    def on_the_host(*args: Any) -> Any:
        given = [to_numpy(a) if isinstance(a, array_type) else a for a in args]
        with numpy.errstate(all="ignore"):
            results = kernel(*given)
        if isinstance(results, tuple):
            return tuple(from_numpy(numpy.asarray(r)) for r in results)
        return from_numpy(numpy.asarray(results))

    return on_the_host
