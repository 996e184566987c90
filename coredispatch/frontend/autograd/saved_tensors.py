"""What happens to the tensors that a graph saves: hooks that pack them, and unpack them again.

While hooks are in force in a thread or task, a node keeps what ``pack`` made of each tensor, and no
reference to its data. The history of the tensor stays with the node: what ``unpack`` returns gets
it back, so that it is differentiable again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from coredispatch.frontend.autograd.node import GraphTask, Node, OpNode
from coredispatch.frontend.autograd.recording import add_edge, alias_of, assign_sequence_number
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.torch_dispatch import in_its_class
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.value import version_of
from coredispatch.registry.wiring import GRAPH, HOOKS

__all__ = ["disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]

Pack = Callable[[Any], Any]

# The hooks in force, innermost last; and why there may be none.
_hooks: ContextVar[tuple[tuple[Pack, Pack], ...]] = ContextVar("saved_tensors_hooks", default=())
_disabled: ContextVar[str | None] = ContextVar("saved_tensors_hooks_disabled", default=None)
_users = 0  # blocks of the whole process; while there are none, recording does not ask
_lock = threading.Lock()


def _count(change: int) -> None:
    global _users
    with _lock:
        _users += change
        GRAPH.watch(hooks=_users > 0)


class saved_tensors_hooks:
    """Let ``pack_hook(tensor)`` decide what the graph keeps of each tensor it saves in the block.

    ``unpack_hook`` gets what ``pack_hook`` returned when the backward pass needs the tensor, and
    returns a tensor of the same content. Of nested blocks the innermost counts. ``pack_hook`` runs
    without recording and must not write to its argument. As PyTorch's class of that name.

    Raises :class:`AutogradError` on entry inside :class:`disable_saved_tensors_hooks`.
    """

    def __init__(self, pack_hook: Pack, unpack_hook: Pack) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._tokens: list[Any] = []

    def __enter__(self) -> None:
        message = _disabled.get()
        if message is not None:
            raise AutogradError(message)
        self._tokens.append(_hooks.set((*_hooks.get(), (self.pack_hook, self.unpack_hook))))
        _count(1)

    def __exit__(self, *_: object) -> None:
        _hooks.reset(self._tokens.pop())
        _count(-1)


class save_on_cpu(saved_tensors_hooks):
    """Keep the tensors that the graph saves in the block on the CPU.

    They come back to their device when the backward pass needs them. ``pin_memory`` is accepted:
    where copies are synchronous it makes no difference.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Any) -> Any:
            return tensor.device, tensor.to("cpu", copy=True)

        def unpack(packed: Any) -> Any:
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


class disable_saved_tensors_hooks:
    """Refuse :class:`saved_tensors_hooks` in the block, with this message."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message
        self._tokens: list[Any] = []

    def __enter__(self) -> None:
        if _hooks.get():
            raise AutogradError(self.error_message)
        self._tokens.append(_disabled.set(self.error_message))

    def __exit__(self, *_: object) -> None:
        _disabled.reset(self._tokens.pop())


class Unpacked(Node):
    """Leads from a tensor that ``unpack`` returned to the history of the one that was packed."""

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        return grads

    def name(self) -> str:
        """Name of the node."""
        return "UnpackedBackward"


class Packed:
    """What ``pack`` made of a tensor, and the tensor's history."""

    def __init__(self, tensor: TensorBase, hooks: tuple[Pack, Pack]) -> None:
        pack, self.unpack_hook = hooks
        before = version_of(tensor)
        self.leaf: Any = None
        self.node: Any = None
        self.output = 0
        if tensor.keys & AUTOGRAD:
            self.node, self.output = tensor._node, tensor._output_nr
            if self.node is None:
                self.leaf = tensor
        with no_grad():
            self.content = pack(in_its_class(alias_of(tensor)))
        if version_of(tensor) != before:
            raise AutogradError(
                "a saved tensor pack hook is modifying its input in place",
                fix="write to a .clone() of it",
            )

    def unpack(self) -> Any:
        """The tensor, with the history of the one that was packed."""
        tensor = self.unpack_hook(self.content)
        if not isinstance(tensor, TensorBase):
            raise TypeError(
                "output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(tensor).__name__}"
            )
        if self.leaf is None and self.node is None:
            return tensor
        again = alias_of(tensor)
        if self.node is not None:
            again._node, again._output_nr = self.node, self.output
        else:
            node = Unpacked("unpacked", False)
            add_edge(node, self.leaf)
            assign_sequence_number(node)
            node.count = 1
            node.shape, node.dtype = again.raw.shape, again.dtype
            node.keys = again.keys & ~AUTOGRAD
            again._node = node
        again.keys |= AUTOGRAD
        return again


def pack(value: Any, hooks: tuple[Pack, Pack]) -> Any:
    """``value`` with every tensor packed, also those in lists."""
    if isinstance(value, TensorBase):
        return Packed(value, hooks)
    if isinstance(value, (list, tuple)) and any(isinstance(v, TensorBase) for v in value):
        return PackedItems(type(value), [pack(item, hooks) for item in value])
    return value


class PackedItems:
    """A list or tuple with packed tensors in it."""

    def __init__(self, kind: Any, items: list[Any]) -> None:
        self.kind = kind
        self.items = items

    def unpack(self) -> Any:
        """The list or tuple with its tensors."""
        return self.kind([unpack(item) for item in self.items])


def unpack(value: Any) -> Any:
    """The opposite of :func:`pack`."""
    return value.unpack() if isinstance(value, (Packed, PackedItems)) else value


def current_hooks() -> tuple[Pack, Pack] | None:
    """The hooks that count here."""
    found = _hooks.get()
    return found[-1] if found else None


def after_record(node: Node) -> None:
    """Called for each recorded node while somebody watches."""
    if GRAPH.anomaly:
        node.forward_trace = GRAPH.traceback()
    hooks = current_hooks()
    if hooks is None or not isinstance(node, OpNode):
        return
    if node.saved:
        node.saved = [pack(value, hooks) for value in node.saved]
        node.packed = True
    if node.out_raw is not None:
        outputs = []
        for number, raw, storage in zip(
            node.out_numbers, node.out_raw, node.out_storage, strict=True
        ):
            output = HOOKS.value_type(raw, node.output(number).keys)
            output._storage = storage
            outputs.append(Packed(output, hooks))
        node.out_raw = outputs
        node.packed = True


def unpacked_output(node: OpNode, place: int, number: int) -> Any:
    """A saved output that was packed, made by ``node`` again."""
    output = alias_of(node.out_raw[place].unpack())
    if output.dtype.is_floating_point or output.dtype.is_complex:
        output._node, output._output_nr = node, number
        output.keys |= AUTOGRAD
    return output


GRAPH.after_record = after_record
GRAPH.unpack = unpack
GRAPH.unpacked_output = unpacked_output
