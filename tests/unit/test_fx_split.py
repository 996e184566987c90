"""``split_module``: any division of a graph into parts computes what the graph did."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import fx, nn
from coredispatch.fx.passes.split_module import split_module


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Any) -> Any:
        return self.body(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(cd.linspace(0.5, 2.0, 4))
        self.inner = Inner()
        self.last = nn.Linear(4, 2)

    def forward(self, x: Any, y: Any, factor: float = 2.0) -> Any:
        a = self.inner(x * self.scale)
        b = self.inner(y) - a
        c, d = cd.split(a.relu() + b, 2, 1)
        return self.last(a + b * factor), (c * self.scale[:2], {"d": d.sigmoid()})


def values(result: Any) -> list[cd.Tensor]:
    first, (second, third) = result
    return [first, second, third["d"]]


@given(st.lists(st.booleans(), min_size=40, max_size=40), st.booleans(), st.booleans())
def test_any_division_in_order(cuts: list[bool], tuples: bool, original: bool) -> None:
    model = Net()
    traced, part, given_to = fx.symbolic_trace(model), [0], {}

    def callback(node: Any) -> int:
        part[0] += cuts[len(given_to) % len(cuts)]
        given_to[node.name] = part[0]
        return part[0]

    divided = split_module(
        traced, model, callback, keep_original_order=original, tuple_return=tuples
    )
    x, y = cd.randn(3, 4), cd.randn(3, 4)
    for args in ((x, y), (x, y, 0.5)):
        for found, wanted in zip(values(divided(*args)), values(model(*args))):
            assert found.equal(wanted)
    divided(x, y)[0].sum().backward()
    assert model.scale.grad is not None
    assert len(list(divided.children())) == len(set(given_to.values()))
    divided.graph.lint()


def test_names_of_parts_inputs_and_submodules() -> None:
    model, paths = Net(), {}
    traced = fx.symbolic_trace(model)
    divided = split_module(
        traced,
        model,
        lambda node: "head" if node.op == "call_module" and node.target == "last" else "body",
        paths,
        keep_original_input_name=False,
        partition_affix="p",
    )
    assert [name for name, _ in divided.named_children()] == ["submod_p_body", "submod_p_head"]
    assert paths["submod_p_head.last"] == "last"
    assert paths["submod_p_body.inner_body_0"] == "inner.body.0"
    names = [node.name for node in divided.submod_p_head.graph.nodes if node.op == "placeholder"]
    assert names == ["arg_0"]
    assert divided.submod_p_head.last is model.last


def test_parts_that_need_each_other_are_refused() -> None:
    traced = fx.symbolic_trace(lambda x: ((x + 1) * 2) + 3)
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(traced, traced, lambda node: int("mul" in node.name))


def test_a_transformer_keeps_what_is_known_of_the_output() -> None:
    traced = fx.symbolic_trace(lambda x: x + 1)
    for node in traced.graph.nodes:
        node.meta["note"] = node.name
    copied = fx.Transformer(traced).transform()
    assert [node.meta.get("note") for node in copied.graph.nodes][-1] == "output"
