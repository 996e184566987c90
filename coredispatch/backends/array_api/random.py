"""Array-API kernels that draw random numbers.

The standard has no random numbers. A namespace with ``random.default_rng`` (NumPy, CuPy) draws
with it; for any other the numbers are drawn on the CPU and copied over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.numpy.random import Stream
from coredispatch.registry.model.dtypes import DType, bool_, default_dtype, float32, float64, int64
from coredispatch.registry.model.generator import Generator, default_generator
from coredispatch.registry.model.scalars import check_interval

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    # NumPy imports its generators when somebody asks for them: not while kernels are registered.
    xp = Namespace.of(xp)
    own = xp.xp is not numpy and xp.strided and hasattr(xp.random, "default_rng")
    namespace = xp.xp if own else numpy

    def stream(generator: Generator | None, device: Any) -> Any:
        return (generator or default_generator(device)).stream(namespace.random.default_rng)

    def host(generator: Generator | None, device: Any) -> Stream:
        """NumPy's numbers, whose state can be saved."""
        found: Stream = (generator or default_generator(device)).stream(Stream)
        return found

    def moved(x: numpy.ndarray, dtype: DType) -> Any:
        return finished(x.astype(numpy.float32) if dtype.itemsize == 2 else x, dtype)

    def finished(x: Any, dtype: DType) -> Any:
        if xp.strided:
            return xp.asarray(x).astype(numpy_dtype(dtype))
        return xp.astype(xp.asarray(x), xp.native(dtype))

    def drawn_in(dtype: DType) -> Any:
        return numpy_dtype(float64 if dtype.itemsize >= 8 else float32)

    def random_uniform(
        size: tuple[int, ...],
        low: float,
        high: float,
        dtype: DType | None,
        device: Any,
        generator: Generator | None,
    ) -> Any:
        wanted = dtype or default_dtype()
        if not own:
            return moved(host(generator, device).uniform(size, low, high, wanted), wanted)
        out = stream(generator, device).random(size, dtype=drawn_in(wanted))
        if wanted.itemsize == 2:
            # As many bits as the dtype has, so that rounding cannot reach the upper end.
            steps = 2048.0 if wanted.name == "float16" else 256.0
            out = namespace.floor(out * steps) / steps
        return finished(out * (high - low) + low, wanted)

    def random_normal(
        size: tuple[int, ...],
        mean: float,
        std: float,
        dtype: DType | None,
        device: Any,
        generator: Generator | None,
    ) -> Any:
        wanted = dtype or default_dtype()
        if not own:
            return moved(host(generator, device).normal(size, mean, std, wanted), wanted)
        rng = stream(generator, device)
        if wanted.is_complex:
            real, imag = (rng.standard_normal(size, dtype=drawn_in(wanted)) for _ in range(2))
            out = (real + 1j * imag) * 0.5**0.5
        else:
            out = rng.standard_normal(size, dtype=drawn_in(wanted))
        return finished(out * std + mean, wanted)

    def random_integers(
        size: tuple[int, ...],
        low: int,
        high: int,
        dtype: DType | None,
        device: Any,
        generator: Generator | None,
    ) -> Any:
        wanted = dtype or int64
        if not own:
            return finished(host(generator, device).integers(size, low, high, wanted), wanted)
        check_interval(low, high, wanted)
        kind = namespace.int64 if high <= 1 << 63 else namespace.uint64
        out = stream(generator, device).integers(low, high, size, dtype=kind)
        return finished(out != 0 if wanted is bool_ else out, wanted)

    return {
        "random_uniform": random_uniform,
        "random_normal": random_normal,
        "random_integers": random_integers,
    }
