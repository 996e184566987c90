"""Every recorded or written call, changed as hypothesis draws it, answered by PyTorch beside us.

The seeds are ``samples.zip`` (PyTorch's own samples of its operators) and ``seeds.txt``; the
changes are in ``mutations.py``: dtypes, sizes, numbers of dimensions, layouts, options, spellings.
Values, dtypes, gradients and the built-in classes of refusals agree, but for ``differences.py``.
``COREDISPATCH_DRAWN=200`` draws more for each name, with ``--hypothesis-seed`` others.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

import coredispatch as cd

sys.path.insert(0, str(Path(__file__).parent))

from calls import resolve
from judged import NOT_DRAWN, difference, every_call, name_of, without_seed
from mutations import Call, near

torch = pytest.importorskip("torch")

BOOK, CALLS = every_call()
MORE = "COREDISPATCH_DRAWN" in os.environ
drawn = settings(
    max_examples=int(os.environ.get("COREDISPATCH_DRAWN", "12")),
    suppress_health_check=list(HealthCheck),
    deadline=None,
    database=None,
)


def _there(library: object, path: str) -> bool:
    try:
        return callable(resolve(library, path))
    except AttributeError:
        return False


@pytest.mark.parametrize("path", [p for p in CALLS if _there(cd, p) and _there(torch, p)])
def test_calls_near(path: str) -> None:
    @drawn
    @given(near(BOOK, CALLS[path], torch))
    def agrees(call: Call) -> None:
        found = difference(call, torch)
        assert not found, f"{call}: {found}"

    # Every name has a stream of its own; otherwise all would see the same changes.
    (agrees if MORE else seed(zlib.crc32(path.encode()))(agrees))()


def test_every_function_has_a_seed() -> None:
    """A function of tensors without a seed is named in NOT_DRAWN, with the reason."""
    assert not without_seed(CALLS), "write a line in seeds.txt"
    assert not set(map(name_of, NOT_DRAWN)) & set(map(name_of, CALLS))
