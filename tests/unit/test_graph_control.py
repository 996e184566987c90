"""``cond`` and ``while_loop`` in programs without data: ``if`` and ``loop`` through every use."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.graph import Builder, Graph, GraphError, compile_code, python_code, run
from coredispatch.graph.compilers import compiler_named
from coredispatch.graph.passes.common import eliminate_common_nodes
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.folding import fold_constants
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.passes.fusion import fuse
from coredispatch.graph.passes.inference import infer_values
from coredispatch.graph.passes.memory import plan
from coredispatch.graph.storing import from_document, to_document

INPUTS = (cd.rand(2, 3), -cd.rand(2, 3), 9 * cd.rand(2, 3))


def program(x: Any) -> Any:
    """Branches and loops in each other, which use values from around them in other orders."""
    twice, shift = x * 2, x + 3
    start = cd.cond(
        x.sum() > 0,
        lambda v: {"a": (v * 3 - shift).softmax(-1), "b": twice},
        lambda v: {"a": twice.abs(), "b": v.relu() + shift},
        (x,),
    )

    def turn(i: Any, v: Any) -> Any:
        return i + 1, cd.cond(
            v.sum() > 20, lambda q: q * 2, lambda q: q + shift * twice.exp(), (v,)
        )

    count, total = cd.while_loop(
        lambda i, v: cd.logical_and(i < 4, v.sum() < 300),
        turn,
        (x.sum().long() * 0, start["a"] + start["b"]),
    )
    return count, total


def written(rows: Any = 2) -> Graph:
    builder = Builder()
    x = builder.placeholder("x", (rows, 3))
    return builder.program(program(x))


def saved(graph: Graph) -> Graph:
    return from_document(json.loads(json.dumps(to_document(graph))))


def no_constants(tensor: Any) -> str:
    raise AssertionError("nothing is constant here")


PASSES: dict[str, Callable[[Graph], Graph]] = {
    "none": lambda graph: graph,
    "copied": lambda graph: graph.copy(),
    "saved": saved,
    "decomposed": lambda graph: decompose(graph, inputs=(INPUTS[0],)),
    "folded": lambda graph: fold_constants(graph, no_constants),
    "common": eliminate_common_nodes,
    "fused": lambda graph: fuse(infer_values(graph, (INPUTS[0],))),
    "planned": lambda graph: plan(fuse(infer_values(graph, (INPUTS[0],)))),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(name: str) -> None:
    made = PASSES[name](written())
    made.lint()
    assert {node.op for node in made.nodes} >= {"if", "loop"}
    for x in INPUTS:
        cd.testing.assert_close(run(made, x), program(x))
        cd.testing.assert_close(compile_code(python_code(made), "<written>")(None, x), program(x))


def test_functionalize() -> None:
    made = functionalize(written())
    made.lint()
    for x in INPUTS:
        result, changed = run(made, x)
        cd.testing.assert_close(result, program(x))
        assert not changed


@pytest.mark.parametrize("backend", ["eager", *cd.compiler.list_backends()])
def test_compilers(backend: str) -> None:
    compiled = compiler_named(backend)(written(), (INPUTS[0],))
    for x in INPUTS:
        cd.testing.assert_close(compiled(x), program(x))


def test_print_and_draw(tmp_path: Path) -> None:
    graph = written()
    assert "while loop_going" in graph.code
    assert str(graph).count("graph():") == 6
    graph.draw(tmp_path / "g.svg")
    assert "<svg" in (tmp_path / "g.svg").read_text()


def test_the_builder_runs_them_for_every_size_and_differentiates_them() -> None:
    builder = Builder()
    x = builder.placeholder("x", ("n", 3))
    factor = builder.variable("factor", cd.full((3,), 0.5, requires_grad=True))
    rows = x.shape[0]

    def branch(v: Any) -> Any:
        return v * factor * rows

    y = cd.cond(x.sum() > 0, branch, lambda v: v - factor, (x,))
    for given in (cd.rand(4, 3), -cd.rand(2, 3)):
        builder.run({"x": given}, y).sum().backward()
        wanted = given.sum(0) * len(given) if given.sum() > 0 else cd.full((3,), -len(given))
        cd.testing.assert_close(builder.variables["factor"].grad, wanted, check_dtype=False)
        builder.variables["factor"].grad = None


class Net(cd.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = cd.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return program(self.linear(x))[1] + cd.cond(
            x.sum() > 0, self.linear, lambda v: v * cd.ones(3), (x,)
        )


def test_exported_programs() -> None:
    net = Net()
    exported = cd.export.export(net, (INPUTS[0],), dynamic_shapes=({0: cd.Dim("n")},))
    file = io.BytesIO()
    cd.export.save(exported, file)
    file.seek(0)
    for form in (exported, exported.run_decompositions(), cd.export.load(file)):
        for x in (*INPUTS, cd.rand(5, 3)):
            cd.testing.assert_close(form.module()(x), net(x))


def test_models_of_onnx() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    net = Net().eval()
    made = cd.onnx.export(
        net, (INPUTS[0],), input_names=["x"], dynamic_axes={"x": {0: "n"}}, verify=True
    )
    assert {"If", "Loop"} <= {node.op_type for node in made.model_proto.graph.node}
    for x in (*INPUTS, cd.rand(5, 3)):
        cd.testing.assert_close(made(x)[0], net(x).detach(), rtol=1e-3, atol=1e-3)


def test_mistakes() -> None:
    x = Builder().placeholder("x", (2, 3))
    with pytest.raises(GraphError, match="branches of cond give"):
        cd.cond(x.sum() > 0, lambda v: v, lambda v: v.sum(), (x,))
    with pytest.raises(GraphError, match=r"carries 0 \(carried_inputs\[0\]\)"):
        cd.while_loop(lambda i, v: v.sum() > 0, lambda i, v: (i + 1, v), (0, x))
    with pytest.raises(GraphError, match=r"carried_inputs\[0\] of while_loop is .* after a turn"):
        cd.while_loop(lambda v: v.sum() > 0, lambda v: (v.double(),), (x,))
    with pytest.raises(cd.ArgumentError, match="one element"):
        cd.cond(x > 0, lambda v: v, lambda v: v, (x,))
    with pytest.raises(cd.ArgumentError, match="2 values for 1"):
        cd.while_loop(lambda v: v.sum() > 0, lambda v: (v, v), (x,))


def test_a_branch_that_fails_leaves_the_program_as_it_was() -> None:
    builder = Builder()
    x = builder.placeholder("x", (2, 3))

    def fails(v: Any) -> Any:
        v.exp()
        raise KeyError("branch")

    with pytest.raises(KeyError, match="branch"):
        cd.cond(x.sum() > 0, fails, lambda v: v, (x,))
    y = x + 1
    assert builder.run({"x": cd.ones(2, 3)}, y).tolist() == [[2.0] * 3] * 2
