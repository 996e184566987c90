"""A backend over ``jax.numpy``: the array-API base, and some operators of the CPU backend."""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402  (after the setting, which is read when arrays are made)

from coredispatch.plugin import ArrayApiBackend, from_raw, hookimpl, operator, to_raw  # noqa: E402

# What XLA computes with fewer digits than the operators promise, or takes for something else.
ON_THE_HOST = (
    "any", "atan", "atan2", "atanh", "cosh", "dot", "fft_hfft2", "log", "log10", "log1p", "log2",
    "nonzero", "pow", "remainder", "sinh", "sqrt", "tanh",
)  # fmt: skip


def on_the_host(name):
    op = operator(name)

    def kernel(*args):
        given = [from_raw(np.asarray(a), backend="cpu") if hasattr(a, "at") else a for a in args]
        return jnp.asarray(to_raw(op(*given)))

    return kernel


class JaxBackend(ArrayApiBackend):
    name = "jax"
    array_type = jax.Array
    xp = jnp
    jit = staticmethod(jax.jit)
    overrides = {name: on_the_host(name) for name in ON_THE_HOST}


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(JaxBackend())
