"""Fixtures of the tests of eager kernels: the plugin over the stand-in, its kernels on the host."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from host_kernels import Library, has_host_compiler, raw_module

import coredispatch as cd
from coredispatch.plugin import hookimpl
from coredispatch_cuda_cupy import cuda
from coredispatch_cuda_cupy.cuda.loading import code_of

__all__ = ["DTYPES", "LENGTHS", "Checker", "close", "library", "on_host", "texts"]

DTYPES = [cd.float32, cd.float64, cd.float16, cd.bfloat16]
#: lengths around the borders of warps and blocks, and a few of them in the other dtypes
LENGTHS: list[tuple[int, Any]] = [
    *((n, cd.float32) for n in (1, 2, 31, 32, 33, 255, 257, 1025)),
    *((n, dtype) for dtype in DTYPES[1:] for n in (33, 257)),
]

_LOOSE = {cd.float16: (5e-3, 2e-2), cd.bfloat16: (3e-2, 1e-1)}


def close(dtype: Any, scale: float = 1.0) -> dict[str, float]:
    """Tolerances for sums of rounded products that come to about ``scale``."""
    if dtype in _LOOSE:
        return {"rtol": _LOOSE[dtype][0], "atol": _LOOSE[dtype][1] * scale}
    tight = 1e-11 if dtype is cd.float64 else 1e-4
    return {"rtol": tight, "atol": tight * scale}


def texts() -> list[str]:
    """The texts of all families for all element types that they are made for."""
    return [code_of(family, dtype) for family, kinds in cuda.TEXTS.items() for dtype in kinds]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """All kernels, compiled by the host's compiler."""
    if not has_host_compiler():
        pytest.skip("there is no C++ compiler")
    return Library(tmp_path_factory.mktemp("kernels"), texts())


class Checker:
    """Compares calls on the stand-in's device with the CPU's in float64."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def __call__(
        self,
        program: Callable[..., Any],
        *inputs: Any,
        launches: int | None = 1,
        meta: bool = True,
        **options: Any,
    ) -> Any:
        """``program(*inputs)`` on the device agrees with float64 on the CPU, and launches kernels.

        Floating inputs are given in the dtype to test; so many kernels of ours must have run.
        Shapes that values decide are not asked of meta tensors: ``meta=False``.
        """
        before = self.library.launches
        got = program(*[x.to("cuda") if isinstance(x, cd.Tensor) else x for x in inputs])
        done = self.library.launches - before
        assert launches is None or done == launches, f"{done} kernels ran, not {launches}"
        wide = [
            x.double() if isinstance(x, cd.Tensor) and x.is_floating_point() else x for x in inputs
        ]
        wanted = program(*wide)
        # The dtype and shape that the rules of the operators say, as far as values do not decide.
        where = "meta" if launches != 0 and meta else "cpu"
        plain = program(*[x.to(where) if isinstance(x, cd.Tensor) else x for x in inputs])
        for result, exact, own in zip(_listed(got), _listed(wanted), _listed(plain), strict=True):
            if result is None:
                assert exact is None
                continue
            assert result.device.type == "cuda"
            assert (result.dtype, result.shape) == (own.dtype, own.shape)
            cd.testing.assert_close(
                result.cpu(), exact.to(own.dtype), **{"equal_nan": True, **options}
            )
        return got


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


@pytest.fixture
def on_host(
    stand_in: Any, library: Library, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Checker]:
    """The stand-in's backend with the eager kernels above it."""
    monkeypatch.setattr(
        stand_in.cupy, "RawModule", raw_module(tmp_path, [], library), raising=False
    )
    module = types.ModuleType("cuda_kernels")

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.kernels("cuda", cuda.kernels(stand_in.cupy), priority=cuda.PRIORITY)
        libraries = cuda.library_kernels(stand_in.cupy)
        if libraries:
            registrar.kernels("cuda", libraries, priority=cuda.LIBRARY_PRIORITY)

    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("cuda_kernels", module)
    cd.manual_seed(0)
    yield Checker(library)
    cd.plugins.unload("cuda_kernels")
