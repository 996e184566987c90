"""Random choices of samplers and splits.

One number is drawn from the framework's generator, and a local stream made from it does the rest:
so ``manual_seed`` governs the order of the data, a pass over a dataset costs the generator one
draw whatever its length, and worker processes never touch the main process's generator.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coredispatch.ops.random.factories import randint
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.generator import manual_seed

__all__ = ["draw_seed", "integers", "permutation", "seed_all", "weighted", "worker_state"]

_PIECE = 1 << 14  # numbers drawn at once


def draw_seed(generator: Any = None) -> int:
    """A number in [0, 2**62) from `generator`, or from the default one of the CPU."""
    device = Device("cpu") if generator is None else generator.device
    return int(randint(0, 1 << 62, (), generator=generator, device=device).item())


def _stream(generator: Any) -> np.random.Generator:
    return np.random.default_rng(draw_seed(generator))


def permutation(size: int, generator: Any = None) -> list[int]:
    """The integers 0 to ``size - 1`` in random order."""
    return _stream(generator).permutation(size).tolist()  # type: ignore[no-any-return]


def _pieces(count: int) -> Iterator[int]:
    """Sizes of at most `_PIECE` that add up to `count`: numbers are drawn as they are needed."""
    for start in range(0, count, _PIECE):
        yield min(_PIECE, count - start)


def integers(high: int, count: int, generator: Any = None) -> Iterator[int]:
    """`count` independent integers in [0, high)."""
    stream = _stream(generator)
    for size in _pieces(count):
        yield from stream.integers(high, size=size).tolist()


def weighted(
    weights: Sequence[float], count: int, replacement: bool, generator: Any = None
) -> Iterator[int]:
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
    stream = _stream(generator)
    if replacement:
        return _with_replacement(probabilities / total, count, stream)
    chosen = stream.choice(probabilities.size, size=count, replace=False, p=probabilities / total)
    return iter(chosen.tolist())


def _with_replacement(
    probabilities: np.ndarray[Any, Any], count: int, stream: np.random.Generator
) -> Iterator[int]:
    # As Generator.choice does it, which would draw all indices at once.
    cumulative = probabilities.cumsum()
    cumulative /= cumulative[-1]
    for size in _pieces(count):
        yield from cumulative.searchsorted(stream.random(size), side="right").tolist()


def seed_all(seed: int, worker: int) -> None:
    """Seed the framework, Python's ``random`` and NumPy's global generator in a worker."""
    random.seed(seed)
    manual_seed(seed)
    # Seeds that differ by one are close; SeedSequence spreads them over NumPy's whole state.
    np.random.seed(np.random.SeedSequence([seed, worker]).generate_state(4))  # noqa: NPY002


def worker_state(base_seed: int, worker_id: int) -> list[int]:
    """A worker's seed of four words: PyTorch's ``_generate_state``, NumPy's SeedSequence."""
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    words: list[int] = np.random.SeedSequence(entropy).generate_state(4).tolist()
    return words
