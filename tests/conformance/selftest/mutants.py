"""Faulty kernels: what a mutant is, and how it takes the place of a correct kernel.

A kernel mutant is a kernel pack of the highest priority that wraps what served before; a
framework mutant replaces an attribute for the length of a ``with`` block.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import from_raw, hookimpl, to_raw

from ..case import Case
from ..subject import Subject

__all__ = ["Mutant", "Mutation", "drawn", "planted", "wants"]

#: (correct kernel, its raw arguments) -> result
Mutation = Callable[[Callable[..., Any], tuple[Any, ...]], Any]


@dataclass
class Mutant:
    """One seeded fault.

    Attributes:
        name: unique, readable.
        op: the operator whose kernel is at fault; ``""`` for the framework.
        mutation: the faulty kernel, or None for a framework mutant.
        patch: makes the ``with`` block that breaks the framework.
        ops: operators whose cases must notice, in this order.
        profiles: profiles that the cases belong to, beside the level ``training``.
        needs: the key whose kernel is at fault, where it is not the backend's.
        checks: numbers of the checks that must notice; empty for any. A fault that is seen
            somewhere else only is not understood, and counts as not caught.
        cases: pattern of the case ids that must notice.
        says: pattern of what the failure must say.
        fake_backend: whether the fault is one of the self-test's fake backend.
        fired: how often the mutation changed, or for a control: rounded otherwise.
        met: how often what triggers it was tried, None where that is not counted. What was never
            tried has survived, and is not equivalent.
    """

    name: str
    op: str
    mutation: Mutation | None = None
    patch: Callable[[], Any] | None = None
    ops: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    needs: str | None = None
    checks: tuple[int, ...] = ()
    cases: str = ""
    says: str = ""
    fake_backend: bool = False
    fired: int = 0
    met: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


def _module(subject: Subject, op: str, kernel: Callable[..., Any], key: str, boxed: bool) -> Any:
    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        below = {} if key == subject.name else {"backend": subject.name}  # a layout's key
        registrar.kernels(key, {op: kernel}, priority=10**9, boxed=boxed, **below)

    module = ModuleType("conformance_mutant")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    return module


def _wrapped(subject: Subject, mutant: Mutant) -> tuple[Callable[..., Any], str, bool]:
    """The faulty kernel, its key, and whether it takes tensors."""
    from coredispatch.registry import TABLE

    mutation = mutant.mutation
    assert mutation is not None
    key = mutant.needs or subject.name
    # The row that serves is that of the backend, before one for every backend.
    rows = TABLE.snapshot.registrations.get(
        (mutant.op, key, subject.name)
    ) or TABLE.snapshot.registrations.get((mutant.op, key, None))
    if rows and not rows[0].boxed:
        correct = rows[0].fn

        def kernel(*raws: Any) -> Any:
            with np.errstate(all="ignore"):  # the fault is what it computes, not a warning
                return mutation(correct, raws)

        return kernel, key, False
    body = rows[0].fn if rows else getattr(cd.ops, mutant.op).decomposition

    def boxed(*tensors: Any) -> Any:
        likes = [t for t in _flat(tensors) if isinstance(t, cd.Tensor)]

        def correct(*raws: Any) -> Any:
            return _raw(body(*_tensors(raws, tensors)))

        with np.errstate(all="ignore"):
            result = mutation(correct, tuple(_raw(t) for t in tensors))
        return _boxed(result, likes[0] if likes else None, subject)

    return boxed, key, True


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _raw(value: Any) -> Any:
    if isinstance(value, cd.Tensor):
        return to_raw(value)
    if isinstance(value, (list, tuple)):
        return (
            tuple(_raw(v) for v in value) if type(value) is not list else [_raw(v) for v in value]
        )
    return value


def _tensors(raws: Any, originals: Any) -> list[Any]:
    """The original tensors where the raw arrays are still theirs, new ones elsewhere."""
    made = []
    for raw, original in zip(raws, originals, strict=True):
        if isinstance(original, cd.Tensor) and raw is not None:
            made.append(original if to_raw(original) is raw else from_raw(raw, keys_like=original))
        elif isinstance(original, (list, tuple)) and isinstance(raw, (list, tuple)):
            same = len(raw) == len(original)  # else a faulty kernel's own numbers
            made.append(type(original)(_tensors(raw, original)) if same else raw)
        else:
            made.append(raw)
    return made


def _boxed(result: Any, like: Any, subject: Subject) -> Any:
    if isinstance(result, (list, tuple)):
        return type(result)(_boxed(r, like, subject) for r in result)
    if result is None or isinstance(result, (bool, int, float, cd.Tensor)):
        return result
    if like is None:
        return from_raw(result, backend=subject.name)
    return from_raw(result, keys_like=like)


def wants(mutant: Mutant, case: Case) -> bool:
    """Whether ``case`` is one of those that must notice ``mutant``."""
    if mutant.checks and case.check not in mutant.checks:
        return False
    return re.search(mutant.cases, case.id) is not None


@contextmanager
def planted(subject: Subject, mutant: Mutant) -> Iterator[None]:
    """The mutant in force inside the block, and nothing of it left behind."""
    if mutant.patch is not None:
        with mutant.patch():
            yield
        return
    if "kernel" in mutant.details:
        kernel, key, boxed = mutant.details["kernel"](), subject.name, False
    elif mutant.mutation is None:  # a control that changes nothing
        yield
        return
    else:
        kernel, key, boxed = _wrapped(subject, mutant)
    cd.plugins.load("conformance_mutant", _module(subject, mutant.op, kernel, key, boxed))
    try:
        yield
    finally:
        cd.plugins.unload("conformance_mutant")


def drawn(op: str, named: Sequence[tuple[str, Any]], count: int) -> list[tuple[str, Any]]:
    """``count`` of what an operator's faults could be, all for -1, by a hash that never changes."""
    ordered = sorted(named, key=lambda n: hashlib.sha256(f"{op}/{n[0]}".encode()).hexdigest())
    return ordered if count < 0 else ordered[:count]
