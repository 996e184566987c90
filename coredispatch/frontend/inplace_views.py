"""Tensors that change their own shape in place: ``squeeze_``, ``transpose_``, ``resize_``, ...

The tensor becomes a view of what it was. Its memory stays, so that other views of it go on
sharing it; autograd records the view operator as it does out of place.
"""

from __future__ import annotations

import functools
import weakref
from math import prod
from typing import Any

from coredispatch.frontend.autograd.inplace import check_in_place
from coredispatch.frontend.autograd.recording import node_of
from coredispatch.frontend.determinism import filling
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry.dispatch.masks import call_masked, masked
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.determinism import DETERMINISM
from coredispatch.registry.model.errors import AutogradError, OpError
from coredispatch.registry.model.sizes import as_sizes
from coredispatch.registry.model.value import bump_version, storage_of, version_of

__all__ = ["view_in_place", "install"]


def view_in_place(target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Make ``target`` what operator ``name`` makes of it; returns ``target``.

    A tensor with a history keeps it, also under ``no_grad``: the elements are the same ones. A leaf
    stays one there. Raises :class:`AutogradError` for a leaf that requires grad or a view of one
    while autograd records, and for an inference tensor outside inference mode.
    """
    leaf = target.keys & AUTOGRAD and target.is_leaf
    if leaf and masked(target.keys) & AUTOGRAD:
        raise AutogradError(
            f"{name}_(): a leaf tensor that requires grad cannot change its shape in place",
            fix=f"use x = x.{name}(...), or cd.no_grad()",
        )
    try:
        check_in_place(target)
    except AutogradError as refused:
        refused.call = f"{name}_()"
        raise
    storage = storage_of(target)
    past = Tensor(target.raw, target.keys & ~AUTOGRAD if leaf else target.keys)
    past._node, past._output_nr = node_of(target), target._output_nr
    past._view, past._storage = target._view, storage
    call = functools.partial(TABLE.operator(name), past, *args, **kwargs)
    result = call_masked(call, (), 0, AUTOGRAD)
    for reference in list(storage.aliases):  # views of what it was stay views of that
        alias = reference()
        if alias is not None and alias._view is not None and alias._view.base is target:
            alias._view.base = past
    target.raw = result.raw
    bump_version(target)
    if leaf:
        return target
    target.keys = result.keys
    target._node, target._output_nr = result._node, result._output_nr
    if result._view is not None:
        if target._view is None:
            storage.aliases.append(weakref.ref(target))
        renamed = target._view is None or target._view.renamed
        target._view, target._storage = result._view, result._storage
        target._view.renamed = renamed
        target._view.version = version_of(target)  # the elements were not written
    return target


def _changes_itself(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return view_in_place(self, name, *args, **kwargs)

    method.__name__ = method.__qualname__ = name + "_"
    method.__doc__ = f"``self`` becomes ``self.{name}(...)``, without a copy; returns self."
    return method


def resize_(self: Tensor, *size: Any) -> Tensor:
    """Give ``self`` another size in place; returns self.

    As many elements as before are viewed anew, fewer are the first ones in row-major order, and
    of more the new ones are 0. Raises :class:`OpError` for a tensor that requires grad and
    :class:`ArgumentError` for a negative length.
    """
    given = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    try:
        sizes = as_sizes(given)
    except OpError as error:
        error.call = "resize_()"
        raise
    if self.keys & AUTOGRAD:
        raise OpError("resize_(): a tensor that requires grad cannot be resized")
    flat = self.reshape(-1)
    if prod(sizes) > flat.numel():
        fill = filling(self.dtype) if DETERMINISM.enabled and DETERMINISM.fill else 0
        flat = TABLE.operator("constant_pad_nd")(flat, (0, prod(sizes) - flat.numel()), fill)
    self.raw = flat[: prod(sizes)].reshape(sizes).raw
    bump_version(self)
    return self


def resize_as_(self: Tensor, other: Tensor) -> Tensor:
    """Give ``self`` the size of ``other`` in place; returns self."""
    return resize_(self, *other.shape)


def install() -> None:
    """Set the methods on :class:`Tensor`."""
    for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes"):
        setattr(Tensor, name + "_", _changes_itself(name))
    for name, method in (
        ("swapdims_", Tensor.swapaxes_),
        ("resize_", resize_),
        ("resize_as_", resize_as_),
    ):
        setattr(Tensor, name, method)


install()
