"""Faults that are planted before the checks that shall notice them are written.

What no case notices yet is listed by name: a check that is added takes names from the list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from coredispatch.conformance.selftest import settings

MISSED = {
    "a backward that overflows for large inputs (gelu)",
    "a backward that overflows for large inputs (silu)",
    "a derivative a percent off in float32 (exp)",
    "a derivative a percent off in float32 (mul)",
    "a derivative a percent off in float32 (softmax)",
    "a derivative a percent off in float32 (tanh)",
    "a derivative an eighth off in bfloat16 (matmul)",
    "a derivative an eighth off in float16 (sqrt)",
    "a derivative wrong for large inputs (atan)",
    "a derivative wrong for large inputs (log1p)",
    "a derivative wrong for large inputs (mul)",
    "a derivative wrong for large inputs (sin)",
    "a generator of one's own moves the default one",
    "a large negative incoming gradient is clipped (add)",
    "a large negative incoming gradient is clipped (relu)",
    "a large negative incoming gradient is clipped (sum)",
    "a permutation does not move between its halves",
    "a permutation leaves its last element too often",
    "a range beyond 32 bits is drawn with 32",
    "a range that is no power of two is folded",
    "a second backward overwrites .grad",
    "a seed goes through a float64",
    "a seed is cut to 32 bits",
    "a seed is cut to 63 bits",
    "a small derivative lost in float16 (sigmoid)",
    "a transposed incoming gradient is read as contiguous (log_softmax)",
    "a transposed incoming gradient is read as contiguous (sigmoid)",
    "an expanded incoming gradient is read as contiguous (layer_norm)",
    "an expanded incoming gradient is read as contiguous (softmax)",
    "an expanded incoming gradient is read as contiguous (tanh)",
    "every element of a window of equal ones gets the gradient",
    "normal numbers around 0.03",
    "normal numbers in pairs of opposite signs",
    "normal numbers of too large a variance",
    "normal numbers without tails",
    "only even permutations are drawn",
    "sums of three uniform numbers for normal ones",
    "the gradient of a sum over nothing has elements",
    "the gradient of abs at 0 is 1",
    "the gradient of clamp at its bounds is 0",
    "the gradient of cumprod at 0 is 0",
    "the gradient of cumprod at 0 is NaN",
    "the gradient of cumsum reads what comes before",
    "the gradient of hardtanh at its bounds is 1",
    "the gradient of leaky_relu at 0 is 1",
    "the gradient of masked_fill multiplies by the mask",
    "the gradient of mul reads an operand of its own",
    "the gradient of pow at base 0 is NaN",
    "the gradient of prod at a single 0 is 0",
    "the gradient of prod is the product over the element: NaN at 0",
    "the gradient of prod with two zeros is not 0",
    "the gradient of relu at 0 is 1",
    "the gradient of the square root at 0 is 0",
    "the gradient of the standard deviation of equal numbers is NaN",
    "the gradient of threshold at the threshold is 1",
    "the gradient of tril reads the upper triangle",
    "the graph is kept after backward",
    "the largest integer is never drawn",
    "the smallest integer is never drawn",
    "the stream starts anew at every call (normal)",
    "the stream starts anew at every call (uniform)",
    "the upper end of a uniform interval is drawn",
    "ties of amax get all of the gradient",
    "ties of amin get all of the gradient",
    "ties of maximum get all of the gradient",
    "ties of minimum get all of the gradient",
    "uniform double-precision numbers with 24 bits",
    "uniform half-precision numbers in steps of 1/64",
    "uniform numbers in steps of 2**-12",
}

_PROGRAM = """
import json
from coredispatch.conformance.selftest import _mutants, judge
found = [judge("planned", i) for i in range(len(_mutants("planned")))]
print(json.dumps({entry["name"]: entry["outcome"] for entry in found}))
"""


def test_what_no_check_notices_yet_is_known_by_name() -> None:
    environment = settings({k: v for k, v in os.environ.items() if k != "COREDISPATCH_PLUGINS"})
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    outcomes = json.loads(run.stdout.splitlines()[-1])
    assert set(outcomes.values()) <= {"caught", "survived"}, outcomes
    assert {name for name, outcome in outcomes.items() if outcome == "survived"} == MISSED
