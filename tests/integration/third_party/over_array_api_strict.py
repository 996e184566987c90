"""A backend over ``array_api_strict``, which has nothing but what the standard says."""

import array_api_strict

from coredispatch.plugin import ArrayApiBackend, hookimpl


class StrictBackend(ArrayApiBackend):
    name = "array_api_strict"
    array_type = type(array_api_strict.zeros(()))
    xp = array_api_strict


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(StrictBackend())
