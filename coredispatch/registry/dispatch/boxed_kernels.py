"""Entries whose winner takes tensors: composites' decompositions, layers, refusals, fallbacks.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry.dispatch.dispatcher import (
    Dispatcher,
    Entry,
    canonicalized,
    dispatch_below,
    enter,
    push_and_call,
)
from coredispatch.registry.model.errors import CoreDispatchError, DTypeError, OpError
from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.model.value import Value
from coredispatch.registry.wiring import HOOKS


class DecompositionEntry(Entry):
    """A composite's decomposition, or a boxed kernel: gets tensors, calls operators."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn
        #: positions of tensors that a number cannot stand for (and of those that may be None),
        #: and of lists of tensors: a decomposition would often take the other, where the
        #: operator's kernels do not
        self.tensors: list[int] = []
        self.optional: list[int] = []
        self.lists: list[int] = []

    def call(self, args: tuple[Any, ...]) -> Any:
        for position in self.tensors:
            if not isinstance(args[position], Value):
                self.check_kinds(args)
        for position in self.optional:
            argument = args[position]
            if argument is not None and not isinstance(argument, Value):
                self.check_kinds(args)
        for position in self.lists:
            if not isinstance(args[position], (list, tuple)):
                self.check_kinds(args)
        return run_decomposition(self, self.fn, args)

    def check_kinds(self, args: tuple[Any, ...]) -> None:
        """Refuse arguments whose types do not fit the schema."""
        try:
            HOOKS.check_types(self.op, args)
        except CoreDispatchError as error:
            raise HOOKS.failure(self, args, error) from None


def run_decomposition(entry: Entry, fn: Any, args: tuple[Any, ...]) -> Any:
    """``fn(*args)`` with the entry's bits masked, and errors that name the entry's operator."""
    try:
        return push_and_call(fn, args, entry.mask)
    except CoreDispatchError as error:
        if error.call is not None:
            raise
        raise HOOKS.failure(entry, args, error) from None
    except (AttributeError, TypeError, LookupError, ValueError):
        refusal = HOOKS.refusal(entry, args)
        if refusal is None:
            raise
        raise refusal from None


@mypyc_attr(allow_interpreted_subclasses=True)
class LayerEntry(Entry):
    """The call of an operator as a layer sees it: what a layer's kernels get as ``call``.

    ``call.op`` is the operator, ``call.keys`` the key set of the arguments and modes. Arguments
    are complete tuples in schema order, keyword-only parameters included. From here a kernel may

    - go on to what lies below: ``call.below(args)`` with the arguments that came in,
      ``call.redispatch(*args)`` with others, whose keys are computed again;
    - ``call.decompose(args)``: run the composite's decomposition, whose operators meet this layer
    again;
    - ``call.again(*args)``: begin anew at this layer with other arguments;
    - ``call.run_below(fn, *args)``: run any code with this layer and those above it masked.

    A layer whose ``generic`` is a subclass of this class gets one instance of it per operator and
    key set, on which everything can be decided in ``__init__``, and overrides ``call``;
    ``call_one`` and ``call_two``, for calls of one and two arguments, go there unless overridden.
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
        """Redispatch with the arguments that came in: nothing is computed anew."""
        entry = self.next
        if entry is None:
            entry = HOOKS.resolve(self.op, self.keys & ~self.down, self.down)
            self.next = entry
        return enter(entry, args)

    def redispatch(self, *args: Any) -> Any:
        """Redispatch with other arguments: their keys count, this layer's is masked."""
        if len(args) != self.op.arity:
            raise incomplete(self.op, args, "redispatch")
        if self.op.canonical:
            args = canonicalized(self.op, args, len(args))
        return dispatch_below(self.op, args, self.down)

    def again(self, *args: Any) -> Any:
        """The call once more with other arguments, which this layer sees if they carry its key.

        The layers above it, which have had their turn, stay masked.
        """
        if len(args) != self.op.arity:
            raise incomplete(self.op, args, "again")
        if self.op.canonical:
            args = canonicalized(self.op, args, len(args))
        return dispatch_below(self.op, args, self.mask)

    def decompose(self, args: tuple[Any, ...]) -> Any:
        """Run the composite's decomposition with this layer still in force for the operators in
        it.
        """
        return decomposed(self, args)

    def run_below(self, fn: Any, *args: Any) -> Any:
        """``fn(*args)`` with this layer and those above it masked for every operator in it."""
        return push_and_call(fn, args, self.down)


def incomplete(op: Dispatcher, args: tuple[Any, ...], method: str) -> Exception:
    """The error of a layer's kernel that passes on more or fewer arguments than ``op`` has."""
    signature: Any = getattr(op, "signature", op.name)
    return DTypeError(
        f"call.{method} of {op.name!r} got {len(args)} arguments, the operator has {op.arity}",
        fix=f"pass each in its order, defaults included: the signature is {signature}",
    )


def decomposed(entry: Entry, args: tuple[Any, ...]) -> Any:
    """The decomposition of the entry's operator; :class:`OpError` where it has none."""
    body: Any = getattr(entry.op, "decomposition", None)
    if body is None:
        raise OpError(
            f"operator {entry.op.name!r} has no decomposition",
            fix="ask call.op.decomposition first, and serve what has none yourself",
        )
    return run_decomposition(entry, body, args)


@mypyc_attr(allow_interpreted_subclasses=True)
class CallEntry(Entry):
    """The call as a backend's generic kernel sees it; also errors, fallbacks, device mixes."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn

    def call(self, args: tuple[Any, ...]) -> Any:
        return self.fn(self, args)

    def decompose(self, args: tuple[Any, ...]) -> Any:
        """Run the composite's decomposition: its operators come to the backend one by one."""
        return decomposed(self, args)
