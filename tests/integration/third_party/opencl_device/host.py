"""The host's part: what OpenCL has no functions for, by NumPy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import coredispatch.plugin as cdp
from opencl_device.arrays import Array
from opencl_device.copies import read, sent


class Host(cdp.ArrayApiBackend):
    """Never registered: NumPy's kernels for what OpenCL has no library for."""

    name, array_type, xp = "opencl_host", np.ndarray, np


HOST = Host()


def on_host(op: str) -> Any:
    def kernel(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            out = HOST.kernels[op](*[read(a) if isinstance(a, Array) else a for a in args])
        return tuple(map(sent, out)) if isinstance(out, tuple) else sent(out)

    return kernel


HOSTED = (
    "cholesky fft_c2c linalg_eig linalg_eigh linalg_qr linalg_slogdet linalg_solve linalg_svd "
    "random_integers random_normal random_uniform"
).split()
