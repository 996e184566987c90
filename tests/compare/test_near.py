"""Every recorded or written call, changed at random, answered by PyTorch beside us.

The seeds are ``samples.zip`` (PyTorch's own samples of its operators) and ``seeds.txt``; the
changes are in ``mutations.py``: dtypes, sizes, numbers of dimensions, layouts, options, spellings.
Values, dtypes, gradients and the built-in classes of refusals agree, but for ``differences.py``.

Each name has the same calls in every run. ``COREDISPATCH_DRAWN=200`` has hypothesis draw others for
each name, and shrink what it finds, with ``--hypothesis-seed`` for more. Hypothesis is for that
alone: what it draws follows its version and the constants in whatever modules the process has
loaded, so that a run could meet by chance what no earlier one met.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coredispatch as cd

sys.path.insert(0, str(Path(__file__).parent))

from calls import resolve
from judged import NOT_DRAWN, difference, every_call, name_of, without_seed
from mutations import Choose, near

torch = pytest.importorskip("torch")

BOOK, CALLS = every_call()
MORE = int(os.environ.get("COREDISPATCH_DRAWN", "0"))
#: calls of each name where hypothesis is not asked for more
EACH = 12


def _there(library: object, path: str) -> bool:
    try:
        return callable(resolve(library, path))
    except AttributeError:
        return False


@pytest.mark.parametrize("path", [p for p in CALLS if _there(cd, p) and _there(torch, p)])
def test_calls_near(path: str) -> None:
    def agrees(choose: Choose) -> None:
        call = near(choose, BOOK, CALLS[path], torch)
        found = difference(call, torch)
        assert not found, f"{call}: {found}"

    if MORE:
        drawn(agrees)
    for number in range(0 if MORE else EACH):
        agrees(random.Random(f"{path} {number}").choice)


def drawn(agrees: Callable[[Choose], None]) -> None:
    """The calls that hypothesis draws, ``MORE`` of them."""

    @settings(
        max_examples=MORE,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.data())
    def drawn(data: st.DataObject) -> None:
        agrees(lambda options: data.draw(st.sampled_from(options)))

    drawn()


def test_every_function_has_a_seed() -> None:
    """A function of tensors without a seed is named in NOT_DRAWN, with the reason."""
    assert not without_seed(CALLS), "write a line in seeds.txt"
    assert not set(map(name_of, NOT_DRAWN)) & set(map(name_of, CALLS))
