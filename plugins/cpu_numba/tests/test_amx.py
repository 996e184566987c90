"""Products of AMX tiles against NumPy, in threads and after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numba import njit

from coredispatch_cpu_numba import amx
from coredispatch_cpu_numba.atomics import address_of

pytestmark = pytest.mark.once

needs_bfloat16 = pytest.mark.skipif(not amx.has_bfloat16(), reason="no AMX tiles of bfloat16")
needs_int8 = pytest.mark.skipif(not amx.has_int8(), reason="no AMX tiles of int8")


def product(add: Any) -> Callable[..., None]:
    """A compiled ``out += a @ b`` of one tile each; ``out`` and ``a`` are parts of wider rows."""

    @njit(nogil=True)
    def run(a, a_step, b, out, out_step):
        amx.configure()
        amx.load(0, address_of(out), out_step)
        amx.load(1, address_of(a), a_step)
        amx.load(7, address_of(b), 64)
        add(0, 1, 7)
        amx.store(0, address_of(out), out_step)
        amx.zero(0)
        amx.release()

    return run


def interleaved(b: np.ndarray, count: int) -> np.ndarray:
    """Rows of ``b`` as a tile has them: ``count`` of them side by side in each column."""
    depth, columns = b.shape
    return np.ascontiguousarray(b.reshape(depth // count, count, columns).swapaxes(1, 2)).ravel()


def multiply_bfloat16(run: Callable[..., None], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=s).astype(bfloat16) for s in ((16, 40), (32, 16)))
    out = rng.normal(size=(16, 20)).astype(np.float32)
    wide = [x[:, :n].astype(np.float64) for x, n in ((a, 32), (b, 16), (out, 16))]
    wanted, beside = wide[2] + wide[0] @ wide[1], out[:, 16:].copy()
    run(a.view(np.uint16), 80, interleaved(b, 2).view(np.uint16), out, 80)
    np.testing.assert_allclose(out[:, :16], wanted, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(out[:, 16:], beside)


@needs_bfloat16
def test_bfloat16() -> None:
    multiply_bfloat16(product(amx.add_bfloat16), 0)


@needs_int8
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_int8(kind: Any) -> None:
    run = product(amx.add_int8 if kind is np.int8 else amx.add_uint8_int8)
    rng = np.random.default_rng(1)
    limits = np.iinfo(kind)
    a = rng.integers(limits.min, limits.max, (16, 64), kind, endpoint=True)
    b = rng.integers(-128, 127, (64, 16), np.int8, endpoint=True)
    a[3], b[:, 5] = limits.max, -128  # nothing saturates on the way
    out = rng.integers(-99, 99, (16, 16), np.int32)
    wanted = out + a.astype(np.int32) @ b.astype(np.int32)
    run(a, 64, interleaved(b, 4), out, 64)
    np.testing.assert_array_equal(out, wanted)


@needs_bfloat16
def test_every_thread_has_tiles_of_its_own() -> None:
    run, failed = product(amx.add_bfloat16), []

    def many(seed: int) -> None:
        try:
            for i in range(200):
                multiply_bfloat16(run, seed + i)
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=many, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


FORK = """
import os
from test_amx import amx, multiply_bfloat16, product

run = product(amx.add_bfloat16)
multiply_bfloat16(run, 2)
child = os.fork()
if child == 0:
    multiply_bfloat16(run, 3)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("fine")
"""


@needs_bfloat16
def test_a_child_process_inherits_the_permission() -> None:
    folder = os.path.dirname(__file__)
    command = [sys.executable, "-c", FORK]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert run.stdout == "fine\n"


def test_a_tile_is_a_constant() -> None:
    @njit
    def wrong(tile):
        amx.zero(tile)

    with pytest.raises(Exception, match="a tile is a constant from 0 to 7"):
        wrong(2)


def test_features_can_be_taken_away() -> None:
    """``NUMBA_CPU_FEATURES`` decides, not the processor alone."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}
    code = "from coredispatch_cpu_numba.amx import *; print(has_tiles(), has_int8())"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
