"""What a compiled program must not bake in: sizes that depend on values, and random states."""

from __future__ import annotations

import copy
import sys
import traceback
from contextlib import nullcontext, suppress
from typing import Any, ClassVar

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.utils.checkpoint import checkpoint

VALUES = ([1.0, 2.0, 3.0], [1.0, -1.0, 3.0], [-1.0, -1.0, -1.0], [1.0, 2.0, 3.0], [-1.0, -1.0, 5.0])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[x > 0].shape[0] + 1,
        lambda x: cd.nonzero(x > 0).shape,
        lambda x: [tuple(part.shape) for part in (x > 0).nonzero(as_tuple=True)],
        lambda x: len(x.masked_select(x > 0)),
        lambda x: cd.unique(x).numel(),
        lambda x: [row * 2 for row in x[x > 0]],
        lambda x: x[x > 0] / x[x > 0].numel(),
        lambda x: x.new_ones(x[x > 0].shape).cumsum(0),
    ],
)
def test_sizes_that_depend_on_values_are_read_anew(program: Any) -> None:
    fast: Any = cd.compile(program, backend="eager")
    for values in VALUES:
        x = cd.tensor(values)
        assert str(fast(x)) == str(program(x))
    assert fast.captures < len(VALUES)  # a number of elements that comes again is served
    told = str(cd.compiler.explain(fast, cd.tensor(VALUES[0])))
    assert "a size that depends on values" in told and __file__ in told


def test_gradients_of_selected_elements() -> None:
    fast: Any = cd.compile(lambda x: x[x > 0].square().mean(), backend="eager")
    for values in VALUES[:2] + VALUES[3:]:
        x, y = (cd.tensor(values, requires_grad=True) for _ in range(2))
        fast(x).backward()
        y[y > 0].square().mean().backward()
        cd.testing.assert_close(x.grad, y.grad)


def test_a_whole_step_over_a_mask() -> None:
    net = nn.Linear(2, 2)
    twin = copy.deepcopy(net)

    def step_of(model: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            model.zero_grad()
            seen = y >= 0
            loss = nn.functional.cross_entropy(model(x)[seen], y[seen])
            loss.backward()
            return loss.detach()

        return step

    fast, plain = cd.compile(step_of(net), backend="eager"), step_of(twin)
    for labels in ([0, 1, -1], [0, -1, -1], [1, 1, 0], [-1, 1, 0]):
        x, y = cd.randn(3, 2), cd.tensor(labels)
        cd.testing.assert_close(fast(x, y), plain(x, y))
        cd.testing.assert_close(net.weight.grad, twin.weight.grad)


def test_fullgraph_names_the_line_of_such_a_size() -> None:
    fast: Any = cd.compile(lambda x: x[x > 0], backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="a size that depends on values"):
        fast(cd.ones(2))


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_checkpoint_computes_with_the_same_random_numbers(rate: float) -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(rate) if rate else nn.Tanh())

    def program(x: Any) -> Any:
        net.zero_grad()
        y = checkpoint(net, x, use_reentrant=False)
        y.sum().backward()
        return y.detach(), net[0].weight.grad.clone()

    fast: Any = cd.compile(program, backend="eager")
    for seed in range(4):
        x = cd.randn(2, 3)
        found = []
        for run in (program, fast):
            cd.manual_seed(seed)
            found.append((*run(x), cd.rand(1)))
        cd.testing.assert_close(*found)
    report = cd.compiler.explain(fast, cd.randn(2, 3))
    assert bool(report.calls) is not bool(rate)  # what draws twice from one state stays Python
    assert "contextlib" not in str(report)
    assert not rate or f"Eager because of {__file__}:" in str(report)


def test_operators_of_other_packages_are_called_by_name() -> None:
    @cd.library.custom_op("soundness::tripled", mutates_args=())
    def tripled(x: cd.Tensor, shift: int) -> cd.Tensor:
        return x.detach() * 3 + shift

    fast: Any = cd.compile(lambda x: tripled(x, 1) * 2, backend="eager")
    for n in (2, 3, 4):
        assert fast(cd.ones(n)).tolist() == [8.0] * n
    assert not fast.eager_calls


def test_an_import_by_the_package_is_no_part_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Finder:
        def __init__(self) -> None:
            self.state = iter([1])  # nothing that a guard could look at

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            return None if self.state else None

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "coredispatch.graph.lint", raising=False)
    net = cd.nn.Linear(2, 3)
    compiled = cd.compile(net, backend="eager", fullgraph=True)
    compiled(cd.ones(1, 2)).sum().backward()
    assert net.weight.grad is not None


@pytest.mark.parametrize("backend", ["eager", None])
def test_a_tensor_that_grows_in_an_attribute(backend: str | None) -> None:
    """What follows from its shape is computed anew: no program of another shape serves."""

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = cd.ones(1, 2)

        def forward(self, x: cd.Tensor) -> Any:
            self.kept = cd.cat([self.kept, x])
            share = self.kept.sum() / self.kept.shape[0]
            return share + self.kept.mean(0) * self.kept.numel() + len(self.kept)

    plain = Cache()
    net = copy.deepcopy(plain)
    fast: Any = cd.compile(net) if backend is None else cd.compile(net, backend=backend)
    for i in range(12):
        x = cd.full((1, 2), float(i))
        assert cd.allclose(fast(x), plain(x))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_graph_that_fails_leaves_state_as_python_does(training: bool) -> None:
    """What was counted before the failing line is counted, and the next call goes on."""

    class State:
        n = 0
        seen: ClassVar[list[int]] = []

    def program(x: Any) -> Any:
        State.n += 1
        State.seen.append(State.n)
        return (x * 2).view(State.n, -1).sum(0)

    fast: Any = cd.compile(program, backend="eager")
    outcomes = []
    for _ in range(8):
        x = cd.ones(24, requires_grad=training)
        try:
            outcomes.append(tuple(fast(x).shape))
        except cd.ShapeError as error:
            lines = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert "program" in lines  # the error points into the program
            outcomes.append("refused")
    assert outcomes == [(24,), (12,), (8,), (6,), "refused", (4,), "refused", (3,)]
    assert State.n == 8 and State.seen == list(range(1, 9))


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
def test_an_error_that_values_raise_is_caught_where_python_catches_it(backend: str) -> None:
    def factor(x: Any) -> Any:
        try:
            return cd.linalg.cholesky(x)
        except cd.OpError:
            return x * 0 - 1

    def row(table: Any, index: Any) -> Any:
        with suppress(IndexError):
            return cd.embedding(table * 2, index)
        return table[:1]

    one = cd.eye(2)
    fast: Any = cd.compile(factor, backend=backend)
    for x in (one, one * 4, -one, one * 9, -one):
        assert fast(x).equal(factor(x))
    fast = cd.compile(row, backend=backend)
    for number in (0, 1, 5, 1, 7):
        index = cd.tensor([number])
        assert fast(one, index).equal(row(one, index))


def test_a_graph_that_wrote_before_it_failed_is_not_run_again() -> None:
    def program(x: Any, index: Any) -> Any:
        x.add_(1)
        return cd.take(x, index)

    fast: Any = cd.compile(program, backend="eager")
    x = cd.zeros(4)
    for index, times in ((1, 1), (2, 2), (9, 3), (3, 4)):
        with pytest.raises(cd.OpError) if index == 9 else nullcontext():
            fast(x, cd.tensor([index]))
        assert x.tolist() == [float(times)] * 4


def _viewed(x: Any, n: int) -> Any:
    try:
        return x.view(n, -1).sum(1)
    except RuntimeError:
        return x * n


def _divided(x: Any, n: int) -> Any:
    try:
        share = 12 // (n - 4)
    except ZeroDivisionError:
        share = -1
    return x * share


def _indexed(x: Any, n: int) -> Any:
    with suppress(IndexError):
        return x[n] * 2
    return x * n


@pytest.mark.parametrize("program", [_viewed, _divided, _indexed])
def test_numbers_that_an_error_was_caught_for_are_guarded(program: Any) -> None:
    fast: Any = cd.compile(program, backend="eager")
    x = cd.arange(6.0)
    for n in (5, 4, 2, 3, 7, 8, 1):
        assert fast(x, n).equal(program(x, n)), n


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: cd.dropout(x, 0.5, True) + x,
        lambda x: nn.functional.dropout1d(x * 2, 0.5, True),
        lambda x: nn.functional.alpha_dropout(x, 0.5, True) * 2,
    ],
)
def test_the_random_stream_goes_on_as_eager(backend: str, program: Any) -> None:
    fast: Any = cd.compile(program, backend=backend)
    streams = []
    for run in (program, fast):
        cd.manual_seed(3)
        streams.append([*(run(cd.ones(4, 8)).tolist() for _ in range(3)), cd.rand(2).tolist()])
    assert streams[0] == streams[1]


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize("rows", [8, 80])
def test_equal_calls_of_attention_drop_what_eager_ones_do(backend: str, rows: int) -> None:
    def attend(x: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    def program(x: Any) -> Any:
        attend(x)
        return attend(x), nn.functional.dropout(x * 2, 0.5), attend(x)

    x, fast = cd.randn(2, rows, 8), cd.compile(program, backend=backend)
    streams: list[list[Any]] = []
    for run in (program, fast):
        cd.manual_seed(3)
        streams.append([*(made for _ in range(3) for made in run(x)), cd.rand(2)])
    cd.testing.assert_close(streams[1], streams[0])
    assert (streams[0][0] != streams[0][2]).any()


def test_gradient_modes_inside_of_a_program() -> None:
    weight = cd.ones(2, requires_grad=True)

    def energy(x: Any) -> Any:
        with cd.enable_grad():
            return (x * weight).sum()

    def off(x: Any) -> Any:
        cd.set_grad_enabled(False)
        return x * 2

    def inferring(x: Any) -> Any:
        with cd.inference_mode():
            return x * 2

    fast, leaves, infers = (cd.compile(f, backend="eager") for f in (energy, off, inferring))
    for _ in range(3):
        with cd.no_grad():
            assert fast(cd.ones(2)).requires_grad
        leaves(cd.ones(2))
        assert not cd.is_grad_enabled()
        cd.set_grad_enabled(True)
        assert infers(cd.ones(2)).is_inference()


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + x.storage_offset(),
        lambda x: x.as_strided((2,), (1,), 2) * 1,
        lambda x: x.as_strided((2,), (1,), x.storage_offset()) * 1,
        lambda x: x * (2 if x.is_leaf else 5),
    ],
)
def test_places_in_a_storage_are_those_of_the_call(backend: str, program: Any) -> None:
    fast: Any = cd.compile(program, backend=backend)
    storage = cd.arange(20.0)
    for start in (0, 3, 5, 0):
        assert fast(storage[start : start + 4]).equal(program(storage[start : start + 4]))


def test_a_counter_in_a_tuple_of_a_module() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0
            self.last: Any = None

        def forward(self, x: Any) -> Any:
            self.n += 1
            self.last = ("call", self.n)
            return x + self.n

    module = Counts()
    fast: Any = cd.compile(module, backend="eager")
    for count in range(1, 6):
        assert fast(cd.zeros(1)).item() == count
        assert module.last == ("call", count) and type(module.last[1]) is int
