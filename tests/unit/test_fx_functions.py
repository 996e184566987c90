"""The functions of ``nn.functional`` as targets of ``fx``; beside torch.fx where it is there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import fx
from coredispatch.graph.passes.common import eliminate_common_nodes
from coredispatch.graph.passes.functionalization import functionalize

F = cd.nn.functional

#: function -> a call of it, with a function of either library and one tensor
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda f, a: f(a, dim=-1),
    "log_softmax": lambda f, a: f(a, 1),
    "softmin": lambda f, a: f(a, 1),
    "cross_entropy": lambda f, a: f(a, a.softmax(1), label_smoothing=0.1),
    "binary_cross_entropy": lambda f, a: f(a.sigmoid(), a.sigmoid(), reduction="sum"),
    "binary_cross_entropy_with_logits": lambda f, a: f(a, a, None),
    "mse_loss": lambda f, a: f(a, a + 1),
    "l1_loss": lambda f, a: f(input=a, target=a + 1),
    "smooth_l1_loss": lambda f, a: f(a, a + 1, beta=2.0),
    "huber_loss": lambda f, a: f(a, a + 1, "sum", 2.0),
    "hinge_embedding_loss": lambda f, a: f(a, a.sign(), 2.0),
    "soft_margin_loss": lambda f, a: f(a, a.sign()),
    "poisson_nll_loss": lambda f, a: f(a.exp(), a.exp(), False),
    "triplet_margin_loss": lambda f, a: f(a, a + 1, a - 2, 3.0),
    "celu": lambda f, a: f(a, 0.5),
    "elu": lambda f, a: f(a, 0.5),
    "rrelu": lambda f, a: f(a, 0.1, 0.3),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_target_is_the_function_that_was_called(name: str) -> None:
    call, function = CALLS[name], getattr(F, name)
    traced = fx.symbolic_trace(lambda a: call(function, a))
    last = list(traced.graph.nodes)[-2]
    assert last.target is function
    assert f"cd.nn.functional.{name}(" in traced.code
    x = cd.randn(3, 4)
    for program in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        cd.testing.assert_close(program(x), call(function, x))
    torch = pytest.importorskip("torch")
    their = getattr(torch.nn.functional, name)
    theirs = torch.fx.symbolic_trace(lambda a: call(their, a))
    assert list(theirs.graph.nodes)[-2].target is their
    wanted = theirs(torch.tensor(x.tolist()))
    cd.testing.assert_close(traced(x), cd.tensor(wanted.tolist()), rtol=1e-4, atol=1e-5)


def test_the_operator_of_that_name_is_another_target() -> None:
    graph = fx.symbolic_trace(lambda a: cd.softmax(a, 1) + a.softmax(1)).graph
    _, called, method, *_ = graph.nodes
    assert called.target is cd.softmax and method.target == "softmax"


def test_a_pass_replaces_a_function() -> None:
    traced = fx.symbolic_trace(lambda a: F.softmax(a, 1) * 2)
    for node in traced.graph.nodes:
        if node.target is F.softmax:
            node.target = F.log_softmax
    traced.recompile()
    x = cd.randn(2, 3)
    cd.testing.assert_close(traced(x), x.log_softmax(1) * 2)


def test_passes_know_the_operator_behind_a_function() -> None:
    graph = fx.symbolic_trace(lambda a: F.softmax(a, 1).add(F.softmax(a, 1))).graph
    assert len(eliminate_common_nodes(graph)) == len(graph) - 1
    drawn = fx.symbolic_trace(lambda a: F.rrelu(a, training=True).add(F.rrelu(a, training=True)))
    assert len(eliminate_common_nodes(drawn.graph)) == len(drawn.graph)
    written = fx.symbolic_trace(lambda a: F.softmax(a, 1).add_(1))
    x = cd.randn(2, 3)
    result: Any = cd.graph.run(functionalize(written.graph), x)[0]
    cd.testing.assert_close(result, x.softmax(1) + 1)
