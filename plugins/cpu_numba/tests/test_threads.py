"""The helper threads: same results, whichever work; forks, concurrency, exit."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest
from pack_under_test import DTYPES, KERNELS

import coredispatch_cpu_numba as pack
from coredispatch_cpu_numba import thread_count

pytestmark = [
    pytest.mark.skipif(not thread_count.SUPPORTED, reason="no helper threads here"),
    pytest.mark.once,
]


def normal(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def everything(dtype: Any) -> list[np.ndarray]:
    """Results of one kernel of every kind, large enough to be shared out."""
    x, y = normal((500, 400), dtype), normal((500, 400), dtype, 1)
    weight = normal((400,), dtype, 2)
    target = np.random.default_rng(3).integers(0, 400, 500)
    results: list[Any] = [
        KERNELS["exp"](x),
        KERNELS["add"](x, y),
        KERNELS["add"](x, weight),
        KERNELS["mul"](x, 3.0),
        KERNELS["lt"](x, y),
        KERNELS["gelu_backward"](x, y, "none"),
        *(KERNELS["sum"](x, dim, False, None) for dim in (None, (0,), (1,))),
        KERNELS["sum"](x.reshape(-1, 4), (0,), False, None),
        *(KERNELS["amax"](x, dim, False) for dim in ((), (0,), (1,))),
        KERNELS["mean"](x, None, False, None),
        KERNELS["argmax"](x, 0, False),
        *(KERNELS["softmax"](x, dim, None) for dim in (0, 1)),
        *KERNELS["layer_norm_backward"](x, y, (400,), weight, 1e-5),
        *KERNELS["rms_norm_backward"](x, y, (400,), weight, 1e-5),
        KERNELS["cross_entropy"](x, target, None, -100, "mean", 0.0),
        KERNELS["cross_entropy_backward"](np.ones((), dtype), x, target, None, -100, "mean", 0.0),
    ]
    return results


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_number_of_threads(dtype: Any) -> None:
    before = pack.get_num_threads()
    try:
        pack.set_num_threads(1)
        alone = everything(dtype)
        for count in (2, 5):
            pack.set_num_threads(count)
            for _ in range(3):
                for ours, want in zip(everything(dtype), alone, strict=True):
                    np.testing.assert_array_equal(ours, want)
    finally:
        pack.set_num_threads(before)


def test_every_element_is_done_once(two_threads: None) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = np.zeros(int(rng.integers(65_536, 400_000)), np.float32)
        KERNELS["add"](x, 1.0, out=x)
        assert x.min() == x.max() == 1.0


def test_several_python_threads(two_threads: None) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            for _ in range(60):
                x = rng.standard_normal(int(rng.integers(70_000, 200_000)))
                np.testing.assert_allclose(KERNELS["square"](x), np.square(x), rtol=1e-15)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def run_python(program: str, **environment: str) -> str:
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


USE = """
    import os, sys
    import numpy as np
    import coredispatch_cpu_numba as pack
    from coredispatch_cpu_numba.kernels.elementwise import pointwise

    def use():
        x = np.ones(300_000, np.float32)
        for _ in range(20):
            assert pointwise.KERNELS["add"](x, 1.0).sum() == 600_000
"""


def test_fork() -> None:
    program = (
        USE
        + """
    pack.set_num_threads(2)
    use()
    child = os.fork()
    if child == 0:
        use()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    use()
    print("fine")
    """
    )
    assert run_python(program) == "fine\n"


def test_exit_with_helpers_awake_and_asleep() -> None:
    for nap in (0.0, 0.05):
        program = (
            USE
            + f"""
    import time
    pack.set_num_threads(3)
    use()
    time.sleep({nap})
    """
        )
        run_python(program)


def test_numba_has_as_many_threads_where_it_has_any() -> None:
    program = """
    import numba
    import numpy as np
    import coredispatch as cd
    from numba.np.ufunc import parallel

    cd.ones(3000).exp()
    cd.set_num_threads(1)
    assert not parallel._is_initialized  # nobody started them

    @numba.njit(parallel=True)
    def double(x):
        for i in numba.prange(x.size):
            x[i] *= 2

    double(np.ones(100))
    for count, found in ((1, 1), (2, 2), (1, 1), (9, 2)):
        cd.set_num_threads(count)
        print(numba.get_num_threads() == found)
    """
    assert run_python(program, NUMBA_NUM_THREADS="2") == "True\n" * 4


def test_number_of_threads() -> None:
    program = """
    import coredispatch_cpu_numba as pack
    print(pack.get_num_threads())
    """
    assert run_python(program, COREDISPATCH_NUM_THREADS="1", OMP_NUM_THREADS="") == "1\n"
    assert run_python(program, COREDISPATCH_NUM_THREADS="", OMP_NUM_THREADS="1") == "1\n"
    cpus = min(len(os.sched_getaffinity(0)), thread_count.MOST)
    names = ("COREDISPATCH", "OMP", "OPENBLAS", "MKL")
    everything_unset = {f"{name}_NUM_THREADS": "" for name in names}
    assert run_python(program, **everything_unset) == f"{cpus}\n"
    with pytest.raises(ValueError, match="at least 1"):
        pack.set_num_threads(0)
