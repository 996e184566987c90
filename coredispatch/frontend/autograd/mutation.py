"""``allow_mutation_on_saved_tensors``: what a write would spoil for backward is copied before it.

A layer that a mode switches on sees the writes; hooks for saved tensors tell it what is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch._version import __version__
from coredispatch.frontend.autograd.saved_tensors import saved_tensors_hooks
from coredispatch.frontend.modes import no_grad
from coredispatch.plugin import Layer, LayerEntry, Mode, Registrar, Switch, hookimpl
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.value import bump_version, storage_of, version_of

__all__ = ["allow_mutation_on_saved_tensors", "increment_version"]


class _Saved:
    """A tensor that the graph keeps: the tensor itself, or the copy made before it was written."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.version = tensor, version_of(tensor)

    def copy(self) -> None:
        """Keep what the tensor is now."""
        with no_grad():
            self.tensor = TABLE.operator("clone")(self.tensor)
        self.version = version_of(self.tensor)

    def unpacked(self) -> Any:
        """What was saved."""
        if version_of(self.tensor) != self.version:
            raise AutogradError(
                "a saved tensor was written outside of allow_mutation_on_saved_tensors",
                fix="keep the block open until after the write",
            )
        return self.tensor


class _MutationMode(Mode):
    """Switches the layer on; knows what is saved, by storage."""

    switch = Switch(on=("copy_before_write",))

    def __init__(self) -> None:
        self.saved: dict[int, weakref.WeakSet[_Saved]] = {}

    def pack(self, tensor: Any) -> _Saved:
        """For the hooks."""
        kept = _Saved(tensor)
        self.saved.setdefault(id(storage_of(tensor)), weakref.WeakSet()).add(kept)
        return kept

    def clear(self) -> None:
        """Forget what is saved: later writes copy nothing."""
        self.saved.clear()


def _copy_first(call: LayerEntry, args: tuple[Any, ...]) -> Any:
    mode = _MutationMode.current()
    if mode is not None:
        for target in call.op.schema.written(args):  # type: ignore[attr-defined]
            for kept in mode.saved.pop(id(storage_of(target)), ()):
                kept.copy()
    return call.below(args)


class _Plugin:
    @hookimpl
    def coredispatch_register(self, registrar: Registrar) -> None:
        registrar.layer(
            Layer(
                "copy_before_write",
                generic=_copy_first,
                applies=lambda op: bool(op.mutates),
                below=("autograd",),
            )
        )


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[Any]:
    """Let tensors be written in place that the graph saved inside the block.

    They are copied before the first write, so that gradients are those of what was saved. What is
    yielded has ``clear()``, which lets go of the copies to come. Blocks do not nest::

        with allow_mutation_on_saved_tensors():
            a = leaf.clone()
            out = (a**2).sum()
            a.sin_()
            out.backward()
    """
    if "copy_before_write" not in TABLE.snapshot.layers:
        from coredispatch.registry import plugins

        plugins.builtin("copy_before_write", _Plugin(), __version__)
    if _MutationMode.current() is not None:
        raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
    mode = _MutationMode()
    with mode, saved_tensors_hooks(mode.pack, lambda kept: kept.unpacked()):
        try:
            yield mode
        finally:
            mode.clear()


def increment_version(tensor: Any) -> None:
    """Count a write to a tensor, or to each of several, that autograd has not seen.

    For writes through other libraries: what was saved before is then found to be changed.
    """
    tensors = tensor if isinstance(tensor, (list, tuple)) else [tensor]
    for item in tensors:
        if not hasattr(item, "raw"):
            raise TypeError(f"increment_version() takes tensors, not {type(item).__name__}")
        if item.is_inference():
            raise AutogradError("inference tensors have no version counter", fix="use a .clone()")
        bump_version(item)
