"""What programs compute from open sizes, beside PyTorch's eager calls, for many sizes."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.export import Dim, UserError, export

torch = pytest.importorskip("torch")
SIZES = [(2, 5), (3, 7), (4, 4), (6, 3), (2, 9), (9, 2)]


class Call(cd.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any) -> Any:
        return self.function(cd, x, y, x.shape[0], y.shape[0])


def _assigned(lib: Any, x: Any, y: Any, m: Any, n: Any) -> Any:
    z = y.clone()
    z[:, 0] = m
    z[y > 0] = n
    z[1:2] = n / 2
    return z


def _written(lib: Any, x: Any, y: Any, m: Any, n: Any) -> Any:
    z = y.clone()
    row, other = z[0], z[1]
    row += m
    other *= n
    return z


PROGRAMS: dict[str, Callable[..., Any]] = {
    "repeats": lambda lib, x, y, m, n: x.repeat_interleave(n, 0),
    "repeats of all elements": lambda lib, x, y, m, n: x.repeat_interleave(n),
    "repeats of a known total": lambda lib, x, y, m, n: x.repeat_interleave(
        n, 0, output_size=m * n
    ),
    "the lesser size": lambda lib, x, y, m, n: y[: min(m, n)] + x[: min(n, m)],
    "the greater size": lambda lib, x, y, m, n: lib.zeros(max(m, n)),
    "the greatest of a list": lambda lib, x, y, m, n: lib.zeros(max([m, n, 4])),
    "the lesser of a size and a number": lambda lib, x, y, m, n: y[: min(n, 4)],
    "a size cut off at 1": lambda lib, x, y, m, n: lib.zeros(max(n - 3, 1)),
    "padding to the greater size": lambda lib, x, y, m, n: lib.nn.functional.pad(
        x, (0, 0, 0, max(n - m, 0))
    ),
    "sym_max and sym_min": lambda lib, x, y, m, n: lib.zeros(lib.sym_max(m, n), lib.sym_min(m, 3)),
    "a distance": lambda lib, x, y, m, n: lib.zeros(abs(m - n) + 1),
    "halves": lambda lib, x, y, m, n: (y[: n // 2].sum(), y[n // 2 :].sum(), y.chunk(2)[0]),
    "halves rounded up": lambda lib, x, y, m, n: y[: -(-n // 2)],
    "shifted sizes": lambda lib, x, y, m, n: (y[: n >> 1], lib.zeros(m << 1), lib.zeros(n & 3)),
    "a size shifted off": lambda lib, x, y, m, n: lib.zeros(-~m),
    "powers": lambda lib, x, y, m, n: (y.abs() ** m, m**y),
    "bits of tensors": lambda lib, x, y, m, n: (
        lib.arange(4) << m, lib.arange(4) >> m, lib.arange(4) & m, lib.arange(4) | n,
        n ^ lib.arange(4),
    ),
    "assigned sizes": _assigned,
    "sizes written in place": _written,
    "shapes that broadcast": lambda lib, x, y, m, n: lib.zeros(
        lib.broadcast_shapes(x.shape, (1, 3)) + lib.broadcast_shapes((m, 1), (1, n))
    ),
    "a floating-point size": lambda lib, x, y, m, n: y / lib.sym_sqrt(n) * lib.sym_float(m),
    "a lower triangle": lambda lib, x, y, m, n: lib.ones(m, n).tril(n - m),
}  # fmt: skip
#: operators whose decompositions take as many steps as the example's length asks for
UNROLLED: dict[str, Callable[..., Any]] = {
    "cummax": lambda lib, x, y, m, n: y.cummax(0)[0],
    "cummin beside others": lambda lib, x, y, m, n: (y * 2).cummin(0)[0].softmax(0),
    "mode": lambda lib, x, y, m, n: y.mode(0)[0],
    "logcumsumexp": lambda lib, x, y, m, n: y.logcumsumexp(0),
}


def data(m: int, n: int) -> list[Any]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((size, 3)).astype(np.float32) for size in (m, n)]


def exported(program: Callable[..., Any], least: int = 2) -> Any:
    shapes = ({0: Dim("m", min=least)}, {0: Dim("n", min=least)})
    return export(Call(program), tuple(map(cd.tensor, data(2, 5))), dynamic_shapes=shapes)


def agrees(module: Any, program: Callable[..., Any], sizes: Any = SIZES) -> None:
    """The module gives what PyTorch gives, for each pair of sizes."""
    for m, n in sizes:
        arrays = data(m, n)
        x, y = map(torch.from_numpy, arrays)
        wanted = program(torch, x, y, m, n)
        found = module(*map(cd.tensor, arrays))
        pairs = zip(found, wanted) if isinstance(wanted, tuple) else [(found, wanted)]
        for got, value in pairs:
            np.testing.assert_allclose(got.numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_stay_open(name: str) -> None:
    program = exported(PROGRAMS[name])
    agrees(program.module(), PROGRAMS[name])
    agrees(program.run_decompositions().module(), PROGRAMS[name])


@pytest.mark.parametrize("name", UNROLLED)
def test_decompositions_hold_for_all_sizes(name: str) -> None:
    program = exported(UNROLLED[name]).run_decompositions()
    agrees(program.module(), UNROLLED[name], [(2, 5), (2, 2), (2, 3), (2, 40)])


def test_a_choice_among_ways_to_the_same_result_closes_no_size() -> None:
    def program(lib: Any, x: Any, y: Any, m: Any, n: Any) -> Any:
        attended = lib.nn.functional.scaled_dot_product_attention(x, y, y)
        return attended, x.lerp(x * 2, 1 / m)

    made = exported(program).run_decompositions()
    assert "kept_whole" not in made.graph.meta
    agrees(made.module(), program, [*SIZES, (20, 3), (17, 400)])


def test_the_lesser_of_a_size_and_two_counts_sizes_of_one() -> None:
    def program(lib: Any, x: Any, y: Any, m: Any, n: Any) -> Any:
        return lib.zeros(min(n, 2), max(m, 1))

    made = exported(program, least=1)
    for module in (made.module(), made.run_decompositions().module()):
        agrees(module, program, [(1, 1), (1, 2), (2, 1), (3, 3)])


def test_the_order_of_two_sizes_that_the_program_asks_for_is_still_refused() -> None:
    with pytest.raises(UserError, match="m < n"):
        exported(lambda lib, x, y, m, n: y if m < n else x)


def test_min_and_max_are_pythons_own_again() -> None:
    before = builtins.min, builtins.max
    seen: list[Any] = []

    def program(lib: Any, x: Any, y: Any, m: Any, n: Any) -> Any:
        seen.append((min(3, 1), max([2, 5, 4]), min("b", "a"), max(iter([1, 7]), key=lambda v: -v)))
        seen.append((max([], default=8), min({3: 0, 2: 0})))
        with pytest.raises(TypeError):
            min(3)  # type: ignore[call-overload]
        with pytest.raises(ValueError):
            max([])
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        exported(program)
    assert seen == [(1, 5, "a", 1), (8, 2)]
    assert builtins.min is before[0] and builtins.max is before[1]


def test_what_looks_functions_up_finds_min_and_max() -> None:
    kinds = {min: "min", max: "max"}  # as Numba does, in another thread
    other: list[Any] = []

    def program(lib: Any, x: Any, y: Any, m: Any, n: Any) -> Any:
        other.extend([min, max])
        assert kinds[min] == "min" and kinds[max] == "max"
        assert min != max and {min: 1} == {other[0]: 1}
        return x

    exported(program)
    assert all(f is not g for f, g in zip(other, (min, max)))
    assert [kinds[f] for f in other] == ["min", "max"]
    assert other[0] == min and min == other[0] and other[0] != max


def test_what_needs_a_number_names_its_line() -> None:
    with pytest.raises(UserError, match=r"(?s)specialized it to be a constant.*test_export_sizes"):
        exported(lambda lib, x, y, m, n: y * math.log(n))


@pytest.mark.parametrize("lib", [torch, cd], ids=["torch", "ours"])
def test_two_dims_of_one_name_have_the_same_bounds(lib: Any) -> None:
    class Net(lib.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x.sum() + y.sum()

    dim, given = lib.export.Dim, (lib.ones(4), lib.ones(4))
    with pytest.raises(Exception, match="Found different definitions .*max=8.*max=16"):
        lib.export.export(
            Net(), given, dynamic_shapes=({0: dim("n", max=8)}, {0: dim("n", max=16)})
        )
    lib.export.export(Net(), given, dynamic_shapes=({0: dim("n", max=8)}, {0: dim("n", max=8)}))
