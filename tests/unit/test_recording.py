"""What autograd records: the same by the short ways and the general one, and freed afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.samples import Make
from coredispatch.registry import composite
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.dispatch.dispatcher import dispatch
from coredispatch.registry.dispatch.resolve import build
from coredispatch.registry.dispatch.table import TABLE

CPU = TABLE.bit("cpu")
AUTOGRAD = TABLE.bit("autograd")


def recorded(value: Any, names: dict[int, str]) -> Any:
    """What the node of a result holds."""
    if isinstance(value, (list, tuple)):
        return [recorded(item, names) for item in value]
    node = value._node
    if node is None:
        return None
    targets = [
        None if t is None else names.get(id(t), getattr(t, "opname", "leaf"))
        for t in node.next_edges
    ]
    saved = [names.get(id(s), repr(s)) for s in node.saved]
    outputs = [node.output(i) for i in range(node.count)]
    details = [(tuple(o.shape), o.dtype, o.keys) for o in outputs]
    held = node.out_raw is not None
    return (
        node.opname,
        targets,
        node.edge_numbers,
        saved,
        node.versions,
        details,
        held,
        value._output_nr,
    )


def inputs(form: str) -> Any:
    """A tensor that requires grad, of the history the form says."""
    leaf = cd.tensor([[1.0, 3.0], [2.0, 0.5]], requires_grad=True)
    if form == "leaf":
        return leaf
    if form == "made":
        return leaf.exp()
    if form == "second output":
        return cd.stack([leaf, leaf]).exp().unbind(0)[1]
    if form == "written":
        return leaf.exp().add_(1)
    if form == "view of written":
        base = cd.stack([leaf, leaf]).exp()
        view = base[0]
        base.add_(1)
        return view
    return leaf.detach()


FORMS = ["leaf", "made", "second output", "written", "view of written", "no grad"]
RECORDED = ["mul", "add", "div", "matmul", "maximum", "atan2", "logaddexp", "exp", "sum", "sort"]
RECORDED += ["relu", "unbind", "reshape", "softmax", "sigmoid", "std", "cummax", "pow", "round"]


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("a_form", FORMS)
@pytest.mark.parametrize("b_form", FORMS)
def test_nodes_are_the_same_by_the_short_and_the_general_way(
    name: str, a_form: str, b_form: str
) -> None:
    op = TABLE.operator(name)
    a, b = inputs(a_form), inputs(b_form)
    others: dict[str, tuple[Any, ...]] = {"reshape": ((-1,),), "softmax": (0,), "cummax": (0,)}
    given = (a, b) if len(op.tensors) > 1 else (a, *others.get(name, ()))
    args = complete(op, given, {})
    keys = CPU | (AUTOGRAD if any(getattr(x, "keys", 0) & AUTOGRAD for x in args) else 0)
    entry = build(TABLE.snapshot, op, keys, 0)
    names = {id(a): "a", id(b): "b", id(a._node): "a's", id(b._node): "b's"}
    reference = build(TABLE.snapshot, op, keys, 0)
    for closure in ("call_one", "call_two", "recorded"):  # of the interpreted form
        getattr(reference, "__dict__", {}).pop(closure, None)
    expected = reference.call(args)
    entry.call(args)  # finds entry.next, which the short ways need
    ways = [dispatch(op, args)]
    if len(args) == 1:
        ways.append(entry.call_one(a))
    if len(args) == 2:
        ways.append(entry.call_two(*args))
    for way in ways:
        assert recorded(way, names) == recorded(expected, names)
    assert (a._node is None) == (a_form in ("leaf", "no grad"))


def of_floats(op: Any) -> bool:
    return isinstance(op.dtypes, str) or cd.float64 in op.dtypes


@pytest.mark.parametrize(
    "name",
    # Those of layouts take values that samples of a dense backend cannot give.
    sorted(
        n
        for n, o in TABLE.snapshot.ops.items()
        if o.vjp_rule and of_floats(o) and o.plugin == "ops"
    ),
)
def test_an_input_never_becomes_the_output_of_a_node(name: str) -> None:
    """Decompositions may hand an argument on: with it recorded, a leaf would be a result of
    itself.
    """
    op = TABLE.operator(name)
    if op.samples is None or op.mutates:
        return
    for sample in list(op.samples(Make(np.dtype("float64"), values=op.values)))[:8]:
        leaves: list[Any] = []

        def leaf(array: Any, leaves: list[Any] = leaves) -> Any:
            x = cd.tensor(array)
            if x.is_floating_point():
                leaves.append(x.requires_grad_())
            return x

        call = sample.map(leaf)
        out = op(*call.args, **call.kwargs)
        assert all(x.is_leaf for x in leaves), sample
        for item in out if isinstance(out, (list, tuple)) else [out]:
            assert all(item is not x for x in leaves), sample


@pytest.mark.parametrize("op", [cd.cat, cd.stack, cd.meshgrid, cd.broadcast_tensors, cd.block_diag])
def test_a_list_of_one_leaf_stays_a_list_of_a_leaf(op: Any) -> None:
    x = cd.ones(2, requires_grad=True)
    out = op(x) if op in (cd.meshgrid, cd.broadcast_tensors) else op([x])
    (out if isinstance(out, cd.Tensor) else out[0]).sum().backward()
    assert x.is_leaf and x.grad.tolist() == [1.0, 1.0]


def test_graphs_and_chains_of_any_depth_are_freed_without_recursion() -> None:
    program = """
import coredispatch as cd
x = cd.ones(1, requires_grad=True)
y = x
for _ in range(100_000):
    y = y * 1.0
del y
v = cd.ones(1)
for _ in range(3_000):
    v = v[0:]
v += 1
del v
y = x * 1.0
for _ in range(20_000):
    y.mul_(1.0)
y.sum().backward()
assert x.grad.item() == 1.0
print("freed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("freed\n", 0), done.stderr


def test_formulas_of_several_outputs_say_which_they_read() -> None:
    """``grads`` has None where no gradient came, ``grad1`` zeros; only ``out1`` is saved."""
    seen: list[Any] = []

    @composite(method=False)
    def halves(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Sum and product."""
        return self + other, self * other

    def of_self(grads: Any, grad0: Any, grad1: Any, out1: Any, self_shape: Any, other: Any) -> Any:
        seen.append([g if g is None else g.tolist() for g in (*grads, grad0, grad1)])
        assert self_shape == (2,) and out1.requires_grad
        return grad0 + grad1 * other

    halves.vjp(self=of_self)
    x, y = cd.tensor([1.0, 2.0], requires_grad=True), cd.tensor([3.0, 4.0])
    a, b = halves(x, y)
    a.add_(1)  # not read
    a.sum().backward(retain_graph=True)
    assert seen == [[[1, 1], None, [1, 1], [0, 0]]] and x.grad.tolist() == [1, 1]
    with cd.no_grad():
        b.add_(1)
    with pytest.raises(RuntimeError, match="the result of 'halves' was modified"):
        b.sum().backward()
    # A formula that is left out: no gradient.
    z = cd.tensor([3.0, 4.0], requires_grad=True)
    a, b = halves(x, z)
    (a + b).sum().backward()
    assert z.grad is None
