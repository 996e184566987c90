"""Compiled programs: ours beside our eager, PyTorch's eager and torch.compile, in one run.

    python benchmarks/compile.py [--only softmax,mlp] [--threads 2] [--no-torch-compile]

Each program is written once and runs on both libraries. The four are called in turn, and the
fastest of many short samples counts: other programs on the machine make calls slower, never
faster. ``cold`` is the time of the first calls, compiling included; run with an empty
``COREDISPATCH_NUMBA_CACHE_DIR`` directory (and ``TORCHINDUCTOR_CACHE_DIR``) for a cold cache. The
first case of a run pays for what both libraries import and make once.
"""

from __future__ import annotations

import os
import sys

# The cold start is what users see: eager kernels are compiled in the background. Before the calls
# are timed they are waited for. The module below chooses otherwise, so this comes first.
os.environ.setdefault("COREDISPATCH_BACKGROUND", "1")

from measure import geometric_mean, threads_of

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = threads_of(sys.argv)

import argparse  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

Program = Callable[..., Any]
#: name, a function of the library that makes a program, and a function that makes its inputs
Case = tuple[str, Callable[[Any], Program], Callable[[], tuple[np.ndarray, ...]]]


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _classes(count: int, batch: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, count, batch)


def chain(length: int) -> Callable[[Any], Program]:
    """Pointwise operators one after the other."""

    def make(lib: Any) -> Program:
        steps = (
            lambda x, y: x * y,
            lambda x, y: x + 1.5,
            lambda x, y: lib.sigmoid(x),
            lambda x, y: x - y,
            lambda x, y: lib.tanh(x),
            lambda x, y: lib.relu(x + y),
        )

        def program(x: Any, y: Any) -> Any:
            for k in range(length):
                x = steps[k % len(steps)](x, y)
            return x

        return program

    return make


def forward(build: Callable[[Any], Program]) -> Callable[[Any], Program]:
    """A program without gradients."""

    def make(lib: Any) -> Program:
        program = build(lib)

        def run(*inputs: Any) -> Any:
            with lib.no_grad():
                return program(*inputs)

        return run

    return make


def cross_entropy(lib: Any) -> Program:
    """The loss and its gradient."""

    def program(x: Any, target: Any) -> Any:
        leaf = x.detach().requires_grad_()
        loss = lib.nn.functional.cross_entropy(leaf, target)
        loss.backward()
        return leaf.grad

    return program


def _training(lib: Any, net: Any) -> Program:
    # Steps so small that the gradients stay what they are. A loss that thousands of calls with the
    # same batch bring to 0 leaves moments that are subnormal, on which processors are slow.
    update = lib.optim.Adam(net.parameters(), lr=1e-8)

    def step(x: Any, target: Any) -> Any:
        update.zero_grad()
        loss = lib.nn.functional.cross_entropy(net(x), target)
        loss.backward()
        update.step()
        return loss

    return step


def mlp(lib: Any) -> Program:
    """A training step with Adam."""
    nn = lib.nn
    lib.manual_seed(0)
    layers = [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    return _training(lib, nn.Sequential(*layers))


def cnn(lib: Any) -> Program:
    """A training step with Adam."""
    nn = lib.nn
    lib.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()]
    return _training(
        lib, nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 25, 10))
    )


def gpt_block(lib: Any) -> Program:
    """Attention and a feed-forward network, forward."""
    nn = lib.nn
    lib.manual_seed(0)
    width, heads = 128, 4

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.one(x)).split(width, 2)
            q, k, v = (p.view(batch, length, heads, -1).transpose(1, 2) for p in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.two(x))))

    return Block()


def cases() -> Iterator[Case]:
    """All of them."""
    for length in (3, 6, 12):
        for size in (10_000, 100_000, 1_000_000, 10_000_000):
            inputs = lambda size=size: (_floats(size), _floats(size))  # noqa: E731
            yield f"chain of {length}, {size:.0e}", forward(chain(length)), inputs
    rows = lambda: (_floats(512, 1024),)  # noqa: E731
    yield "softmax 512x1024", forward(lambda lib: lambda x: lib.softmax(x, -1)), rows

    def norm_gelu(lib: Any) -> Program:
        norm = lib.nn.LayerNorm(1024)
        return lambda x: lib.nn.functional.gelu(norm(x))

    yield "layer_norm + gelu 512x1024", forward(norm_gelu), rows

    def rms(lib: Any) -> Program:
        weight = lib.ones(1024)
        return lambda x: lib.nn.functional.rms_norm(x, (1024,), weight, 1e-6)

    yield "rms_norm 512x1024", forward(rms), rows
    targets = lambda: (_floats(256, 1000), _classes(1000, 256))  # noqa: E731
    yield "cross_entropy + gradient 256x1000", cross_entropy, targets
    for batch in (1, 64):
        tokens = lambda n=batch: (_floats(n, 32, 128),)  # noqa: E731
        yield f"gpt block, batch {batch}", forward(gpt_block), tokens
        flat = lambda n=batch: (_floats(n, 784), _classes(10, n))  # noqa: E731
        yield f"mlp step, batch {batch}", mlp, flat
        images = lambda n=batch: (_floats(n, 1, 28, 28), _classes(10, n))  # noqa: E731
        yield f"cnn step, batch {batch}", cnn, images


def _warm(program: Program, inputs: Any) -> float:
    start = time.perf_counter()
    for _ in range(3):
        program(*inputs)
    return time.perf_counter() - start


def _ready(programs: dict[str, Program], inputs: dict[str, Any]) -> None:
    """Call the programs until no kernel of theirs is being compiled."""
    from coredispatch_cpu_numba import background

    busy = True
    while busy:
        for name, program in programs.items():
            program(*inputs[name])
        busy = background.busy()
        while background.busy():
            time.sleep(0.01)


def _fastest(
    programs: dict[str, Program], inputs: dict[str, Any], rounds: int, pause: float
) -> dict[str, float]:
    """The fastest sample of each, in turns, with a pause in seconds before each sample."""
    calls: dict[str, int] = {}
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(rounds):
        for name, program in programs.items():
            given = inputs[name]
            count = calls.get(name, 1)
            time.sleep(pause)
            start = time.perf_counter()
            for _ in range(count):
                program(*given)
            spent = (time.perf_counter() - start) / count
            best[name] = min(best[name], spent)
            calls[name] = max(1, min(1000, int(0.01 / max(spent, 1e-9))))
    return best


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-torch-compile", action="store_true")
    options = parser.parse_args()
    import torch

    import coredispatch as cd

    torch.set_num_threads(options.threads)
    cd.set_num_threads(options.threads)
    wanted = [part for part in options.only.split(",") if part]
    print(
        f"{'case':34} {'ours us':>9} {'cold s':>6} | ratio to {'our eager':>9} {'torch eager':>11} "
        f"{'torch.compile':>13} {'its cold s':>10}"
    )
    ratios = []
    for name, make, arrays in cases():
        if wanted and not any(part in name for part in wanted):
            continue
        data = arrays()
        ours, theirs = ([lib.from_numpy(a) for a in data] for lib in (cd, torch))
        programs = {
            "ours": cd.compile(make(cd), backend="cpu_numba"),
            "our eager": make(cd),
            "torch eager": make(torch),
        }
        if not options.no_torch_compile:
            torch._dynamo.reset()
            programs["torch.compile"] = torch.compile(make(torch))
        inputs = {key: theirs if "torch" in key else ours for key in programs}
        cold = {key: _warm(program, inputs[key]) for key, program in programs.items()}
        _ready(programs, inputs)
        # Threads of OpenBLAS and OpenMP look for work for a while before they sleep, and take the
        # processors from the library that comes next.
        pause = 0.05 if options.threads > 1 else 0.0
        best = _fastest(programs, inputs, options.rounds, pause)
        mine = best["ours"]
        line = f"{name:34} {mine * 1e6:9.1f} {cold['ours']:6.2f} |          "
        line += f"{mine / best['our eager']:9.2f} {mine / best['torch eager']:11.2f}"
        if "torch.compile" in best:
            ratios.append(mine / best["torch.compile"])
            line += f" {ratios[-1]:13.2f} {cold['torch.compile']:10.2f}"
        print(line, flush=True)
    if ratios:
        print(f"geometric mean of the ratios to torch.compile: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
