"""The kernels of coredispatch-cpu-numba beside PyTorch's, through the public names of both.

    python benchmarks/kernels.py [--only conv,softmax] [--sizes 1000,1000000] [--threads 2]
                                 [--dtype float64] [--without-pack] [--json FILE]

Every line is one case of ``kernel_cases.py`` at one size: microseconds of both, and the ratio of
the minima of samples taken in turn, in one process, on the same data. One thread is measured in CPU
time, several by the clock. ``fwd+bwd`` includes the backward pass; both sides record a graph anew
for each call. ``--without-pack`` unloads the pack: what NumPy's kernels take.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from measure import Case, both_libraries, geometric_mean, minima, threads_of

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = threads_of(sys.argv)

import numpy as np  # noqa: E402
from kernel_cases import Kernel, kernels  # noqa: E402


@dataclass(frozen=True)
class Row:
    """What was measured of one case: microseconds of both, and their ratio."""

    name: str
    size: int
    ours: float
    theirs: float
    ratio: float


def prepared(kernel: Kernel, lib: Any, arrays: list[np.ndarray]) -> Callable[[], Any]:
    """One run of ``kernel`` in ``lib`` on ``arrays``."""
    tensors = [lib.from_numpy(array.copy()) for array in arrays]
    if not kernel.backward:
        return lambda: kernel.call(lib, *tensors)
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    result = kernel.call(lib, *tensors)
    grad = lib.ones_like(result.detach())

    def step() -> None:
        kernel.call(lib, *tensors).backward(grad)
        for leaf in leaves:
            leaf.grad = None

    return step


def drawn(kernel: Kernel, dtype: np.dtype[Any]) -> list[np.ndarray]:
    """The inputs, floating ones of ``dtype``."""
    rng = np.random.default_rng(0)
    arrays = [draw(rng) for draw in kernel.inputs]
    return [a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated beginnings of names")
    parser.add_argument("--sizes", default="1000,100000,1000000")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1, help="threads of ours and of PyTorch")
    parser.add_argument("--samples", type=int, default=7, help="pairs of samples per line")
    parser.add_argument("--seconds", type=float, default=0.01, help="about this long per sample")
    parser.add_argument("--without-pack", action="store_true", help="NumPy's kernels only")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark; returns the exit status."""
    options = _options()
    libraries = both_libraries(options.threads, options.without_pack)
    if libraries is None:
        return 2
    cd, torch = libraries
    np.seterr(all="ignore")

    only = tuple(name for name in options.only.split(",") if name)
    sizes = [int(float(size)) for size in options.sizes.split(",")]
    todo = [(k, size) for k, size in kernels(sizes) if not only or k.name.startswith(only)]
    try:
        from tqdm import tqdm
    except ImportError:
        bar = todo
    else:
        bar = tqdm(todo, disable=not sys.stderr.isatty(), leave=False)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    table = []
    for kernel, size in bar:
        arrays = drawn(kernel, np.dtype(options.dtype))
        case = Case(kernel.name, prepared(kernel, cd, arrays), prepared(kernel, torch, arrays))
        got = minima(case, samples=options.samples, seconds=options.seconds, clock=clock)
        table.append(Row(kernel.name, size, got.ours * 1e6, got.theirs * 1e6, got.ratio))

    pack = "without the pack" if options.without_pack else "with cpu_numba"
    print(
        f"{options.dtype}, {options.threads} thread(s), {pack}; "
        f"PyTorch {torch.__version__}, NumPy {np.__version__}"
    )
    width = max((len(row.name) for row in table), default=0)
    print(f"{'case':{width}}  {'size':>8}  {'ours us':>10}  {'PyTorch us':>10}  {'ratio':>6}")
    for row in sorted(table, key=lambda row: (row.size, row.name)):
        flag = "  above 1" if row.ratio > 1 else ""
        print(
            f"{row.name:{width}}  {row.size or '':>8}  {row.ours:10.2f}  {row.theirs:10.2f}  "
            f"{row.ratio:6.2f}{flag}"
        )
    for size in (0, *sizes):
        here = [row.ratio for row in table if row.size == size]
        if here:
            print(
                f"{'geometric mean':{width}}  {size or '':>8}  {'':22}  {geometric_mean(here):6.2f}"
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([vars(row) for row in table], file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
