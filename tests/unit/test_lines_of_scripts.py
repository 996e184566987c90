"""A refusal of a scripted program names the line of its source, and not of a graph's text."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn


class Signed(nn.Module):
    """Raises by what a value is."""

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        if x.sum() > 0:
            raise ValueError("positive")
        return -x


LINE = Signed.forward.__code__.co_firstlineno + 2


def test_export_of_a_scripted_module_names_the_line_of_its_source() -> None:
    with pytest.raises(RuntimeError, match=f'test_lines_of_scripts.py", line {LINE}, in forward'):
        cd.export.export(cd.jit.script(Signed()), (cd.ones(3),))


def test_the_nodes_of_an_exported_script_have_its_lines() -> None:
    class Twice(nn.Module):
        def forward(self, x: cd.Tensor) -> cd.Tensor:
            y = x.exp()
            return y * 2

    line = Twice.forward.__code__.co_firstlineno
    graph: Any = cd.export.export(cd.jit.script(Twice()), (cd.ones(3),)).graph
    sources = [node.meta["source"] for node in graph.nodes if node.op == "call_function"]
    assert [(file, at - line) for file, at, _ in sources] == [(__file__, 1), (__file__, 2)]
