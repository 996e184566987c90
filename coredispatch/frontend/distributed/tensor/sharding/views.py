"""Views of DTensors: what shares elements with what, and what was written since.

A view that needed elements of other ranks is a copy. Writes to what an index gave are written back;
others are refused. Autograd does not follow writes through views of DTensors, so that tensors whose
history they make wrong are refused later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from coredispatch.frontend.distributed.tensor.placements import Replicate
from coredispatch.frontend.distributed.tensor.transfers import moved
from coredispatch.frontend.modes import Recording, is_inference_mode_enabled
from coredispatch.registry.model.value import bump_version

__all__ = ["Aliases", "Copied", "check_current", "check_write", "note_view", "note_write"]


class Copied(NamedTuple):
    """A view whose elements were gathered: it does not share them with its base."""

    by: str
    base: Any
    index: Any
    local: Any
    shape: Any
    placements: Any

    def write_back(self) -> None:
        """What was written to the view, into the base; all ranks of the mesh call it."""
        base, mesh = self.base, self.base.device_mesh
        whole = tuple(Replicate() for _ in range(mesh.ndim))
        every = moved(base._local_tensor, base.shape, mesh, base.placements, whole).clone()
        every[self.index] = moved(self.local, self.shape, mesh, self.placements, whole)
        base._local_tensor.copy_(moved(every, base.shape, mesh, whole, base.placements))

    def chain(self) -> Iterator[Copied]:
        """This copy, the one it was taken of, and so on."""
        link: Copied | None = self
        while link is not None:
            yield link
            link = link.base._copied


class Aliases:
    """The tensors that share elements; `written` names what changed them, past their history."""

    written: str | None = None


def note_view(view: Any, call: Any, op: Any, gathered: Any) -> Any:
    """Remember of a result of a view operator what it shares, or that it is a copy.

    `gathered` is the first operand where its parts had to move, else None.
    """
    base = call.tensors[0]
    source = base._local_tensor if gathered is None else gathered
    if op.view == "maybe" and not _shares(view._local_tensor, source):
        return view
    if gathered is not None:
        index = call.args[1] if op.name == "getitem" else None
        view._copied = Copied(op.name, base, index, view._local_tensor, view.shape, view.placements)
    else:
        view._copied = base._copied
    if op.name != "detach":  # has no history
        if base._aliases is None:
            base._aliases = Aliases()
        view._aliases = base._aliases
    return view


def _shares(a: Any, b: Any) -> bool:
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


def _recording() -> bool:
    """Whether autograd records for the caller: below it, its key is masked."""
    return Recording.current() in (None, True) and not is_inference_mode_enabled()


def check_current(tensors: list[Any], name: str) -> None:
    """Refuse tensors whose elements were written through another view while autograd recorded."""
    for tensor in tensors:
        aliases = tensor._aliases
        if aliases is not None and aliases.written is not None and _recording():
            raise RuntimeError(
                f"{name}: {aliases.written} wrote to a DTensor that shares elements with this one, "
                "which autograd does not follow\n"
                "  fix: use what was written to, or compute out of place"
            )


def check_write(written: list[Any], name: str) -> list[Copied]:
    """The copies among what is written. Raises RuntimeError for one that cannot be written back."""
    copies = [link for t in written if t._copied is not None for link in t._copied.chain()]
    for copied in copies:
        if copied.index is None:
            raise RuntimeError(
                f"{name}: writes to what {copied.by} gave of a DTensor, whose elements were "
                "gathered for it: the DTensor would not change\n"
                "  fix: x[index] = value, or redistribute it first, or clone() the view"
            )
    return copies


def note_write(written: list[Any], tensors: list[Any], name: str) -> None:
    """What else shares the elements has a history that lacks a write that autograd records."""
    if _recording() and any(t.requires_grad for t in tensors):
        for tensor in written:
            if tensor._aliases is not None:
                tensor._aliases.written, tensor._aliases = name, None
    for tensor in written:
        if tensor._copied is not None:
            for link in tensor._copied.chain():
                bump_version(link.base)
