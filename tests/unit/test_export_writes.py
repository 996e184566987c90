"""An exported program writes to what the program writes to: views, and not copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import nn
from coredispatch.export import export

#: what may view its argument or copy it, by how that lies, by its dtype, or by a number
FORMS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda b: b.reshape(-1),
    "reshape of a transpose": lambda b: b.t().reshape(-1),
    "reshape of columns": lambda b: b[:, :2].reshape(-1),
    "reshape of one column": lambda b: b[:, 1].reshape(3, 1),
    "reshape of an expanded row": lambda b: b[:1].expand(3, 4).reshape(-1),
    "reshape of a part": lambda b: b.chunk(2, 1)[1].reshape(-1),
    "flatten of a transpose": lambda b: b.t().flatten(),
    "ravel of a diagonal": lambda b: b.diagonal().ravel(),
    "reshape_as of a transpose": lambda b: b.t().reshape_as(b),
    "contiguous": lambda b: b.contiguous(),
    "contiguous transpose": lambda b: b.t().contiguous(),
    "channels last": lambda b: b.reshape(1, 3, 2, 2).contiguous(memory_format=cd.channels_last),
    "rows by a list": lambda b: b[[0, 2]],
    "rows by a slice": lambda b: b[::2],
    "its own dtype": lambda b: b.to(cd.float32),
    "another dtype": lambda b: b.to(cd.float64),
    "real": lambda b: b.real,
    "atleast_3d": cd.atleast_3d,
    "pixel_shuffle": lambda b: F.pixel_shuffle(b.reshape(12, 1, 1), 2),
    "sum_to_size of its own": lambda b: b.sum_to_size(3, 4),
    "dropout in evaluation": lambda b: F.dropout(b, 0.5, False),
}


class Writes(nn.Module):
    """Writes to a form of a value, and returns both."""

    def __init__(self, form: Callable[[Any], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Any) -> Any:
        """The written form, and what it was made of."""
        b = x * 2
        written = self.form(b)
        written.mul_(3.0)
        return written, b


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_writes_reach_views_alone(form: Callable[[Any], Any]) -> None:
    x = cd.arange(12.0).reshape(3, 4)
    program = export(Writes(form), (x,))
    for module in (program.module(), program.run_decompositions().module()):
        for ours, expected in zip(module(x), Writes(form)(x), strict=True):
            assert cd.equal(ours, expected)
