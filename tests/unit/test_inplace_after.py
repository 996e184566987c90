"""An operator followed by a write in place trains where PyTorch's does, and rightly."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F

_path = pathlib.Path(__file__).with_name("inplace_after_programs.py")
_spec = importlib.util.spec_from_file_location("inplace_after_programs", _path)
assert _spec is not None and _spec.loader is not None
programs: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)

REFUSED = set(json.loads(programs.RECORD.read_text())["refused"])


# Division of a number is the product with a reciprocal in PyTorch, which keeps that and no input.
DIFFERENT = {"number / x | y | input 0"}


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_a_write_after_an_operator(name: str) -> None:
    """Whatever trains in PyTorch trains; and whatever trains has the gradients of no write."""
    refused = []
    for case in programs.cases():
        if case[0] == name:
            grads = programs.trains(cd, F, *case)
            if grads is None:
                refused.append(programs.label(*case))
                continue
            plain = "nothing, twice" if case[2] == "result" else "nothing"
            expected = programs.trains(cd, F, *case[:2], plain)
            for grad, known in zip(grads, expected, strict=True):
                assert (grad is None) == (known is None), case
                if grad is not None:
                    np.testing.assert_allclose(
                        grad, known, rtol=1e-6, atol=1e-13, err_msg=str(case)
                    )
    assert not set(refused) - REFUSED - DIFFERENT
