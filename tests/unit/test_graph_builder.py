"""``cd.graph.Builder``: programs that are written before their inputs are there."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.graph import Builder, GraphError


def test_a_program_is_written_first_and_run_later() -> None:
    builder = Builder()
    x = builder.placeholder("x", ("batch", 4))
    weight = builder.variable("weight", cd.full((4, 2), 0.5))
    with builder:
        y = (x @ weight).relu() + cd.ones(2)
    assert str(tuple(y.shape)) == "(batch, 2)"
    assert y.dtype is cd.float32
    for rows in (1, 3):
        assert builder.run({"x": cd.ones(rows, 4)}, y).tolist() == [[3.0, 3.0]] * rows
    total, pair = builder.run({x: cd.zeros(2, 4)}, (y.sum(), {"y": y, "n": x.shape[0]}))
    assert total.item() == 4.0
    assert pair["n"] == 2


def test_only_what_is_needed_has_to_be_fed() -> None:
    builder = cd.graph.Builder()
    x, y = builder.placeholder("x", (2,)), builder.placeholder("y", (2,))
    double, both = x * 2, x + y
    assert builder.run({"x": cd.ones(2)}, double).tolist() == [2.0, 2.0]
    with pytest.raises(GraphError, match="'y' has no value"):
        builder.run({"x": cd.ones(2)}, both)


def test_modules_and_training() -> None:
    net = cd.nn.Sequential(cd.nn.Linear(3, 8), cd.nn.Tanh(), cd.nn.Linear(8, 1))
    builder = Builder()
    x, target = builder.placeholder("x", ("n", 3)), builder.placeholder("target", ("n", 1))
    loss = cd.nn.functional.mse_loss(net(x), target)
    optimizer = cd.optim.SGD(net.parameters(), lr=0.1)
    data = {"x": cd.randn(16, 3), "target": cd.ones(16, 1)}
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        value = builder.run(data, loss)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < losses[0] / 2
    cd.testing.assert_close(
        builder.run(data, loss), cd.nn.functional.mse_loss(net(data["x"]), data["target"])
    )


def test_variables_that_are_written() -> None:
    builder = Builder()
    step = builder.placeholder("step", ())
    count = builder.variable("count", cd.zeros(()))
    count.add_(step)
    now = count * 1
    assert [builder.run({"step": cd.tensor(2.0)}, now).item() for _ in range(3)] == [2.0, 4.0, 6.0]
    assert builder.variables["count"].item() == 6.0


def test_random_numbers_are_drawn_in_every_run() -> None:
    builder = Builder()
    x = builder.placeholder("x", (50,))
    noisy = cd.nn.functional.dropout(x, 0.5)
    one, other = (builder.run({"x": cd.ones(50)}, noisy) for _ in range(2))
    assert not one.equal(other)


def test_mistakes_are_told_where_they_are_made() -> None:
    builder = Builder()
    x, y = builder.placeholder("x", ("n", 4)), builder.placeholder("y", (None, 3))
    with pytest.raises(cd.ShapeError):
        x @ y
    with pytest.raises(cd.DataDependentError, match=r"test_graph_builder.py:\d+"):
        bool(x.sum() > 0)
    with pytest.raises(GraphError, match="already"):
        builder.placeholder("x", (1,))
    with pytest.raises(GraphError, match="no name"):
        builder.placeholder("a b", (1,))
    for wrong, message in (
        (((-1,),), "size -1 in dimension 0"),
        ((("a b",),), "size 'a b' in dimension 0"),
        ((2,), "has the shape 2"),
        (((2,), "float32"), "has the dtype 'float32'"),
        (((2,), None, "gpux"), "which no plugin brings"),
    ):
        with pytest.raises(GraphError, match=f"(?s)'z' .*{message}.*fix:"):
            builder.placeholder("z", *wrong)
    with pytest.raises(GraphError, match="tensor with data"):
        builder.variable("v", x)
    total = x.sum()
    for wrong, message in (
        (cd.ones(2, 5), r"fed with \(2, 5\)"),
        (cd.ones(4), r"fed with \(4,\)"),
        (cd.ones(2, 4, dtype=cd.int64), "fed with cd.int64"),
        ([1.0], "fed with a value of type list"),
        (x, "fed with a tensor without data"),
        (cd.ones(2, 4, device="meta"), "fed with a tensor on 'meta'"),
    ):
        with pytest.raises(GraphError, match=f"(?s)'x' .*{message}.*fix:"):
            builder.run({"x": wrong}, total)
    with pytest.raises(GraphError, match="(?s)'X' is no placeholder.*did you mean 'x'"):
        builder.run({"X": cd.ones(1)}, total)
    with pytest.raises(GraphError, match=r"(?s)'x' has no value, and 'sum_\d'.*shape \(n, 4\)"):
        builder.run({}, total)
    with pytest.raises(GraphError, match="the feed is of type list"):
        builder.run([cd.ones(1, 4)], total)  # type: ignore[arg-type]
    with pytest.raises(cd.AutogradError, match="nothing ran yet"):
        total.backward()
    other = Builder().placeholder("x", ("n", 4))
    for wrong in (cd.ones(1), "total", other):
        with pytest.raises(GraphError, match="nothing that this builder computes"):
            builder.run({"x": cd.ones(1, 4)}, wrong)
    with pytest.raises(GraphError, match="belongs to another Builder"):
        x + other


@pytest.mark.parametrize("read", [len, list, lambda x: range(x.shape[0]), lambda x: int(x.size(0))])
def test_an_open_size_is_no_number(read: Any) -> None:
    builder = Builder()
    x = builder.placeholder("x", ("n", 4))
    with pytest.raises(GraphError, match=r"test_graph_builder.py:\d+ in .*size n is needed"):
        read(x)
    double = x * 2  # nothing of it stays
    for rows in (1, 3):
        assert builder.run({"x": cd.ones(rows, 4)}, double).tolist() == [[2.0] * 4] * rows


def test_open_sizes_agree_and_their_questions_are_kept() -> None:
    builder = Builder()
    x, y = builder.placeholder("x", ("n",)), builder.placeholder("y", ("n",))
    both = x + y
    with pytest.raises(GraphError, match=r"fed with \(3,\), where n = 2 by 'x'"):
        builder.run({"x": cd.ones(2), "y": cd.ones(3)}, both)

    def half(value: Any) -> Any:
        return value[:3] if value.shape[0] > 3 else value

    short = half(x)
    with pytest.raises(GraphError, match=r"n > 3 .*fed with n = 2"):
        builder.run({"x": cd.ones(2)}, short)
    assert builder.run({"x": cd.ones(5)}, short).shape == (3,)


def test_the_program_is_a_graph() -> None:
    builder = Builder()
    x = builder.placeholder("x", (2,))
    y = x.exp().sum()
    unused = x * 3
    graph = builder.program(y)
    graph.lint()
    assert [node.name for node in graph.nodes] == ["x", "exp", "sum_1", "output"]
    assert unused.shape == (2,)


def test_a_module_that_writes_to_its_buffers_belongs_into_the_block() -> None:
    rows = cd.arange(12.0).reshape(4, 3)
    builder, norm, same = Builder(), nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = builder.placeholder("x", ("n", 3))
    with pytest.raises(GraphError, match="put the call into 'with builder:'"):
        nn.BatchNorm1d(3)(x)
    with builder:
        y = norm(x)
    for _ in range(2):
        assert cd.equal(builder.run({"x": rows}, y), same(rows))
    for name, value in same.named_buffers():
        assert cd.equal(getattr(norm, name), value)


def test_a_dim_is_a_size_with_bounds() -> None:
    builder = Builder()
    batch = cd.Dim("batch", min=2, max=4)
    x = builder.placeholder("x", (batch, 4))
    y = builder.placeholder("y", (2 * batch + 1,))
    z = builder.placeholder("z", ("batch",))  # the same size by its name
    total = x.sum(1).sum() + y.sum() + z.sum()
    assert str(tuple(x.shape)) == "(batch, 4)"
    feed = {"x": cd.ones(3, 4), "y": cd.ones(7), "z": cd.ones(3)}
    assert builder.run(feed, total).item() == 22.0
    with pytest.raises(
        GraphError, match=r"fed with \(6,\), where no batch gives 1 \+ 2\*batch = 6"
    ):
        builder.run({"y": cd.ones(6)}, y * 1)
    with pytest.raises(GraphError, match=r"fed with \(9,\), where batch = 3 by 'x'"):
        builder.run({**feed, "y": cd.ones(9)}, total)
    for rows in (1, 5):
        with pytest.raises(GraphError, match=f"where batch = {rows} is not from 2 to 4"):
            builder.run({"x": cd.ones(rows, 4)}, x * 1)
    with pytest.raises(GraphError, match=r"'batch' stands before with the bounds 2 and 4"):
        builder.placeholder("w", (cd.Dim("batch"),))


def test_what_follows_from_the_bounds_of_a_dim_is_not_asked() -> None:
    builder = Builder()
    x = builder.placeholder("x", (cd.Dim("n", min=4, max=5), cd.Dim("free")))
    assert x.shape[0] > 3 and not x.shape[0] > 6
    assert builder.guards == []


def test_a_dim_as_a_size_is_that_of_export() -> None:
    dim = cd.Dim("n", max=8)
    builder = Builder()
    x = builder.placeholder("x", (dim,))
    written = builder.run({"x": cd.ones(3)}, x * x.shape[0])

    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * x.shape[0]

    program = cd.export.export(Net(), (cd.ones(5),), dynamic_shapes=({0: dim},))
    assert cd.equal(written, program.module()(cd.ones(3)))


@pytest.mark.parametrize("size", [cd.Dim.AUTO, 2.0, "a b", -1, True])
def test_what_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises(GraphError, match=r"(?s)has size .*cd\.Dim"):
        Builder().placeholder("x", (size,))
