"""Compiled programs whose sizes differ from call to call: one graph serves them, as eager does."""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn import functional as F

SIZES = (8, 5, 0, 1, 2, 7, 64, 5, 7, 7)
LONGER = tuple(n for n in SIZES if n)


def served(program: Any, make: Callable[[int], Any], sizes: Any = SIZES, **options: Any) -> Any:
    """Call ``program`` compiled and as it is, with arguments of each size; what was compiled."""
    cd.manual_seed(0)
    fast = cd.compile(program, backend="eager", **options)
    for n in sizes:
        args = make(n)
        cd.manual_seed(n)
        wanted = program(*copy.deepcopy(args))
        cd.manual_seed(n)
        got = fast(*args)
        cd.testing.assert_close(got, wanted)
    return getattr(fast, "_compiled", fast)


def of(*shape: int) -> Callable[[int], Any]:
    """Makes tensors with the size in front."""
    return lambda n: (cd.randn(n, *shape),)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("mask", cd.ones(128, 128).tril())

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        parts = self.qkv(self.norm(x)).split(width, 2)
        q, k, v = (p.view(batch, steps, 4, width // 4).transpose(1, 2) for p in parts)
        scores = (q @ k.transpose(-2, -1)) * (width // 4) ** -0.5
        scores = scores.masked_fill(self.mask[:steps, :steps] == 0, float("-inf")).softmax(-1)
        y = (scores @ v).transpose(1, 2).contiguous().view(batch, steps, width)
        return x + self.out(F.gelu(y))


def pad(x: Any) -> Any:
    return F.pad(x, (0, 8 - x.shape[1] % 8)).view(x.shape[0], -1, 8)


MLP = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
PROGRAMS: dict[str, tuple[Any, Any, Any]] = {
    "mlp": (MLP, of(4), SIZES),
    "attention over steps": (Attention(), lambda n: (cd.randn(3, n, 16),), SIZES),
    "attention over both": (Attention(), lambda n: (cd.randn(n, n + 1, 16),), LONGER),
    "view": (lambda x: x.view(x.shape[0], -1).sum(1) * x.numel(), of(3, 4), LONGER),
    "reshape": (lambda x: x.reshape(-1, 2, 3).flatten(1).T, of(6), SIZES),
    "mean": (lambda x: (x.mean(0) + x.var(0), x.mean(), x / x.shape[0]), of(3), (8, 5, 2, 7, 64)),
    "cat": (lambda x, y: cd.cat([x, y, x]), lambda n: (cd.randn(n, 3), cd.randn(n + 1, 3)), SIZES),
    "arange": (lambda x: x + cd.arange(x.shape[0])[:, None], of(3), SIZES),
    "positions": (lambda i, w: w[: i.size(0)] + F.embedding(i, w),
                  lambda n: (cd.arange(n) % 5, cd.ones(64, 3).cumsum(0)), SIZES),
    "mask": (lambda x: x.masked_fill(cd.ones(len(x.shape) and x.size(0), x.size(0)).tril() == 0, -1)
             .softmax(-1), lambda n: (cd.randn(n, n),), SIZES),
    "halves": (lambda x: x[: x.shape[0] // 2] * 2, of(3), SIZES),
    "ends": (lambda x: (x[-1], x[1:] - x[:-1], x[::2]), of(3), LONGER),
    "pad": (pad, lambda n: (cd.randn(2, n),), LONGER),
    "stack": (lambda x: cd.stack([x, x.flip(0)]).permute(1, 0, 2), of(3), SIZES),
    "expand": (lambda x: x.new_ones(1, 3).expand(x.shape[0], 3) + x, of(3), SIZES),
    "repeat": (lambda x: x.repeat(2, x.shape[0]), of(3), SIZES),
    "einsum": (lambda x: cd.einsum("ni,mi->nm", x, x), of(3), SIZES),
    "sorted": (lambda x: (x.sort(0).values, x.cumsum(0)), of(3), SIZES),
    "gather": (lambda x, i: (x.gather(0, i), x.index_select(0, i[:, 0])),
               lambda n: (cd.randn(n, 3), cd.zeros(n, 3).long()), LONGER),
    "conv": (nn.Conv1d(2, 3, 3, padding=1), lambda n: (cd.randn(4, 2, n),), LONGER),
    "image": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
              lambda n: (cd.randn(2, 1, n + 4, n + 4),), LONGER),
    "where": (lambda x: cd.where(x > 0, x, x.new_zeros(())), of(3), SIZES),
    "random": (lambda x: F.dropout(x) + cd.rand(x.shape[0], 1) + cd.randn_like(x), of(3), SIZES),
    "lists": (lambda rows: [r * 2 for r in rows], lambda n: ([cd.randn(n), cd.randn(n + 1)],),
              LONGER),
    "dicts": (lambda d: {"y": d["x"].sum(0), "n": d["x"].shape[0]},
              lambda n: ({"x": cd.randn(n, 2)},), SIZES),
    "shapes": (lambda x: (x.shape, x.shape[0] * 2 + 1, x.size(0) / 2, x.numel()), of(3), SIZES),
    "views": (lambda x: (x.t(), x[:, 1], x.view(-1)), of(3), SIZES),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_eager(name: str) -> None:
    program, make, sizes = PROGRAMS[name]
    fast = served(program, make, sizes)
    # one program for the first size, one for 0, one for 1, and one for all others
    most = 5 if name == "halves" else 4  # one for a half that is 1
    assert fast.captures <= most and not fast.eager_calls, (fast.recompilations, fast.sizes.problem)
    assert fast.sizes.problem is None and not fast.sizes.fixed


@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic_needs_no_second_size(name: str) -> None:
    program, make, _ = PROGRAMS[name]
    fast = served(program, make, (8, 5, 7, 60), dynamic=True)
    assert fast.captures == 1 and fast.sizes.problem is None


def test_sizes_stay_numbers_where_that_is_asked_for() -> None:
    fast = served(MLP, of(4), (8, 5, 7, 8, 5), dynamic=False)
    assert fast.captures == 3


# -- what a program asks of a size -----------------------------------------------------------------


def test_questions_about_sizes_are_guards() -> None:
    def program(x: Any) -> Any:
        if x.shape[0] % 4 == 0:
            x = x * 2
        if x.shape[0] > 6:
            x = x + 1
        return x if x.shape[0] == 3 else -x

    fast = served(program, of(2), (12, 8, 16, 5, 6, 3, 7, 9, 12, 4, 20, 3))
    told = "\n".join(cd.compiler.explain(fast, cd.randn(8, 2)).sizes)
    assert "s0 >= 2: dimension 0 of tensor 0" in told
    assert "s0 % 4" in told and "s0 > 6" in told and "test_compile_sizes.py" in told


def test_equal_sizes_are_one_symbol() -> None:
    def program(x: Any, y: Any) -> Any:
        return x.sum(0) + y.sum(0) if x.shape == y.shape else x.sum(0) * y.sum(0)

    given = iter([(4, 4), (5, 5), (5, 6), (6, 5), (7, 7), (7, 8), (2, 2), (3, 9)])
    served(program, lambda _: tuple(cd.randn(n, 3) for n in next(given)), range(8))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: sum(x[i] for i in range(x.shape[0])),
        lambda x: x * {8: 1, 5: 2}.get(x.shape[0], 3),
        lambda x: x * len(f"{x.shape[0]}"),
        lambda x: x * len(str(x.shape)),
        lambda x: x * int(x.shape[0]) + float(x.size(0)),
        lambda x: x * len(x),
        lambda x: cd.stack([row * 2 for row in x]),
        lambda x: x * len([0] * x.shape[0]),
        lambda x: x * (type(x.shape[0]) is int),
        lambda x: x * hash(x.shape[0]),
    ],
)
def test_sizes_that_are_needed_as_numbers_are_numbers(program: Any) -> None:
    served(program, of(3), (8, 5, 7, 8, 12))


def test_a_size_is_an_int_to_those_who_ask() -> None:
    def program(x: Any) -> Any:
        n = x.shape[0]
        assert isinstance(n, int) and isinstance(n / 2, float) and not isinstance(n, str)
        return x * max(n, 3)

    assert served(program, of(3), (8, 5, 7, 12, 2)).sizes.problem is None


def test_functions_with_a_cache_of_their_own() -> None:
    @functools.lru_cache
    def mask(n: int) -> Any:
        return cd.ones(n, n).tril()

    program = lambda x: x * mask(x.shape[0])  # noqa: E731
    served(program, lambda n: (cd.randn(n, n),), (3, 4, 5, 4, 3))
    assert mask(5).tolist() == cd.ones(5, 5).tril().tolist()


# -- what is left behind ---------------------------------------------------------------------------


def test_what_a_program_changes_is_changed_once() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.rows, self.longest = 0, 0, 0
            self.register_buffer("total", cd.zeros(3))
            self.lengths: list[int] = []

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.rows = self.rows + x.shape[0]
            self.longest = max(self.longest, x.shape[0])
            self.total += x.sum(0)
            self.lengths.append(x.shape[0])
            return x * self.calls

    eager, fast = Counting(), Counting()
    call = cd.compile(fast, backend="eager")
    for n in (8, 5, 7, 64, 2, 1, 0, 9, 9):
        x = cd.randn(n, 3)
        cd.testing.assert_close(call(x), eager(x))
        assert (fast.calls, fast.rows, fast.longest) == (eager.calls, eager.rows, eager.longest)
        assert fast.lengths == eager.lengths and set(map(type, fast.lengths)) == {int}
        assert type(fast.rows) is int
        cd.testing.assert_close(fast.total, eager.total)


def test_writes_to_arguments() -> None:
    def program(x: Any, row: Any) -> Any:
        x += 1
        x[0] *= 2
        x[1:].zero_()
        row.copy_(x.sum(0))
        return x

    fast = cd.compile(program, backend="eager")
    for n in (3, 5, 4, 7, 2, 2):
        x, row = cd.randn(n, 3), cd.zeros(3)
        x2, row2 = x.clone(), row.clone()
        assert fast(x, row) is x
        program(x2, row2)
        cd.testing.assert_close((x, row), (x2, row2))
    assert fast.captures == 2


def test_views_of_arguments_are_views() -> None:
    fast = cd.compile(lambda x: (x[1:], x.view(-1, 2), x), backend="eager")
    for n in (4, 5, 6, 7):
        x = cd.zeros(n, 2)
        tail, pairs, same = fast(x)
        tail.add_(1)
        assert same is x and x[1:].sum() == 2 * (n - 1) and pairs.sum() == 2 * (n - 1)


def test_an_error_is_the_eager_one_and_leaves_nothing() -> None:
    seen: list[int] = []

    def program(x: Any) -> Any:
        seen.append(1)
        if x.shape[0] == 7:
            raise KeyError("seven")
        return x.view(x.shape[0] // 2, 2, 3)

    fast = cd.compile(program, backend="eager")
    for n in (4, 6, 8, 7, 10):
        x = cd.randn(n, 3)
        before = len(seen)
        if n == 7:
            with pytest.raises(KeyError, match="seven"):
                fast(x)
        else:
            cd.testing.assert_close(fast(x), x.view(n // 2, 2, 3))
        assert len(seen) == before + 1
    with pytest.raises(cd.ShapeError):
        fast(cd.randn(9, 3))


def test_arguments_that_are_views_lie_in_any_order_or_share_memory() -> None:
    data = cd.randn(64, 3)
    served(lambda x: x.softmax(0) @ x.T, lambda n: (data[n : 2 * n],), (4, 5, 9, 7))
    served(lambda x: x.contiguous() + x.sum(0), lambda n: (data[:n].T,), (4, 5, 9, 7))
    served(lambda x: x * 2, lambda n: (cd.randn(n, 8)[:, ::2],), (4, 5, 9, 7))
    served(lambda x, y: x.add_(1) + y, lambda n: (data[:n], data[1 : n + 1]), (4, 5, 9, 7))
    served(lambda x, y: x.add_(1) + y, lambda n: 2 * (cd.randn(n, 3),), (4, 5, 9, 7))


def test_an_argument_that_the_program_holds_as_well() -> None:
    kept = cd.ones(5, 3)

    def program(x: Any) -> Any:
        return x.mul(2) + kept.sum()

    fast = cd.compile(program, backend="eager")
    for n in (4, 5, 6, 5):
        for x in (cd.randn(n, 3), kept):
            cd.testing.assert_close(fast(x), program(x))


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "attention over steps", "conv"])
def test_gradients_of_modules(name: str) -> None:
    module, make, sizes = PROGRAMS[name]
    fast = cd.compile(module, backend="eager")
    for n in (8, 5, 1, 2, 7, 64, 7):
        x = make(n)[0].requires_grad_()
        y = x.detach().clone().requires_grad_()
        grads = []
        for run, leaf in ((fast, x), (module, y)):
            module.zero_grad()
            run(leaf).square().sum().backward()
            grads.append([leaf.grad, *(p.grad for p in module.parameters())])
        cd.testing.assert_close(*grads)
    assert fast._compiled.captures == 3


def test_gradients_go_on_to_what_made_the_argument() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 2)
    fast = cd.compile(lambda h: second(h.relu()), backend="eager")
    for n in (3, 5, 7, 2, 5):
        x = cd.randn(n, 4)
        grads = []
        for last in (fast, lambda h: second(h.relu())):
            first.zero_grad()
            last(first(x)).sum().backward()
            grads.append(first.weight.grad)
        cd.testing.assert_close(*grads)
    assert fast.captures == 2


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_whole_training_steps(kind: str) -> None:
    losses = []
    data = [(cd.randn(n, 4), cd.randint(0, 3, (n,))) for n in (8, 5, 7, 64, 2, 1, 9, 5)]
    for compiled in (False, True):
        net = copy.deepcopy(MLP)
        optimizer = getattr(cd.optim, kind)(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()  # noqa: B023
            loss = F.cross_entropy(net(x), y)  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss.item()

        run = cd.compile(step, backend="eager") if compiled else step
        losses.append([run(*pair) for pair in data])
        if compiled:
            assert run.captures <= 4 and not run.eager_calls  # type: ignore[attr-defined]
    cd.testing.assert_close(*losses)


def test_writes_to_views_are_differentiated() -> None:
    weight = cd.ones(3, requires_grad=True)

    def program(x: Any) -> Any:
        y = x * weight
        y[1:] *= 2
        y[0] = y[1] + 1
        return (y * y).sum()

    fast = cd.compile(program, backend="eager")
    for n in (4, 5, 7, 2):
        x, grads = cd.randn(n, 3), []
        for run in (fast, program):
            weight.grad = None
            run(x).backward()
            grads.append(weight.grad)
        cd.testing.assert_close(*grads)


# -- marks -----------------------------------------------------------------------------------------


def test_marked_dimensions() -> None:
    fast = cd.compile(lambda x: x * 2, backend="eager")
    for n in (5, 7, 9):
        x = cd.randn(n, 3)
        cd._dynamo.mark_dynamic(x, 0)
        fast(x)
    assert fast.captures == 1
    x = cd.randn(5, 4)
    cd._dynamo.mark_static(x)
    fast(x)
    assert fast.captures == 2
    with pytest.raises(IndexError, match="no dimension 2"):
        cd._dynamo.mark_dynamic(x, 2)


def test_a_marked_dimension_that_is_needed_as_a_number_is_refused() -> None:
    program = lambda x: sum(x[i] for i in range(x.shape[0]))  # noqa: E731
    x = cd.randn(5, 3)
    cd._dynamo.mark_dynamic(x, 0)
    with pytest.raises(RuntimeError, match="Constraints violated.*test_compile_sizes.py"):
        cd.compile(program, backend="eager")(x)
    y = cd.randn(5, 3)
    cd._dynamo.maybe_mark_dynamic(y, 0)
    cd.testing.assert_close(cd.compile(program, backend="eager")(y), program(y))


def test_why_sizes_are_numbers_is_told() -> None:
    fast = cd.compile(lambda x: x[x > 0], backend="eager")
    for n in (4, 5, 6):
        x = cd.randn(n)
        cd.testing.assert_close(fast(x), x[x > 0])
    told = str(cd.compiler.explain(fast, cd.randn(4)))
    assert "Size 0 of tensor 0 is needed as a number" in told and __file__ in told
    fast = cd.compile(lambda x: x * (2 if x.sum() > 0 else 3), backend="eager")
    for n in (4, 5, 6):
        fast(cd.ones(n))
    told = str(cd.compiler.explain(fast, cd.ones(4)))
    assert "All sizes are numbers: the program looks at a value (bool())" in told


def test_sizes_that_are_needed_one_after_the_other_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coredispatch.frontend.compiling.function._MOST_TRIES", 1)
    fast = cd.compile(lambda x: x * len(range(x.shape[0])), backend="eager", dynamic=True)
    assert fast(cd.ones(3, 2)).tolist() == [[3, 3]] * 3
    told = str(cd.compiler.explain(fast, cd.ones(3, 2)))
    assert "All sizes are numbers: one after the other is needed as a number" in told


# -- compilers of graphs of one size ---------------------------------------------------------------


def test_a_compiler_gets_numbers_for_sizes_that_come_again() -> None:
    shapes: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        assert all(isinstance(x, cd.Tensor) for x in inputs)
        shapes.append(graph.placeholders[0].meta["value"].shape)
        return None  # the interpreter

    fast = cd.compile(lambda x: x.view(x.shape[0] * 2, -1).sum(1), backend=compiler, dynamic=True)
    for n in (4, 5, 6, 5, 4, 4, 5, 7):
        x = cd.randn(n, 2)
        cd.testing.assert_close(fast(x), x.view(n * 2, -1).sum(1))
    assert shapes == [(5, 2), (4, 2)]
    told = str(cd.compiler.explain(fast, cd.randn(4, 2)))
    assert "compiled for 2 choices of them, 4 calls by the interpreter" in told


Pair = collections.namedtuple("Pair", "x y")


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6),
    st.sampled_from(["both", "first", "pair"]),
    st.booleans(),
)
def test_drawn_sizes(sizes: list[tuple[int, int]], kind: str, every: bool) -> None:
    def program(pair: Any) -> Any:
        x, y = pair
        z = x[:, None] * y[None] + x.shape[0] - y.numel()
        if x.shape[0] >= y.shape[0]:
            z = z.T
        return z.reshape(-1), z.sum(0), cd.cat([x, y, x[: x.shape[0] // 2]])

    fast = cd.compile(program, backend="eager", dynamic=every or None)
    for n, m in sizes:
        x, y = cd.arange(float(n)), cd.arange(float(m)) - 3
        pair = {"both": (x, y), "first": (x, cd.ones(4)), "pair": Pair(x, y)}[kind]
        cd.testing.assert_close(fast(pair), program(pair))


# -- what comes in between -------------------------------------------------------------------------


def test_threads_that_call_with_other_sizes() -> None:
    import threading

    module = Attention().eval()
    fast = cd.compile(module, backend="eager")
    wrong: list[Any] = []

    def work(seed: int) -> None:
        try:
            for k in range(12):
                x = cd.ones(2, 2 + (seed * 5 + k * 3) % 11, 16) * (k + 1) / 7
                cd.testing.assert_close(fast(x), module(x))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and fast._compiled.sizes.problem is None


def test_an_interrupt_while_symbols_are_captured_leaves_nothing() -> None:
    total = cd.zeros(3)
    interrupts = [False]

    def program(x: Any) -> Any:
        total.add_(x.sum(0))
        if interrupts[0]:
            raise KeyboardInterrupt
        return total * x.shape[0]

    fast = cd.compile(program, backend="eager")
    fast(cd.ones(4, 3))
    interrupts[0] = True
    with pytest.raises(KeyboardInterrupt):
        fast(cd.ones(5, 3))
    interrupts[0] = False
    before = total.clone()
    for n in (5, 6, 7):
        x = cd.ones(n, 3)
        cd.testing.assert_close(fast(x), (before := before + n) * n)
    assert type(total.raw).__name__ == "ndarray"


def test_the_function_that_asks_for_types_is_named() -> None:
    def program(x: Any) -> Any:
        n = x.shape[0]
        return x * n if type(n) is int else x

    fast = served(program, of(2))
    where = (__file__, program.__code__.co_firstlineno, "program")
    assert fast.sizes.problem == ("types are looked at", where)
    told = str(cd.compiler.explain(fast, cd.ones(11, 2)))
    assert f"types are looked at ({__file__}:{where[1]} in program)" in told
