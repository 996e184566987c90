"""``jit.save`` and ``jit.load``: what is one object stays one, and damaged files are told."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn


class Tied(nn.Module):
    """A weight, a buffer and a module, each with two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.again = self.second
        self.norms = nn.ModuleList([nn.BatchNorm1d(3), nn.BatchNorm1d(3)])
        self.norms[1].running_mean = self.norms[0].running_mean

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        x = self.again(self.second(self.first(x)))
        for norm in self.norms:
            x = norm(x)
        return x


@pytest.mark.parametrize("location", [None, "cpu"])
@pytest.mark.parametrize("how", ["trace", "script"])
def test_what_is_tied_is_one_object_in_a_loaded_program(how: str, location: Any) -> None:
    net, x = Tied().eval(), cd.randn(2, 3)
    made = cd.jit.trace(net, x) if how == "trace" else cd.jit.script(net)
    file = io.BytesIO()
    cd.jit.save(made, file)
    file.seek(0)
    for loaded in (
        cd.jit.load(file, map_location=location),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
    ):
        assert loaded.first.weight is loaded.second.weight
        assert loaded.norms[0].running_mean is loaded.norms[1].running_mean
        assert len(list(loaded.parameters())) == len(list(net.parameters()))
        if how == "script":
            assert loaded.again is loaded.second
            assert len(list(loaded.modules())) == len(list(net.modules()))
        optimizer = cd.optim.SGD(loaded.parameters(), lr=0.5)
        before = loaded.second.weight.detach().clone()
        loaded(x).square().sum().backward()
        optimizer.step()
        assert not before.equal(loaded.second.weight)
        assert loaded.first.weight.equal(loaded.again.weight)
