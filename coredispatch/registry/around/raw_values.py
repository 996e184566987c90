"""What a kernel's author needs beside the declarations: raw values, checks, operators by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.registry.around import checks
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import DimError, RegistrationError
from coredispatch.registry.model.value import new_value
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "backends",
    "call_raw",
    "check",
    "check_index",
    "device_count",
    "from_raw",
    "operator",
    "reference",
    "to_raw",
]


def to_raw(tensor: Any) -> Any:
    """The backend's own array inside ``tensor``."""
    return tensor.raw


def from_raw(
    raw: Any,
    *,
    keys_like: Any = None,
    backend: str | None = None,
    layout: str | None = None,
    layers: Sequence[str] = (),
) -> Any:
    """A tensor around ``raw``, with the backend of another tensor or a named one.

    ``layout`` names the layout key where ``raw`` is a layout's data; None means a dense array.
    The tensor carries the keys of ``layers``: they see every call it takes part in.
    Raises :class:`RegistrationError` for an unknown backend, layout or layer.
    """
    keys = 0 if keys_like is None else keys_like.keys & TABLE.snapshot.order.backend_bits
    if backend is not None:
        keys |= _bit(backend, "backend", "from_raw")
    if layout is not None:
        keys |= _bit(layout, "layout", "from_raw")
    for layer in layers:
        keys |= _bit(layer, "layer", "from_raw")
    if not keys & TABLE.snapshot.order.backend_bits:
        raise RegistrationError("from_raw(): give keys_like= or backend=")
    return new_value(HOOKS.value_type, raw, keys)


def call_raw(op: str, backend: str, *args: Any) -> Any:
    """The result of operator ``op`` by the backend's kernels, for raw arguments.

    For kernels that bring their arguments into another form and have the other kernels of the
    table compute: no layer and no mode sees the call. Raises as the operator does.

        >>> call_raw("add", "cpu", np.ones(2), np.ones(2))
        array([2., 2.])
    """
    keys = _bit(backend, "backend", "call_raw")
    array_type = TABLE.snapshot.backends[backend][0].array_type
    called = operator(op)
    entry = called.memo.entries.get(keys)
    if entry is None:
        entry = HOOKS.resolve(called, keys, 0)
    values = [
        new_value(HOOKS.value_type, a, keys) if isinstance(a, array_type) else a for a in args
    ]
    result = entry.call(tuple(values))
    if isinstance(result, tuple):
        return tuple([getattr(r, "raw", r) for r in result])
    return getattr(result, "raw", result)


def _bit(name: str, kind: str, caller: str) -> int:
    """The bit of a key, whose plugin is loaded if need be."""
    key = TABLE.snapshot.order.by_name.get(name)
    if key is None or key.kind != kind:
        HOOKS.load_plugins()
        key = TABLE.snapshot.order.by_name.get(name)
    if key is None or key.kind != kind:
        known = [k.name for k in TABLE.snapshot.order.highest_first if k.kind == kind]
        raise RegistrationError(
            f"{caller}(): there is no {kind} {name!r}", fix=f"known: {', '.join(known)}"
        )
    return key.bit


def check(op: str, args: tuple[Any, ...]) -> None:
    """Refuse raw arguments that operator ``op`` does not take: types, shapes, dims, dtypes.

    Array libraries refuse most of them by themselves, and the error is then improved; this is
    for kernels whose library would go on with what it was given. Elements are not read, for which
    a device would have to wait: an index outside is :func:`check_index`'s to refuse. Raises as the
    operator does.
    """
    checks.check_raw(operator(op), args)


def check_index(index: Any, size: int) -> None:
    """Refuse an index, an array in main memory, that is not everywhere from 0 to ``size - 1``.

    For kernels of ``gather``, ``scatter`` and ``scatter_add``, whose library would count a negative
    index from the end or read past it. Raises :class:`DimError` with the first that lies outside.

        >>> check_index(np.array([0, 2]), 3)
    """
    outside = index[(index < 0) | (index >= size)]
    if outside.size:
        raise DimError(
            f"index {outside[0]} is out of bounds for size {size}",
            fix=f"use indices from 0 to {size - 1}" if size else "there is nothing to index",
        )


def operator(name: str) -> Operator:
    """The operator called ``name``; raises :class:`RegistrationError` where there is none."""
    if name not in TABLE.snapshot.ops:
        HOOKS.load_plugins()
    return TABLE.operator(name)


def backends() -> tuple[str, ...]:
    """The names of the backends that are there, those of plugins included."""
    HOOKS.load_plugins()
    return tuple(TABLE.snapshot.backends)


def device_count(name: str) -> int:
    """How many devices the backend of that name has; 0 where there is no such backend."""
    HOOKS.load_plugins()
    found = TABLE.snapshot.backends.get(name)
    return 0 if found is None else found[0].device_count()


def reference(name: str) -> Callable[..., Any]:
    """The definition of operator ``name`` on NumPy arrays, for a backend's own tests.

    It takes the operator's arguments, arrays for tensors, and computes in the precision of the
    arrays: give it float64 to judge a kernel by. Raises :class:`RegistrationError` for an unknown
    operator, and for one whose definition is its decomposition, made of other operators.
    """
    found = operator(name).reference
    if found is None:
        raise RegistrationError(
            f"operator {name!r} has no NumPy reference: its decomposition defines it",
            fix=f"call coredispatch.ops.{name}.decomposition on float64 tensors",
        )
    return found
