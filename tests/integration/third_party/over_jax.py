"""A backend over ``jax.numpy``: the array-API base, for some operators over NumPy."""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402  (after the setting, which is read when arrays are made)

from coredispatch.backends.array_api import family_kernels  # noqa: E402
from coredispatch.plugin import ArrayApiBackend, hookimpl  # noqa: E402

# What XLA computes with fewer digits than the operators promise, or takes for something else.
ON_THE_HOST = (
    "all", "any", "atan", "atan2", "atanh", "cosh", "dot", "fft_c2c", "fft_c2r", "fft_r2c", "log",
    "log10", "log1p", "log2", "nonzero", "pow", "remainder", "sinh", "sqrt", "tanh",
)  # fmt: skip


def on_the_host(kernel):
    def by_numpy(*args):
        given = [np.asarray(a) if isinstance(a, jax.Array) else a for a in args]
        with np.errstate(all="ignore"):
            return jnp.asarray(kernel(*given))

    return by_numpy


def dot(a, b):
    if a.dtype.kind not in "fV":
        return np.dot(a, b)
    return np.dot(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


OVER_NUMPY = family_kernels(np) | {"dot": dot}


class JaxBackend(ArrayApiBackend):
    name = "jax"
    array_type = jax.Array
    xp = jnp
    jit = staticmethod(jax.jit)
    overrides = {name: on_the_host(OVER_NUMPY[name]) for name in ON_THE_HOST}


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(JaxBackend())
