"""What a captured call changed in Python's state and in its arguments, as later calls write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coredispatch.frontend.compiling.attributes import attributes_of
from coredispatch.frontend.compiling.numbers import OPEN, is_open, scrubbed
from coredispatch.frontend.compiling.records import MISSING, Record, equal
from coredispatch.frontend.compiling.replaced import alike, parts_of
from coredispatch.frontend.compiling.sizes import Sized
from coredispatch.frontend.compiling.templates import Describer, Unknown
from coredispatch.frontend.compiling.writing import Contents, Gradient, contents

if TYPE_CHECKING:
    from coredispatch.frontend.compiling.capture import Capture

__all__ = ["effects_of", "on_arguments"]

_READS_LAST_LR = {"_last_lr", "get_last_lr", "print_lr", "state_dict"}


def effects_of(capture: Capture, describer: Describer) -> list[tuple[Any, Any]]:
    """What the call changed in Python's state: ``(write, builder)``."""
    found: list[tuple[Any, Any]] = []
    for record in list(capture.state):
        now = record.now()
        if record.shown is not None and not _untouched(*record.shown):
            raise Unknown(f"{record.how} is written to, and replaced in other calls")
        if record.symbol is not None:
            if now is record.symbol:
                continue
        elif now is record.value or (not isinstance(now, OPEN) and equal(now, record.value)):
            continue
        if record.moving and record.same_but_moving(now):
            continue
        if record.kind in ("class", "array", "members") or str(record.key).startswith("__"):
            raise Unknown(f"{record.how} is changed in a way that cannot be replayed")
        if record.kind == "keys":
            if any(map(is_open, now)):
                raise Unknown(f"{record.how} have a size, or a tensor of open sizes, among them")
            for key in now:
                if ("item", id(record.holder), key) not in capture.state.records:
                    new = Record("item", record.holder, key, MISSING, f"a new {key!r}")
                    found.append((new.put, describer.describe(new.now())))
            old, left = set(record.value), set(now)
            order = [*(key for key in record.value if key in left)]
            if [*now] != order + [key for key in now if key not in old]:
                raise Unknown(f"{record.how} come in another order")
            continue
        if record.kind == "entry" and now is MISSING:
            continue  # of a list that is written as a whole
        if record.kind == "list":
            before = len(record.value)
            if equal(now[:before], record.value) and capture.state.appended(record):
                parts = [describer.describe(item) for item in now[before:]]
                build = lambda env, parts=parts: [p(env) for p in parts]  # noqa: E731
                found.append((record.holder.extend, build))
                capture.unread.add(record)
                continue
            parts = [describer.describe(item) for item in now]
            found.append((record.put, lambda env, parts=parts: [p(env) for p in parts]))
        else:
            found.append((record.put, describer.describe(now)))
            if record.key == "_last_lr" and not _READS_LAST_LR & capture.state.names:
                capture.unread.add(record)  # a schedule writes it and reads it nowhere
        _noted(capture, record, now)
    for tensor, names in capture.state.attributes:
        if attributes_of(tensor) != names:
            raise Unknown("the program gives attributes to a tensor from outside")
    for tensor, grad, keys, node, raw in capture.state.before:
        if tensor.raw is not raw or tensor._node is not node[0] or tensor.keys != keys:
            raise Unknown("the program changes what a tensor from outside is, not its elements")
        if tensor._grad is not grad:
            capture.regraded.add(id(tensor))
            found.append((_grad_writer(capture, tensor), describer.describe(tensor._grad)))
    return found


def _noted(capture: Capture, record: Record, now: Any) -> None:
    """A number or tensor that each call changes is an input of the next capture's graph."""
    if record.kind == "list" and isinstance(record.holder, list):
        for i, (a, b) in enumerate(zip(now, record.value)):
            if i not in record.moving and not equal(a, b):
                _replaces(capture, ("entry", id(record.holder), i), a, b)
    elif record.kind in ("item", "attribute", "cell", "member", "entry"):
        if not record.dynamic or capture.recorder.table is None:
            _replaces(capture, record.place, now, record.value)


def _replaces(capture: Capture, place: Any, now: Any, then: Any) -> None:
    """A value of Python's state is replaced by another one: may it be an input?"""
    now = scrubbed(now)
    if any(Sized.of(item) is not None for _, item in parts_of(now)):
        return  # the sizes of one run would be asked about
    if capture.sizes.differ(place, now, then) or place not in capture.dynamic and alike(now, then):
        capture.dynamic.add(place)
        capture.passing = True


def _grad_writer(capture: Capture, tensor: Any) -> Any:
    for i, leaf in enumerate(capture.given.leaves):
        if leaf is tensor:
            return Gradient(i)
    return Gradient(tensor)


def on_arguments(
    capture: Capture, describer: Describer, copies: list[Any]
) -> list[tuple[Any, Any]]:
    """What the call changed in lists and dicts among its arguments."""
    found: list[tuple[Any, Any]] = []
    for i, (now, then) in enumerate(zip(map(contents, capture.given.containers), copies)):
        if isinstance(now, list):
            if len(now) != len(then) or any(a is not b for a, b in zip(now, then)):
                parts = [describer.describe(item) for item in now]
                build = lambda env, parts=parts: [p(env) for p in parts]  # noqa: E731
                found.append((Contents(i), build))
        elif list(now) != list(then) or any(now[k] is not then[k] for k in now):
            pairs = [(k, describer.describe(v)) for k, v in now.items()]
            entries = lambda env, pairs=pairs: {k: v(env) for k, v in pairs}  # noqa: E731
            found.append((Contents(i), entries))
    return found


def _untouched(container: Any, parts: Any) -> bool:
    """Whether a container has the parts that it had."""
    now = list(parts_of(container))
    return len(now) == len(parts) and all(
        a == b and item is then for (a, item), (b, then) in zip(now, parts)
    )
