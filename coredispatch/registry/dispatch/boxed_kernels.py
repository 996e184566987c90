"""Entries whose winner takes tensors: composites' bodies, layers, refusals, fallbacks.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry.dispatch.dispatcher import (
    Dispatcher,
    Entry,
    dispatch_below,
    enter,
    push_and_call,
)
from coredispatch.registry.model.errors import CoreDispatchError
from coredispatch.registry.wiring import HOOKS


class BodyEntry(Entry):
    """A composite's body, or a boxed kernel: gets tensors, calls operators."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn

    def call(self, args: tuple[Any, ...]) -> Any:
        return run_body(self, self.fn, args)


def run_body(entry: Entry, fn: Any, args: tuple[Any, ...]) -> Any:
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


class LayerEntry(Entry):
    """A layer's kernel. It gets this entry (its ``call``) and the tensors.

    ``call.op`` is the operator, ``call.redispatch(*args)`` calls it again with this layer and
    everything above it masked, ``call.below(args)`` does the same for the unchanged arguments
    without computing their keys again.

    A layer whose generic kernel is a subclass of this class gets one instance of it per key set,
    and overrides ``call``.
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
        return enter(entry, args)

    def redispatch(self, *args: Any) -> Any:
        """Redispatch with other arguments: their keys count, this layer's is masked."""
        return dispatch_below(self.op, args, self.down)

    def body(self, args: tuple[Any, ...]) -> Any:
        """Run the composite's body with this layer still in force for the ops in it."""
        return run_body(self, self.record.body, args)


class CallEntry(Entry):
    """Anything that takes the entry and the argument tuple: errors, fallbacks, device mixes."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any) -> None:
        super().__init__(op, keys, mask, record)
        self.fn: Any = fn

    def call(self, args: tuple[Any, ...]) -> Any:
        return self.fn(self, args)
