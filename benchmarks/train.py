"""Whole training steps of coredispatch beside PyTorch's, in one process.

    python benchmarks/train.py [--only MLP,GPT] [--threads 2] [--without-pack] [--json FILE]

Each network of ``train_cases.py`` starts from the same weights in both libraries and sees the same
batch: ``zero_grad``, forward, loss, backward and the step of the optimizer. What is printed are the
minima of samples taken in turn, in milliseconds, and their ratio. One thread is measured in CPU
time, several by the clock. Before it is measured, a network takes three steps in both libraries,
and a line whose losses differ says so: it did not measure the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from measure import Case, both_libraries, geometric_mean, minima, threads_of

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = threads_of(sys.argv)

import numpy as np  # noqa: E402
from train_cases import Training, trainings  # noqa: E402

_STEPS = 3
#: by how much losses of the first steps may differ, relatively: rounding, and the order of sums
_CLOSE = {False: 1e-3, True: 5e-2}


@dataclass(frozen=True)
class Row:
    """What was measured of one network: milliseconds of both, their ratio, and their losses."""

    name: str
    ours: float
    theirs: float
    ratio: float
    loss_ours: float
    loss_theirs: float
    same: bool


def step_of(training: Training, lib: Any, module: Any, arrays: Any) -> Callable[[], Any]:
    """One training step of ``module`` in ``lib``; it returns the loss."""
    optimizer = training.optimizer(lib, module.parameters())
    data, target = (lib.from_numpy(array.copy()) for array in arrays)

    def step() -> Any:
        optimizer.zero_grad()
        with lib.autocast("cpu", lib.bfloat16) if training.autocast else nullcontext():
            loss = training.loss(lib, module(data), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def pair(training: Training, ours: Any, theirs: Any) -> tuple[Callable[[], Any], ...]:
    """The step in both libraries, from the same weights."""
    arrays = training.data(np.random.default_rng(0))
    theirs.manual_seed(0)
    reference, module = training.module(theirs), training.module(ours)
    state = {name: ours.from_numpy(t.numpy().copy()) for name, t in reference.state_dict().items()}
    module.load_state_dict(state)
    return step_of(training, ours, module, arrays), step_of(training, theirs, reference, arrays)


def measured(training: Training, ours: Any, theirs: Any, options: Any) -> Row:
    """Compare the losses of a few steps, then measure."""
    steps = pair(training, ours, theirs)
    losses = [[float(step().detach()) for _ in range(_STEPS)] for step in steps]
    same = bool(np.allclose(*losses, rtol=_CLOSE[training.autocast]))
    clock = time.process_time if options.threads == 1 else time.perf_counter
    got = minima(
        Case(training.name, *steps), samples=options.samples, seconds=options.seconds, clock=clock
    )
    return Row(
        training.name, got.ours * 1e3, got.theirs * 1e3, got.ratio,
        losses[0][-1], losses[1][-1], same,
    )  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated beginnings of names")
    parser.add_argument("--threads", type=int, default=1, help="threads of ours and of PyTorch")
    parser.add_argument("--samples", type=int, default=7, help="pairs of samples per network")
    parser.add_argument("--seconds", type=float, default=0.05, help="about this long per sample")
    parser.add_argument("--without-pack", action="store_true", help="NumPy's kernels only")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    return parser.parse_args()


def _print(table: list[Row]) -> None:
    width = max((len(row.name) for row in table), default=0)
    print(f"{'step':{width}}  {'ours ms':>9}  {'PyTorch ms':>10}  {'ratio':>6}")
    for row in table:
        flag = "  above 1" if row.ratio > 1 else ""
        if not row.same:
            flag += f"  losses differ: {row.loss_ours:.5g}, {row.loss_theirs:.5g}"
        print(f"{row.name:{width}}  {row.ours:9.3f}  {row.theirs:10.3f}  {row.ratio:6.2f}{flag}")
    if table:
        print(f"{'geometric mean':{width}}  {geometric_mean(r.ratio for r in table):>21.2f}")


def main() -> int:
    """Run the benchmark; returns the exit status: 1 where losses differ."""
    options = _options()
    libraries = both_libraries(options.threads, options.without_pack)
    if libraries is None:
        return 2
    cd, torch = libraries
    only = tuple(name for name in options.only.split(",") if name)
    todo = [t for t in trainings() if not only or t.name.startswith(only)]
    table = [measured(training, cd, torch, options) for training in todo]
    pack = "without the pack" if options.without_pack else "with cpu_numba"
    print(f"{options.threads} thread(s), {pack}; PyTorch {torch.__version__}")
    _print(table)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([vars(row) for row in table], file, indent=1)
    return 0 if all(row.same for row in table) else 1


if __name__ == "__main__":
    raise SystemExit(main())
