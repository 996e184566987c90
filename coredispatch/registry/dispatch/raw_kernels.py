"""Entries whose winner is a backend's or a layout's kernel: raw arrays in, raw arrays out.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from coredispatch.registry.dispatch.dispatcher import (
    PROMOTE_COMMON,
    PROMOTE_FLOAT,
    PROMOTE_NONE,
    Dispatcher,
    Entry,
    check_view,
    enter,
    is_short,
    raw_items,
)
from coredispatch.registry.dispatch.promotions import (
    Agreement,
    NumberBeside,
    any_beyond_half,
    beyond_half,
    signature,
)
from coredispatch.registry.model.dtypes import DType, default_dtype, float16
from coredispatch.registry.model.kernel_context import KernelContext
from coredispatch.registry.model.value import (
    FastAllocation,
    Value,
    ViewLink,
    bump_version,
    dtype_of,
    storage_of,
)
from coredispatch.registry.wiring import HOOKS


class RawEntry(Entry):
    """A backend or layout kernel: raw arrays in, raw arrays out."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = None
        self.kernel_context: KernelContext | None = None  # where the kernel must run
        self.promotion: int = PROMOTE_NONE
        self.floats: frozenset[DType] = frozenset()
        self.weak: frozenset[DType] = frozenset()  # take a Python number without promoting
        self.whole: frozenset[DType] = frozenset()  # take an int of 32 bits so
        # A number that float16 does not hold counts as it is: float32 is computed in, once rounded
        self.widens: bool = False
        self.wrap: Any = HOOKS.value_type
        self.out_keys: int = 0
        self.array_type: Any = None
        self.scalar_type: Any = None  # of the library's scalars, which to_array takes
        self.to_array: Any = None
        self.wrap_output: Any = (
            None  # (entry, args, raw) -> Tensor(s) for whatever is no plain array
        )
        # What makes several results of a list of tensors, where wrap_output has nothing to add
        self.several: Any = None
        # What the operator takes, where no promotion asks for the dtype anyway: the position of the
        # tensor to be looked at (or -1), and the dtypes.
        self.checked: int = -1
        self.taken: frozenset[DType] = frozenset()
        # Of two tensors: the dtype that a pair of dtypes was found to compute in, with whether
        # each tensor has no dimensions
        self.promotions: dict[Any, DType] = {}
        self.recent: Agreement | None = None  # what was found there last
        # Of a tensor and a number: the same by the tensor's dtype, the number's type and position
        self.numbers: dict[Any, NumberBeside] = {}
        self.recent_number: NumberBeside | None = None
        # Of three arguments and more: the same by what `signature` says, and by position
        self.signatures: dict[Any, DType] = {}
        self.beside_more: dict[int, NumberBeside] = {}
        self.cast: Any = None  # (array, dtype) -> array, once there are such
        self.cast_context: KernelContext | None = None
        self.tensor_flags: list[bool] = []  # per position: may hold a tensor to be promoted
        self.number_flags: list[bool] = []  # per position: may hold a number instead
        self.optional: list[bool] = []  # per position: may hold None
        self.simple: bool = False  # no list or index parameters
        self.nontensor: bool = False  # two parameters: a tensor not to be promoted, and no tensor
        # The first parameter alone may hold a tensor, and the kernel sees the others as they are
        self.alone: bool = False
        # Serves when the kernel rejects the call by returning NotImplemented
        self.otherwise: RawEntry | None = None
        self.least: int = 0  # calls with fewer elements go to otherwise

    def call(self, args: tuple[Any, ...]) -> Any:
        try:
            out = self.compute(args)
        except Exception as error:
            raise HOOKS.failure(self, args, error)
        if type(out) is self.array_type:
            return FastAllocation.__new__(self.wrap, out, self.out_keys)
        if self.scalar_type is not None and isinstance(out, self.scalar_type):
            return FastAllocation.__new__(self.wrap, self.to_array(out), self.out_keys)
        return self.wrapped(args, out)

    # call_one and call_two are written out: interpreted, each further function call costs 0.06 us
    # of the 0.6 us that the whole path takes.

    def call_one(self, a: Value) -> Any:
        entry: RawEntry = self
        if self.least:
            entry = self.fitting(a.raw)
        try:
            if entry.simple and (
                entry.promotion != PROMOTE_FLOAT
                or (dtype_of(a) if a._dtype is None else a._dtype) in entry.floats
            ):
                kernel_context = entry.kernel_context
                if kernel_context is None:
                    out = entry.fn(a.raw)
                elif kernel_context.busy:
                    out = kernel_context.context.copy().run(entry.fn, a.raw)
                else:
                    kernel_context.busy = True
                    try:
                        out = kernel_context.run(entry.fn, a.raw)
                    finally:
                        kernel_context.busy = False
            else:
                out = entry.compute((a,))
        except Exception as error:
            raise HOOKS.failure(entry, (a,), error)
        if type(out) is entry.array_type:
            return FastAllocation.__new__(entry.wrap, out, entry.out_keys)
        if entry.scalar_type is not None and isinstance(out, entry.scalar_type):
            return FastAllocation.__new__(entry.wrap, entry.to_array(out), entry.out_keys)
        return entry.wrapped((a,), out)

    def call_two(self, a: Value, b: Any) -> Any:
        entry: RawEntry = self
        if self.least:
            entry = self.fitting(a.raw)
        try:
            direct = entry.nontensor
            left, right = a.raw, b
            if direct:
                if isinstance(b, Value):  # in the place of a number
                    right = b.raw
                if entry.checked >= 0:
                    direct = (dtype_of(a) if a._dtype is None else a._dtype) in entry.taken
            elif entry.simple:
                if isinstance(b, Value):
                    right = b.raw
                    promotion = entry.promotion
                    direct = promotion == PROMOTE_NONE and entry.checked < 0
                    if promotion != PROMOTE_NONE:
                        dtype = dtype_of(a) if a._dtype is None else a._dtype
                        other = dtype_of(b) if b._dtype is None else b._dtype
                        if dtype is other:
                            direct = promotion == PROMOTE_COMMON or dtype in entry.floats
                        elif entry.promotions:
                            known = entry.agreed(dtype, other, left, right)
                            if known is not None:
                                direct = True
                                left = entry.converted(a, dtype, known)
                                right = entry.converted(b, other, known)
                elif (
                    (type(b) is float or type(b) is int)
                    and entry.number_flags[1]
                    and entry.promotion != PROMOTE_NONE
                ):
                    dtype = dtype_of(a) if a._dtype is None else a._dtype
                    direct = dtype in entry.weak or (dtype in entry.whole and is_short(b))
                    if not direct and entry.numbers:
                        beside = entry.beside(dtype, 1, b)
                        if beside is not None:
                            direct = True
                            left = entry.converted(a, dtype, beside.common)
                            right = beside.raw
            if direct:
                kernel_context = entry.kernel_context
                if kernel_context is None:
                    out = entry.fn(left, right)
                elif kernel_context.busy:
                    out = kernel_context.context.copy().run(entry.fn, left, right)
                else:
                    kernel_context.busy = True
                    try:
                        out = kernel_context.run(entry.fn, left, right)
                    finally:
                        kernel_context.busy = False
            else:
                out = entry.compute((a, b))
        except Exception as error:
            raise HOOKS.failure(entry, (a, b), error)
        if type(out) is entry.array_type:
            return FastAllocation.__new__(entry.wrap, out, entry.out_keys)
        if entry.scalar_type is not None and isinstance(out, entry.scalar_type):
            return FastAllocation.__new__(entry.wrap, entry.to_array(out), entry.out_keys)
        return entry.wrapped((a, b), out)

    def wrapped(self, args: tuple[Any, ...], out: Any) -> Any:
        """What a call gives back whose kernel did not return a plain array."""
        otherwise = self.otherwise
        if out is NotImplemented and otherwise is not None:
            return enter(otherwise, args)
        several = self.several
        if several is not None and (type(out) is tuple or type(out) is list):
            made: list[Any] = []
            for item in out:
                if type(item) is not self.array_type:
                    return self.wrap_output(self, args, out)
                made.append(FastAllocation.__new__(self.wrap, item, self.out_keys))
            return several(made)
        return self.wrap_output(self, args, out)

    def fitting(self, raw: Any) -> RawEntry:
        """The first of the entries that may serve as many elements as ``raw`` has."""
        entry: RawEntry = self
        found: Any = getattr(raw, "size", None)  # a default that is no int costs no object
        if found is None:  # compute() looks at what has no size
            return entry
        size: int = found
        while size < entry.least:
            otherwise = entry.otherwise
            if otherwise is None:
                break
            entry = otherwise
        return entry

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The kernel's raw result for any number and kind of arguments."""
        if self.alone:
            first = args[0]
            if isinstance(first, Value):
                n = len(args)
                if n == 3:
                    out = self.fn(first.raw, args[1], args[2])
                elif n == 4:
                    out = self.fn(first.raw, args[1], args[2], args[3])
                else:
                    out = self.fn(first.raw, *args[1:])
                otherwise = self.otherwise
                if out is NotImplemented and otherwise is not None:
                    return otherwise.compute(args)
                return out
        if self.widens and any_beyond_half(args):
            wide = HOOKS.in_float32(self, args)
            if wide is not None:
                return wide
        return self.run(self.unwrap(args))

    def run(self, raws: list[Any]) -> Any:
        """The result of the first kernel that takes the raw arguments.

        What one kernel rejects, the next one gets as it is: all serve one operator and backend.
        """
        entry: RawEntry = self
        otherwise = entry.otherwise
        n = len(raws)
        while True:
            if entry.least and otherwise is not None and entry.small(raws):
                out = NotImplemented
            elif entry.kernel_context is not None:
                out = entry.kernel_context.call(entry.fn, raws)
            elif n == 2:
                out = entry.fn(raws[0], raws[1])
            elif n == 3:
                out = entry.fn(raws[0], raws[1], raws[2])
            elif n == 4:
                out = entry.fn(raws[0], raws[1], raws[2], raws[3])
            else:
                out = entry.fn(*raws)
            if out is not NotImplemented or otherwise is None:
                return out
            entry = otherwise
            otherwise = entry.otherwise

    def small(self, raws: list[Any]) -> bool:
        """Whether the call has fewer elements than the kernel takes."""
        if not raws:
            return False
        size: int = getattr(raws[0], "size", self.least)
        return size < self.least

    def unwrap(self, args: tuple[Any, ...]) -> list[Any]:
        """Raw arguments, promoted where the op's dtype rule says so."""
        promotion = self.promotion
        if self.checked >= 0:
            looked_at = args[self.checked]
            if not isinstance(looked_at, Value) or dtype_of(looked_at) not in self.taken:
                HOOKS.check_types(self.op, args)
        first: DType | None = None
        raws: list[Any] = []
        position = 0
        for argument in args:
            if isinstance(argument, Value):
                if promotion != PROMOTE_NONE and self.tensor_flags[position]:
                    dtype = dtype_of(argument)
                    if first is None:
                        first = dtype
                        if promotion == PROMOTE_FLOAT and dtype not in self.floats:
                            return self.promoted(args)
                    elif dtype is not first:
                        return self.promoted(args)
                raws.append(argument.raw)
            elif self.tensor_flags[position] and (
                argument is not None or not self.optional[position]
            ):
                if promotion == PROMOTE_NONE:
                    raws.append(HOOKS.scalar(self, position, argument))
                    position += 1
                    continue
                if not (type(argument) is float or type(argument) is int):
                    return self.promoted(args)
                known = first if first is not None else self.first_dtype(args)
                if not self.number_flags[position] or not (
                    known in self.weak or (known in self.whole and is_short(argument))
                ):
                    return self.promoted(args)
                raws.append(argument)
            else:
                raws.append(argument)
            position += 1
        if self.simple:
            return raws
        for position in self.op.lists:
            items = args[position]
            if not isinstance(items, (list, tuple)):
                HOOKS.check_types(self.op, args)  # a dict has a length, and no tensors in order
            if promotion == PROMOTE_NONE or not isinstance(items, (list, tuple)):
                raws[position] = raw_items(items)
                continue
            inside: list[Any] = []
            for item in items:
                if isinstance(item, Value):
                    dtype = dtype_of(item) if item._dtype is None else item._dtype
                    if dtype is not first:
                        if first is not None or (
                            promotion == PROMOTE_FLOAT and dtype not in self.floats
                        ):
                            return self.promoted(args)
                        first = dtype
                    inside.append(item.raw)
                else:
                    inside.append(raw_items(item))
            raws[position] = inside if isinstance(items, list) else tuple(inside)
        return raws

    def first_dtype(self, args: tuple[Any, ...]) -> DType | None:
        """The dtype of the first tensor among those that promote."""
        position = 0
        for argument in args:
            if isinstance(argument, Value) and self.tensor_flags[position]:
                return dtype_of(argument)
            position += 1
        return None

    def agreed(self, one: DType, other: DType, a: Any, b: Any) -> DType | None:
        """What two raw arrays of these dtypes compute in, where an earlier call found it."""
        recent = self.recent
        if recent is not None and one is recent.one and other is recent.other:
            if a.shape and b.shape:
                return recent.common
        known = self.promotions.get((one, other, not a.shape, not b.shape))
        if known is not None and a.shape and b.shape:
            self.recent = Agreement(one, other, known)
        return known

    def beside(self, dtype: DType, position: int, number: Any) -> NumberBeside | None:
        """How a number stands beside a tensor of ``dtype``, where an earlier call found it."""
        recent = self.recent_number
        if recent is None or number is not recent.number or dtype is not recent.dtype:
            recent = None
        elif position != recent.position or recent.default not in (None, default_dtype()):
            recent = None
        if recent is None:
            known = self.numbers.get((dtype, type(number), position))
            if known is None or known.default not in (None, default_dtype()):
                return None
            if dtype is float16 and self.widens and beyond_half(number):
                return None
            raw = HOOKS.number(self, position, number, known.common)
            recent = NumberBeside(dtype, position, number, raw, known.common, known.default)
            self.recent_number = recent
        return recent

    def promoted(self, args: tuple[Any, ...]) -> list[Any]:
        if len(args) == 2:
            a, b = args
            if not isinstance(a, Value):
                if isinstance(b, Value) and self.numbers:
                    other = dtype_of(b)
                    beside = self.beside(other, 0, a)
                    if beside is not None:
                        return [beside.raw, self.converted(b, other, beside.common)]
            elif isinstance(b, Value):
                if self.promotions:
                    one, other = dtype_of(a), dtype_of(b)
                    known = self.agreed(one, other, a.raw, b.raw)
                    if known is not None:
                        return [self.converted(a, one, known), self.converted(b, other, known)]
            elif self.numbers:
                one = dtype_of(a)
                beside = self.beside(one, 1, b)
                if beside is not None:
                    return [self.converted(a, one, beside.common), beside.raw]
        elif self.signatures:
            known = self.signatures.get(signature(args))
            if known is not None:
                return self.recalled(args, known)
        raws: list[Any] = HOOKS.promoted(self, args)
        return raws

    def recalled(self, args: tuple[Any, ...], common: DType) -> list[Any]:
        """Raw arguments in the dtype that arguments like these were computed in before."""
        raws: list[Any] = []
        position = 0
        for argument in args:
            if argument is None or not self.tensor_flags[position]:
                raws.append(argument.raw if isinstance(argument, Value) else argument)
            elif isinstance(argument, Value):
                raws.append(self.converted(argument, dtype_of(argument), common))
            else:
                beside = self.beside_more.get(position)
                if beside is None or beside.number is not argument or beside.common is not common:
                    raw = HOOKS.number(self, position, argument, common)
                    beside = NumberBeside(common, position, argument, raw, common, None)
                    self.beside_more[position] = beside
                raws.append(beside.raw)
            position += 1
        return raws

    def converted(self, value: Value, dtype: DType, wanted: DType) -> Any:
        """The raw form of a tensor of ``dtype`` in the dtype that is wanted."""
        raw = value.raw
        if dtype is wanted:
            return raw
        if type(raw) is self.array_type:
            kernel_context = self.cast_context
            if kernel_context is None:
                return self.cast(raw, wanted)
            if kernel_context.busy:
                return kernel_context.context.copy().run(self.cast, raw, wanted)
            kernel_context.busy = True
            try:
                return kernel_context.run(self.cast, raw, wanted)
            finally:
                kernel_context.busy = False
        return self.wrap_output.cast(raw, wanted)


class ViewEntry(RawEntry):
    """A raw kernel whose result aliases its first argument: the result joins its storage."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.is_view: Any = None  # (raw out, raw in) -> bool, asked when the op only may view
        self.by_base: bool = False  # ... or read off raw.base, without a call
        self.direct: bool = False  # the kernel takes every call and runs in no context

    def call(self, args: tuple[Any, ...]) -> Any:
        base = args[0]
        if not isinstance(base, Value):
            return RawEntry.call(self, args)
        try:
            out = self.compute(args)
        except Exception as error:
            raise HOOKS.failure(self, args, error)
        if type(out) is self.array_type:
            return self.linked(base, out, args[1:])
        return self.linked_all(base, out, args)

    def call_one(self, a: Value) -> Any:
        try:
            out = self.fn(a.raw) if self.direct else self.compute((a,))
        except Exception as error:
            raise HOOKS.failure(self, (a,), error)
        if type(out) is self.array_type:
            return self.linked(a, out, ())
        return self.linked_all(a, out, (a,))

    def call_two(self, a: Value, b: Any) -> Any:
        if self.simple and not self.tensor_flags[1]:
            return self.call_nontensor(a, b)
        try:
            out = self.compute((a, b))
        except Exception as error:
            raise HOOKS.failure(self, (a, b), error)
        if type(out) is self.array_type:
            return self.linked(a, out, (b,))
        return self.linked_all(a, out, (a, b))

    def call_nontensor(self, a: Value, b: Any) -> Any:
        try:
            out = self.fn(a.raw, b) if self.direct else self.compute((a, b))
        except Exception as error:
            raise HOOKS.failure(self, (a, b), error)
        if type(out) is self.array_type:
            return self.linked(a, out, (b,))
        return self.linked_all(a, out, (a, b))

    def linked(self, base: Value, out: Any, rest: tuple[Any, ...]) -> Any:
        """One array as a tensor, linked to ``base`` where it aliases it."""
        result: Value = FastAllocation.__new__(self.wrap, out, self.out_keys)
        if self.by_base:
            owner = out.base
            raw = base.raw
            if owner is raw or out is raw or owner is not None and owner is raw.base:
                link_view(self.op, base, result, rest, False)
        elif self.is_view is None or self.is_view(out, base.raw):
            link_view(self.op, base, result, rest, False)
        return result

    def linked_all(self, base: Value, out: Any, args: tuple[Any, ...]) -> Any:
        """:meth:`linked` for whatever is no plain array."""
        otherwise = self.otherwise
        if out is NotImplemented and otherwise is not None:
            return otherwise.call(args)
        result = self.wrapped(args, out)
        if isinstance(result, (list, tuple)):
            index = 0
            for item in result:
                if self.is_view is None or self.is_view(item.raw, base.raw):
                    link_view(self.op, base, item, (*args[1:], index), True)
                index += 1
        elif self.is_view is None or self.is_view(result.raw, base.raw):
            link_view(self.op, base, result, args[1:], False)
        return result


def link_view(
    op: Dispatcher, base: Value, result: Value, rest: tuple[Any, ...], multi_output: bool = False
) -> None:
    """Make ``result``, which is ``op(base, *rest)``, an alias of ``base``.

    ``multi_output`` marks one of several outputs, whose index then stands last in ``rest``.
    """
    link = ViewLink(base, op, rest)
    if multi_output:
        link.multi_output = True
    storage = storage_of(base)
    if storage.version:
        link.version = storage.version
    result._view = link
    result._storage = storage
    if len(storage.aliases) >= storage.prune_at:
        storage.prune()
    storage.aliases.append(ref(result))


class EffectEntry(RawEntry):
    """A raw kernel that writes to arguments, or whose results alias others than the first."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.strided: bool = False  # the backend has zero-copy strided views
        # Where every call writes to the same single tensors: their positions, and that of the one
        # it returns (or -1). A kernel that returns nothing is then done.
        self.always: list[int] = []
        self.returned: int = -1
        self.lists: list[int] = []  # the same, of lists of tensors, where nothing is returned
        # (condition, positions that it reads) of writes that not every call makes, where nothing
        # is aliased: a call that makes none is as any other
        self.conditions: list[Any] = []

    def call(self, args: tuple[Any, ...]) -> Any:
        try:
            if not self.strided:
                self.wrap_output.check_writes(self.op, args)
            for position in self.always:
                target = args[position]
                if isinstance(target, Value) and target._view is not None:
                    check_view(target)
            out = self.compute(args)
        except Exception as error:
            raise HOOKS.failure(self, args, error)
        if out is not None or not (self.always or self.lists):
            for when, reads in self.conditions:
                if when(*[args[i] for i in reads]):
                    break
            else:
                if self.conditions and type(out) is self.array_type:
                    return FastAllocation.__new__(self.wrap, out, self.out_keys)
            return self.wrap_output.effects(self, args, out)
        for position in self.lists:
            for item in args[position]:
                if isinstance(item, Value):
                    bump_version(item)
        for position in self.always:
            target = args[position]
            if isinstance(target, Value):
                bump_version(target)
        return None if self.returned < 0 else args[self.returned]

    def call_one(self, a: Value) -> Any:
        return self.call((a,))

    def call_two(self, a: Value, b: Any) -> Any:
        return self.call((a, b))
