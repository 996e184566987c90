"""The cost of a call: small tensors, coredispatch beside PyTorch in one process and one thread.

    python benchmarks/dispatch.py [--everyday] [--interpreted] [--both] [--json FILE]

``--everyday`` measures the calls of ``everyday_calls.py`` instead, ``--interpreted`` runs the hot
modules as Python files, ``--both`` measures the two forms in one process each. PyTorch is needed
here and nowhere else (``pip install coredispatch[bench]``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

from measure import Case, Result, compare, geometric_mean, print_table, progress  # noqa: E402

N = 8


def cases() -> list[Case]:
    """The 25 calls, on 8 x 8 float32 tensors unless the name says otherwise."""
    import numpy as np
    import torch
    import torch.nn.functional as tf

    import coredispatch as cd
    import coredispatch.nn.functional as cf

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    def pair(*shape: int, grad: bool = False) -> tuple[cd.Tensor, torch.Tensor]:
        array = rng.standard_normal(shape).astype(np.float32)
        ours, theirs = cd.tensor(array), torch.tensor(array)
        return ours.requires_grad_(grad), theirs.requires_grad_(grad)

    (a, ta), (b, tb) = pair(N, N), pair(N, N)
    (g, tg), (h, th) = pair(N, N, grad=True), pair(N, N, grad=True)
    (w, tw), (bias, tbias) = pair(N, N), pair(N)
    (c, tc) = pair(N, N)
    labels = rng.integers(0, N, N)
    y, ty = cd.tensor(labels), torch.tensor(labels)
    one, tone = a.sum(), ta.sum()

    def graph_ours() -> None:
        g.grad = h.grad = None
        ((g * h + g).relu().sum()).backward()

    def graph_theirs() -> None:
        tg.grad = th.grad = None
        ((tg * th + tg).relu().sum()).backward()

    return [
        Case("add", lambda: a + b, lambda: ta + tb),
        Case("add, with grad", lambda: g + h, lambda: tg + th),
        Case("add scalar", lambda: a + 2.0, lambda: ta + 2.0),
        Case("mul", lambda: a * b, lambda: ta * tb),
        Case("mul, with grad", lambda: g * h, lambda: tg * th),
        Case("add_ in place", lambda: c.add_(b), lambda: tc.add_(tb)),
        Case("comparison a > b", lambda: a > b, lambda: ta > tb),
        Case("view", lambda: a.view(64), lambda: ta.view(64)),
        Case("transpose", lambda: a.transpose(0, 1), lambda: ta.transpose(0, 1)),
        Case("index a[2]", lambda: a[2], lambda: ta[2]),
        Case("slice a[1:3]", lambda: a[1:3], lambda: ta[1:3]),
        Case("matmul", lambda: a @ b, lambda: ta @ tb),
        Case("sum", lambda: a.sum(), lambda: ta.sum()),
        Case("sum over a dim", lambda: a.sum(0), lambda: ta.sum(0)),
        Case("mean", lambda: a.mean(), lambda: ta.mean()),
        Case("item", lambda: one.item(), lambda: tone.item()),
        Case("cat", lambda: cd.cat([a, b]), lambda: torch.cat([ta, tb])),
        Case("mixed dtypes a + y", lambda: a + y, lambda: ta + ty),
        Case("relu", lambda: a.relu(), lambda: ta.relu()),
        Case("softmax", lambda: a.softmax(1), lambda: ta.softmax(1)),
        Case("linear", lambda: cf.linear(a, w, bias), lambda: tf.linear(ta, tw, tbias)),
        Case("layer_norm", lambda: cf.layer_norm(a, (N,)), lambda: tf.layer_norm(ta, (N,))),
        Case("cross_entropy", lambda: cf.cross_entropy(a, y), lambda: tf.cross_entropy(ta, ty)),
        Case("backward of a small graph", graph_ours, graph_theirs),
        _mlp_step(),
    ]


def _mlp_step() -> Case:
    """Forward, loss, backward and SGD step of a 16-32-32-4 network at batch 1."""
    import numpy as np
    import torch

    import coredispatch as cd

    def step(lib, x, y):  # type: ignore[no-untyped-def]
        nn = lib.nn
        net = nn.Sequential(
            nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
        )
        optimizer = lib.optim.SGD(net.parameters(), lr=1e-3)
        criterion = nn.CrossEntropyLoss()

        def run() -> None:
            optimizer.zero_grad()
            criterion(net(x), y).backward()
            optimizer.step()

        return run

    x = np.random.default_rng(1).standard_normal((1, 16)).astype(np.float32)
    y = np.array([2])
    return Case(
        "MLP step at batch 1",
        step(cd, cd.tensor(x), cd.tensor(y)),
        step(torch, torch.tensor(x), torch.tensor(y)),
    )


def everyday() -> list[Case]:
    """The calls of :mod:`everyday_calls`."""
    import torch
    from everyday_calls import calls

    import coredispatch as cd

    torch.set_num_threads(1)
    theirs = calls(torch)
    return [Case(name, call, theirs[name]) for name, call in calls(cd).items()]


def run(samples: int, daily: bool = False) -> list[Result]:
    """Measure all cases in this process."""
    found = everyday() if daily else cases()
    return [compare(case, samples=samples) for case in progress(found)]


def form() -> str:
    """Which form of the hot modules runs, and which plugins serve ``cpu``."""
    import coredispatch as cd
    from coredispatch._compiled import compiled_modules

    compiled = all(v is not False for v in compiled_modules().values())
    loaded = [p.name for p in cd.plugins if p.status == "loaded" and not p.builtin]
    return f"{'compiled' if compiled else 'interpreted'}, plugins: {', '.join(loaded) or 'none'}"


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--everyday", action="store_true", help="other calls: everyday_calls.py")
    parser.add_argument("--interpreted", action="store_true", help="use the Python files")
    parser.add_argument("--both", action="store_true", help="measure compiled and interpreted")
    parser.add_argument("--samples", type=int, default=15, help="pairs of samples per call")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    options = parser.parse_args()
    if options.both:
        base = [sys.executable, __file__, "--samples", str(options.samples)]
        base += ["--everyday"] if options.everyday else []
        return max(subprocess.call(base), subprocess.call([*base, "--interpreted"]))
    if options.interpreted:
        os.environ["COREDISPATCH_INTERPRETED"] = "1"
    try:
        import torch
    except ImportError:
        print("benchmarks/dispatch.py compares with PyTorch: pip install 'coredispatch[bench]'")
        return 2
    results = run(options.samples, options.everyday)
    print(f"coredispatch ({form()}) beside PyTorch {torch.__version__}, one thread")
    print_table(results)
    above = [r.name for r in results if r.ratio > 1]
    print(f"above 1: {', '.join(above) or 'none'}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            rows = [vars(r) for r in results]
            json.dump(
                {
                    "form": form(),
                    "results": rows,
                    "geometric_mean": geometric_mean(r.ratio for r in results),
                },
                file,
                indent=1,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
