"""Generated programs over generated state: compiled, they do what they do eagerly.

``COREDISPATCH_GENERATED`` is how many are drawn; a large number draws others in each run.
"""

from __future__ import annotations

import os
import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest
from compile_grammar import events, programs
from compile_worlds import OPTIMIZERS, difference, history, script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.frontend.compiling import program

pytestmark = pytest.mark.once

COUNT = int(os.environ.get("COREDISPATCH_GENERATED", "0"))


def check(body: str, happens: list[str], optimizer: str, backend: str) -> Any:
    """The first difference between a program and its compiled twin is an error."""
    # An error leaves what it leaves in eager where few tensors are written, as a rule.
    few = mock.patch.object(program, "_FEW_TENSORS", 1000)
    with warnings.catch_warnings(), np.errstate(all="ignore"), few:
        warnings.simplefilter("ignore")
        eager, _ = history(body, happens, optimizer, lambda f: f)
        ours, fast = history(body, happens, optimizer, lambda f: cd.compile(f, backend=backend))
    tolerance = 1e-5 if backend == "eager" else 1e-3
    made = [p for programs in getattr(fast, "programs", {}).values() for p in programs]
    several = any(len(p.leaves()) > 1 for p in made)
    for i, (got, wanted) in enumerate(zip(ours, eager)):
        found = difference(got, wanted, tolerance, several)
        if found is not None:
            lines = [*happens[: i + 1], f"# {found}"]
            pytest.fail("\n" + script(body, lines, optimizer), pytrace=False)
    return fast


#: programs that did otherwise: what they do is said by their lines, and what happens to them
FOUND = {
    "an alias of what another name stands for": (
        "deq.append(v.detach())\nreturn y",
        ["call(X(3), 1)", "call(X(4), 2)", "call(X(4), 2)", "call(X(4), 2)"],
    ),
    "a tensor over the memory of another tensor gets memory of its own": (
        "return obj.t + buf",
        ["obj.t = buf.data", *["call(X(3), 1)"] * 3, "buf.data = cd.ones(2)"]
        + ["call(X(3), 1)"] * 2,
    ),
    "an argument over the memory of a buffer": (
        "return x + net.mean",
        [*["call(net.mean.data, 1)"] * 3, "call(cd.ones(2), 1)", "call(cd.ones(2), 1)"],
    ),
    "writes through data count no version": (
        "s = (net(x) * par).sum()\nnet.w.data.mul_(2)\nreturn s",
        [*["call(X(3), 1)", "late()"] * 3],
    ),
    "writes through data, one of which reads the tensor": (
        "if s > 1:\n    par.data.copy_(par)\nreturn y",
        ["call(X(3), 1)"] * 3,
    ),
    "a tensor over an array": (
        "return cd.from_numpy(arr)",
        ["call(X(3), 1)", "call(X(3), 1)", "arr[0] = 5", "call(X(3), 1)"],
    ),
    "contiguous() of a tensor that is, with open sizes": (
        "return x.contiguous()",
        ["call(X(3), 1)", *["call(X(4), 1)"] * 3],
    ),
    "a view of what is written to counts versions": (
        "if k == 1:\n    buf = v[:]\nif s > 1:\n    cd.mul(v, 2, out=v)\nreturn y",
        ["call(X(3), 1)", *["call(X(4), 2)"] * 3],
    ),
    "a tensor that has the data of a parameter counts no versions of it": (
        "with cd.no_grad():\n    for p in params:\n        p.mul_(0.5)\nobj.n += 1\nreturn y",
        ["buf = par.data", *["call(X(3), 1)"] * 3],
    ),
    "what a block of finally calls when a run is taken back": (
        "try:\n    if s > 1:\n        y = y * 2\nfinally:\n    y = helper(y, k)\nreturn y",
        ["call(X(3), 1)", *["call(X(4), 1)"] * 3],
    ),
    "gradients that are there when a module sets them to None": (
        "net.zero_grad()\nreturn y",
        ["call(X(3), 1)", "call(X(3), 1)", "net.b.grad = cd.ones(2)", "call(X(3), 1)"],
    ),
    "an array is written to through a tensor": (
        "cd.from_numpy(arr).add_(1)\nreturn y",
        ["call(X(3), 1)"] * 3,
    ),
}


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize("found", FOUND)
def test_programs_that_were_found(found: str, backend: str) -> None:
    check(*FOUND[found], "sgd", backend)


@settings(
    max_examples=COUNT or 400,
    derandomize=not COUNT,
    database=None,
    suppress_health_check=[*HealthCheck],
)
@given(
    programs(),
    events(),
    st.sampled_from([*OPTIMIZERS]),
    st.sampled_from(["eager", "eager", "eager", "cpu_numba"]),
)
def test_generated_programs(body: str, happens: list[str], optimizer: str, backend: str) -> None:
    check(body, happens, optimizer, backend)
