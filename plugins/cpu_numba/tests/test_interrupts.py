"""Ctrl-C while a program is compiled: the call ends, and the next one compiles it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

CHILD = """
import os, signal, sys, threading, time
import coredispatch as cd

# A program that was started in the background ignores the signal, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
net = cd.nn.Sequential(cd.nn.Linear(16, 32), cd.nn.GELU(), cd.nn.Linear(32, 1))
optimizer = cd.optim.Adam(net.parameters())

@cd.compile
def step(x, y):
    optimizer.zero_grad()
    loss = (net(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss

def interrupt():
    while sys.argv[1] not in sys.modules:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

x, y = cd.randn(8, 16), cd.randn(8, 1)
assert sys.argv[1] not in sys.modules
thread = threading.Thread(target=interrupt)
thread.start()
try:
    while True:
        step(x, y)
except KeyboardInterrupt:
    pass
thread.join()
assert not cd.compiler.is_compiling()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
losses = [step(x, y).item() for _ in range(5)]
assert losses[-1] < losses[0], losses
z = cd.randn(3, requires_grad=True)
(z * z).sum().backward()
assert z.grad.allclose(2 * z)
assert cd.compiler.explain(step, x, y).calls > 0
print("went on")
"""


@pytest.mark.parametrize(
    "module",
    [
        "numba.core",
        "numba.core.typing.context",
        "numba.np",
        "coredispatch_cpu_numba.graphs.machine",
    ],
)
def test_an_interrupt_at_any_moment_leaves_a_compiler_that_works(
    module: str, tmp_path: Path
) -> None:
    caches = {
        "COREDISPATCH_CACHE_DIR": str(tmp_path / "graphs"),
        "COREDISPATCH_NUMBA_CACHE_DIR": str(tmp_path / "loops"),
        "COREDISPATCH_BACKGROUND": "0",
    }
    command = [sys.executable, "-c", CHILD, module]
    done = subprocess.run(
        command,
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "went on\n", done.stderr
    assert not [path for path in tmp_path.rglob("*") if "tmp" in path.name or ".new-" in path.name]
