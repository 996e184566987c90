"""A backend over Dask's arrays, which are computed when somebody reads them.

As an array namespace through ``array-api-compat``. What Dask lacks (``take_along_axis``, most of
``linalg``) makes the operators missing that need it.
"""

import dask.array as da

from coredispatch.plugin import ArrayApiBackend, hookimpl


class DaskBackend(ArrayApiBackend):
    name = "dask"
    array_type = da.Array
    xp = da


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(DaskBackend())
