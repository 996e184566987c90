"""Programs whose tensors share memory without being views: what follows a write sees it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn

Pair = tuple[Any, Any]


def of_data(part: Callable[[Any], Any]) -> Callable[[], Pair]:
    def make() -> Pair:
        flat = cd.zeros(8)
        other = cd.zeros(part(flat).shape)
        other.data = part(flat)
        return flat, other

    return make


def of_vector() -> Pair:
    flat, parameter = cd.zeros(4), nn.Parameter(cd.zeros(2))
    nn.utils.vector_to_parameters(flat[:2], [parameter])
    return flat, parameter.detach()


def of_set() -> Pair:
    flat = cd.zeros(4)
    return flat, cd.empty(0).set_(flat.untyped_storage(), 1, (2,), (1,))


def of_buffer() -> Pair:
    flat = cd.zeros(4)
    return flat, cd.frombuffer(memoryview(flat.numpy()), dtype=cd.float32)


def of_array() -> Pair:
    array = np.zeros(8, np.float32)
    return cd.from_numpy(array[:6]), cd.from_numpy(array[2:])


def of_dlpack() -> Pair:
    flat = cd.zeros(4)
    return flat, cd.from_dlpack(cd.to_dlpack(flat))


def of_numpy() -> Pair:
    flat = cd.zeros(4)
    return flat, cd.as_tensor(flat.numpy()[1:])


SHARED = {
    "data": of_data(lambda flat: flat),
    "part of data": of_data(lambda flat: flat[6:]),
    "shaped data": of_data(lambda flat: flat.view(2, 4)),
    "vector": of_vector,
    "set_": of_set,
    "buffer": of_buffer,
    "array": of_array,
    "dlpack": of_dlpack,
    "numpy": of_numpy,
}
WANTED = [2.0, 3.0, 3.5]


@pytest.mark.parametrize("make", SHARED.values(), ids=list(SHARED))
def test_what_a_program_holds(make: Callable[[], Pair]) -> None:
    flat, other = make()

    @cd.compile
    def program() -> Any:
        flat.add_(1.0)
        found = other * 2
        flat.mul_(0.5)
        return found

    assert [program().flatten()[0].item() for _ in range(3)] == WANTED


def between(flat: Any, other: Any) -> Any:
    flat.add_(1.0)
    found = other * 2
    flat.mul_(0.5)
    return found


@pytest.mark.parametrize("apart", [0, 3])
@pytest.mark.parametrize("make", SHARED.values(), ids=list(SHARED))
def test_arguments(make: Callable[[], Pair], apart: int) -> None:
    """Also after calls with tensors that have memory of their own, and before such calls."""
    program = cd.compile(between)
    flat, other = make()
    for _ in range(apart):
        program(cd.zeros(flat.shape), cd.zeros(other.shape))
    assert [program(flat, other).flatten()[0].item() for _ in range(3)] == WANTED
    assert program(cd.zeros(flat.shape), cd.ones(other.shape)).flatten()[0].item() == 2.0


def test_an_argument_that_shares_what_the_program_writes() -> None:
    flat = cd.zeros(8)

    @cd.compile
    def program(x: Any) -> Any:
        return between(flat, x)

    for _ in range(3):
        program(cd.zeros(2, 3))
    flat.zero_()
    shared = cd.zeros(2, 3)
    shared.data = flat[:6].view(2, 3)
    assert [program(shared)[0, 0].item() for _ in range(3)] == WANTED
    assert program(cd.ones(2, 3))[0, 0].item() == 2.0


@pytest.mark.parametrize("warm", [0, 3])
def test_memory_that_is_shared_later(warm: int) -> None:
    flat, layer = cd.zeros(8), nn.Linear(3, 2, bias=False)

    @cd.compile
    def program() -> Any:
        return between(flat, layer.weight)

    for _ in range(warm):
        program()
    flat.zero_()
    layer.weight.data = flat[:6].view(2, 3)
    assert [program()[0, 0].item() for _ in range(3)] == WANTED
    layer.weight.data = cd.ones(2, 3)
    assert program()[0, 0].item() == 2.0


def test_parts_of_one_array_that_do_not_meet_are_no_new_programs() -> None:
    """As batches of one file are."""
    data, total = np.arange(40, dtype=np.float32), cd.zeros(4)

    @cd.compile
    def program(x: Any, y: Any) -> Any:
        total.add_(x * y)
        return total.sum()

    for i in range(0, 32, 4):
        program(cd.from_numpy(data[i : i + 4]), cd.from_numpy(data[i + 4 : i + 8]))
    wanted = sum((data[i : i + 4] * data[i + 4 : i + 8]).sum() for i in range(0, 32, 4))
    assert total.sum().item() == pytest.approx(wanted)
    assert sum(map(len, program.programs.values())) == 1


def test_an_evolution_of_parameters() -> None:
    """Candidates are written into a module through one vector."""
    cd.manual_seed(0)
    layer = nn.Linear(3, 1)
    x, start = cd.randn(5, 3), nn.utils.parameters_to_vector(layer.parameters()).detach()

    def losses() -> list[float]:
        found = []
        for noise in (0.1, -0.1, 0.2):
            candidate = start + noise
            nn.utils.vector_to_parameters(candidate, layer.parameters())
            found.append(step(candidate).item())
        return found

    def scaled(candidate: Any) -> Any:
        with cd.no_grad():
            candidate.mul_(2.0)
            return layer(x).square().sum()

    step: Any = scaled
    wanted = losses()
    step = cd.compile(scaled)
    for _ in range(3):
        assert losses() == pytest.approx(wanted)


def test_what_a_recorded_call_met_is_free_when_it_returns() -> None:
    """Its batch and what was computed on the way, without the garbage collector."""
    model = nn.Sequential(nn.Linear(4, 13), nn.ReLU(), nn.Linear(13, 2))
    optimizer = cd.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    compiled = cd.compile(step)
    gc.collect()
    gc.disable()
    try:
        for n in (3, 3, 5, 7, 7, 3):  # a count of steps, and sizes, become inputs on the way
            x = cd.randn(n, 4)
            batch = weakref.ref(x)
            compiled(x)
            del x
            assert batch() is None
            tensors = [each for each in gc.get_objects() if type(each) is cd.Tensor]
            assert tensors and not [t for t in tensors if tuple(t.shape) == (n, 13)]
            del tensors
    finally:
        gc.enable()
    assert not compiled.problems
