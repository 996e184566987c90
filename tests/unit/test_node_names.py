"""The names of recorded nodes, as ``type(fn).__name__`` shows them to programs that draw graphs."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F


def walked(fn: Any, depth: int = 0) -> list[str]:
    """What a program that draws the graph prints: a line per node, by depth."""
    lines = ["  " * depth + type(fn).__name__]
    for following, _ in fn.next_functions:
        if following is not None:
            lines += walked(following, depth + 1)
    return lines


def model(library: Any) -> Any:
    functional = library.nn.functional
    x, w, b = library.ones(2, 3), library.ones(4, 3), library.ones(4)
    for leaf in (w, b):
        leaf.requires_grad_()
    hidden = functional.linear(x, w, b).relu()
    return functional.cross_entropy(hidden @ w, library.tensor([0, 2])) + (w**2).sum()


def test_a_walk_over_the_graph_shows_the_names_of_pytorch() -> None:
    leaf = ["AccumulateGrad"]
    x = cd.ones(2, requires_grad=True)
    assert walked((x * 2 + 1).grad_fn) == ["AddBackward0", "  MulBackward0", "    " + leaf[0]]


def test_beside_pytorch() -> None:
    torch = pytest.importorskip("torch")
    theirs, mine = (walked(model(library).grad_fn) for library in (torch, cd))
    # There, a weight is transposed before it is multiplied with, and cross_entropy is two nodes.
    inner = [line.strip() for line in theirs if line.strip() not in ("TBackward0",)]
    assert [n.strip() for n in mine] == [n for n in inner if n != "LogSoftmaxBackward0"]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("SumBackward0", lambda x: x.sum()),
        ("SumBackward1", lambda x: x.sum(0)),
        ("MeanBackward1", lambda x: x.mean(0)),
        ("PowBackward0", lambda x: x**2),
        ("PowBackward1", lambda x: x**x),
        ("MmBackward0", lambda x: x @ x),
        ("MvBackward0", lambda x: x @ x[0]),
        ("DotBackward0", lambda x: x[0] @ x[0]),
        ("SelectBackward0", lambda x: x[0]),
        ("SliceBackward0", lambda x: x[1:]),
        ("UnsqueezeBackward0", lambda x: x[:, None]),
        ("IndexBackward0", lambda x: x[[0, 1]]),
        ("AddmmBackward0", lambda x: F.linear(x, x, x[0])),
        ("ClampBackward1", lambda x: x.clamp(0, 1)),
        ("MaxPool2DWithIndicesBackward0", lambda x: F.max_pool2d(x[None, None], 2)),
    ],
)
def test_overloads(name: str, call: Any) -> None:
    fn = call(cd.ones(3, 3, requires_grad=True)).grad_fn
    assert (type(fn).__name__, fn.name()) == (name, name)
    assert repr(fn).startswith(f"<{name} object at ")
    assert isinstance(fn, cd.autograd.graph.Node)


def test_what_was_saved_is_shown_under_the_names_of_the_arguments() -> None:
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    assert cd.equal(y.grad_fn._saved_result, y)
    product = x * y
    assert product.grad_fn._saved_self is x
    assert cd.equal(product.grad_fn._saved_other, y)
    assert not hasattr((x + 1).grad_fn, "_saved_self")
    product.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        _ = y.grad_fn._saved_result


def test_a_node_that_was_looked_at_works_as_before() -> None:
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(outputs)))
    assert y.grad_fn is y.grad_fn
    y.sum().backward()
    assert seen == [1]
    assert x.grad.tolist() == [2.0, 4.0]
