"""Random choices of samplers and splits.

One number is drawn from the framework's generator, and a local stream made from it does the rest:
so ``manual_seed`` governs the order of the data, a pass over a dataset costs the generator one
draw whatever its length, and worker processes never touch the main process's generator.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.ops.random.factories import randint
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.generator import manual_seed

__all__ = ["draw_seed", "integers", "permutation", "seed_all", "weighted"]


def draw_seed(generator: Any = None) -> int:
    """A number in [0, 2**62) from `generator`, or from the default one of the CPU."""
    device = Device("cpu") if generator is None else generator.device
    return int(randint(0, 1 << 62, (), generator=generator, device=device).item())


def _stream(generator: Any) -> np.random.Generator:
    return np.random.default_rng(draw_seed(generator))


def permutation(size: int, generator: Any = None) -> list[int]:
    """The integers 0 to ``size - 1`` in random order."""
    return _stream(generator).permutation(size).tolist()  # type: ignore[no-any-return]


def integers(high: int, count: int, generator: Any = None) -> list[int]:
    """`count` independent integers in [0, high)."""
    return _stream(generator).integers(high, size=count).tolist()  # type: ignore[no-any-return]


def weighted(
    weights: Sequence[float], count: int, replacement: bool, generator: Any = None
) -> list[int]:
    """`count` indices of `weights`, each drawn with probability proportional to its weight.

    Raises:
        ValueError: a weight that is negative or not finite, all weights zero, or more indices
            without replacement than there are positive weights.
    """
    probabilities = np.asarray(weights, np.float64)
    total = probabilities.sum()
    if (
        probabilities.ndim != 1
        or not (np.isfinite(total) and total > 0)
        or (probabilities < 0).any()
    ):
        raise ValueError("weights should be a sequence of non-negative numbers, not all of them 0")
    positive = int(np.count_nonzero(probabilities))
    if not replacement and count > positive:
        raise ValueError(
            f"cannot draw {count} different indices: only {positive} weights are positive"
        )
    chosen = _stream(generator).choice(
        probabilities.size, size=count, replace=replacement, p=probabilities / total
    )
    return chosen.tolist()  # type: ignore[no-any-return]


def seed_all(seed: int, worker: int) -> None:
    """Seed the framework, Python's ``random`` and NumPy's global generator in a worker."""
    random.seed(seed)
    manual_seed(seed)
    # Seeds that differ by one are close; SeedSequence spreads them over NumPy's whole state.
    np.random.seed(np.random.SeedSequence([seed, worker]).generate_state(4))  # noqa: NPY002
