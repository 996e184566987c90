"""The kernels of coredispatch-cpu-numba beside PyTorch's and NumPy's, on raw arrays.

    python benchmarks/kernels.py [--only exp,softmax] [--sizes 1000,1000000] [--threads 2]
                                 [--dtype float64] [--json FILE]

Every line is one kernel at one size: our microseconds, and the medians of the ratios to PyTorch
and to the embedded NumPy kernel. The two are measured in turn, in one process, on the same data;
all three allocate their results. Matrices are as square as the size allows. A kernel is called
here at every size; inside coredispatch it serves only the sizes for which its predicate accepts
the call.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any


def _threads(arguments: list[str]) -> str:
    """The number of threads asked for; libraries read it from the environment when imported."""
    for at, argument in enumerate(arguments):
        if argument == "--threads" and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith("--threads="):
            return argument.partition("=")[2]
    return "1"


for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = _threads(sys.argv)

import numpy as np  # noqa: E402
from measure import Case, compare, geometric_mean  # noqa: E402

Call = Callable[[], Any]


@dataclass(frozen=True)
class Three:
    """One kernel at one size: ours, PyTorch's, NumPy's (None: it runs the decomposition)."""

    name: str
    size: int
    ours: Call
    torch: Call
    numpy: Call | None


@dataclass(frozen=True)
class Row:
    """What was measured of it: microseconds, and the ratios ours / theirs."""

    name: str
    size: int
    us: float
    torch: float
    numpy: float


def _shape(size: int) -> tuple[int, int]:
    columns = round(size**0.5)
    return max(1, size // columns), columns


def cases(sizes: list[int], dtype: Any, only: set[str]) -> Iterator[Three]:
    """Every kernel at every size, the inputs made when its turn comes."""
    import torch
    import torch.nn.functional as tf

    from coredispatch.backends.numpy import NumpyBackend
    from coredispatch_cpu_numba.kernels import MODULES, small

    ours: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        if module is not small:
            ours.update(module.KERNELS)
    numpy = NumpyBackend().kernels
    aten = torch.ops.aten

    def elementwise(
        x: Any, y: Any, tx: Any, ty: Any
    ) -> Iterator[tuple[str, tuple[Any, ...], Call]]:
        for name in ("abs", "exp", "neg", "reciprocal", "rsqrt", "sigmoid", "sqrt", "square"):
            yield name, (x,), partial(getattr(torch, name), tx)
        for name in ("log", "tanh", "erf", "relu"):
            yield name, (x,), partial(getattr(torch, name), tx)
        yield "silu", (x,), lambda: tf.silu(tx)
        yield "gelu", (x, "none"), lambda: tf.gelu(tx)
        yield "gelu tanh", (x, "tanh"), lambda: tf.gelu(tx, approximate="tanh")
        yield "leaky_relu", (x, 0.01), lambda: tf.leaky_relu(tx, 0.01)
        for name in ("add", "sub", "mul", "div", "maximum", "eq", "lt"):
            yield name, (x, y), partial(getattr(torch, name), tx, ty)
        yield "add number", (x, 1.5), lambda: torch.add(tx, 1.5)
        yield "sigmoid_backward", (x, y), lambda: aten.sigmoid_backward(tx, ty)
        yield "tanh_backward", (x, y), lambda: aten.tanh_backward(tx, ty)
        yield "silu_backward", (x, y), lambda: aten.silu_backward(tx, ty)
        yield "gelu_backward", (x, y, "none"), lambda: aten.gelu_backward(tx, ty)
        yield "threshold_backward", (x, y, 0), lambda: aten.threshold_backward(tx, ty, 0)

    def rows(x: Any, y: Any, tx: Any, ty: Any) -> Iterator[tuple[str, tuple[Any, ...], Call]]:
        n = x.shape[1]
        weight = np.ones(n, x.dtype)
        tw, kind = torch.from_numpy(weight), tx.dtype
        yield "add row", (x, weight), lambda: tx + tw
        for name in ("sum", "mean", "prod"):
            f = getattr(torch, name)
            yield f"{name} rows", (x, (1,), False, None), partial(f, tx, 1)
        for name in ("sum", "mean"):
            f = getattr(torch, name)
            yield f"{name} columns", (x, (0,), False, None), partial(f, tx, 0)
            yield f"{name} all", (x, None, False, None), partial(f, tx)
        yield "amax rows", (x, (1,), False), lambda: torch.amax(tx, 1)
        yield "amax columns", (x, (0,), False), lambda: torch.amax(tx, 0)
        yield "amax all", (x, (), False), lambda: torch.amax(tx)
        yield "argmax columns", (x, 0, False), lambda: torch.argmax(tx, 0)
        for name in ("softmax", "log_softmax"):
            f, back = getattr(torch, name), getattr(aten, f"_{name}_backward_data")
            for dim, where in ((1, "rows"), (0, "columns")):
                out = f(tx, dim)
                yield f"{name} {where}", (x, dim, None), partial(f, tx, dim)
                yield (
                    f"{name}_backward {where}",
                    (y, out.numpy(), dim),
                    partial(back, ty, out, dim, kind),
                )
        yield "layer_norm", (x, (n,), weight, weight, 1e-5), lambda: tf.layer_norm(tx, (n,), tw, tw)
        _, mean, rstd = torch.native_layer_norm(tx, (n,), tw, tw, 1e-5)
        yield (
            "layer_norm_backward",
            (y, x, (n,), weight, 1e-5),
            lambda: aten.native_layer_norm_backward(
                ty, tx, (n,), mean, rstd, tw, tw, [True, True, True]
            ),
        )
        yield "rms_norm", (x, (n,), weight, 1e-5), lambda: tf.rms_norm(tx, (n,), tw, 1e-5)
        target = np.arange(x.shape[0]) % n
        tt = torch.from_numpy(target)
        options = (None, -100, "mean", 0.0)
        yield "cross_entropy", (x, target, *options), lambda: tf.cross_entropy(tx, tt)
        graded = tx.clone().requires_grad_()
        loss, one = tf.cross_entropy(graded, tt), np.ones((), x.dtype)
        yield (
            "cross_entropy_backward",
            (one, x, target, *options),
            lambda: torch.autograd.grad(loss, graded, retain_graph=True),
        )

    def adam(x: Any, y: Any) -> tuple[str, tuple[Any, ...], Call]:
        state = [x.copy(), y, np.zeros_like(x), np.zeros_like(x)]
        parameter = torch.from_numpy(x.copy()).requires_grad_()
        parameter.grad = torch.from_numpy(y)
        optimizer = torch.optim.Adam([parameter], fused=True)
        return (
            "adam_step",
            (*state, None, 3, 1e-3, 0.9, 0.999, 1e-8, 0.0, False, False),
            (optimizer.step),
        )

    def images(size: int) -> Iterator[tuple[str, tuple[Any, ...], Call]]:
        side = max(2, round((size / 8) ** 0.5))
        x = rng.random((1, 8, side, side)).astype(dtype)
        places = (rng.random((1, side, side, 2)) * 2 - 1).astype(dtype)
        tx, tp = torch.from_numpy(x), torch.from_numpy(places)
        for mode in ("bilinear", "nearest", "bicubic"):
            call = partial(tf.grid_sample, tx, tp, mode, "zeros", False)
            options = (mode, "zeros", False)
            yield f"grid_sample {mode}", (x, places, *options), call
            graded = [tx.clone().requires_grad_(), tp.clone().requires_grad_()]
            out = tf.grid_sample(*graded, *options)
            back = partial(torch.autograd.grad, out, graded, torch.ones_like(out))
            back = partial(back, retain_graph=True)
            yield f"grid_sample_backward {mode}", (np.ones_like(x), x, places, *options), back

    def sequences(size: int) -> Iterator[tuple[str, tuple[Any, ...], Call]]:
        steps, batch, classes = max(4, size // 320), 8, 40
        logits = torch.from_numpy(rng.random((steps, batch, classes)).astype(dtype))
        x = logits.log_softmax(2)
        labels = torch.from_numpy(rng.integers(1, classes, (batch, max(1, steps // 4))))
        lengths = torch.full((batch,), steps), torch.full((batch,), labels.shape[1])
        given = (x.numpy(), labels.numpy(), *[n.numpy() for n in lengths], 0)
        yield "ctc_nll", given, lambda: torch.ctc_loss(x, labels, *lengths, 0, 0)
        graded = x.clone().requires_grad_()
        loss = torch.ctc_loss(graded, labels, *lengths, 0, 0)
        one = torch.ones_like(loss)
        back = partial(torch.autograd.grad, loss, graded, one, retain_graph=True)
        yield "ctc_nll_backward", (one.numpy(), *given), back

    def gammas(size: int) -> Iterator[tuple[str, tuple[Any, ...], Call]]:
        a = (rng.random(size) * 10 + 0.1).astype(dtype)
        x = (a * (rng.random(size) + 0.5)).astype(dtype)
        for name in ("igamma", "igammac"):
            call = partial(getattr(torch, name), torch.from_numpy(a), torch.from_numpy(x))
            yield name, (a, x), call

    rng = np.random.default_rng(0)
    for size in sizes:
        x, y = ((rng.random(size) + 0.5).astype(dtype) for _ in range(2))
        matrix = tuple(a[: np.prod(_shape(size))].reshape(_shape(size)) for a in (x, y))
        found = [
            *elementwise(x, y, torch.from_numpy(x), torch.from_numpy(y)),
            *rows(*matrix, *(torch.from_numpy(a) for a in matrix)),
            adam(x, y),
            *images(size),
            *sequences(size),
            *gammas(size),
        ]
        for label, arguments, theirs in found:
            if not only or only & {label, label.partition(" ")[0]}:
                op = label.partition(" ")[0]
                yield Three(
                    label,
                    size,
                    partial(ours[op], *arguments),
                    theirs,
                    partial(numpy[op], *arguments) if op in numpy else None,
                )


def measured(case: Three, samples: int, seconds: float, threads: int) -> Row:
    """Both comparisons of one case: in CPU time for one thread, by the clock for several."""
    case.ours()  # compiled now, or loaded from the cache
    clock = time.process_time if threads == 1 else time.perf_counter
    beside_torch = compare(
        Case(case.name, case.ours, case.torch), samples=samples, seconds=seconds, clock=clock
    )
    ratio = float("nan")
    if case.numpy is not None:
        beside_numpy = Case(case.name, case.ours, case.numpy)
        ratio = compare(beside_numpy, samples=samples, seconds=seconds, clock=clock).ratio
    return Row(case.name, case.size, beside_torch.ours * 1e6, beside_torch.ratio, ratio)


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated names of kernels")
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1, help="threads of ours and of PyTorch")
    parser.add_argument("--samples", type=int, default=7, help="pairs of samples per line")
    parser.add_argument("--seconds", type=float, default=0.01, help="about this long per sample")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    options = parser.parse_args()
    try:
        import numba
        import torch

        import coredispatch_cpu_numba
    except ImportError as error:
        print(f"benchmarks/kernels.py needs {error.name}; see its first lines")
        return 2
    torch.set_num_threads(options.threads)
    coredispatch_cpu_numba.set_num_threads(options.threads)
    np.seterr(all="ignore")

    sizes = [int(float(size)) for size in options.sizes.split(",")]
    only = {name for name in options.only.split(",") if name}
    todo = list(cases(sizes, np.dtype(options.dtype), only))
    try:
        from tqdm import tqdm
    except ImportError:
        bar = todo
    else:
        bar = tqdm(todo, disable=not sys.stderr.isatty(), leave=False)
    table = [measured(case, options.samples, options.seconds, options.threads) for case in bar]

    print(
        f"{options.dtype}, {options.threads} thread(s); Numba {numba.__version__}, "
        f"PyTorch {torch.__version__}, NumPy {np.__version__}; ratios ours / theirs"
    )
    width = max((len(row.name) for row in table), default=0)
    print(f"{'kernel':{width}}  {'size':>8}  {'ours us':>10}  {'/ PyTorch':>9}  {'/ NumPy':>9}")
    for row in sorted(table, key=lambda row: (row.name, row.size)):
        flag = "  above 1" if row.torch > 1 else ""
        print(
            f"{row.name:{width}}  {row.size:8}  {row.us:10.2f}  {row.torch:9.2f}  "
            f"{row.numpy:9.2f}{flag}"
        )
    for size in sizes:
        here = [row for row in table if row.size == size]
        if here:
            known = [row.numpy for row in here if not np.isnan(row.numpy)]
            print(
                f"{'geometric mean':{width}}  {size:8}  {'':10}  "
                f"{geometric_mean(row.torch for row in here):9.2f}  "
                f"{geometric_mean(known) if known else np.nan:9.2f}"
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([vars(row) for row in table], file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
