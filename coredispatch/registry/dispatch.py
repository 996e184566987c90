"""The hot path: from a call's arguments to the kernel that serves it, and back.

``Dispatcher.__call__`` ORs the keys of the arguments, looks the key set up in the op's memo
and hands the arguments to the :class:`Entry` found there. Everything that can be decided
once per key set was decided when the entry was made (:mod:`.resolve`); no pluggy, no
signature binding and no shape rule runs here.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, Final
from weakref import ref

from .dtypes import DType
from .errors import CoreDispatchError
from .masks import MASKS, masked, pop_masks, push_masks
from .native import mypyc_attr
from .value import Value, ViewLink, bump_version, dtype_of, storage_of

# What a parameter needs before a kernel may see it (see Dispatcher.normal).
NORMAL_INT: Final = 1
NORMAL_INTLIST: Final = 2
NORMAL_DTYPE: Final = 3
NORMAL_DEVICE: Final = 4

# How tensor arguments are promoted before a kernel sees them.
PROMOTE_NONE: Final = 0
PROMOTE_COMMON: Final = 1
PROMOTE_FLOAT: Final = 2


class Hooks:
    """Slow paths, installed by the modules above this one."""

    def __init__(self) -> None:
        self.resolve: Any = None  # (dispatcher, keys, mask) -> Entry
        self.bind: Any = None  # (dispatcher, args, kwargs) -> result of the call
        self.normalize: Any = None  # (dispatcher, position, code, argument) -> argument
        self.failure: Any = None  # (entry, args, exception) -> exception
        self.refusal: Any = None  # (entry, args) -> exception or None: wrong types
        self.promoted: Any = None  # (entry, args) -> list of raw arguments
        self.scalar: Any = None  # (entry, position, argument) -> Python scalar
        self.device_bit: Any = None  # (device or None) -> int
        self.value_type: Any = None  # the class that wraps results
        self.check_inplace: Any = None  # (entry, target, raw result) -> raw result


HOOKS: Final = Hooks()


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """What the hot path needs to know of an operator."""

    def __init__(self) -> None:
        self.name: str = ""
        self.memo: dict[int, Entry] = {}
        self.below: dict[tuple[int, int], Entry] = {}
        self.arity: int = 0  # number of parameters, keyword-only ones included
        self.positional: int = 0
        self.required: int = 0
        # tails[n]: the defaults that complete a call with n positional arguments
        self.tails: list[Any] = []
        # (position, NORMAL_* code) of the parameters that users may spell in several ways
        self.normal: list[tuple[int, int]] = []
        self.tensors: list[int] = []  # positions that hold a tensor or a scalar
        self.lists: list[int] = []  # positions that hold lists or indices with tensors in them
        self.device: int = -1  # position of the device parameter of a factory
        self.searched: bool = False  # keys also come from lists or from the device
        self.ambiguous: bool = False  # an overload needs the types to be looked at

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        n = len(args)
        if kwargs or n < self.required or n > self.positional or self.ambiguous:
            return HOOKS.bind(self, args, kwargs)
        if n != self.arity:
            args = args + self.tails[n]
        if self.normal:
            args = normalized(self, args, n)
        # The body of dispatch() once more: a method call is the commonest way in.
        keys = 0
        for argument in args:
            if isinstance(argument, Value):
                keys |= argument.keys
        if self.searched:
            keys = keys_of(self, args)
        if MASKS.active:
            keys = masked(keys)
        entry = self.memo.get(keys)
        if entry is None:
            entry = HOOKS.resolve(self, keys, 0)
        return entry.call(args)

    def __get__(self, instance: Any, owner: Any) -> Any:
        # An operator set on the Tensor class is a method.
        return self if instance is None else MethodType(self, instance)


def normalized(op: Dispatcher, args: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Bring the parameters listed in ``op.normal`` into the one form that kernels see."""
    changed: list[Any] | None = None
    for position, code in op.normal:
        if position >= n:
            break
        argument = args[position]
        if argument is None:
            continue
        if code == NORMAL_INT:
            if type(argument) is int:
                continue
        elif code == NORMAL_INTLIST:
            if type(argument) is int:
                argument = (argument,)
                if position == 1 and len(args) == 2:
                    return (args[0], argument)
                if changed is None:
                    changed = list(args)
                changed[position] = argument
                continue
        elif code == NORMAL_DTYPE and type(argument) is DType:
            continue
        argument = HOOKS.normalize(op, position, code, argument)
        if changed is None:
            changed = list(args)
        changed[position] = argument
    return args if changed is None else tuple(changed)


def list_keys(argument: Any) -> int:
    """Keys of the tensors inside a list, a tuple or an index."""
    keys = 0
    if isinstance(argument, Value):
        return argument.keys
    if isinstance(argument, (list, tuple)):
        for item in argument:
            if isinstance(item, Value):
                keys |= item.keys
    return keys


def keys_of(op: Dispatcher, args: tuple[Any, ...]) -> int:
    """OR of the keys of all tensors among the (complete) arguments, unmasked."""
    keys = 0
    for argument in args:
        if isinstance(argument, Value):
            keys |= argument.keys
    if op.lists:
        for position in op.lists:
            keys |= list_keys(args[position])
    if op.device >= 0:
        device = args[op.device]
        if device is not None or keys == 0:
            keys |= HOOKS.device_bit(device)
    return keys


def dispatch(op: Dispatcher, args: tuple[Any, ...]) -> Any:
    """Call ``op`` with the complete, normalised argument tuple."""
    keys = 0
    for argument in args:
        if isinstance(argument, Value):
            keys |= argument.keys
    if op.searched:
        keys = keys_of(op, args)
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.get(keys)
    if entry is None:
        entry = HOOKS.resolve(op, keys, 0)
    return entry.call(args)


def dispatch_index(op: Dispatcher, first: Value, index: Any) -> Any:
    """``op(first, (index,))`` for an index that holds no tensor: its keys are ``first``'s."""
    keys = first.keys
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.get(keys)
    if entry is None:
        entry = HOOKS.resolve(op, keys, 0)
    return entry.call((first, (index,)))


def dispatch_below(op: Dispatcher, args: tuple[Any, ...], mask: int) -> Any:
    """Call ``op`` with the bits of ``mask`` taken out of the key set (redispatch)."""
    keys = keys_of(op, args)
    if MASKS.active:
        keys = masked(keys)
    keys &= ~mask
    entry = op.below.get((keys, mask))
    if entry is None:
        entry = HOOKS.resolve(op, keys, mask)
    return entry.call(args)


def push_and_call(fn: Any, args: tuple[Any, ...], mask: int) -> Any:
    """``fn(*args)`` with the bits of ``mask`` excluded from every key set inside it."""
    if mask == 0:
        return fn(*args)
    token = push_masks(0, mask)
    try:
        return fn(*args)
    finally:
        pop_masks(token)


class Entry:
    """What a key set resolved to. ``mask`` are the bits that layers above have taken out."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        self.op: Dispatcher = op
        self.keys: int = keys
        self.mask: int = mask
        self.record: Any = record  # the Kernel with its provenance, or None

    def call(self, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError(type(self).__name__)

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The raw result of the functional form (used by in-place and ``out=``)."""
        result = self.call(args)
        if isinstance(result, Value):
            return result.raw
        return result


class RawEntry(Entry):
    """A backend or layout kernel: raw arrays in, raw arrays out."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = None
        self.context: Any = None  # the contextvars.Context to run the kernel in, or None
        self.promotion: int = PROMOTE_NONE
        self.floats: frozenset[DType] = frozenset()
        self.weak: frozenset[DType] = frozenset()  # take a Python number without promoting
        self.wrap: Any = HOOKS.value_type
        self.out_keys: int = 0
        self.array_type: Any = None
        self.finish: Any = None  # (entry, raw) -> Tensor(s) for whatever is no plain array
        self.tensor_flags: list[bool] = []  # per position: may hold a tensor or a scalar
        self.simple: bool = False  # no list or index parameters
        # Serves when the kernel declines the call by returning NotImplemented
        self.otherwise: RawEntry | None = None
        self.least: int = 0  # calls with fewer elements go to otherwise

    def call(self, args: tuple[Any, ...]) -> Any:
        if self.least and self.otherwise is not None:
            first = args[0]
            if isinstance(first, Value) and first.raw.size < self.least:
                return self.otherwise.call(args)
        # One and two arguments are nine calls in ten. Written out: interpreted, each further
        # function call costs 0.06 us of the 0.6 us that the whole path takes.
        try:
            n = len(args)
            promotion = self.promotion
            a = args[0] if n else None
            if n == 2 and self.simple and isinstance(a, Value):
                b = args[1]
                if isinstance(b, Value):
                    direct = promotion == PROMOTE_NONE
                    if not direct:
                        dtype = dtype_of(a) if a._dtype is None else a._dtype
                        other = dtype_of(b) if b._dtype is None else b._dtype
                        direct = dtype is other and (
                            promotion == PROMOTE_COMMON or dtype in self.floats
                        )
                    if not direct:
                        out = self.compute(args)
                    elif self.context is None:
                        out = self.fn(a.raw, b.raw)
                    else:
                        out = self.context.copy().run(self.fn, a.raw, b.raw)
                elif self.tensor_flags[1]:
                    if (type(b) is float or type(b) is int) and dtype_of(a) in self.weak:
                        if self.context is None:
                            out = self.fn(a.raw, b)
                        else:
                            out = self.context.copy().run(self.fn, a.raw, b)
                    else:
                        out = self.compute(args)
                else:
                    out = self.compute(args)
            elif (
                n == 1
                and self.simple
                and isinstance(a, Value)
                and (promotion != PROMOTE_FLOAT or dtype_of(a) in self.floats)
            ):
                if self.context is None:
                    out = self.fn(a.raw)
                else:
                    out = self.context.copy().run(self.fn, a.raw)
            else:
                out = self.compute(args)
        except Exception as error:
            raise HOOKS.failure(self, args, error) from error
        if type(out) is self.array_type:
            return self.wrap(out, self.out_keys)
        return self.finish(self, args, out)

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The kernel's raw result for any number and kind of arguments."""
        raws = self.unwrap(args)
        if self.least and self.otherwise is not None and self.small(raws):
            return self.otherwise.compute(args)
        n = len(raws)
        if self.context is not None:
            out = self.context.copy().run(self.fn, *raws)
        elif n == 2:
            out = self.fn(raws[0], raws[1])
        elif n == 3:
            out = self.fn(raws[0], raws[1], raws[2])
        elif n == 4:
            out = self.fn(raws[0], raws[1], raws[2], raws[3])
        else:
            out = self.fn(*raws)
        if out is NotImplemented and self.otherwise is not None:
            return self.otherwise.compute(args)
        return out

    def small(self, raws: list[Any]) -> bool:
        """Whether the call has fewer elements than the kernel takes."""
        if not raws:
            return False
        size: int = getattr(raws[0], "size", self.least)
        return size < self.least

    def unwrap(self, args: tuple[Any, ...]) -> list[Any]:
        """Raw arguments, promoted where the op's dtype rule says so."""
        promotion = self.promotion
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
            elif self.tensor_flags[position] and argument is not None:
                if promotion == PROMOTE_NONE:
                    raws.append(HOOKS.scalar(self, position, argument))
                elif first in self.weak and (type(argument) is float or type(argument) is int):
                    raws.append(argument)
                else:
                    return self.promoted(args)
            else:
                raws.append(argument)
            position += 1
        for position in self.op.lists:
            items = args[position]
            if promotion != PROMOTE_NONE and isinstance(items, (list, tuple)):
                for item in items:
                    if isinstance(item, Value):
                        dtype = dtype_of(item)
                        if first is None:
                            first = dtype
                            if promotion == PROMOTE_FLOAT and dtype not in self.floats:
                                return self.promoted(args)
                        elif dtype is not first:
                            return self.promoted(args)
            raws[position] = raw_items(items)
        return raws

    def promoted(self, args: tuple[Any, ...]) -> list[Any]:
        raws: list[Any] = HOOKS.promoted(self, args)
        return raws


def raw_items(items: Any) -> Any:
    """The raw form of a list of tensors or of an index: same container, raw arrays inside."""
    if isinstance(items, Value):
        return items.raw
    if isinstance(items, tuple):
        for item in items:
            if isinstance(item, (Value, list, tuple)):
                return tuple([raw_items(i) for i in items])
        return items
    if isinstance(items, list):
        return [raw_items(i) for i in items]
    return items


class ViewEntry(RawEntry):
    """A raw kernel whose result aliases its first argument: the result joins its storage."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.is_view: Any = None  # (raw out, raw in) -> bool, asked when the op only may view
        self.by_base: bool = False  # ... or read off raw.base, without a call

    def call(self, args: tuple[Any, ...]) -> Any:
        base = args[0]
        if not isinstance(base, Value):
            return RawEntry.call(self, args)
        try:
            if len(args) == 2 and not self.tensor_flags[1]:
                out = self.fn(base.raw, args[1] if self.simple else raw_items(args[1]))
            else:
                out = self.compute(args)
        except Exception as error:
            raise HOOKS.failure(self, args, error) from error
        if type(out) is self.array_type:
            result = self.wrap(out, self.out_keys)
            if self.by_base:
                owner = out.base
                raw = base.raw
                if out is raw or owner is not None and (owner is raw or owner is raw.base):
                    link_view(self.op, base, result, args, -1)
            elif self.is_view is None or self.is_view(out, base.raw):
                link_view(self.op, base, result, args, -1)
            return result
        result = self.finish(self, args, out)
        if isinstance(result, (list, tuple)):
            index = 0
            for item in result:
                if self.is_view is None or self.is_view(item.raw, base.raw):
                    link_view(self.op, base, item, args, index)
                index += 1
        elif self.is_view is None or self.is_view(result.raw, base.raw):
            link_view(self.op, base, result, args, -1)
        return result


def link_view(
    op: Dispatcher, base: Value, result: Value, args: tuple[Any, ...], index: int
) -> None:
    """Make ``result`` an alias of ``base``; ``index`` is its place among several outputs."""
    link = ViewLink(base, op, args[1:] if index < 0 else (*args[1:], index))
    if index >= 0:
        link.several = True
    storage = base._storage
    if storage is None:
        storage = storage_of(base)
    if storage.version:
        link.version = storage.version
    result._view = link
    aliases = storage.aliases
    if len(aliases) >= storage.prune_at:
        aliases = [reference for reference in aliases if reference() is not None]
        storage.aliases = aliases
        storage.prune_at = 2 * len(aliases) + 8
    aliases.append(ref(result))


class InplaceEntry(Entry):
    """``op_(self, ...)`` derived from the functional entry: compute, then write into self."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, inner: Entry) -> None:
        super().__init__(op, keys, mask, record)
        self.inner: Entry = inner
        self.fn: Any = None  # the raw kernel when it takes out=
        self.context: Any = None
        self.positional_out: bool = False
        self.least: int = 0
        self.otherwise: InplaceEntry | None = None
        self.promotion: int = PROMOTE_NONE
        self.floats: frozenset[DType] = frozenset()
        self.weak: frozenset[DType] = frozenset()  # take a Python number without promoting
        self.tensor_flags: list[bool] = []
        self.copyto: Any = None
        self.strided: bool = True  # the backend has zero-copy strided views

    def call(self, args: tuple[Any, ...]) -> Any:
        target = args[0]
        if not isinstance(target, Value):
            raise HOOKS.failure(self, args, TypeError("the first argument must be a tensor"))
        try:
            if not self.direct(target, args):
                result = self.inner.compute(args)
                result = HOOKS.check_inplace(self, target, result)
                replaced = self.copyto(target.raw, result)
                if replaced is not None:
                    target.raw = replaced
        except Exception as error:
            raise HOOKS.failure(self, args, error) from error
        bump_version(target)
        return target

    def direct(self, target: Value, args: tuple[Any, ...]) -> bool:
        """Let the kernel write into self where its result has self's dtype for sure."""
        otherwise = self.otherwise
        if otherwise is not None:
            if self.least and target.raw.size < self.least:
                return otherwise.direct(target, args)
            return self.write(target, args) or otherwise.direct(target, args)
        return self.write(target, args)

    def write(self, target: Value, args: tuple[Any, ...]) -> bool:
        """:meth:`direct` with this entry's own kernel; False where it declines."""
        fn = self.fn
        if fn is None:
            return False
        n = len(args)
        if n > 2:
            return False
        dtype = dtype_of(target)
        if self.promotion == PROMOTE_NONE or (
            self.promotion == PROMOTE_FLOAT and dtype not in self.floats
        ):
            return False
        raw = target.raw
        if self.context is not None:
            return self.direct_in_context(raw, dtype, args)
        if n == 1:
            return fn(raw, out=raw) is not NotImplemented
        b = args[1]
        if isinstance(b, Value):
            if dtype_of(b) is not dtype:
                return False
            return fn(raw, b.raw, out=raw) is not NotImplemented
        if (type(b) is float or type(b) is int) and dtype in self.weak and self.tensor_flags[1]:
            return fn(raw, b, out=raw) is not NotImplemented
        return False

    def direct_in_context(self, raw: Any, dtype: DType, args: tuple[Any, ...]) -> bool:
        """:meth:`direct` for a kernel that runs in a context of its own."""
        run = self.context.copy().run
        if len(args) == 1:
            return run(self.fn, raw, out=raw) is not NotImplemented
        b = args[1]
        if isinstance(b, Value):
            if dtype_of(b) is not dtype:
                return False
            if self.positional_out:  # a ufunc: 0.06 us less than out=
                return run(self.fn, raw, b.raw, raw) is not NotImplemented
            return run(self.fn, raw, b.raw, out=raw) is not NotImplemented
        if (type(b) is float or type(b) is int) and dtype in self.weak and self.tensor_flags[1]:
            return run(self.fn, raw, b, out=raw) is not NotImplemented
        return False


class BodyEntry(Entry):
    """A composite's body, or a boxed kernel: gets tensors, calls operators."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn

    def call(self, args: tuple[Any, ...]) -> Any:
        try:
            return push_and_call(self.fn, args, self.mask)
        except CoreDispatchError as error:
            if error.call is not None:
                raise
            raise HOOKS.failure(self, args, error) from None
        except (AttributeError, TypeError, IndexError):
            refusal = HOOKS.refusal(self, args)
            if refusal is None:
                raise
            raise refusal from None


class LayerEntry(Entry):
    """A layer's kernel. It gets this entry (its ``call``) and the tensors.

    ``call.op`` is the operator, ``call.redispatch(*args)`` calls it again with this layer and
    everything above it masked, ``call.below(args)`` does the same for the unchanged arguments
    without computing their keys again.
    """

    def __init__(
        self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any, generic: bool, bits: int
    ) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn
        self.generic: bool = generic
        self.down: int = mask | bits
        self.next: Entry | None = None

    def call(self, args: tuple[Any, ...]) -> Any:
        if self.generic:
            return self.fn(self, args)
        return self.fn(self, *args)

    def below(self, args: tuple[Any, ...]) -> Any:
        """Redispatch with the arguments that came in."""
        entry = self.next
        if entry is None:
            entry = HOOKS.resolve(self.op, self.keys & ~self.down, self.down)
            self.next = entry
        return entry.call(args)

    def redispatch(self, *args: Any) -> Any:
        """Redispatch with other arguments: their keys count, this layer's is masked."""
        return dispatch_below(self.op, args, self.down)

    def body(self, args: tuple[Any, ...]) -> Any:
        """Run the composite's body with this layer still in force for the ops in it."""
        try:
            return push_and_call(self.record.body, args, self.mask)
        except CoreDispatchError as error:
            if error.call is not None:
                raise
            raise HOOKS.failure(self, args, error) from None
        except (AttributeError, TypeError, IndexError):
            refusal = HOOKS.refusal(self, args)
            if refusal is None:
                raise
            raise refusal from None


class CallEntry(Entry):
    """Anything that takes the entry and the argument tuple: errors, fallbacks, device mixes."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn

    def call(self, args: tuple[Any, ...]) -> Any:
        return self.fn(self, args)
