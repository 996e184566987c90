"""Programs whose surroundings are converted, patched or cached between the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.utils.parametrize as parametrize
from coredispatch import nn

BACKENDS = ["eager", "cpu_numba"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_converted_module_when_sizes_open(backend: str) -> None:
    """What a run with open sizes did to a parameter is taken back as a whole, its dtype too."""
    net = nn.Linear(2, 2, bias=False)
    program = cd.compile(lambda x: net.float()(x), backend=backend)
    for rows in (2, 3, 4, 5):
        net.double()
        x = cd.ones(rows, 2)
        made = program(x)
        assert made.dtype is net.weight.dtype is cd.float32
        assert made.allclose(x @ net.weight.T)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("through", ["module", "function", "sequential"])
def test_forward_of_a_library_class_is_patched(
    backend: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net: Any = nn.Sequential(nn.ReLU(), nn.Tanh()) if through == "sequential" else nn.ReLU()
    program = cd.compile((lambda x: net(x)) if through == "function" else net, backend=backend)
    x = cd.tensor([-1.0, 2.0])
    first = [program(x).tolist() for _ in range(3)]
    assert first[0] == first[2] == net(x).tolist()
    with monkeypatch.context() as patch:
        patch.setattr(nn.ReLU, "forward", lambda self, x: x.abs() * 7)
        for _ in range(3):
            assert program(x).tolist() == net(x).tolist() != first[0]
    assert program(x).tolist() == first[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_cached_parametrizations(backend: str) -> None:
    """Inside of ``cached`` a parametrization is computed once, whoever asks for it."""

    class Counted(nn.Module):
        calls = 0

        def forward(self, x: cd.Tensor) -> cd.Tensor:
            Counted.calls += 1
            return x * Counted.calls

    def outputs(wrap: Callable[[Any], Any]) -> list[float]:
        Counted.calls = 0
        net = nn.Linear(2, 1, bias=False)
        nn.init.ones_(net.weight)
        parametrize.register_parametrization(net, "weight", Counted())
        program, x = wrap(net), cd.ones(1, 2)
        found = [program(x).item() for _ in range(2)]
        with parametrize.cached():
            found += [program(x).item() for _ in range(3)]
        return [*found, program(x).item(), Counted.calls]

    assert outputs(lambda net: cd.compile(net, backend=backend)) == outputs(lambda net: net)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bases_of_a_class_change(backend: str) -> None:
    class Twice(nn.Module):
        def forward(self, x: cd.Tensor) -> cd.Tensor:
            return x * 2

    class Thrice(nn.Module):
        def forward(self, x: cd.Tensor) -> cd.Tensor:
            return x * 3

    class Net(Twice):
        pass

    net = Net()
    program, x = cd.compile(net, backend=backend), cd.ones(2)
    for bases in [(Twice,), (Thrice,), (Twice,)]:
        Net.__bases__ = bases
        for _ in range(3):
            assert program(x).tolist() == net(x).tolist()


def test_sequential_of_another_order() -> None:
    class Backwards(nn.Sequential):
        def __iter__(self) -> Any:
            return reversed(list(super().__iter__()))

    net = Backwards(nn.ReLU(), nn.Hardtanh(-3.0, 1.0))
    x = cd.tensor([-2.0, 5.0])
    assert net(x).tolist() == [0.0, 1.0]
    assert cd.compile(net, backend="eager")(x).tolist() == [0.0, 1.0]


GENERATED: list[Callable[[int, cd.Generator], cd.Tensor]] = [
    lambda n, g: cd.randn(n, generator=g),
    lambda n, g: cd.randperm(n, generator=g),
    lambda n, g: cd.bernoulli(cd.full((n,), 0.5), generator=g),
    lambda n, g: cd.empty(n).uniform_(generator=g),
    lambda n, g: cd.multinomial(cd.ones(9), n, generator=g),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("draw", GENERATED)
def test_a_generator_goes_on_as_in_eager_when_sizes_open(
    draw: Callable[[int, cd.Generator], cd.Tensor], backend: str
) -> None:
    def drawn(wrap: Callable[[Any], Any]) -> Any:
        generator = cd.Generator().manual_seed(5)
        program = wrap(lambda n: draw(n, generator))
        return [program(n).tolist() for n in (3, 3, 4, 2, 3, 5)]

    assert drawn(lambda f: cd.compile(f, backend=backend)) == drawn(lambda f: f)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_generator_goes_on_where_a_value_decides(backend: str) -> None:
    """A path that was not captured before takes back what was drawn on the way to it."""

    def drawn(wrap: Callable[[Any], Any]) -> Any:
        generator = cd.Generator().manual_seed(1)

        def walk(x: cd.Tensor) -> cd.Tensor:
            step = cd.rand(1, generator=generator)
            if step > 0.6:
                return x + cd.rand(1, generator=generator)
            return x - step

        program = wrap(walk)
        return [program(cd.zeros(1)).item() for _ in range(12)]

    assert drawn(lambda f: cd.compile(f, backend=backend)) == drawn(lambda f: f)
