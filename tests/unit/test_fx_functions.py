"""The functions of ``nn.functional`` as targets of ``fx``; beside torch.fx where it is there."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import fx
from coredispatch.graph import run
from coredispatch.graph.passes.common import eliminate_common_nodes
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.passes.inference import infer_values
from coredispatch.plugin import Operator
from coredispatch.registry.model.schema import REQUIRED

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


#: name -> why no call of it is a node
NOT_RECORDED = {
    "BroadcastingList1": "an annotation",
    "BroadcastingList2": "an annotation",
    "BroadcastingList3": "an annotation",
    "GRID_SAMPLE_INTERPOLATION_MODES": "a table",
    "GRID_SAMPLE_PADDING_MODES": "a table",
    "ScalingType": "an enumeration",
    "SwizzleType": "an enumeration",
    "assert_int_or_pair": "checks a number of Python's",
    "boolean_dispatch": "makes functions",
    "handle_torch_function": "asks classes of arguments",
    "has_torch_function": "asks about arguments",
    "has_torch_function_unary": "asks about arguments",
    "has_torch_function_variadic": "asks about arguments",
}


def required(function: Any) -> tuple[list[str], list[str]]:
    """The parameters without a default: by position, and by name alone."""
    if isinstance(function, Operator):
        params = [p for p in function.schema.params if p.default is REQUIRED]
        return [p.name for p in params if not p.keyword_only], [
            p.name for p in params if p.keyword_only
        ]
    found = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    return [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD], [
        p.name for p in found if p.kind is p.KEYWORD_ONLY
    ]


@pytest.mark.filterwarnings("ignore:reduction")  # the default of kl_div
@pytest.mark.parametrize("name", F.__all__)
def test_every_function_is_the_target_of_its_calls(name: str) -> None:
    function = getattr(F, name)
    if name in NOT_RECORDED:
        assert not hasattr(function, "gives_new_memory") and not isinstance(function, Operator)
        return
    positional, named = required(function)
    graph = cd.graph.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    places = {n: tracer.create_proxy("placeholder", n, (), {}) for n in (*positional, *named)}
    function(*(places[n] for n in positional), **{n: places[n] for n in named})
    last = list(graph.nodes)[-1]
    assert last.op == "call_function" and last.target is function
    assert [*last.args, *last.kwargs.values()] == [place.node for place in places.values()]


LONGER: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "unfold": (lambda a: F.unfold(a, 2, stride=2), (1, 2, 4, 4)),
    "fold": (lambda a: F.fold(a, (4, 4), 2, stride=2), (1, 8, 4)),
    "grid_sample": (
        lambda a: F.grid_sample(a, a[:, :2].permute(0, 2, 3, 1), align_corners=True),
        (1, 2, 4, 4),
    ),
    "lp_pool2d": (lambda a: F.lp_pool2d(a.abs(), 2.0, 2), (1, 2, 4, 4)),
    "upsample": (lambda a: F.upsample(a, scale_factor=2), (1, 2, 4, 4)),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), (1, 4, 3, 3)),
}


@pytest.mark.filterwarnings("ignore:.*upsample.*")
@pytest.mark.parametrize("name", LONGER)
def test_programs_of_functions_run_and_go_through_passes(name: str) -> None:
    program, shape = LONGER[name]
    x = cd.rand(*shape)
    traced = fx.symbolic_trace(lambda a: program(a).add_(1))
    assert getattr(F, name) in [node.target for node in traced.graph.nodes]
    pure = functionalize(traced.graph)
    for form in (
        lambda a: run(pure, a)[0],
        lambda a: run(decompose(pure, inputs=(a,)), a)[0],
        pickle.loads(pickle.dumps(traced)),
    ):
        cd.testing.assert_close(form(x), program(x) + 1)
    (node,) = [n for n in infer_values(traced.graph, (x,)).nodes if n.target is getattr(F, name)]
    assert node.meta["value"].shape == tuple(program(x).shape)


def test_random_functions_are_not_shared() -> None:
    def program(a: Any) -> Any:
        return F.fractional_max_pool2d(a, 2, 2).add(F.fractional_max_pool2d(a, 2, 2))

    graph = fx.symbolic_trace(program).graph
    assert len(eliminate_common_nodes(graph)) == len(graph)


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
