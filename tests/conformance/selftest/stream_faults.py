"""Curated faults of random numbers: streams, seeds, states, and distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.registry.model.generator import default_generator

from .framework import module, replaced

__all__ = ["DISTRIBUTIONS", "STREAMS"]


# ---- kernels ------------------------------------------------------------------------------------


class Restarting:
    """Every call of a size starts the stream anew."""

    def __init__(self) -> None:
        self.first: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        generator = raws[-1] or default_generator()
        key = (generator.initial_seed(), raws[0], str(raws[-3]), raws[1:3])
        found = correct(*raws)
        return np.array(self.first.setdefault(key, np.array(found)))


def no_top(correct: Any, raws: Any) -> Any:
    """The largest integer of a range is never drawn."""
    size, low, high, *rest = raws
    return correct(size, low, high - 1 if high - low > 2 else high, *rest)


def no_bottom(correct: Any, raws: Any) -> Any:
    """The smallest integer of a range is never drawn."""
    size, low, high, *rest = raws
    return correct(size, low + 1 if high - low > 2 else low, high, *rest)


def folded_range(correct: Any, raws: Any) -> Any:
    """A range that is no power of two is folded: its first numbers come twice as often."""
    size, low, high, *rest = raws
    span = high - low
    whole = 1 << max(span - 1, 1).bit_length()
    if span < 3 or span == whole or low + whole > 1 << 62:
        return correct(*raws)
    found = np.asarray(correct(size, 0, whole, *rest))
    return (found % span + low).astype(found.dtype)


def narrow_range(correct: Any, raws: Any) -> Any:
    """A range beyond 32 bits is drawn with 32."""
    size, low, high, *rest = raws
    if high - low <= 1 << 32:
        return correct(*raws)
    found = np.asarray(correct(size, 0, 1 << 32, *rest))
    return (found + low).astype(found.dtype)


def fixed_last(correct: Any, raws: Any) -> Any:
    """A permutation leaves its last element where it is too often."""
    found = np.array(correct(*raws))
    if found.size > 2 and found[0] == found.size - 1:
        found[0], found[-1] = found[-1], found[0]
    return found


def half_shuffled(correct: Any, raws: Any) -> Any:
    """A permutation moves the first half among itself, and the second."""
    found = np.array(correct(*raws))
    half = found.size // 2
    return np.concatenate([found[found < half], found[found >= half]])


def neighbours_swapped(correct: Any, raws: Any) -> Any:
    """Permutations of which only the even ones are drawn."""
    found = np.array(correct(*raws))
    if found.size < 3:
        return found
    inversions = sum(int((found[i] > found[i + 1 :]).sum()) for i in range(min(found.size, 64)))
    if found.size <= 64 and inversions % 2:
        found[:2] = found[1::-1]
    return found


def wider(correct: Any, raws: Any) -> Any:
    """Normal numbers of a variance six percent too large."""
    found = np.asarray(correct(*raws))
    return (found * found.dtype.type(1.03)).astype(found.dtype)


def shifted(correct: Any, raws: Any) -> Any:
    """Normal numbers around 0.03."""
    found = np.asarray(correct(*raws))
    return (found + found.dtype.type(0.03)).astype(found.dtype)


def no_tails(correct: Any, raws: Any) -> Any:
    """Normal numbers that never lie beyond 2.5 standard deviations."""
    size, mean, std, *rest = raws
    found = np.asarray(correct(size, 0.0, 1.0, *rest))
    if found.dtype.kind == "c":
        return correct(*raws)
    wide = np.clip(found.astype(np.float64), -2.5, 2.5) * std + mean
    return wide.astype(found.dtype)


def twelve_uniform(correct: Any, raws: Any) -> Any:
    """Sums of three uniform numbers for normal ones: the moments of a bell, and not its shape."""
    size, mean, std, *rest = raws
    found = np.asarray(correct(size, 0.0, 1.0, *rest))
    if found.dtype.kind == "c" or found.size < 3:
        return correct(*raws)
    rng = np.random.default_rng(abs(int(found.reshape(-1)[0] * 1e6)))
    total = rng.random((3, *found.shape)).sum(0) * 2 - 3
    return np.asarray(total * std + mean).astype(found.dtype)


def eight_bits(correct: Any, raws: Any) -> Any:
    """Uniform numbers of half precision in steps of 1/64."""
    size, low, high, *rest = raws
    found = np.asarray(correct(size, 0.0, 1.0, *rest))
    if found.dtype.itemsize != 2:
        return correct(*raws)
    coarse = np.floor(found.astype(np.float32) * 64) / 64
    return (coarse * (high - low) + low).astype(found.dtype)


def sixteen_bits(correct: Any, raws: Any) -> Any:
    """Uniform numbers in steps of 2**-12."""
    size, low, high, *rest = raws
    found = np.asarray(correct(size, 0.0, 1.0, *rest))
    if found.dtype.itemsize < 4:
        return correct(*raws)
    coarse = np.floor(found * found.dtype.type(4096)) / found.dtype.type(4096)
    return (coarse * (high - low) + low).astype(found.dtype)


def single_bits(correct: Any, raws: Any) -> Any:
    """Uniform numbers of double precision with the bits of single precision."""
    found = np.asarray(correct(*raws))
    return found.astype(np.float32).astype(found.dtype) if found.dtype == np.float64 else found


def closed_end(correct: Any, raws: Any) -> Any:
    """The upper end of a uniform interval is drawn."""
    found = np.array(correct(*raws))
    if found.size > 500:
        found.reshape(-1)[np.argmax(found)] = raws[2]
    return found


def no_lower_end(correct: Any, raws: Any) -> Any:
    """A uniform interval starts at 0, whatever was asked for."""
    size, low, high, *rest = raws
    return correct(size, 0.0 if low < 0 else low, high, *rest)


def repeated_mask(correct: Any, raws: Any) -> Any:
    """The mask of dropout repeats after 256 elements."""
    x, p = raws[:2]
    kept, mask = correct(*raws)
    if x.size <= 256:
        return kept, mask
    again = np.resize(np.asarray(mask).reshape(-1)[:256], mask.shape)
    scale = x.dtype.type(1 / (1 - p)) if p < 1 else x.dtype.type(0)
    return np.where(again, x * scale, x.dtype.type(0)).astype(x.dtype), again


def dropped_in_pairs(correct: Any, raws: Any) -> Any:
    """Neighbours are dropped together."""
    x, p = raws[:2]
    kept, mask = correct(*raws)
    if x.size < 2:
        return kept, mask
    flat = np.array(mask).reshape(-1)
    flat[1::2] = flat[: flat.size - 1 : 2][: flat[1::2].size]
    again = flat.reshape(mask.shape)
    scale = x.dtype.type(1 / (1 - p)) if p < 1 else x.dtype.type(0)
    return np.where(again, x * scale, x.dtype.type(0)).astype(x.dtype), again


def rate_as_mean(correct: Any, raws: Any) -> Any:
    """The rate of exponential numbers is taken for their mean."""
    x, rate, generator = raws
    return correct(x, 1.0 / rate, generator)


def pairs_alike(correct: Any, raws: Any) -> Any:
    """Normal numbers come in pairs of opposite signs."""
    found = np.array(correct(*raws))
    flat = found.reshape(-1)
    if raws[1] == 0 and flat.size > 1:
        flat[1::2] = -flat[: flat.size - 1 : 2][: flat[1::2].size]
    return found


def repeated_choice(least: int, many: int) -> Any:
    """Of ``many`` categories and more, from ``least`` draws on, one may come twice."""

    def kernel(correct: Any, raws: Any) -> Any:
        weights, count, replacement = raws[:3]
        found = correct(*raws)
        few = not least <= count < weights.shape[-1] or weights.shape[-1] < many
        if replacement or few or found is NotImplemented:
            return found
        found = np.array(found)
        again = found[..., 0] % 2 == 0  # as often as not
        found[..., -1] = np.where(again, found[..., 0], found[..., -1])
        return found

    return kernel


def _random(op: str, *ops: str, says: str = "") -> dict[str, Any]:
    return {"op": op, "ops": ops or (op, "backend"), "checks": (11,), "says": says}


#: name -> (mutation, fields of the mutant)
DISTRIBUTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "the stream starts anew at every call (uniform)": (Restarting, _random("random_uniform")),
    "the stream starts anew at every call (normal)": (Restarting, _random("random_normal")),
    "the largest integer is never drawn": (no_top, _random("random_integers")),
    "the smallest integer is never drawn": (no_bottom, _random("random_integers")),
    "a range that is no power of two is folded": (folded_range, _random("random_integers")),
    "a range beyond 32 bits is drawn with 32": (narrow_range, _random("random_integers")),
    "the third of three may be the first (multinomial)": (
        repeated_choice(3, 0),
        _random("multinomial", says="choice"),
    ),
    "the last of many may be the first (multinomial)": (
        repeated_choice(50, 100),
        _random("multinomial", says="choice"),
    ),
    "a permutation leaves its last element too often": (fixed_last, _random("randperm")),
    "a permutation does not move between its halves": (half_shuffled, _random("randperm")),
    "only even permutations are drawn": (neighbours_swapped, _random("randperm")),
    "normal numbers of too large a variance": (wider, _random("random_normal")),
    "normal numbers around 0.03": (shifted, _random("random_normal")),
    "normal numbers without tails": (no_tails, _random("random_normal")),
    "sums of three uniform numbers for normal ones": (twelve_uniform, _random("random_normal")),
    "normal numbers in pairs of opposite signs": (pairs_alike, _random("random_normal")),
    "uniform half-precision numbers in steps of 1/64": (eight_bits, _random("random_uniform")),
    "uniform numbers in steps of 2**-12": (sixteen_bits, _random("random_uniform")),
    "uniform double-precision numbers with 24 bits": (single_bits, _random("random_uniform")),
    "the upper end of a uniform interval is drawn": (closed_end, _random("random_uniform")),
    "a uniform interval starts at 0": (no_lower_end, _random("random_uniform")),
    "the mask of dropout repeats after 256 elements": (repeated_mask, _random("native_dropout")),
    "neighbours are dropped together": (dropped_in_pairs, _random("native_dropout")),
    "the rate of exponential numbers is taken for their mean": (
        rate_as_mean,
        _random("exponential"),
    ),
}


# ---- generators ---------------------------------------------------------------------------------


def _generator() -> Any:
    return module("registry.model.generator").Generator


def truncated_seed(bits: int) -> Any:
    """The stream is seeded with the lower ``bits`` bits of the seed."""
    kind = _generator()
    original = kind.stream

    def stream(self: Any, make: Any) -> Any:
        return original(self, lambda seed: make(seed % (1 << bits)))

    return lambda: replaced((kind, "stream", stream))


def coarse_seed() -> Any:
    """The lowest bit of the seed is lost, as on the way through a float64."""
    kind = _generator()
    original = kind.stream

    def stream(self: Any, make: Any) -> Any:
        return original(self, lambda seed: make(int(float(seed)) if seed > 1 << 53 else seed))

    return replaced((kind, "stream", stream))


def one_stream() -> Any:
    """All generators of a device draw from one stream."""
    kind = _generator()
    original = kind.stream

    def stream(self: Any, make: Any) -> Any:
        shared = default_generator(self.device)
        return original(shared if shared is not self else self, make)

    return replaced((kind, "stream", stream))


def ignored_generator() -> Any:
    """``generator=`` also moves the default generator."""
    kind = _generator()
    original = kind.stream

    def stream(self: Any, make: Any) -> Any:
        shared = default_generator(self.device)
        if shared is not self:
            found = original(shared, make)
            if hasattr(found, "rng"):
                found.rng.random()
        return original(self, make)

    return replaced((kind, "stream", stream))


def lost_half() -> Any:
    """A state forgets the half of a block that was drawn and not yet used."""
    kind = module("backends.numpy.random").Stream
    original = kind.state

    def state(self: Any) -> bytes:
        return bytes(original(self)[:-8]) + bytes(8)

    return replaced((kind, "state", state))


def state_of_seed() -> Any:
    """A state is the seed alone: the position in the stream is lost."""
    kind = _generator()
    original = kind.state_bytes

    def state_bytes(self: Any) -> bytes:
        return bytes(original(self)[:14])

    return replaced((kind, "state_bytes", state_bytes))


def running_clone() -> Any:
    """``set_state`` leaves the stream where it is once it runs."""
    kind = _generator()
    original = kind.load_state_bytes

    def load(self: Any, state: bytes) -> None:
        running = self._stream
        original(self, state)
        if running is not None:
            self._stream, self._pending = running, None

    return replaced((kind, "load_state_bytes", load))


def _stream(patch: Any) -> dict[str, Any]:
    return {"patch": patch, "ops": ("backend",), "checks": (11,)}


#: name -> fields of the mutant
STREAMS: dict[str, dict[str, Any]] = {
    "a seed is cut to 32 bits": _stream(lambda: truncated_seed(32)()),
    "a seed is cut to 63 bits": _stream(lambda: truncated_seed(63)()),
    "a seed goes through a float64": _stream(coarse_seed),
    "all generators share a stream": _stream(one_stream),
    "a generator of one's own moves the default one": _stream(ignored_generator),
    "a state loses the half of a block": _stream(lost_half),
    "a state is the seed alone": _stream(state_of_seed),
    "set_state leaves a running stream where it is": _stream(running_clone),
}
