"""Calls that PyTorch 2.13 answered once, compared with what coredispatch answers; see record.py.

No PyTorch is needed. What differs on purpose is in ``differences.py``, with the reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F

pytestmark = pytest.mark.once

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from calls import Book, resolve  # noqa: E402
from differences import EXPRESSIONS, reason  # noqa: E402
from outcomes import apart, outcome  # noqa: E402

ANSWERS = json.loads((HERE / "expressions.json").read_text())
BOOK = Book.load(HERE / "samples.zip")
CALLS = dict(BOOK.by_path())


@pytest.mark.parametrize("line", ANSWERS)
def test_expressions(line: str) -> None:
    theirs = Book().unpacked(ANSWERS[line])
    mine = outcome(cd, lambda: eval(line, {"t": cd, "F": F}))
    found = apart(mine, theirs)
    if line in EXPRESSIONS:
        assert found, f"{line} no longer differs: take it out of differences.py"
        return
    assert not found, f"{line}: {found}"


def answer(path: str, entry: dict[str, Any]) -> str:
    """How our answer to a recorded call differs from PyTorch's."""
    args, kwargs, inputs = BOOK.arguments(entry, cd)
    mine = outcome(cd, lambda: resolve(cd, path)(*args, **kwargs), inputs)
    return apart(mine, BOOK.unpacked(entry["outcome"]))


@pytest.mark.parametrize("path", CALLS)
def test_samples(path: str) -> None:
    try:
        resolve(cd, path)
    except AttributeError:
        pytest.skip("there is no such name")
    wrong = []
    for entry in CALLS[path]:
        found = answer(path, entry)
        if found and not reason(path, entry["dtype"], found):
            wrong.append(f"{BOOK.shown(entry)}: {found}")
    assert not wrong, "\n".join(wrong)
