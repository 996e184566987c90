"""Quantized linear layers and convolutions beside PyTorch's, by its engines, and beside float32.

    python benchmarks/quantized.py [--threads 2] [--samples 7] [--seconds 0.01]

A line for each case and engine: microseconds of our 8-bit call, of our float32 call and of
PyTorch's 8-bit call, and the ratios of ours to the other two. Minima of samples taken in turn, in
one process, on the same data; images have their channels last. One thread is measured in CPU time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from measure import Case, both_libraries, geometric_mean, minima, threads_of

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = threads_of(sys.argv)

import numpy as np  # noqa: E402

ENGINES = ("x86", "onednn")
#: name, shape of the input, of the weight, stride, padding, groups; a linear layer has no more
CASES: tuple[tuple[Any, ...], ...] = (
    ("linear 1024x1024x1024", (1024, 1024), (1024, 1024)),
    ("linear 64x1024x1024", (64, 1024), (1024, 1024)),
    ("linear 1x1024x1024", (1, 1024), (1024, 1024)),
    ("linear 512x784x512", (512, 784), (512, 784)),
    ("conv 3x3, 64 channels", (4, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ("conv 3x3, 256 channels", (4, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
    ("conv 1x1", (4, 64, 56, 56), (256, 64, 1, 1), 1, 0, 1),
    ("conv 7x7, 3 channels", (4, 3, 112, 112), (64, 3, 7, 7), 2, 3, 1),
    ("conv depthwise", (4, 64, 56, 56), (64, 1, 3, 3), 1, 1, 64),
)


def ours(
    cd: Any, x: np.ndarray, w: np.ndarray, b: np.ndarray, rest: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The call in 8 bits and that in float32."""
    from coredispatch_quant import quantized_conv2d, quantized_linear

    tensors = x, w, b = cd.from_numpy(x), cd.from_numpy(w), cd.from_numpy(b)
    scales, zeros = cd.full((len(w),), 0.02, dtype=cd.float64), cd.zeros(len(w), dtype=cd.int64)
    if rest:
        x = x.contiguous(memory_format=cd.channels_last)
    q = cd.quantize_per_tensor(x, 0.03, 120, cd.quint8)
    weight = cd.quantize_per_channel(w, scales, zeros, 0, cd.qint8)
    if not rest:
        return (
            lambda: quantized_linear(q, weight, b, 1.0, 128),
            lambda: cd.nn.functional.linear(*tensors),
        )
    stride, padding, groups = rest
    return (
        lambda: quantized_conv2d(q, weight, b, 1.0, 128, stride, padding, 1, groups),
        lambda: cd.nn.functional.conv2d(x, w, b, stride, padding, 1, groups),
    )


def theirs(
    torch: Any, engine: str, x: np.ndarray, w: np.ndarray, b: np.ndarray, rest: Any
) -> Callable[[], Any]:
    """PyTorch's call in 8 bits, with the weight packed for ``engine``."""
    torch.backends.quantized.engine = engine
    tensor, bias = torch.from_numpy(x), torch.from_numpy(b)
    if rest:
        tensor = tensor.to(memory_format=torch.channels_last)
    q = torch.quantize_per_tensor(tensor, 0.03, 120, torch.quint8)
    scales, zeros = torch.full((len(w),), 0.02, dtype=torch.double), torch.zeros(len(w)).long()
    weight = torch.quantize_per_channel(torch.from_numpy(w), scales, zeros, 0, torch.qint8)
    quantized = torch.ops.quantized
    if not rest:
        packed = quantized.linear_prepack(weight, bias)
        return lambda: quantized.linear(q, packed, 1.0, 128)
    stride, padding, groups = rest
    window = [stride] * 2, [padding] * 2, [1, 1], groups
    packed = quantized.conv2d_prepack(weight, bias, *window)
    return lambda: quantized.conv2d(q, packed, 1.0, 128)


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of ours and of PyTorch")
    parser.add_argument("--samples", type=int, default=7, help="pairs of samples per line")
    parser.add_argument("--seconds", type=float, default=0.01, help="about this long per sample")
    options = parser.parse_args()
    libraries = both_libraries(options.threads, False)
    if libraries is None:
        return 2
    cd, torch = libraries
    clock = time.process_time if options.threads == 1 else time.perf_counter
    how = {"samples": options.samples, "seconds": options.seconds, "clock": clock}
    rng = np.random.default_rng(0)
    ratios: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    print(f"{options.threads} thread(s); PyTorch {torch.__version__}, NumPy {np.__version__}")
    print(
        f"{'case':24}{'engine':8}{'ours us':>10}{'float32':>10}{'theirs':>10}  of float32, theirs"
    )
    for name, shape, weight, *rest in CASES:
        arrays = (
            rng.standard_normal(shape, np.float32),
            rng.standard_normal(weight, np.float32) * np.float32(0.5),
            rng.standard_normal(weight[0], np.float32),
        )
        narrow, full = ours(cd, *arrays, rest)
        floats = minima(Case(name, narrow, full), **how)
        for engine in ENGINES:
            found = minima(Case(name, narrow, theirs(torch, engine, *arrays, rest)), **how)
            ratios[engine].append(found.ratio)
            times = "".join(f"{t * 1e6:10.1f}" for t in (found.ours, floats.theirs, found.theirs))
            print(f"{name:24}{engine:8}{times}  {floats.ratio:10.2f}{found.ratio:8.2f}", flush=True)
    for engine, found_ratios in ratios.items():
        print(f"geometric mean, {engine}: {geometric_mean(found_ratios):.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
