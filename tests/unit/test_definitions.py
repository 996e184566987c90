"""Decompositions where kernels of the CPU hide them: other backends compute by nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd


def by_definition(op: str, *args: Any) -> Any:
    return getattr(cd.ops, op).decomposition(*args)


@pytest.mark.parametrize("op", ["log1p", "expm1"])
def test_complex_numbers_keep_infinities_and_digits_near_zero(op: str) -> None:
    edges = (0.0, 1.0, -1.0, 0.3, 1e-9, -1e-12, np.inf, -np.inf, np.nan)
    z = np.array([complex(a, b) for a in edges for b in edges])
    found = by_definition(op, cd.tensor(z)).numpy()
    with np.errstate(all="ignore"):
        wanted = getattr(np, op)(z)
    for part in ("real", "imag"):
        np.testing.assert_allclose(
            getattr(found, part), getattr(wanted, part), rtol=1e-12, atol=1e-15
        )


def test_fmod_promotes_before_it_takes_the_size() -> None:
    least = cd.tensor([-(2**63)])  # an integer without an absolute value
    assert by_definition("fmod", cd.tensor([0.75]), least).tolist() == [0.75]
    assert by_definition("fmod", cd.tensor([-0.75]), least).tolist() == [-0.75]


@pytest.mark.parametrize("op", ["ceil", "trunc"])
def test_rounding_refuses_complex_numbers(op: str) -> None:
    for device in ("cpu", "meta"):
        with pytest.raises(cd.DTypeError, match=op):
            getattr(cd, op)(cd.zeros(1, dtype=cd.complex64, device=device))
        with pytest.raises(cd.DTypeError, match="copysign"):
            cd.copysign(cd.zeros(1, dtype=cd.complex64, device=device), 3.0)


@pytest.mark.parametrize("op", ["index_add", "index_copy"])
def test_a_source_without_dimensions_is_one_slice(op: str) -> None:
    one, two, three = cd.tensor([0]), cd.tensor([0, 1]), cd.tensor(3.0)
    rest = (1,) * (op == "index_add")
    for target in (cd.zeros(()), cd.zeros(2)):
        found = by_definition(op, target, 0, one, three, *rest)
        assert found.tolist() == getattr(cd, op)(target, 0, one, three).tolist()
        assert found.shape == target.shape
    with pytest.raises(cd.ShapeError):
        getattr(cd, op)(cd.zeros(2), 0, two, three)
    with pytest.raises(cd.ShapeError):
        by_definition(op, cd.zeros(2), 0, two, three, *rest)
    with pytest.raises(cd.ShapeError):
        getattr(cd, op)(cd.zeros(2, device="meta"), 0, two.to("meta"), three.to("meta"))


def test_a_tensor_without_dimensions_is_filled_along_its_one() -> None:
    assert by_definition("index_fill", cd.zeros(()), 0, cd.tensor([0]), 2.0).item() == 2.0


def test_output_size_of_a_number_of_repeats_is_checked() -> None:
    x = cd.ones(2)
    assert by_definition("repeat_interleave", x, 2, 0, 4).tolist() == [1.0] * 4
    with pytest.raises(cd.ShapeError, match="output_size=7"):
        by_definition("repeat_interleave", x, 2, 0, 7)


def test_averages_of_integers_lose_their_fractions() -> None:
    x = cd.tensor([[[-5, 2, -3, 4]]])
    options = ((2,), (1,), (1,), False, True, None)
    found = by_definition("avg_pool", x, *options)
    assert found.dtype is cd.int64
    assert found.tolist() == cd.ops.avg_pool(x, *options).tolist() == [[[-2, -1, 0, 0, 2]]]


@pytest.mark.parametrize("op", ["softsign", "tanhshrink"])
def test_activations_of_integers_are_floating_on_meta_as_well(op: str) -> None:
    function = getattr(cd.nn.functional, op)
    for device in ("cpu", "meta"):
        assert function(cd.ones(2, dtype=cd.int64, device=device)).dtype is cd.float32


def test_linspace_from_infinity_warns_of_nothing() -> None:
    assert cd.linspace(float("inf"), -1.0, 5).isnan().any()
