"""The hot path: from a call's arguments to the kernel that serves it, and back.

:func:`invoke` (for users) and the ``dispatch`` functions (for complete arguments) OR the keys
of the arguments, look the key set up in the op's memo and hand the arguments to the
:class:`Entry` found there. Everything that can be decided once per key set was decided when
the entry was made (:mod:`.resolve`); no pluggy, no signature binding and no shape rule runs
here.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, Final

from coredispatch.registry.dispatch.masks import MASKS, call_masked, masked
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.model.value import Value, base_keys, dtype_of
from coredispatch.registry.wiring import HOOKS

# What a parameter needs before a kernel may see it (see Dispatcher.normal).
CANONICAL_INT: Final = 1
CANONICAL_INTLIST: Final = 2
CANONICAL_DTYPE: Final = 3
CANONICAL_DEVICE: Final = 4
CANONICAL_INDEX: Final = 5  # an int that must not be None
CANONICAL_NUMBER: Final = 6  # a number that must not be None
CANONICAL_NO_TEXT: Final = 7  # a number that has a default

_INFINITY: Final = float("inf")
# What stands among arguments and is no tensor; of other types it is asked whether they bring keys.
_PLAIN: Final = frozenset(
    (type(None), bool, int, float, complex, str, tuple, list, slice, type(...), DType)
)

# How tensor arguments are promoted before a kernel sees them.
PROMOTE_NONE: Final = 0
PROMOTE_COMMON: Final = 1
PROMOTE_FLOAT: Final = 2


_SHORT = 1 << 31


@mypyc_attr(allow_interpreted_subclasses=True)
class Entry:
    """What a key set resolved to. ``mask`` are the bits that layers above have taken out.

    Only ``call`` must be overridden; ``call_one`` and ``call_two`` serve the calls of one and two
    arguments whose first is a tensor, which are nine in ten, without a tuple of them.
    """

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any) -> None:
        self.op: Dispatcher = op
        self.keys: int = keys
        self.mask: int = mask
        self.record: Any = record  # the Kernel with its provenance, or None

    def call(self, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError(type(self).__name__)

    def call_one(self, a: Value) -> Any:
        return self.call((a,))

    def call_two(self, a: Value, b: Any) -> Any:
        return self.call((a, b))

    def call_nontensor(self, a: Value, b: Any) -> Any:
        """:meth:`call_two` for a ``b`` that holds no tensor."""
        return self.call_two(a, b)

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The raw result of the functional form (used by in-place and ``out=``)."""
        result = self.call(args)
        if isinstance(result, Value):
            return result.raw
        return result


class Memo:
    """What an operator's key sets resolved to, in one generation of the table.

    ``last`` is the entry found last: most calls have the key set of the call before. A change of
    the table replaces the whole memo, so that a thread which is resolving meanwhile stores its
    finding where nobody looks any more.
    """

    def __init__(self) -> None:
        self.last: Entry | None = None
        self.entries: dict[int, Entry] = {}
        self.below: dict[tuple[int, int], Entry] = {}  # (keys, mask) -> entry of a redispatch


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """What the hot path needs to know of an operator."""

    def __init__(self) -> None:
        self.name: str = ""
        self.memo: Memo = Memo()
        self.arity: int = 0  # number of parameters, keyword-only ones included
        self.positional: int = 0
        self.required: int = 0
        self.full_arity: int = -1  # the number of arguments that is complete as it is
        # tails[n]: the defaults that complete a call with n positional arguments
        self.default_tails: list[Any] = []
        # 8 * position + NORMAL_* code of the parameters that users may spell in several ways
        self.canonical: list[int] = []
        self.reads_numbers: bool = False  # of tensors that stand where its kernels take a number
        self.canonical_prefix: int = 1000  # the number of parameters before the first of those
        self.all_ints: bool = False  # all parameters from there on are NORMAL_INT
        self.takes_one_size: bool = False  # there is one, the second and last: a NORMAL_INTLIST
        self.spread: int = -1  # position of a last list of ints, which may come one by one
        self.tensors: list[int] = []  # positions that hold a tensor or a scalar
        self.fits: list[int] = []  # positions of what is stored in the result, whose dtype must
        self.holds_tensors: bool = False  # hold it: numbers, and tensors that do not promote
        self.lists: list[int] = []  # positions that hold lists or indices with tensors in them
        self.device: int = -1  # position of the device parameter of a factory
        self.single_tensor: bool = False  # only the first parameter may hold a tensor
        self.binary: bool = False  # there are two parameters, and no list
        self.scans_containers: bool = False  # keys also come from lists or from the device
        self.ambiguous: bool = False  # an overload needs the types to be looked at

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return invoke(self, args, kwargs)

    def __get__(self, instance: Any, owner: Any) -> Any:
        # An operator set on a class is a method (but see method_of).
        return self if instance is None else MethodType(self, instance)


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


def is_short(number: Any) -> bool:
    """Whether a number is an int of 32 bits: those of int32 and int64 hold it as it is."""
    return type(number) is int and -_SHORT <= number < _SHORT


def invoke(op: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``op`` with arguments as a user wrote them."""
    n = len(args)
    if n != op.full_arity or kwargs:
        if kwargs or n < op.required or op.ambiguous:
            return HOOKS.bind(op, args, kwargs)
        if n <= op.positional:
            args = args + op.default_tails[n]
        else:
            spread = op.spread
            if spread < 0:
                return HOOKS.bind(op, args, kwargs)
            for argument in args[spread:]:
                if type(argument) is not int:
                    return HOOKS.bind(op, args, kwargs)
            args = (*args[:spread], args[spread:], *op.default_tails[spread + 1])
            n = 0 if spread == op.canonical_prefix else op.positional
    if n > op.canonical_prefix:
        # The two commonest spellings, written out: a number for a list, and numbers alone.
        if op.takes_one_size and type(args[1]) is int:
            args = (args[0], (args[1],))
        else:
            fits = op.all_ints
            if fits:
                for argument in args[op.canonical_prefix : n]:
                    if type(argument) is not int:
                        fits = False
                        break
            if not fits:
                try:
                    args = canonicalized(op, args, n)
                except DTypeError:
                    return HOOKS.bind(op, args[:n], kwargs)  # an overload may take the types
    # The decomposition of dispatch() once more: interpreted, a function call costs 0.06 us.
    first = args[0]
    if op.single_tensor and isinstance(first, Value):
        keys = first.keys
    elif op.binary and isinstance(first, Value):
        second = args[1]
        keys = first.keys
        if isinstance(second, Value):
            keys |= second.keys
        elif type(second) not in _PLAIN:
            keys |= HOOKS.foreign(type(second))
    else:
        keys = keys_of(op, args)
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.last
    if entry is None or entry.keys != keys:
        entry = find(op, keys)
    n = len(args)
    if n <= 2 and isinstance(first, Value):
        return entry.call_one(first) if n == 1 else entry.call_two(first, args[1])
    return entry.call(args)


def method_of(op: Dispatcher) -> Any:
    """``op`` as a function, to be set on a class: binding and calling it is 0.2 us cheaper."""

    def method(*args: Any, **kwargs: Any) -> Any:
        return invoke(op, args, kwargs)

    return method


def spelled(op: Dispatcher, positions: int, other: frozenset[str], rewritten: Any) -> Any:
    """A function that calls ``op``, or ``rewritten(args, kwargs)`` where the call is not ``op``'s.

    That is so with more than ``positions`` positional arguments, or a keyword of ``other``.
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= positions and (not kwargs or other.isdisjoint(kwargs)):
            return invoke(op, args, kwargs)
        return rewritten(args, kwargs)

    return function


def find(op: Dispatcher, keys: int) -> Entry:
    """The entry of ``op`` for the (masked) key set, resolved if it is new."""
    memo = op.memo
    entry = memo.entries.get(keys)
    if entry is None:
        entry = HOOKS.resolve(op, keys, 0)
    memo.last = entry
    return entry


def canonicalized(op: Dispatcher, args: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Bring the parameters listed in ``op.normal`` into the one form that kernels see."""
    changed: list[Any] | None = None
    for packed in op.canonical:
        position = packed >> 3
        if position >= n:
            break
        argument = args[position]
        code = packed & 7
        if code == CANONICAL_NUMBER or code == CANONICAL_NO_TEXT:
            if type(argument) is float or type(argument) is int:
                continue
            # Text must not reach a kernel: ml_dtypes.bfloat16("a") ends the process. Nor must a
            # tensor, which is read here.
            if isinstance(argument, Value):
                pass
            elif type(argument) is complex or type(argument) is str:
                pass
            elif code == CANONICAL_NO_TEXT or argument is not None:
                continue
        elif code == CANONICAL_INDEX:
            if type(argument) is int:
                continue
        elif argument is None:
            continue
        elif code == CANONICAL_INT:
            if type(argument) is int:
                continue
        elif code == CANONICAL_INTLIST:
            if type(argument) is int:
                argument = (argument,)
                if position == 1 and len(args) == 2:
                    return (args[0], argument)
                if changed is None:
                    changed = list(args)
                changed[position] = argument
                continue
            if type(argument) is tuple:
                fits = True
                for item in argument:
                    if type(item) is not int:
                        fits = False
                        break
                if fits:
                    continue
        elif code == CANONICAL_DTYPE and type(argument) is DType:
            continue
        argument = HOOKS.canonicalize(op, position, code, argument)
        if changed is None:
            changed = list(args)
        changed[position] = argument
    if changed is not None:
        args = tuple(changed)
    return fitting_numbers(op, args, n) if op.fits else args


def fitting_numbers(op: Dispatcher, args: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """``args`` with the numbers to be stored in a form that the result's dtype holds."""
    for position in op.fits:
        if position >= n:
            continue
        number = args[position]
        if number is None:
            continue
        first = args[0]
        if isinstance(number, Value):
            if op.holds_tensors:
                if isinstance(first, Value) and dtype_of(number) is dtype_of(first):
                    continue
            elif not op.reads_numbers:
                continue
        # What every dtype of a kind holds, unchanged, is not looked at any further.
        letter = "b"
        if isinstance(first, Value):
            letter = (dtype_of(first) if first._dtype is None else first._dtype).kind
        if type(number) is float:
            value: float = number
            if letter == "f":
                if -127.0 <= value <= 127.0 or value == _INFINITY or value == -_INFINITY:
                    continue
            elif letter == "b" and 0.0 <= value <= 127.0:
                continue
        elif type(number) is int:
            if 0 <= number <= 127 or (-127 <= number < 0 and letter != "u" and letter != "b"):
                continue
        elif type(number) is bool:
            continue
        found = HOOKS.fitted(op, position, args)
        if found is not number:
            args = (*args[:position], found, *args[position + 1 :])
    return args


def list_keys(argument: Any) -> int:
    """Keys of the tensors inside a list, a tuple or an index."""
    keys = 0
    if isinstance(argument, Value):
        return argument.keys
    if isinstance(argument, (list, tuple)):
        for item in argument:
            if isinstance(item, Value):
                keys |= item.keys
            elif type(item) not in _PLAIN:
                keys |= HOOKS.foreign(type(item))
    return keys


def keys_of(op: Dispatcher, args: tuple[Any, ...]) -> int:
    """OR of the keys of all tensors among the (complete) arguments, unmasked."""
    keys = 0
    for argument in args:
        if isinstance(argument, Value):
            keys |= argument.keys
        elif argument is not None:
            kind = type(argument)
            # The commonest are told apart without asking the set, which takes 20 ns.
            if kind is not int and kind is not float and kind is not str and kind not in _PLAIN:
                keys |= HOOKS.foreign(kind)
    if not op.scans_containers:
        return keys
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
    keys = keys_of(op, args)
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.last
    if entry is None or entry.keys != keys:
        entry = find(op, keys)
    return enter(entry, args)


def enter(entry: Entry, args: tuple[Any, ...]) -> Any:
    """``entry.call(args)``, by the shorter way for one or two arguments."""
    n = len(args)
    first = args[0]
    if n <= 2 and isinstance(first, Value):
        return entry.call_one(first) if n == 1 else entry.call_two(first, args[1])
    return entry.call(args)


def dispatch_one(op: Dispatcher, a: Value) -> Any:
    """``op(a)`` for an operator of one tensor."""
    keys = a.keys
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.last
    if entry is None or entry.keys != keys:
        entry = find(op, keys)
    return entry.call_one(a)


def dispatch_two(op: Dispatcher, a: Value, b: Value) -> Any:
    """``op(a, b)`` for an operator of two tensors."""
    keys = a.keys | b.keys
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.last
    if entry is None or entry.keys != keys:
        entry = find(op, keys)
    return entry.call_two(a, b)


def dispatch_nontensor(op: Dispatcher, a: Value, b: Any) -> Any:
    """``op(a, b)`` where ``b`` is complete, normalised and holds no tensor."""
    keys = a.keys
    if MASKS.active:
        keys = masked(keys)
    entry = op.memo.last
    if entry is None or entry.keys != keys:
        entry = find(op, keys)
    return entry.call_nontensor(a, b)


def dispatch_below(op: Dispatcher, args: tuple[Any, ...], mask: int) -> Any:
    """Call ``op`` with the bits of ``mask`` taken out of the key set (redispatch)."""
    keys = keys_of(op, args)
    if MASKS.active:
        keys = masked(keys)
    keys &= ~mask
    entry = op.memo.below.get((keys, mask))
    if entry is None:
        entry = HOOKS.resolve(op, keys, mask)
    return enter(entry, args)


def push_and_call(fn: Any, args: tuple[Any, ...], mask: int) -> Any:
    """``fn(*args)`` with the bits of ``mask`` excluded from every key set inside it."""
    if mask == 0:
        return fn(*args)
    return call_masked(fn, args, mask)


def check_view(target: Value) -> None:
    """Refuse a write to a view that goes past the layer which records writes to its base."""
    recorded = HOOKS.recorded
    view = target._view
    if view is not None and not target.keys & recorded and base_keys(view) & recorded:
        HOOKS.check_view_write(target)
