"""Compiled programs that replace tensors in Python's state: one graph for all lengths, as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn


def served(make: Callable[[], Any], drive: Callable[[Any, Any], Any], **options: Any) -> Any:
    """What ``drive(object, step)`` gives with ``object.step`` compiled and as it is."""
    cd.manual_seed(0)
    plain = make()
    wanted = drive(plain, plain.step)
    cd.manual_seed(0)
    other = make()
    fast = cd.compile(other.step, backend="eager", **options)
    got = drive(other, fast)
    assert repr(got) == repr(wanted)
    return fast


def graphs(fast: Any) -> int:
    return sum(map(len, fast.programs.values()))


class Cache:
    """A cache of keys in some place of its own: ``get`` and ``put`` say where."""

    def __init__(self, first: Any, get: Callable[[Any], Any], put: Callable[[Any, Any], Any]):
        self.place, self.get, self.put = first, get, put
        self.seen = 0

    def step(self, x: Any) -> Any:
        keys = cd.cat([self.get(self), x], 1)
        self.put(self, keys)
        self.seen += x.shape[1]
        return (x @ keys.transpose(1, 2)).softmax(-1) @ keys + self.seen


def _attribute(cache: Any, keys: Any) -> None:
    cache.place = keys


def _element(cache: Any, keys: Any) -> None:
    cache.place[0] = keys


def _pair(cache: Any, keys: Any) -> None:
    cache.place = (keys, cache.place[1])


def _entry(cache: Any, keys: Any) -> None:
    cache.place["k"] = [keys]


def _new_dict(cache: Any, keys: Any) -> None:
    cache.place = {"k": [keys, "text"], "n": cache.place["n"] + 1}


def one() -> Any:
    return cd.ones(2, 1, 3)


KEPT: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "attribute": (one, lambda c: c.place, _attribute),
    "element of a list": (lambda: [one(), 0], lambda c: c.place[0], _element),
    "tuple": (lambda: (one(), None), lambda c: c.place[0], _pair),
    "list in a dict": (lambda: {"k": [one()]}, lambda c: c.place["k"][0], _entry),
    "dict": (lambda: {"k": [one(), "text"], "n": 0}, lambda c: c.place["k"][0], _new_dict),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_cache_that_grows_has_one_graph(kept: str) -> None:
    first, get, put = KEPT[kept]

    def drive(cache: Any, step: Any) -> Any:
        found = [step(cd.ones(2, n, 3) * n).sum().item() for n in (4, *[1] * 8, 2, 1)]
        return found, get(cache).tolist(), cache.seen

    fast = served(lambda: Cache(first(), get, put), drive)
    assert fast.eager_calls == 0 and fast.given_up is None
    assert graphs(fast) <= 3 and fast.captures <= 5


class Written:
    """A cache that is written in place, up to a position in some place of its own."""

    def __init__(self, first: Any, get: Callable[[Any], int], put: Callable[[Any, int], None]):
        self.cache, self.place, self.get, self.put = cd.zeros(2, 20, 3), first, get, put

    def step(self, x: Any) -> Any:
        at = self.get(self)
        self.cache[:, at] = x
        self.put(self, at + 1)
        keys = self.cache[:, : at + 1]
        return (keys @ x[..., None]).softmax(1).mT @ keys


def _set_attribute(state: Any, at: int) -> None:
    state.place = at


def _set_entry(state: Any, at: int) -> None:
    state.place["at"] = at


def _set_pair(state: Any, at: int) -> None:
    state.place = ("text", at)


POSITIONS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "attribute": (lambda: 0, lambda s: s.place, _set_attribute),
    "entry of a dict": (lambda: {"at": 0}, lambda s: s.place["at"], _set_entry),
    "tuple": (lambda: ("text", 0), lambda s: s.place[1], _set_pair),
}


@pytest.mark.parametrize("kept", POSITIONS)
def test_a_position_that_grows_has_one_graph(kept: str) -> None:
    first, get, put = POSITIONS[kept]

    def drive(state: Any, step: Any) -> Any:
        found = [step(cd.ones(2, 3) * n).tolist() for n in range(12)]
        put(state, 3)  # from the front again
        return found, [step(cd.ones(2, 3)).tolist() for _ in range(3)], get(state)

    fast = served(lambda: Written(first(), get, put), drive)
    assert fast.eager_calls == 0 and fast.given_up is None
    assert graphs(fast) <= 3 and fast.captures <= 4


def test_a_position_that_python_needs_stays_a_number() -> None:
    class Counted:
        def __init__(self) -> None:
            self.rows, self.at = cd.arange(9.0), 2

        def step(self) -> Any:
            self.at += 1
            return sum(self.rows[: self.at][i] * i for i in range(self.at))

    fast = served(Counted, lambda state, step: [step().item() for _ in range(6)])
    assert fast.eager_calls == 0
    assert any("at is needed as a number" in what for what, _ in fast.sizes.told())


@pytest.mark.parametrize("grows", [False, True])
def test_state_with_a_history_goes_through_graphs(grows: bool) -> None:
    """Its gradients go on to the parameters by way of every call before."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.state = cd.ones(1, 2)

        def step(self, x: Any) -> Any:
            new = (self.linear(x) + self.state[-1:]).tanh()
            self.state = cd.cat([self.state, new]) if grows else new
            return self.state.square().mean()

    def drive(net: Any, step: Any) -> Any:
        losses = [step(cd.ones(1, 2) * n) for n in range(6)]
        sum(losses[1:], losses[0]).backward()
        values = (*losses, *net.linear.weight.grad.flatten(), *net.linear.bias.grad)
        return [round(value.item(), 5) for value in values]

    fast = served(Recurrent, drive)
    assert fast.eager_calls == 0 and not fast.problems
    assert graphs(fast) <= 3


def test_sizes_of_the_state_are_told_and_asked() -> None:
    class Window:
        def __init__(self) -> None:
            self.rows = cd.ones(1, 2)

        def step(self, x: Any) -> Any:
            self.rows = cd.cat([self.rows, x])
            if self.rows.shape[0] > 6:
                self.rows = self.rows[-6:].clone()
            return self.rows.mean(0)

    class Counted(Window):
        def step(self, x: Any) -> Any:
            self.rows = cd.cat([self.rows, x])
            return sum(self.rows[i] * i for i in range(self.rows.shape[0]))

    def drive(state: Any, step: Any) -> Any:
        return [step(cd.ones(1, 2) * i).tolist() for i in range(12)]

    served(Window, drive)
    fast = served(Counted, drive)
    report = cd.compiler.explain(fast, cd.ones(1, 2))
    assert any("imension 0 of" in what and "rows" in what for what, _ in report.fixed_sizes)
    rows = Window()

    def appended(x: Any) -> Any:
        rows.rows = cd.cat([rows.rows, x])
        return rows.rows.sum()

    fast = cd.compile(appended, backend="eager")
    for _ in range(5):
        fast(cd.ones(1, 2))
    told = cd.compiler.explain(fast, cd.ones(1, 2)).sizes
    assert any(line.startswith("t0 >= 2: dimension 0 of") for line in told)


class Twice:
    """One tensor in two places."""

    def __init__(self) -> None:
        self.h = self.g = cd.ones(1, 2)

    def step(self, x: Any) -> Any:
        found = (self.h + 10 * self.g).sum()
        self.h = self.g = cd.cat([self.h, x]) if x.ndim == 2 else self.h + x
        return found


@pytest.mark.parametrize("x", [cd.ones(1, 2), cd.ones(2)])
def test_what_was_one_tensor_may_be_two(x: Any) -> None:
    def drive(state: Any, step: Any) -> Any:
        found = [step(x).item() for _ in range(6)]
        state.g = cd.full(state.g.shape, 7.0)
        found += [step(x).item() for _ in range(3)]
        return found, state.h is state.g

    assert served(Twice, drive).eager_calls == 0


def test_an_argument_may_be_the_state() -> None:
    class Written:
        def __init__(self) -> None:
            self.h = cd.ones(1, 2)

        def step(self, x: Any) -> Any:
            x.add_(1)
            found = self.h.sum() * 1
            self.h = cd.cat([self.h, x[:1]])
            return found

    def drive(state: Any, step: Any) -> Any:
        found = [step(cd.ones(1, 2)).item() for _ in range(6)]
        found += [step(state.h).item() for _ in range(3)]
        return found + [step(state.h[1:]).item() for _ in range(3)], state.h.tolist()

    served(Written, drive)


def test_other_forms_of_the_state() -> None:
    class Rows:
        def __init__(self) -> None:
            self.h = cd.ones(1, 2)

        def step(self, x: Any) -> Any:
            self.h = cd.cat([self.h, x])
            return self.h

    def drive(state: Any, step: Any) -> Any:
        found = []
        for _ in range(6):
            found.append(step(cd.ones(1, 2)) is state.h)
        changes: list[Callable[[Any], Any]] = [
            lambda h: h[:3],
            lambda h: h.t().contiguous().t(),
            lambda h: h.double(),
            lambda h: h.float()[:0],
            lambda h: h[:1].clone(),
        ]
        for change in changes:
            state.h = change(state.h)
            found.append(step(cd.ones(1, 2)).tolist())
        state.h = cd.ones(5, 3)
        with pytest.raises(RuntimeError):
            step(cd.ones(1, 2))
        return found, state.h.tolist()

    served(Rows, drive)


def test_a_container_that_is_replaced_stays_the_object_it_was() -> None:
    class Kept:
        def __init__(self) -> None:
            self.c: Any = [cd.zeros(1, 2), 0]
            self.old: Any = None

        def step(self, x: Any) -> Any:
            self.old = self.c
            self.c = [cd.cat([self.c[0], x]), self.c[1] + 1]
            return self.c[0].sum() * self.c[1]

    class Written(Kept):
        def step(self, x: Any) -> Any:
            before = self.c
            before.append(before[1])
            self.c = [before[0] + x, before[1] + 1]
            return len(before)

    def drive(state: Any, step: Any) -> Any:
        found = []
        for _ in range(10):
            before = state.c
            out = step(cd.ones(1, 2))
            found += [out, before is state.old, len(before), type(before[1]), state.c[1]]
        return found

    served(Kept, drive)
    served(Written, drive)


def test_what_is_nested_too_deeply_to_be_looked_through_runs_as_it_is() -> None:
    class Wrapped(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner
            self.calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.inner(x)

    module: Any = nn.Linear(2, 2)
    for _ in range(150):
        module = Wrapped(module)
    x = cd.ones(1, 2)
    wanted = module(x)
    fast = cd.compile(module, backend="eager")
    for count in (2, 3):
        assert fast(x).tolist() == wanted.tolist()
        assert module.calls == count

    def endless(x: Any) -> Any:
        return endless(x)

    with pytest.raises(RecursionError):
        cd.compile(endless, backend="eager")(x)
