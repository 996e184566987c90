"""``cd.quasirandom``: points that fill a cube evenly, over SciPy's Sobol sequences."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.creation import from_numpy
from coredispatch.frontend.data.randomness import draw_seed
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.dtypes import default_dtype

__all__ = ["SobolEngine"]


def _scipy() -> Any:
    try:
        from scipy.stats import qmc
    except ImportError as error:
        raise ImportError(
            "quasirandom.SobolEngine needs SciPy, which has the direction numbers\n"
            "  fix: pip install scipy"
        ) from error
    return qmc


class SobolEngine:
    """A Sobol sequence of points in the unit cube.

    Args:
        dimension: of the cube, 1 to 21201.
        scramble: whether the digits are permuted at random (Owen, "Scrambling Sobol and
            Niederreiter-Xing points", 1998).
        seed: of the permutations; drawn from the default generator where it is not given.

    The direction numbers are those of Joe and Kuo, "Constructing Sobol sequences with better
    two-dimensional projections", 2008: without scrambling the points are PyTorch's.

    >>> cd.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        drawn = draw_seed() if scramble and seed is None else seed
        self._engine = _scipy().Sobol(dimension, scramble=scramble, bits=self.MAXBIT, seed=drawn)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``n`` points, (n, dimension), of the default dtype unless given."""
        import warnings

        with warnings.catch_warnings():  # SciPy wants powers of two, PyTorch lets all pass
            warnings.simplefilter("ignore")
            points = from_numpy(self._engine.random(n))
        self.num_generated += n
        made = points.to(dtype or default_dtype())
        return made if out is None else out.resize_as_(made).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``2**m`` points. Raises ValueError unless all so far are a power of two."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self._engine.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over ``n`` points."""
        self._engine.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown.append("scramble=True")
        if self.seed is not None:
            shown.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(shown)})"
