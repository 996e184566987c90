"""The layer ``transform``: serves each call at the highest level among its arguments.

It lies above all other layers. :mod:`.levels` says how levels, wrappers and gradients go together.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.autograd.recording import RecordEntry
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.frontend.transforms import batching, tangents
from coredispatch.frontend.transforms.levels import (
    Batched,
    Leveled,
    stripped,
    top_level,
    unrecorded_depths,
)
from coredispatch.frontend.transforms.randomness import randomized
from coredispatch.plugin import (
    CoreDispatchError,
    Layer,
    LayerEntry,
    bump_version,
    describe_call,
    hookimpl,
    link_results,
)
from coredispatch.registry.around.checks import check_call
from coredispatch.registry.dispatch.dispatcher import Entry
from coredispatch.registry.model.value import Value, storage_of

__all__ = ["TransformEntry", "coredispatch_register"]


class TransformEntry(LayerEntry):
    """The call of one operator as the transforms see it."""

    def __init__(self, op: Any, *rest: Any) -> None:
        super().__init__(op, *rest)
        self.recorder: Any = None  # autograd's entry, over the opening of wrappers

    def call(self, args: tuple[Any, ...]) -> Any:
        level = top_level(args)
        if not level:  # a mode brought the call here
            op: Any = self.op
            return randomized(self, args) if op.draws(args) else self.below(args)
        if self.keys & AUTOGRAD and _tracked(args, level) and level not in unrecorded_depths():
            return self.record_at(level, args)
        return self.open(args, level)

    def record_at(self, level: int, args: tuple[Any, ...]) -> Any:
        """Let autograd record the call in the graph of this level's wrappers."""
        if self.recorder is None:
            self.recorder = recorder = RecordEntry(self.op, self.keys, 0, self.op, None, True, 0)
            recorder.next = _Opening(self)
        lift = _wrapper(args, level).lift
        rule = self.record.rules.get("autograd")
        if rule is not None:
            return rule(_RuleCall(self), *_mapped(lambda x: _constant(x, level, lift), args))
        return self.recorder.call(_mapped(lambda x: _constant(x, level, lift), args))

    def open(self, args: tuple[Any, ...], level: int) -> Any:
        """Serve the call at this level, of whose graph it is no part."""
        serve = batching.serve if isinstance(_wrapper(args, level), Batched) else tangents.serve
        try:
            out = serve(self, args, level)
        except CoreDispatchError as error:
            raise _as_of_samples(self.op, args, error) from None
        op: Any = self.op
        for target in op.schema.written(args) if op.mutates else ():
            if isinstance(target.raw, Leveled) and op.inplace_of is not None:
                bump_version(target)
        return link_results(op, args, out, _shares) if op.view and out is not None else out


class _RuleCall:
    """The call as an operator's own rule for autograd sees it: below it the wrappers are opened."""

    def __init__(self, entry: TransformEntry) -> None:
        self.entry = entry
        self.op = entry.op

    def below(self, args: tuple[Any, ...]) -> Any:
        """Serve the call without history."""
        return _Opening(self.entry).call(args)

    def redispatch(self, *args: Any) -> Any:
        """Serve the call with other arguments, without history."""
        return self.below(args)

    def decompose(self, args: tuple[Any, ...]) -> Any:
        """Run the decomposition, whose operators are recorded."""
        return self.entry.decompose(args)


class _Opening(Entry):
    """What autograd finds below it: the call without the history of its arguments."""

    def __init__(self, entry: TransformEntry) -> None:
        super().__init__(entry.op, entry.keys, 0, None)
        self.entry = entry

    def call(self, args: tuple[Any, ...]) -> Any:
        level = top_level(args)
        plain = _mapped(stripped, args)
        out = self.entry.open(plain, level)
        if isinstance(out, (list, tuple)):
            items = [_original(item, plain, args) for item in out]
            same = all(a is b for a, b in zip(items, out, strict=True))
            return out if same else self.entry.record.result_type(items)
        return _original(out, plain, args)


def _as_of_samples(op: Any, args: tuple[Any, ...], error: CoreDispatchError) -> Exception:
    """The error of a call on what is in the wrappers, in the shapes that the program sees."""
    try:
        check_call(op, args)
    except CoreDispatchError as seen:
        seen.call = describe_call(op, args)
        return seen
    except Exception:
        return error
    return error


def _shares(item: Any, argument: Any) -> bool:
    """Whether a result at some level views an argument: whether what is in them does so."""
    return item._view is None and _innermost(item)._view is not None


def _innermost(value: Any) -> Any:
    while isinstance(value.raw, Leveled):
        value = value.raw.value
    return value


def _wrapper(args: Any, level: int) -> Any:
    """Any wrapper of this level."""
    for item in args:
        if isinstance(item, Value):
            if isinstance(item.raw, Leveled) and item.raw.level == level:
                return item.raw
        elif isinstance(item, (list, tuple)):
            found = _wrapper(item, level)
            if found is not None:
                return found
    return None


def _tracked(args: Any, level: int) -> bool:
    """Whether a wrapper of this level requires grad."""
    for item in args:
        if isinstance(item, Value):
            if item.keys & AUTOGRAD and isinstance(item.raw, Leveled) and item.raw.level == level:
                return True
        elif isinstance(item, (list, tuple)) and _tracked(item, level):
            return True
    return False


def _constant(value: Any, level: int, lift: Any) -> Any:
    """A tensor of a lower depth that requires grad, as a constant of this one."""
    raw = value.raw
    if not value.keys & AUTOGRAD or isinstance(raw, Leveled) and raw.level == level:
        return value
    lifted = lift(value)
    lifted._storage = storage_of(value)  # writes to it are noticed
    return lifted


def _mapped(change: Any, args: Any) -> Any:
    """``args`` with ``change`` applied to every tensor, also in lists."""
    items = []
    for item in args:
        if isinstance(item, Value):
            item = change(item)
        elif type(item) is tuple or type(item) is list:
            item = type(item)(_mapped(change, item))
        items.append(item)
    return tuple(items)


def _original(out: Any, plain: Any, args: Any) -> Any:
    """``out``, or the argument whose stand-in it is; its views are views of the argument."""
    if not isinstance(out, Value):
        return out
    view = out._view
    for stand_in, argument in zip(plain, args, strict=True):
        if out is stand_in:
            return argument
        if view is not None and view.base is stand_in and stand_in is not None:
            view.base = argument
    return out


@hookimpl
def coredispatch_register(registrar: Any) -> None:
    """Register the layer ``transform``, above all others."""
    registrar.layer(
        Layer(
            "transform",
            generic=TransformEntry,
            above=("autograd", "autocast", "inference", "capture"),
        )
    )
