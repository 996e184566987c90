"""A backend over ``jax.numpy``, which has dtypes of 64 bits once it is asked for them."""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402  (after the setting, which is read when arrays are made)

from coredispatch.plugin import ArrayApiBackend, hookimpl  # noqa: E402


class JaxBackend(ArrayApiBackend):
    name = "jax"
    array_type = jax.Array
    xp = jnp
    jit = staticmethod(jax.jit)


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(JaxBackend())
