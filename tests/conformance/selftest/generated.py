"""Generated mutants: trigger x effect for every operator, from its schema.

A mutant behaves correctly until its trigger is among the inputs. Triggers that an operator's
domain rules out are not generated; which of the others are tried is chosen by a stable hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks.values import in_domain
from ..distributions import limits
from ..subject import OpMetadata, Subject, numpy_dtype
from .mutants import Mutant, drawn

__all__ = ["EFFECTS", "TRIGGERS", "generate"]

PER_OP = 8
Arrays = list[Any]


def _arrays(raws: Any) -> Arrays:
    found = []
    for raw in raws:
        if isinstance(raw, np.ndarray):
            found.append(raw)
        elif isinstance(raw, (list, tuple)):
            found += _arrays(raw)
    return found


def _any(test: Callable[[Any], Any]) -> Callable[[Arrays], bool]:
    return lambda arrays: any(bool(test(a)) for a in arrays)


def _floats(test: Callable[[Any], Any]) -> Callable[[Arrays], bool]:
    def check(a: Any) -> Any:
        if a.dtype.kind not in "fV" or a.size == 0:
            return False
        return np.any(test(a.astype(np.float64), a.dtype))

    return _any(check)


def _offset(a: Any) -> bool:
    base = a.base
    if not isinstance(base, np.ndarray) or a.size == 0:
        return False
    start = base.__array_interface__["data"][0]
    return bool(a.__array_interface__["data"][0] != start)


def _extreme(a: Any) -> bool:
    if a.dtype.kind not in "iu" or a.size == 0:
        return False
    info = np.iinfo(a.dtype)
    return bool(np.any(a == info.max))


TRIGGERS: dict[str, Callable[[Arrays], bool]] = {
    "always": lambda arrays: True,
    "non-contiguous": _any(lambda a: not a.flags.c_contiguous),
    "offset": _any(_offset),
    "stride 0": _any(
        lambda a: any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape, strict=True))
    ),
    "0-d": _any(lambda a: a.ndim == 0),
    "square": _any(lambda a: a.ndim >= 2 and a.shape[-1] == a.shape[-2] > 1),
    "size 1": _any(lambda a: a.size == 1),
    "over 256": _any(lambda a: any(n > 256 for n in a.shape)),
    "odd tail": _any(lambda a: a.ndim and a.shape[-1] > 4 and a.shape[-1] % 4),
    "nan": _floats(lambda v, _: np.isnan(v)),
    "inf": _floats(lambda v, _: np.isinf(v)),
    "-0": _floats(lambda v, _: (v == 0) & np.signbit(v)),
    "subnormal": _floats(lambda v, d: (v != 0) & (abs(v) < float(limits(d).smallest_normal))),
    "integer extreme": _any(_extreme),
    "broadcast": lambda arrays: len({a.shape for a in arrays}) > 1,
    "mixed dtype": lambda arrays: len({a.dtype for a in arrays}) > 1,
}
_SPECIAL = ("nan", "inf", "-0", "subnormal")


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _first(result: Any, change: Callable[[Any], Any]) -> Any:
    """The result with its first output changed."""
    if isinstance(result, (list, tuple)):
        return type(result)([change(result[0]), *result[1:]]) if result else result
    return change(result)


def _scale(by: float) -> Callable[[Any, Arrays], Any]:
    def effect(result: Any, arrays: Arrays) -> Any:
        def change(r: Any) -> Any:
            r = np.asarray(r)
            if r.dtype.kind in "fcV":
                return (r * r.dtype.type(1 + by)).astype(r.dtype)
            return r

        return _first(result, change)

    return effect


def _one_percent(result: Any, arrays: Arrays) -> Any:
    def change(r: Any) -> Any:
        r = np.asarray(r)
        if r.dtype.kind == "b":
            return ~r
        if r.dtype.kind in "iu":
            return (r + 1).astype(r.dtype)
        return (r * r.dtype.type(1.01)).astype(r.dtype)

    return _first(result, change)


def _wrong_dtype(result: Any, arrays: Arrays) -> Any:
    def change(r: Any) -> Any:
        r = np.asarray(r)
        if (
            r.dtype.kind == "c"
        ):  # converted to a real one NumPy would warn, and the warning be caught
            r = r.real
        return r.astype(np.float32 if r.dtype != np.float32 else np.float64)

    return _first(result, change)


def _extra_dim(result: Any, arrays: Arrays) -> Any:
    return _first(result, lambda r: np.asarray(r)[None])


def _first_zero(result: Any, arrays: Arrays) -> Any:
    def change(r: Any) -> Any:
        r = np.array(r)
        if r.size:
            r.reshape(-1)[0] = 0
        return r

    return _first(result, change)


def _mutated(result: Any, arrays: Arrays) -> Any:
    for a in arrays:
        if a.size and a.flags.writeable:
            spot = (0,) * a.ndim
            a[spot] = ~a[spot] if a.dtype.kind == "b" else a[spot] + a.dtype.type(1)
            break
    return result


def _aliased(result: Any, arrays: Arrays) -> Any:
    """A view where a fresh result is due, a copy where a view is."""

    def change(r: Any) -> Any:
        r = np.asarray(r)
        for a in arrays:
            if np.shares_memory(a, r):
                return r.copy()
        for a in arrays:
            if a.shape == r.shape and a.dtype == r.dtype and np.array_equal(a, r):
                return a
        return r

    return _first(result, change)


class _Reused:
    """Every result of a shape and dtype in one buffer."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Any] = {}

    def __call__(self, result: Any, arrays: Arrays) -> Any:
        def change(r: Any) -> Any:
            r = np.asarray(r)
            buffer = self.buffers.setdefault((r.shape, r.dtype.str), np.empty_like(r))
            buffer[...] = r
            return buffer

        return _first(result, change)


class _Stale:
    """The result of the first call with these pointers, whatever stands there now."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.alive: list[Any] = []

    def __call__(self, result: Any, arrays: Arrays) -> Any:
        key = tuple((a.__array_interface__["data"][0], a.shape) for a in arrays)
        if key not in self.known:
            self.alive.append(arrays)  # so that no other array gets these addresses
            copied = [np.array(r) for r in _outputs(result)]
            self.known[key] = (
                type(result)(copied) if isinstance(result, (list, tuple)) else copied[0]
            )
            return result
        known = self.known[key]
        return known if isinstance(known, (list, tuple)) else known.copy()


EFFECTS: dict[str, Callable[[], Callable[[Any, Arrays], Any]]] = {
    "wrong dtype": lambda: _wrong_dtype,
    "extra dim": lambda: _extra_dim,
    "1 %": lambda: _one_percent,
    "1e-4": lambda: _scale(1e-4),
    "2^-17": lambda: _scale(2.0**-17),
    "first element zero": lambda: _first_zero,
    "input mutated": lambda: _mutated,
    "alias flipped": lambda: _aliased,
    "buffer reused": _Reused,
    "stale second call": _Stale,
}
#: how a change shows: values, or only in a second look
_GENERAL = ("alias flipped", "buffer reused", "stale second call")


def _different(a: Any, b: Any, arrays: Arrays, before: list[bytes]) -> bool:
    """Whether anybody could tell the two results, or the inputs before and after, apart."""
    if before != [x.tobytes() for x in arrays]:
        return True
    for p, q in zip(_outputs(a), _outputs(b), strict=True):
        p, q = np.asarray(p), np.asarray(q)
        if p.dtype != q.dtype or p.shape != q.shape or p.tobytes() != q.tobytes():
            return True
        if any(np.shares_memory(p, x) != np.shares_memory(q, x) for x in arrays):
            return True
    return False


def _mutant(metadata: OpMetadata, trigger: str, effect: str) -> Mutant:
    fires, change = TRIGGERS.get(trigger) or _of_dtype(trigger), EFFECTS[effect]()
    mutant = Mutant(f"{metadata.name}: {effect} on {trigger}", metadata.name, ops=(metadata.name,))

    def mutation(correct: Any, raws: tuple[Any, ...]) -> Any:
        arrays = _arrays(raws)
        fired = fires(arrays)
        before = [a.tobytes() for a in arrays]
        result = correct(*raws)
        if not fired:
            return result
        kept = [np.array(r) for r in _outputs(result)] if effect not in _GENERAL else result
        changed = change(result, arrays)
        mutant.fired += effect in ("buffer reused", "stale second call") or _different(
            kept if effect in _GENERAL else kept, changed, arrays, before
        )
        return changed

    mutant.mutation = mutation
    mutant.details.update(trigger=trigger, effect=effect)
    return mutant


def _of_dtype(name: str) -> Callable[[Arrays], bool]:
    dtype = numpy_dtype(name)
    return lambda arrays: any(a.dtype == dtype for a in arrays)


def _triggers(metadata: OpMetadata) -> list[str]:
    """The triggers that inputs in the op's domain can have."""
    op = metadata.op
    free = metadata.elementwise and op.kind == "primitive" and op.values is None
    floating = any(numpy_dtype(d).kind in "fV" for d in metadata.dtypes)
    found = []
    for name in TRIGGERS:
        if name in _SPECIAL and (
            not floating or op.values or not in_domain(op, "special", "contiguous")
        ):
            continue
        if name == "subnormal" and not free:
            continue
        if name == "integer extreme" and not any(
            numpy_dtype(d).kind in "iu" for d in metadata.dtypes
        ):
            continue
        if name in ("broadcast", "mixed dtype") and len(op.tensors) + len(op.lists) < 2:
            continue
        found.append(name)
    return [*found, *metadata.dtypes]


def _effects(metadata: OpMetadata, trigger: str) -> list[str]:
    precise = {"float32", "float64", "complex64", "complex128"}
    found = list(EFFECTS)
    if trigger not in TRIGGERS and trigger not in precise:
        found = [e for e in found if e not in ("1e-4", "2^-17")]
    if trigger == "bfloat16":  # its numbers are 0.8 % apart
        found.remove("1 %")
    if metadata.op.mutates:
        found = [e for e in found if e not in ("input mutated", "alias flipped")]
    if metadata.op.view:
        found = [e for e in found if e not in ("buffer reused", "stale second call")]
    return found


def generate(subject: Subject, name: str, count: int = PER_OP) -> list[Mutant]:
    """``count`` mutants of one operator, or all of them for a negative count."""
    metadata = subject.metadata(name)
    op = metadata.op
    if op.samples is None or op.random or op.factory or op.name.startswith("empty"):
        return []
    pairs = [(f"{t}/{e}", (t, e)) for t in _triggers(metadata) for e in _effects(metadata, t)]
    return [_mutant(metadata, *pair) for _, pair in drawn(name, pairs, count)]
