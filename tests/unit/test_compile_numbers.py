"""Numbers of a compiled program: those that say what shape things have, and functions of them."""

from __future__ import annotations

import math
import threading
import types
from math import cos as cosine
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_leaves

X = cd.arange(64.0) / 7
F = cd.nn.functional


def largest(x: Any, k: int) -> Any:
    y = (x.topk(k)[0] / 7).exp()
    return y * y.shape[0]


def window(x: Any, k: int) -> Any:
    return x[k : k + 2] * 2


PROGRAMS = [
    largest,
    window,
    lambda x, k: cd.full((k,), 2.0).sum() * x * cd.ones(k).shape[0],
    lambda x, k: (x.repeat(k) * 2).sin() * x.repeat(k).numel(),
    lambda x, k: F.pad(x, (k, k)).sin() * F.pad(x, (k, k)).shape[0],
    lambda x, k: x.roll(k) * x[k] + x.narrow(0, k, 2).sum(),
    lambda x, k: x.unsqueeze(0).expand(k, 64).cos() * 2,
    lambda x, k: x.view(64 // (2 if k % 2 else 4), -1).sum(0),
]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_shapes_follow_the_numbers(program: Any, fullgraph: bool) -> None:
    fast = cd.compile(program, fullgraph=fullgraph)
    x = X.clone().requires_grad_()
    for k in (1, 2, 3, 4, 3, 2, 5):
        got, wanted = fast(x, k), program(x, k)
        cd.testing.assert_close(got, wanted)
        for a, b in zip(*(cd.autograd.grad(y.sum(), x) for y in (got, wanted)), strict=True):
            cd.testing.assert_close(a, b)


def test_a_window_that_moves_is_one_program() -> None:
    fast = cd.compile(window, fullgraph=True)
    for k in range(1, 60):
        assert cd.equal(fast(X, k), window(X, k))
    assert fast.captures == 2  # one for the first number, one for all
    assert cd.equal(fast(X, 63), window(X, 63))  # shorter
    assert fast.captures == 3


def test_numbers_ask_before_anything_is_written() -> None:
    def program(x: Any, k: int) -> Any:
        x.add_(1)
        return x[:k].sum() if k > 3 else x[k:].sum()

    fast, x, y = cd.compile(program), cd.zeros(8), cd.zeros(8)
    for k in (1, 2, 3, 4, 5, 2):
        cd.testing.assert_close(fast(x, k), program(y, k))
        cd.testing.assert_close(x, y)


def test_what_numbers_decide_splits_no_graph() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    fast = cd.compile(largest, backend=backend)
    for k in (1, 2, 3, 3):
        fast(X, k)
    assert len(graphs) == 3
    assert all(any(n.target is cd.ops.exp for n in g.graph.nodes) for g in graphs)


def _cached(x: Any, cache: Any, position: int) -> Any:
    """A step of attention over a cache that is written in place."""
    cache = cache.clone()
    cache[:, position : position + 1] = x
    keys = cache[:, : position + 1]
    return (x @ keys.mT).softmax(-1) @ keys


def _largest(x: Any, cache: Any, count: int) -> Any:
    values, places = cache.topk(count, 1)
    return values.mean(1) + values.shape[1], places


def _made(x: Any, cache: Any, count: int) -> Any:
    return cd.zeros(count, 2).sum() + cd.arange(count).sum() / count + x.sum()


@pytest.mark.parametrize("backend", ["eager", None])
@pytest.mark.parametrize("program", [_cached, _largest, _made])
def test_a_number_that_decides_shapes_becomes_a_symbol(program: Any, backend: Any) -> None:
    fast: Any = cd.compile(program, **({} if backend is None else {"backend": backend}))
    cache = cd.randn(2, 60, 4)
    for count in range(1, 50):
        x = cd.randn(2, 1, 4)
        found, wanted = fast(x, cache, count), program(x, cache, count)
        for a, b in zip(tree_leaves(found), tree_leaves(wanted)):
            assert a.shape == b.shape
            assert a.allclose(b, atol=1e-5)
    assert fast.eager_calls == 0
    told = cd.compiler.explain(fast, x, cache, 50)
    assert sum(map(len, fast.programs.values())) <= 3
    assert any("number 0 of the arguments" in line for line in told.sizes)


def test_a_number_that_python_needs_stays_a_number() -> None:
    def program(x: Any, count: int) -> Any:
        for _ in range(count):
            x = x + 1
        return x[:count]

    fast: Any = cd.compile(program, backend="eager")
    for count in (2, 3, 4, 5, 6, 3, 2):
        assert fast(cd.zeros(9), count).tolist() == [float(count)] * count


def test_a_number_that_asks_differently_is_another_program() -> None:
    def program(x: Any, count: int) -> Any:
        return x[:count] if count < 6 else x[:count] * 2

    fast: Any = cd.compile(program, backend="eager")
    x = cd.arange(12.0)
    for count in (2, 3, 4, 5, 6, 7, 8, 3, 11, 12, 13, 0, 1):
        assert fast(x, count).tolist() == program(x, count).tolist()
    assert fast.eager_calls == 0


def test_gradients_where_a_number_decides_shapes() -> None:
    def program(x: Any, count: int) -> Any:
        return (x[:count] * x[1 : count + 1]).sum()

    fast: Any = cd.compile(program)
    for count in (2, 3, 4, 5, 9, 6):
        a = cd.arange(12.0).requires_grad_()
        b = cd.arange(12.0).requires_grad_()
        fast(a, count).backward()
        program(b, count).backward()
        assert a.grad.tolist() == b.grad.tolist()
    assert fast.eager_calls == 0


def test_a_growing_cache_is_one_program() -> None:
    def step(x: Any, past: Any) -> Any:
        kept = []
        for keys, values in past:
            keys, values = cd.cat([keys, x], 1), cd.cat([values, x], 1)
            x = (x @ keys.mT).softmax(-1) @ values
            kept.append((keys, values))
        return x, kept

    fast: Any = cd.compile(step)
    one = other = [(cd.randn(2, 3, 4), cd.randn(2, 3, 4)) for _ in range(2)]
    for _ in range(12):
        x = cd.randn(2, 1, 4)
        (a, one), (b, other) = fast(x, one), step(x, other)
        assert a.allclose(b, atol=1e-5)
    assert fast.eager_calls == 0
    assert sum(map(len, fast.programs.values())) == 2


def _written(x: Any, n: int) -> Any:
    x[n : n + 2] += 1
    return x[n : n + 2]


@pytest.mark.parametrize("place", ["an argument", "an attribute"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: x[n : n + 2],
        lambda x, n: x[n],
        lambda x, n: x[..., n],
        lambda x, n: x[:, ::n],
        lambda x, n: x.select(0, n),
        lambda x, n: x.view(-1)[n],
        lambda x, n: x.narrow(0, n, 1),
        lambda x, n: x[n:].t()[:, :1],
        lambda x, n: x.as_strided((2, 2), (n, 1), n),
        lambda x, n: x.unfold(0, 2, n),
        lambda x, n: x.diagonal(n - 2),
        lambda x, n: x.split(n)[1],
        _written,
    ],
)
def test_views_of_inputs_that_are_returned_follow_their_numbers(program: Any, place: str) -> None:
    class State:
        n = 0

    fast: Any = cd.compile(
        program if place == "an argument" else lambda x, _: program(x, State.n), backend="eager"
    )
    for n in (2, 3, 4, 1, 3, 2):
        State.n = n
        x, y = (cd.arange(48.0).view(6, 8).requires_grad_(program is not _written) for _ in "xy")
        got, wanted = fast(x, n), program(y, n)
        assert (got.tolist(), got.stride()) == (wanted.tolist(), wanted.stride())
        assert got._is_view() and x.equal(y)
        if program is not _written:
            got.sum().backward()
            wanted.sum().backward()
            assert x.grad.equal(y.grad)


IMAGE = cd.arange(2 * 4 * 6 * 6.0).view(2, 4, 6, 6).sin()
LABELS = cd.ones(2, 6, 6, dtype=cd.int64)
DECIDED: dict[str, Any] = {
    "sum": (lambda x, d: x / x.sum(d, keepdim=True), (0, 1, 2)),
    "sum of several": (lambda x, d: x.sum((d, 3)), (0, 1, 2)),
    "softmax": (lambda x, d: x.softmax(d), (1, 2, 3)),
    "log_softmax": (lambda x, d: F.log_softmax(x, d), (1, 2, 3)),
    "mean": (lambda x, d: (x * 2).mean(d), (1, 2, 3)),
    "normalize": (lambda x, d: F.normalize(x, dim=d), (1, 2, 3)),
    "cosine": (lambda x, d: F.cosine_similarity(x, x * 2, dim=d), (1, 2, 3)),
    "kernel": (lambda x, k: F.max_pool2d(x, k), (1, 2, 3)),
    "stride": (lambda x, k: F.max_pool2d(x, 2, k), (1, 2, 3)),
    "ignored": (lambda x, i: F.cross_entropy(x, LABELS, ignore_index=i), (5, 6, 7)),
    "convolution": (lambda x, s: F.conv2d(x, cd.ones(4, 4, 3, 3), stride=s), (1, 2, 3)),
}


@pytest.mark.parametrize(("program", "numbers"), DECIDED.values(), ids=list(DECIDED))
def test_numbers_that_decide_what_is_computed(program: Any, numbers: Any) -> None:
    """They are inputs of the graph from the second one on, with and without gradients."""
    fast, plain = cd.compile(program), cd.compile(program)
    for number in (*numbers, *numbers):
        x = IMAGE.clone().requires_grad_()
        got, wanted = fast(x, number), program(x, number)
        cd.testing.assert_close(got, wanted)
        back = [cd.autograd.grad(y.square().sum(), x)[0] for y in (got, wanted)]
        cd.testing.assert_close(*back)
        cd.testing.assert_close(plain(IMAGE, number), wanted.detach())


OWN_NUMBERS = {
    "alpha": lambda x, p, n: x.add(x, alpha=n),
    "alpha in place": lambda x, p, n: p.add_(x, alpha=n),
    "value of addcmul": lambda x, p, n: x.addcmul(x, x, value=-n),
    "value of addcdiv in place": lambda x, p, n: p.addcdiv_(x, x, value=-n),
    "bound": lambda x, p, n: x.clamp(max=n),
    "filling": lambda x, p, n: x + cd.full((3,), n),
    "rounded": lambda x, p, n: x * round(n, 1) + round(n),
    "floor and ceiling": lambda x, p, n: x * math.floor(n) + math.ceil(n),
}


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize("name", OWN_NUMBERS)
def test_numbers_that_change_are_inputs_wherever_operators_take_them(
    name: str, backend: str
) -> None:
    def made(compiled: bool) -> tuple[list[Any], Any]:
        state = {"n": 0.0}
        param = cd.ones(3)

        def step(x: Any) -> Any:
            state["n"] += 0.75
            return OWN_NUMBERS[name](x, param, state["n"]).clone()

        call = cd.compile(step, backend=backend) if compiled else step
        return [call(cd.arange(1.0, 4.0)).tolist() for _ in range(7)], call

    wanted, got = made(False)[0], made(True)
    cd.testing.assert_close(cd.tensor(got[0]), cd.tensor(wanted))
    assert cd.compiler.explain(got[1], cd.ones(3)).graph_count <= 2


# ---- functions of math -------------------------------------------------------------------------

BY_NAME = {"sqrt": math.sqrt}
FACTORS = {math.exp: 2.0}


def schedule(x: cd.Tensor, step: int) -> cd.Tensor:
    return x * (
        0.5 * (1 + cosine(math.pi * step / 20)) + BY_NAME["sqrt"](step) + math.atan2(step, 2)
    )


def test_functions_of_math_go_on_with_a_number_that_changes() -> None:
    compiled, x = cd.compile(schedule), cd.ones(3)
    for step in range(2, 12):
        assert cd.allclose(compiled(x, step), schedule(x, step))
    report = cd.compiler.explain(compiled, x, 12)
    assert report.graph_count == 2 and report.graph_break_count == 0


def test_so_they_do_with_the_value_of_a_tensor() -> None:
    def perplexity(x: cd.Tensor) -> tuple[cd.Tensor, float]:
        loss = x.square().mean()
        return loss * math.log1p(loss.item()), math.exp(loss.item())

    compiled = cd.compile(perplexity, fullgraph=True)
    for k in range(4):
        x = cd.full((3,), float(k))
        (loss, found), (wanted, value) = compiled(x), perplexity(x)
        assert cd.allclose(loss, wanted) and type(found) is float and found == value


def test_an_error_of_theirs_is_the_programs() -> None:
    def root(x: cd.Tensor, n: float) -> cd.Tensor:
        try:
            return x * math.sqrt(n)
        except ValueError:
            return -x

    compiled, x = cd.compile(root), cd.ones(2)
    for n in (1.0, 4.0, -1.0, 9.0, -4.0, 16.0):
        assert compiled(x, n).equal(root(x, n))
    with pytest.raises(ValueError, match="math domain error|expected a nonnegative"):
        cd.compile(lambda x, n: x * math.sqrt(n))(x, -1.0)


def test_they_are_what_they_were_for_everybody_else() -> None:
    def kept(x: cd.Tensor, n: float) -> Any:
        found = {"function": math.sqrt}
        return x * FACTORS[math.exp] * math.sqrt(n), [math.log], found, math.exp.__name__

    compiled, x = cd.compile(kept), cd.ones(2)
    for n in (1.0, 2.0, 3.0):
        scaled, functions, found, name = compiled(x, n)
        assert scaled.equal(x * 2.0 * math.sqrt(n)) and name == "exp"
        assert functions == [math.log] and type(functions[0]) is types.BuiltinFunctionType
        assert type(found["function"]) is types.BuiltinFunctionType
    assert type(math.sqrt) is type(BY_NAME["sqrt"]) is type(cosine) is types.BuiltinFunctionType


def test_threads_that_capture_at_once_leave_them_alone() -> None:
    def run() -> None:
        compiled = cd.compile(lambda x, n: x * math.sin(n))
        for n in range(12):
            found.append(compiled(cd.ones(2), float(n)).equal(cd.ones(2) * math.sin(n)))

    found: list[bool] = []
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 48 and type(math.sin) is types.BuiltinFunctionType
