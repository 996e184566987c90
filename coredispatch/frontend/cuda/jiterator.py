"""Kernels from C++ code that is compiled at run time: there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.cuda.devices import is_available

__all__: list[str] = []


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., Any]:
    """A function that refuses to run; where there is a device, CuPy's kernels do this."""

    def function(*tensors: Any, **options: Any) -> Any:
        if not is_available():
            raise AssertionError(
                "Jiterator is only supported on CUDA and ROCm GPUs, none are available."
            )
        raise NotImplementedError(
            "cuda.jiterator: C++ code is not compiled here\n"
            "  fix: cupy.ElementwiseKernel takes such code, and library.custom_op makes an operator"
        )

    return function


def _create_multi_output_jit_fn(
    code_string: str, num_outputs: int, **kwargs: Any
) -> Callable[..., Any]:
    """The same, for several results."""
    return _create_jit_fn(code_string, **kwargs)
