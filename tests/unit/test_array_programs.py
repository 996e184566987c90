"""Kernels that a library compiles as one program: which calls share one, and what errors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coredispatch.backends.array_api.programs import as_program


class Compiler:
    """Stands for ``jax.jit``: a program for each static argument and each shape."""

    def __init__(self) -> None:
        self.programs: set[Any] = set()

    def __call__(self, function: Any, *, static_argnums: tuple[int, ...]) -> Any:
        assert static_argnums == (0,)

        def run(call: Any, *arrays: Any) -> Any:
            self.programs.add((call, *((a.shape, a.dtype) for a in arrays)))
            return function(call, *arrays)

        return run


def test_arrays_of_one_shape_share_a_program() -> None:
    compiler = Compiler()
    scaled = as_program(lambda parts, by: sum(parts) * by, compiler, np.ndarray)
    for first in (1.0, 2.0):
        parts = [np.full(3, first), np.ones(3)]
        np.testing.assert_array_equal(scaled(parts, 2), np.full(3, 2 * (first + 1)))
    assert len(compiler.programs) == 1
    scaled([np.ones(4), np.ones(4)], 2)
    assert len(compiler.programs) == 2


@pytest.mark.parametrize("values", [(1, 1.0, True), (0.0, -0.0), ((1,), [1]), (slice(1), slice(2))])
def test_arguments_that_behave_differently_have_programs_of_their_own(values: Any) -> None:
    compiler = Compiler()
    shown = as_program(lambda x, value: repr(value), compiler, np.ndarray)
    for value in values:
        assert shown(np.ones(2), value) == repr(value)
    assert len(compiler.programs) == len(values)


def test_a_nan_among_the_arguments_needs_one_program() -> None:
    compiler = Compiler()
    shown = as_program(lambda x, value: repr(value), compiler, np.ndarray)
    assert shown(np.ones(2), float("nan")) == shown(np.ones(2), float("nan")) == "nan"
    assert len(compiler.programs) == 1


def test_an_error_is_that_of_the_function() -> None:
    def refused(function: Any, *, static_argnums: tuple[int, ...]) -> Any:
        def run(call: Any, *arrays: Any) -> Any:
            raise TypeError("the compiler's words")

        return run

    def kernel(x: Any) -> Any:
        if x.size > 2:
            raise ValueError("the kernel's words")
        return x

    called = as_program(kernel, refused, np.ndarray)
    with pytest.raises(ValueError, match="the kernel's words"):
        called(np.ones(3))
    with pytest.raises(TypeError, match="the compiler's words"):
        called(np.ones(2))
