"""Runs that are taken back (another size, another answer, an error) leave everything as it was."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn

BACKENDS = ["eager", "cpu_numba"]

WRITES: dict[str, Callable[[nn.Parameter], Any]] = {
    "data": lambda p: p.data.add_(1),
    "data of data": lambda p: p.data.data.mul_(2),
    "an element of data": lambda p: p.data[0].add_(1),
    "a copy": lambda p: p.data.copy_(p.data + 1),
    "detached": lambda p: p.detach().add_(1),
}


def _both(program_of: Callable[[Callable[[Any], Any]], Any], backend: str) -> None:
    """What a program gives compiled is what it gives eagerly."""
    eager = program_of(lambda f: f)
    assert program_of(lambda f: cd.compile(f, backend=backend)) == eager


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", WRITES)
def test_writes_before_an_answer_that_is_new(write: str, backend: str) -> None:
    def weights(wrap: Callable[[Any], Any]) -> Any:
        weight, buffer = nn.Parameter(cd.ones(2)), cd.zeros(2)

        def step(x: cd.Tensor, bound: float) -> cd.Tensor:
            WRITES[write](weight)
            buffer.data.add_(1)
            if x.sum() > bound:
                x = x * 2
            return x.sum() + weight.sum() + buffer.sum()

        program = wrap(step)
        made = [program(cd.ones(3), bound).item() for bound in (0.0, 5.0, 0.0, 5.0, 9.0)]
        return made, weight.tolist(), buffer.tolist()

    _both(weights, backend)


LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "del first": lambda q: q.__delitem__(0),
    "pop": lambda q: q.pop(0),
    "del some": lambda q: q.__delitem__(slice(1, 3)),
    "remove": lambda q: q.remove(q[0]),
    "assign": lambda q: q.__setitem__(slice(None), q[1:]),
    "reverse": lambda q: q.reverse(),
    "insert": lambda q: q.insert(0, 5),
    "slide": lambda q: (q.pop(0), q.append(q[-1] + 1)),
    "clear": lambda q: (q.clear(), q.extend([1, 2])),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", LISTS)
def test_lists_when_sizes_open(change: str, backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        queue = [0, 1] * 20

        def step(x: cd.Tensor) -> cd.Tensor:
            LISTS[change](queue)
            return x.sum() + queue[0] + len(queue)

        program = wrap(step)
        return [program(cd.ones(n)).item() for n in (3, 3, 4, 2, 5, 5)], queue

    _both(run, backend)


def _use(d: Any) -> None:
    key = next(iter(d))
    value = d.pop(key)
    d[key] = value


DICTS: dict[str, Callable[[Any], Any]] = {
    "used again": _use,
    "to the end": lambda d: d.move_to_end(next(iter(d))),
    "to the begin": lambda d: d.move_to_end(3, last=False),
    "popped": lambda d: d.popitem(last=False),
    "popped last": lambda d: d.popitem(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((collections.OrderedDict, change) for change in DICTS),
        (dict, "used again"),
        (dict, "popped last"),
    ],
)
def test_orders_of_dicts_when_sizes_open(change: str, kind: Any, backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        cache = kind((i, i) for i in range(9))

        def step(x: cd.Tensor) -> cd.Tensor:
            DICTS[change](cache)
            return x.sum() + next(iter(cache)) * 10 + list(cache)[-1]

        program = wrap(step)
        return [program(cd.ones(n)).item() for n in (3, 3, 3, 4, 4, 5)], list(cache.items())

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("schedule", [False, True])
def test_errors_in_a_step_that_counts(schedule: bool, backend: str) -> None:
    """A wrong input in the midst of training is refused as in eager, and training goes on."""

    def run(wrap: Callable[[Any], Any]) -> Any:
        cd.manual_seed(0)
        net = nn.Linear(4, 3)
        optimizer = cd.optim.Adam(net.parameters(), 0.1)
        scheduler = cd.optim.lr_scheduler.StepLR(optimizer, 2)

        def step(x: cd.Tensor, row: int) -> cd.Tensor:
            optimizer.zero_grad()
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
            if schedule:
                scheduler.step()
            return x[row].sum() + loss

        program, made = wrap(step), []
        for features, row in [(4, 0), (4, 1), (5, 0), (4, 0), (4, 9), (4, 1), (5, 0), (4, 0)]:
            try:
                made.append(round(program(cd.ones(2, features), row).item(), 4))
            except cd.ShapeError as error:
                made.append(type(error).__name__)
            except IndexError as error:
                made.append(type(error).__name__)
        state = optimizer.state[net.weight]
        return made, state["step"], [round(v, 4) for v in net.bias.tolist()]

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_buffers_registered_before_an_error(backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        net: Any = nn.Module()
        net.count = 0

        def step(x: cd.Tensor, row: int) -> cd.Tensor:
            net.count += 1
            net.register_buffer(f"b{net.count}", cd.ones(1) * net.count)
            total = sum(b.sum() for b in net.buffers())
            return x[row] * 2 + total

        program, made = wrap(step), []
        for row in (0, 1, 9, 2, 8, 3, 1):
            try:
                made.append(program(cd.ones(4), row).item())
            except IndexError as error:
                made.append(type(error).__name__)
        return made, list(dict(net.named_buffers()))

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["array", "of a tensor", "of a result"])
def test_writes_to_arrays(how: str, backend: str) -> None:
    """NumPy writes where no operator sees it: once in each call, also where that is run again."""

    def run(wrap: Callable[[Any], Any]) -> Any:
        array, tensor = np.zeros(3, np.float32), cd.zeros(3)

        def step(x: cd.Tensor, rows: int) -> cd.Tensor:
            y = x * 2
            if how == "array":
                array[0] += 1
            else:
                (tensor if how == "of a tensor" else y).numpy()[1] += 1
            return y.view(rows, -1) + float(array[0]) + tensor.sum()

        program, made = wrap(step), []
        for size, rows in [(4, 1), (4, 1), (6, 2), (4, 3), (6, 3), (4, 2), (4, 2)]:
            try:
                made.append(program(cd.ones(size), rows).tolist())
            except cd.ShapeError:
                made.append("refused")
            made.append([*array.tolist(), *tensor.tolist()])
        return made

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_what_requires_them_for_a_while(backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        weight = cd.ones(1)

        def step(x: cd.Tensor) -> cd.Tensor:
            weight.requires_grad_()
            (weight * 2).sum().backward()
            weight.requires_grad_(False)
            return x * 3

        program, made = wrap(step), []
        for k in range(6):
            program(cd.ones(3))
            made.append((weight.grad.tolist(), weight.requires_grad))
            if k == 3:
                weight.grad = None
        return made

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", WRITES)
def test_writes_before_arithmetic_that_fails(write: str, backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        weight = nn.Parameter(cd.ones(2))

        def step(x: cd.Tensor, k: int) -> cd.Tensor:
            WRITES[write](weight)
            return x / (6 // k)

        program, made = wrap(step), []
        for k in (1, 2, 0, 3, 0, 1):
            try:
                made.append(program(cd.ones(3), k).tolist())
            except ZeroDivisionError:
                made.append("refused")
            made.append(weight.tolist())
        return made

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [float, complex, np.float32])
def test_zeros_of_both_signs_in_containers(kind: Any, backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        settings = {"bound": kind(0.0)}
        program = wrap(lambda x: (x + 1, str(settings["bound"])))
        made = []
        for bound in (0.0, -0.0, 1.0, 0.0, -0.0):
            settings["bound"] = kind(complex(0, bound)) if kind is complex else kind(bound)
            made.append(program(cd.ones(1))[1])
        return made

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_logs_and_means_in_every_third_call(backend: str) -> None:
    """What is looked at when a run is ended is the program's, not all of ``logging`` and NumPy."""
    log = logging.getLogger("test_compile_taken_back")

    def run(wrap: Callable[[Any], Any]) -> Any:
        window: list[float] = []
        counts = {"n": 0}

        def step(x: cd.Tensor) -> cd.Tensor:
            counts["n"] += 1
            window.append(x.sum().item())
            if counts["n"] % 3 == 0:
                log.info("step %d", counts["n"])
                counts["mean"] = float(np.mean(window))
            return x * 2

        program = wrap(step)
        return [program(cd.ones(n)).tolist() for n in (3, 3, 3, 4, 4, 5, 5)], counts, window

    _both(run, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["coredispatch", "torch"])
def test_counters_that_a_step_saves(form: str, backend: str, tmp_path: Path) -> None:
    """A file has the number, whatever stands for it while the program is captured."""
    state = {"step": 0}
    file = tmp_path / "checkpoint"

    @cd.compile(backend=backend)
    def step(x: cd.Tensor) -> cd.Tensor:
        state["step"] += 1
        if state["step"] % 2 == 0:
            cd.save({"step": state["step"], "x": x}, file, format=form)
        return x * 2

    for k in range(1, 9):
        step(cd.ones(3))
        if k % 2 == 0:
            loaded = cd.load(file)
            assert loaded["step"] == k and type(loaded["step"]) is int
