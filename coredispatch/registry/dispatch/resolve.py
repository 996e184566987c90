"""Resolution: the entry for (op, key set), made from the winner of the four rules.

Which kernel wins is said in :mod:`.rules`. Here everything that can be decided once per key set is
put into the entry, so that a call need not ask again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coredispatch.registry.dispatch.boxed_kernels import CallEntry, DecompositionEntry, LayerEntry
from coredispatch.registry.dispatch.dispatcher import (
    PROMOTE_COMMON,
    PROMOTE_FLOAT,
    PROMOTE_NONE,
    Dispatcher,
    Entry,
)
from coredispatch.registry.dispatch.inplace_kernels import InplaceEntry
from coredispatch.registry.dispatch.interpreted import specialize, specialize_inplace
from coredispatch.registry.dispatch.linking import link_results
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.raw_kernels import (
    EffectEntry,
    RawEntry,
    ViewEntry,
)
from coredispatch.registry.dispatch.rules import Resolution, applies, walk
from coredispatch.registry.dispatch.table import TABLE, Snapshot
from coredispatch.registry.model.backend import Backend, ContextKernel, Kernel
from coredispatch.registry.model.dtypes import (
    ALL_DTYPES,
    DType,
    Promotion,
    bfloat16,
    bool_,
    float16,
    int32,
    int64,
    same,
)
from coredispatch.registry.model.errors import OpError
from coredispatch.registry.model.results import returning
from coredispatch.registry.model.value import Value, dtype_of, storage_of
from coredispatch.registry.wiring import HOOKS

__all__ = ["build", "resolve"]

FLOATS = frozenset(d for d in ALL_DTYPES if d.is_floating_point or d.is_complex)
# Array libraries know bfloat16 as a foreign dtype, which a Python number promotes to float32.
WEAK = FLOATS - {bfloat16}
WHOLE = frozenset({int32, int64})


def resolve(op: Dispatcher, keys: int, mask: int) -> Entry:
    """Make the entry for a key set and remember it in the op's memo."""
    assert isinstance(op, Operator)
    HOOKS.load_plugins()
    memo = op.memo  # before the snapshot: see table.py
    snapshot = TABLE.snapshot
    entry = build(snapshot, op, keys, mask)
    if HOOKS.observe is not None:
        entry = HOOKS.observe(entry)
    if mask:
        memo.below[(keys, mask)] = entry
    else:
        memo.entries[keys] = entry
    return entry


def build(s: Snapshot, op: Operator, keys: int, mask: int) -> Entry:
    """The entry for ``op`` and ``keys`` as of snapshot ``s``."""
    found = walk(s, op, keys)
    kind = found.kind
    if (
        kind in ("layer", "generic", "refused")
        and found.key is not None
        and found.key.kind == "layer"
    ):
        bits = s.order.from_above(found.key)
        if kind == "layer":
            return LayerEntry(op, keys, mask, found.kernels[0], found.kernels[0].fn, False, bits)
        make: type[LayerEntry] = found.fn if isinstance(found.fn, type) else LayerEntry
        return make(op, keys, mask, op, found.fn, True, bits)
    if kind == "generic":
        return CallEntry(op, keys, mask, None, _marking(found.fn, op, _marks(s, keys)))
    if kind == "raw":
        return _raw(s, op, keys, mask, found)
    if kind == "boxed":
        fn = returning(op.schema.returns, found.kernels[0].fn)
        return DecompositionEntry(op, keys, mask, found.kernels[0], fn)
    if kind == "decomposition":
        if op.mutates and len(op.tensors) > 1:
            return DecompositionEntry(op, keys, mask, None, _writing(op))
        if op.taken is not None:
            found.fn = _taking(op, found.fn)
        copies = op.view is True and found.backend is not None and not found.backend.views
        entry = DecompositionEntry(op, keys, mask, None, _viewing(op) if copies else found.fn)
        params = op.schema.params
        strict = [p for p in op.tensors if not params[p].scalar]
        entry.tensors = [p for p in strict if not params[p].optional]
        entry.optional = [p for p in strict if params[p].optional]
        entry.lists = [p for p in op.lists if params[p].kind == "list[Tensor]"]
        return entry
    if kind == "inplace":
        return _inplace(s, op, keys, mask, found)
    if kind == "fallback":
        return CallEntry(op, keys, mask, None, _marking(HOOKS.serve_fallback, op, _marks(s, keys)))
    if kind == "mixed":
        return CallEntry(op, keys, mask, None, HOOKS.mixed_devices)
    return CallEntry(op, keys, mask, found, HOOKS.refuse)


def _raw(s: Snapshot, op: Operator, keys: int, mask: int, found: Resolution) -> RawEntry:
    backend = found.backend
    assert backend is not None
    ordinary = all(alias.result is None and alias.position == 0 for alias in op.schema.aliases)
    if op.mutates or not ordinary:
        make: type[RawEntry] = EffectEntry
    else:
        make = ViewEntry if op.view else RawEntry
    kernels = found.kernels
    entry = make(op, keys, mask, kernels[0])
    entry.fn = kernels[0].fn
    if len(kernels) > 1 or op.decomposition is not None:  # something else serves what it rejects
        entry.fn = _conditional(kernels[0])
    if len(kernels) > 1:
        entry.otherwise = _raw(s, op, keys, mask, replace(found, kernels=kernels[1:]))
        entry.least = kernels[0].least
    entry.fn = HOOKS.placed(backend, op, entry.fn)
    if isinstance(entry.fn, ContextKernel):
        entry.fn, entry.kernel_context = entry.fn.fn, entry.fn.kernel_context
    _promotion(entry, op)
    entry.whole = _whole(op, backend)
    if op.taken is not None and entry.promotion == PROMOTE_NONE:
        entry.checked, entry.taken = op.tensors[0], op.taken
    entry.out_keys = s.order.by_name[backend.name].bit | (0 if op.view else _marks(s, keys))
    entry.array_type = None if op.schema.plain else backend.array_type
    if make is RawEntry and op.schema.returns == "Tensor":
        entry.scalar_type, entry.to_array = backend.scalar_type, backend.coerce
    if op.schema.multi_output:
        entry.several = op.result_type
    entry.simple = not op.lists
    entry.nontensor = (
        entry.simple
        and op.arity == 2
        and not op.schema.params[1].is_tensor
        and entry.promotion == PROMOTE_NONE
    )
    entry.alone = (
        op.single_tensor
        and entry.promotion == PROMOTE_NONE
        and entry.checked < 0
        and not entry.least
        and entry.kernel_context is None
        and make is not EffectEntry
    )
    entry.wrap_output = HOOKS.output_wrapper(
        backend,
        entry.out_keys,
        tuple(
            (layout.data_type, s.order.by_name[name].bit | entry.out_keys)
            for name, (layout, _) in s.layouts.items()
        ),
    )
    if isinstance(entry, EffectEntry):
        _effects(entry, op, backend)
    if isinstance(entry, ViewEntry):
        entry.is_view = backend.is_view if op.view == "maybe" else None
        entry.by_base = backend.has_base and op.view == "maybe"
        entry.direct = (
            entry.kernel_context is None
            and not entry.least
            and entry.promotion == PROMOTE_NONE
            and entry.checked < 0
        )
        if op.view == "maybe" and not backend.views and _indexed(op):
            entry.fn = selection = _Selection(entry.fn)
            entry.is_view = selection.is_view
        if keys & s.order.layout_bits:
            entry.is_view, entry.by_base = _same_object, False
    if HOOKS.observe is None:  # observation puts its own functions in the place of the kernels
        specialize(entry)
    return entry


def _effects(entry: EffectEntry, op: Operator, backend: Backend) -> None:
    schema = op.schema
    entry.strided = backend.views
    returned = [alias.position for alias in schema.aliases if alias.itself]
    single = all(m.when is None and schema.params[m.position].is_tensor for m in schema.mutations)
    if single and (schema.returns == "None" or returned and schema.returns == "Tensor"):
        entry.always = [mutation.position for mutation in schema.mutations]
        entry.returned = returned[0] if returned else -1
    elif schema.returns != "None" and schema.mutations and not schema.aliases:
        if all(m.when is not None and m.reads for m in schema.mutations):
            entry.conditions = [(m.when, m.reads) for m in schema.mutations]
    elif schema.returns == "None" and all(m.when is None for m in schema.mutations):
        positions = [m.position for m in schema.mutations]
        if all(schema.params[p].kind == "list[Tensor]" for p in positions):
            entry.lists = positions


def _marks(s: Snapshot, keys: int) -> int:
    """Keys that the layers of a call put on its results."""
    bits = 0
    for name, (layer, _) in s.layers.items():
        if layer.marks is not None and s.order.by_name[name].bit & keys:
            bits |= s.order.by_name[layer.marks].bit
    return bits


def _marking(fn: Callable[..., Any], op: Operator, bits: int) -> Callable[..., Any]:
    """``fn``, which makes tensors itself, with the marks of the call's layers put on them."""
    if not bits or op.view or op.mutates:
        return fn

    @functools.wraps(fn)
    def marking(call: CallEntry, args: tuple[Any, ...]) -> Any:
        out = fn(call, args)
        for item in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(item, Value) and all(item is not argument for argument in args):
                item.keys |= bits
        return out

    return marking


def _promotion(entry: Any, op: Operator) -> None:
    rule = op.dtype_rule
    entry.promotion = PROMOTE_NONE
    if isinstance(rule, Promotion):
        entry.promotion = PROMOTE_FLOAT if rule.to_float else PROMOTE_COMMON
    entry.floats = FLOATS
    entry.weak = WEAK
    if op.taken is not None:  # what is asked of each call anyway serves as the refusal
        entry.floats = FLOATS & op.taken if entry.promotion == PROMOTE_FLOAT else op.taken
        entry.weak = WEAK & op.taken
        if entry.promotion == PROMOTE_COMMON or op.arity == 1:
            entry.promotion = PROMOTE_FLOAT
    # What is written to is never the operand of a promotion: a copy would be written to.
    skip = (*rule.skip, *op.mutates) if isinstance(rule, Promotion) else ()
    params = op.schema.params
    tensors = [p.is_tensor and p.name not in skip for p in params]
    # Another number goes where the types are looked at, and is refused.
    entry.number_flags = [flag and p.scalar for flag, p in zip(tensors, params)]
    widens = (
        isinstance(rule, Promotion)
        and rule.result is None
        and any(flag and i not in op.fits for i, flag in enumerate(entry.number_flags))
    )
    if widens:
        entry.weak -= {float16}
    if isinstance(entry, RawEntry):
        entry.tensor_flags = tensors
        entry.widens = widens
        entry.optional = [p.optional or p.default is None for p in op.schema.params]


def _whole(op: Operator, backend: Backend) -> frozenset[DType]:
    """The dtypes of tensors beside which an int may stand as it is."""
    rule = op.dtype_rule
    if not isinstance(rule, Promotion) or rule.to_float:
        return frozenset()
    taken = WHOLE if op.taken is None else WHOLE & op.taken
    # Where the library has another dtype for numbers, the backend makes something else of them.
    return frozenset(dtype for dtype in taken if type(backend.scalar(1, dtype)) is int)


def _taking(op: Operator, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, a decomposition, that refuses tensors of dtypes not in ``op.taken``, and numbers in
    the place of tensors.
    """
    assert op.taken is not None
    strict = {p for p in op.tensors if not op.schema.params[p].scalar}
    first, *others = op.tensors if isinstance(op.dtype_rule, Promotion) else op.tensors[:1]
    known: set[Any] = set()  # of the array library as well
    seen: Any = None  # the one of the last call: most programs have one dtype

    def checked(*args: Any, **options: Any) -> Any:
        nonlocal seen
        given = args[first]
        dtype = dtype_of(given) if isinstance(given, Value) else getattr(given, "dtype", None)
        if dtype is not seen or dtype is None:
            if not _taken(op, args, given, known, first in strict):
                return fn(*args, **options)
            seen = dtype
        for position in others:
            if not _taken(op, args, args[position], known, position in strict):
                break
        return fn(*args, **options)

    return checked


def _taken(op: Operator, args: tuple[Any, ...], given: Any, known: set[Any], strict: bool) -> bool:
    """Whether the operator takes ``given`` whatever is beside it; raises where it never does.

    ``strict``: where a number is none of the things that it takes.
    """
    dtype = dtype_of(given) if isinstance(given, Value) else getattr(given, "dtype", None)
    if dtype is None:
        if strict and given is not None:
            HOOKS.check_types(op, args)
        return True
    if dtype in known:
        return True
    assert op.taken is not None
    found = DType.of(dtype)
    if found in op.taken or found not in ALL_DTYPES:
        known.add(dtype)
        return True
    if isinstance(given, Value):
        HOOKS.check_types(op, args)  # which says more
        return False  # beside a tensor of another dtype it may do
    raise TypeError(f"{op.name} of {dtype}")


def _inplace(s: Snapshot, op: Operator, keys: int, mask: int, found: Resolution) -> InplaceEntry:
    functional, backend = op.inplace_of, found.backend
    assert functional is not None and backend is not None
    laid_out = keys & s.order.layout_bits
    copyto = (
        _layout_copyto(s, backend) if laid_out else HOOKS.placed(backend, op, backend.copyto, False)
    )
    strided = backend.views and not laid_out
    # A layer that does not apply to the in-place form (autocast) does not to what it computes.
    absent = 0
    for key in s.order.members(keys):
        if key.kind == "layer" and not applies(s.layers[key.name][0], op):
            absent |= key.bit
    inner = build(s, functional, keys & ~absent, mask | absent)
    entry = _inplace_over(op, inner, copyto, strided)
    entry.keys, entry.mask = keys, mask
    return entry


def _inplace_over(
    op: Operator, inner: Entry, copyto: Callable[[Any, Any], Any], strided: bool
) -> InplaceEntry:
    """The in-place entry over one functional entry, and over those it may reject for."""
    functional = op.inplace_of
    assert functional is not None
    entry = InplaceEntry(op, inner.keys, inner.mask, inner.record, inner)
    entry.copyto, entry.strided = copyto, strided
    _promotion(entry, functional)
    if isinstance(inner, RawEntry):
        entry.raw, entry.whole = inner, inner.whole
    rule = functional.dtype_rule
    kernel = inner.record
    if (
        isinstance(inner, RawEntry)
        and isinstance(kernel, Kernel)
        and kernel.takes_out
        and strided
        and (rule is same or (isinstance(rule, Promotion) and rule.result is None))
        and not functional.lists
    ):
        entry.same = rule is same
        if entry.same and entry.promotion == PROMOTE_NONE:
            entry.promotion = PROMOTE_COMMON  # nothing is promoted: other dtypes go the long way
        entry.fn, entry.kernel_context, entry.least = inner.fn, inner.kernel_context, inner.least
        entry.positional_out = type(inner.fn).__name__ == "ufunc"
    if isinstance(inner, RawEntry) and inner.otherwise is not None:
        entry.otherwise = _inplace_over(op, inner.otherwise, copyto, strided)
    if HOOKS.observe is None:
        specialize_inplace(entry)
    return entry


def _same_object(out: Any, source: Any) -> bool:
    """Whether a layout's result aliases its input: data that are only ever replaced as a whole."""
    return out is source


def _writing(op: Operator) -> Callable[..., Any]:
    """The decomposition of an operator that writes: it must not have begun when an argument is
    refused.
    """
    body = op.decomposition
    assert body is not None

    def writing(*args: Any) -> Any:
        HOOKS.check_types(op, args)
        return body(*args)

    return writing


def _viewing(op: Operator) -> Callable[..., Any]:
    """The decomposition of a view operator on a backend without strided views.

    Where it selects with indices (a diagonal, windows) the result has memory of its own; by the
    operator's contract it is an alias nevertheless.
    """
    body = op.decomposition
    assert body is not None

    def viewing(*args: Any) -> Any:
        return link_results(op, args, body(*args), _apart)

    return viewing


def _apart(result: Value, argument: Value) -> bool:
    return storage_of(result) is not storage_of(argument)


def _indexed(op: Operator) -> bool:
    return any(op.schema.params[position].kind == "Index" for position in op.lists)


class _Selection(threading.local):
    """The kernel of ``x[index]`` on a backend without strided views, which always copies.

    To the frontend, which keeps the contract of aliases there, the result is a view where the
    index is basic, and has memory of its own where tensors, lists or masks select.
    """

    fresh: Any = None

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, raw: Any, index: tuple[Any, ...]) -> Any:
        out = self.fn(raw, index)
        self.fresh = None if all(map(_basic, index)) else out
        return out

    def is_view(self, out: Any, source: Any) -> bool:
        fresh, self.fresh = self.fresh, None
        return out is not fresh


def _basic(item: Any) -> bool:
    if isinstance(item, (list, tuple, bool)):
        return False
    shape = getattr(item, "shape", None)
    return shape is None or (tuple(shape) == () and DType.of(item.dtype) is not bool_)


def _layout_copyto(s: Snapshot, backend: Backend) -> Callable[[Any, Any], Any]:
    """``copyto`` where layouts take part: their data are replaced as a whole, not written to."""
    types = tuple(layout.data_type for layout, _ in s.layouts.values())

    def copyto(target: Any, result: Any) -> Any:
        if not isinstance(target, types) and not isinstance(result, types):
            return backend.copyto(target, result)
        if type(result) is not type(target):
            raise OpError(
                f"the result is {type(result).__name__}, which cannot be written into "
                f"{type(target).__name__}",
                fix="use the out-of-place form",
            )
        return result if result.dtype == target.dtype else result.astype(target.dtype)

    return copyto


def _conditional(kernel: Kernel) -> Any:
    """The kernel as one that rejects by returning NotImplemented."""
    if kernel.when is None:
        return kernel.fn
    accepts, fn = kernel.when, kernel.fn

    def conditional(*raw: Any, **out: Any) -> Any:
        return fn(*raw, **out) if accepts(*raw) else NotImplemented

    return conditional
