"""An exported program writes to what the program writes to, and keeps the modes of its blocks."""

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


class Modes(nn.Module):
    """Two layers, one without gradients, and one in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        """What does not require grad, and what does."""
        with cd.no_grad():
            hidden = self.first(x)
            largest = hidden.max(1).values
        with cd.autocast("cpu", dtype=cd.bfloat16):
            found = self.second(hidden)
        return hidden, found.float().sum() * self.first.bias.sum() + largest.sum(), found


@pytest.mark.parametrize("outer", [False, True], ids=["plain", "under autocast"])
@pytest.mark.parametrize("how", ["trace", "export", "decomposed"])
def test_modes_of_the_program_are_part_of_it(how: str, outer: bool) -> None:
    module, x = Modes(), cd.randn(5, 4)
    with cd.autocast("cpu", dtype=cd.bfloat16, enabled=outer):
        program = cd.jit.trace(module, (x,)) if how == "trace" else export(module, (x,))
        wanted = module(x)  # and nothing of the trace is left in the block
    wanted[1].backward()
    gradients = [p.grad for p in module.parameters()]
    module.zero_grad()
    fast: Any = program
    if how != "trace":
        fast = (program.run_decompositions() if how == "decomposed" else program).module()
    found = fast(x)
    found[1].backward()
    assert [y.dtype for y in found] == [y.dtype for y in wanted]
    assert [y.requires_grad for y in found] == [y.requires_grad for y in wanted]
    for ours, expected in zip(found, wanted, strict=True):
        assert cd.allclose(ours, expected, 2e-2, 2e-2)
    for ours, expected in zip(fast.parameters(), gradients, strict=True):
        assert (ours.grad is None) == (expected is None)
        assert expected is None or cd.allclose(ours.grad, expected, 2e-2, 2e-2)
