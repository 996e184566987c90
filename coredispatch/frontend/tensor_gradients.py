"""A tensor's part in autograd: gradients, history, hooks. See :mod:`.tensor`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coredispatch._warnings import warn
from coredispatch.frontend.autograd.accumulate import accumulator
from coredispatch.frontend.autograd.backward import backward
from coredispatch.frontend.autograd.recording import node_of
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.modes import is_inference_mode_enabled
from coredispatch.frontend.subclasses import kept_class
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.torch_function import OVERRIDE
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import (
    AutogradError,
    DTypeError,
)
from coredispatch.registry.model.value import storage_of
from coredispatch.registry.wiring import GRAPH, HOOKS

if TYPE_CHECKING:
    from coredispatch.frontend.autograd.node import Node
    from coredispatch.frontend.tensor import Tensor
    from coredispatch.registry.model.dtypes import DType

    _Above = Tensor  # for a type checker the methods of this file are those of a Tensor
else:
    _Above = object

__all__ = ["TensorGradients"]

_INFERENCE = TABLE.bit("inference")


def _check_differentiable(what: str, dtype: DType) -> None:
    if not (dtype.is_floating_point or dtype.is_complex):
        raise AutogradError(
            f"only floating and complex tensors can require gradients: {what} has dtype {dtype}",
            fix="convert it with .float()",
        )


def _warn_of_no_leaf(tensor: Any) -> None:
    """Warn that the gradient of a result is asked for, which is not kept."""
    if not tensor.is_leaf and not tensor.retains_grad:
        warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
            ".grad attribute won't be populated during autograd.backward(). If you indeed want "
            "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
            "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
            "the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more "
            "information."
        )


class TensorGradients(_Above):
    """The attributes and methods of autograd."""

    @property
    def requires_grad(self) -> bool:
        """Whether operators on this tensor are recorded."""
        return bool(self.keys & AUTOGRAD)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise DTypeError(f"requires_grad must be a bool, not {type(value).__name__}")
        if value:
            _check_differentiable("a tensor that requires grad", self.dtype)
            if self.keys & _INFERENCE and not is_inference_mode_enabled():
                raise AutogradError(
                    "an inference tensor cannot require gradients outside inference mode",
                    fix="use a .clone(), or make it under cd.no_grad()",
                )
            self.keys |= AUTOGRAD
            if self._node is None:
                # A leaf, which every recorded call will ask for these (see value.storage_of).
                self._node, self._output_nr = None, 0
                self._view, self._storage = self._view, self._storage
                self._accumulator = self._accumulator
        else:
            if self._node is not None:
                raise AutogradError(
                    "requires_grad of a tensor that is not a leaf cannot be switched off",
                    fix="use .detach()",
                )
            self.keys &= ~AUTOGRAD

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set ``requires_grad`` in place; returns self."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, or None for a leaf."""
        node: Node | None = GRAPH.as_named(node_of(self))
        return node

    @property
    def output_nr(self) -> int:
        """Which output of ``grad_fn`` this is."""
        return self._output_nr

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None."""
        found = self._grad
        if found is None and self.keys & AUTOGRAD and self._node is not None:
            _warn_of_no_leaf(self)
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, TensorBase):
                raise DTypeError(f"grad must be a tensor or None, not {type(value).__name__}")
            if value is self:
                raise AutogradError("a tensor cannot be its own gradient")
            if tuple(value.raw.shape) != tuple(self.raw.shape):
                raise AutogradError(
                    f"assigned grad has shape {tuple(value.raw.shape)}, the tensor has shape "
                    f"{tuple(self.raw.shape)}"
                )
            if value.dtype is not self.dtype:
                raise AutogradError(
                    f"assigned grad has dtype {value.dtype}, the tensor has {self.dtype}"
                )
            on_cpu = value.keys & self.keys & TABLE.bit("cpu")  # which has one device
            if not on_cpu and value.device != self.device:
                raise AutogradError(
                    "assigned grad has data located on a different device: "
                    f"{value.device}, the tensor is on {self.device}",
                    fix=f"assign grad.to({str(self.device)!r})",
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Accumulate gradients into the leaves; see :func:`coredispatch.autograd.backward`."""
        backward(self, gradient, retain_graph, create_graph, inputs)

    @property
    def data(self) -> Tensor:
        """The same data without history, and without version checks."""
        result: Tensor = HOOKS.value_type(self.raw, self.keys & ~AUTOGRAD)
        result._dtype = self._dtype
        return kept_class(self, result) if self.keys & OVERRIDE else result

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, TensorBase):
            raise DTypeError(f"data must be a tensor, not {type(value).__name__}")
        if self.keys & AUTOGRAD:
            _check_differentiable("the data of a tensor that requires grad", value.dtype)
        self.raw = value.raw
        kept = AUTOGRAD | OVERRIDE
        self.keys = (value.keys & ~kept) | (self.keys & kept)
        self._dtype = None

    def detach_(self) -> Tensor:
        """Drop the history in place."""
        view = self._view
        if view is not None and not view.renamed and view.op.differentiable:
            raise AutogradError("a view cannot be detached in place", fix="use .detach()")
        if view is not None and view.renamed:
            self._view, self._storage = None, storage_of(self)
        self._node, self._output_nr = None, 0
        self.keys &= ~AUTOGRAD
        return self

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(grad)`` whenever the gradient is computed; it may return another one.

        The gradient is complete: for a leaf, the sum of all contributions of a backward pass.
        """
        if not self.keys & AUTOGRAD:
            raise AutogradError("cannot register a hook on a tensor that doesn't require gradient")
        node = node_of(self)
        if node is None:
            node = accumulator(self)
        handle: RemovableHandle = node.add_tensor_hook(self._output_nr, hook)
        return handle

    @property
    def _backward_hooks(self) -> dict[int, Any] | None:
        """The functions that :meth:`register_hook` has, by their places; None before the first.

        Libraries look whether there are any. It is a copy: hooks come and go by their handles.
        """
        if not self.keys & AUTOGRAD:
            return None
        node = self._accumulator if self._node is None else self._node
        known = None if node is None or node.tensor_hooks is None else node.tensor_hooks
        if known is None or self._output_nr not in known:
            return None
        hooks = [h for h in known[self._output_nr] if not getattr(h, "retains", False)]
        return dict(enumerate(hooks))

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call ``hook(tensor)`` after a gradient was accumulated into this leaf."""
        if not self.keys & AUTOGRAD or self._node is not None:
            raise AutogradError("post accumulate grad hooks are for leaves that require grad")
        handle: RemovableHandle = accumulator(self).register_post_accumulate_hook(hook)
        return handle

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf in ``.grad``."""
        if not self.keys & AUTOGRAD:
            raise AutogradError("can't retain_grad on Tensor that has requires_grad=False")
        if self.is_leaf or getattr(self, "_retains", False):
            return
        reference = weakref.ref(self)

        def keep(gradient: Any) -> None:
            tensor = reference()
            if tensor is not None:
                known = tensor._grad
                # A copy: the gradient itself goes on through the graph.
                tensor._grad = gradient.clone() if known is None else known + gradient

        keep.retains = True  # type: ignore[attr-defined]
        self._retains = self.register_hook(keep)  # a write to the tensor takes it along

    @property
    def retains_grad(self) -> bool:
        """Whether :meth:`retain_grad` was called on this tensor."""
        return bool(getattr(self, "_retains", False))
