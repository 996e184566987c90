"""Methods of ``Tensor`` that are another form of something: ``x.is_cpu``, ``x.apply_(f)``.

Each group is one rule; ``install`` gives them to the class once, when the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.inplace_views import view_in_place
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry import TABLE
from coredispatch.registry.model.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    MissingKernel,
)

__all__: list[str] = []

_DEVICES = "cpu ipu maia mps mtia vulkan xla xpu".split()

#: methods that top-level functions of the same name implement
_FUNCTIONS = (
    "as_strided_scatter conj_physical_ is_conj is_distributed is_neg is_nonzero "
    "resolve_neg split_with_sizes unsafe_chunk unsafe_split unsafe_split_with_sizes"
).split()

_REMOVED = {
    "eig": "linalg.eig, whose results are complex tensors",
    "lstsq": "linalg.lstsq, whose arguments come in the other order",
    "solve": "linalg.solve, whose arguments come in the other order",
    "symeig": "linalg.eigh, which reads the lower triangle",
    "reinforce": "distributions: (-log_prob(action) * reward).backward()",
}


def _on(device: str) -> property:
    def is_on(self: Tensor) -> bool:
        return self.device.type == device

    is_on.__doc__ = f"Whether the tensor lies on the device {device!r}."
    return property(is_on)


def _function(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        import coredispatch

        return getattr(coredispatch, name)(self, *args, **kwargs)

    method.__doc__ = f"See :func:`coredispatch.{name}`."
    return method


def _removed(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name}() was removed. Please use {_REMOVED[name]}.")

    method.__doc__ = f"Removed from PyTorch: raises RuntimeError. Use {_REMOVED[name]}."
    return method


def _moved(device: str) -> Callable[..., Any]:
    def method(self: Tensor, device_index: Any = None, **options: Any) -> Tensor:
        suffix = "" if device_index is None else f":{device_index}"
        return self.to(f"{device}{suffix}", **options)

    method.__doc__ = f"``to({device!r})``; an error where no plugin brings that device."
    return method


# -- a Python function for each element ------------------------------------------------------------


def _elements(name: str, self: Tensor, others: tuple[Any, ...], function: Any) -> Tensor:
    if not callable(function):
        raise TypeError(f"{type(function).__name__!r} object is not callable")
    if self.keys & AUTOGRAD:
        raise AutogradError(
            f"{name}(): Can't call {name}() on a tensor that requires grad",
            fix=f"x.detach().{name}(...)",
        )
    if self.device.type != "cpu":
        raise DTypeError(f"{name}() is only implemented on CPU tensors, not on {self.device}")
    columns = [x.expand(self.shape).flatten().tolist() for x in (self, *others)]
    values = [function(*row) for row in zip(*columns)]
    return self.copy_(self.new_tensor(values, dtype=self.dtype).reshape(self.shape))


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element ``v`` by ``callable(v)``. Slow: for CPU tensors, one call for each.

    >>> cd.tensor([1.0, 2.0]).apply_(lambda v: 10 * v)
    tensor([10., 20.])
    """
    return _elements("apply_", self, (), callable)


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Replace each element ``a`` by ``callable(a, b)``, ``b`` being the element of ``tensor``."""
    return _elements("map_", self, (tensor,), callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """Replace each element ``a`` by ``callable(a, b, c)``, with elements of ``x`` and ``y``."""
    return _elements("map2_", self, (x, y), callable)


# -- memory ----------------------------------------------------------------------------------------


def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Give the tensor these lengths and steps in its own memory."""
    view_in_place(self, "as_strided", tuple(size), tuple(stride), storage_offset or 0)
    return self


def const_data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return self.data_ptr()


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same elements of the same memory, in the same order."""
    return (
        self.data_ptr() == tensor.data_ptr()
        and self.dtype is tensor.dtype
        and self.shape == tensor.shape
        and self.stride() == tensor.stride()
    )


def dim_order(self: Tensor, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions in the order in which they lie in memory, the outermost first.

    Raises RuntimeError where ``ambiguity_check`` is true and the strides do not tell.
    """
    steps, lengths = self.stride(), self.shape
    if ambiguity_check:
        sizes = [steps[d] for d in range(self.ndim) if lengths[d] != 1]
        if len(set(sizes)) < len(sizes) or len(sizes) < self.ndim:
            raise RuntimeError("The tensor does not have unique dim order.")
    return tuple(sorted(range(self.ndim), key=lambda d: (-steps[d], d)))


def narrow_copy(self: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A copy of ``narrow(dim, start, length)``."""
    return self.narrow(dim, start, length).clone(memory_format="contiguous_format")


def new_empty_strided(self: Tensor, size: Any, stride: Any, **options: Any) -> Tensor:
    """Memory that nobody initialised, with these lengths and steps; this one's dtype and device."""
    from coredispatch.frontend.function_forms import empty_strided

    options.setdefault("dtype", self.dtype)
    options.setdefault("device", self.device)
    return empty_strided(size, stride, **options)


def record_stream(self: Tensor, stream: Any) -> None:
    """``stream`` works with the memory, which is not used again before it is done with it.

    Streams that ``cd.cuda.stream`` makes current are known without; this is for others. Nothing
    happens where the backend has no streams.
    """
    from coredispatch.frontend.cuda.streams import expected_stream

    keep = getattr(self.backend, "record_stream", None)
    if keep is not None:
        keep(self.raw, expected_stream("record_stream", stream).raw)


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What ``load_state_dict`` puts in the place of ``self``, which is swapped with it."""
    return other.detach() if assign else self.detach().copy_(other).detach()


def resize(self: Tensor, *size: Any) -> Tensor:
    """``reshape`` to as many elements, under its oldest name."""
    warn("non-inplace resize is deprecated")
    wanted = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return self.view(wanted)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """``resize`` to the shape of ``tensor``."""
    warn("non-inplace resize_as is deprecated")
    return self.view(tensor.shape)


def to_mkldnn(self: Tensor, dtype: Any = None) -> Tensor:
    """Refused: there is no such layout; the strided one is what every operator takes."""
    raise NotImplementedError(
        "to_mkldnn(): there is no layout of oneDNN\n"
        "  fix: leave the call out; the values are the same"
    )


def __delitem__(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


def is_mkldnn(self: Tensor) -> bool:
    """False: there is no layout of oneDNN."""
    return False


def is_nested(self: Tensor) -> bool:
    """False: there are no nested tensors."""
    return False


def is_sparse_csr(self: Tensor) -> bool:
    """Whether the layout is ``sparse_csr``."""
    return bool(self.layout == "sparse_csr")


def name(self: Tensor) -> None:
    """None: PyTorch never used it."""


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The strided tensor that ``self`` stands for, by its layout's ``to_dense``.

    A strided tensor is returned as it is, or converted to ``dtype``. The gradient of a layout that
    stores a part of the elements is one of these elements: ``masked_grad=False`` is refused.

    Raises MissingKernel where the layout does not say what its tensors stand for.

    Example:
        >>> cd.eye(2).to_sparse_csr().to_dense()
        tensor([[1., 0.],
                [0., 1.]])
    """
    layout, plugin = TABLE.snapshot.layouts.get(self.layout) or (None, "")
    if masked_grad is False and layout is not None:
        raise ArgumentError(
            "to_dense: masked_grad=False asks for the gradient of elements that are not stored",
            fix="leave masked_grad out",
        )
    if layout is not None:
        if layout.to_dense is None:
            raise MissingKernel(
                f"to_dense: layout {layout.name!r} does not say what its tensors stand for",
                fix=f"give the Layout of plugin {plugin!r} a to_dense=",
            )
        self = layout.to_dense(self)
    return self if dtype is None else self.to(dtype)


def volatile(self: Tensor) -> bool:
    """False: it was replaced by ``no_grad``."""
    return False


_DETAILS = (is_mkldnn, is_nested, is_sparse_csr, name, volatile)
_HERE = (
    apply_, map_, map2_, as_strided_, const_data_ptr, is_set_to, dim_order, narrow_copy,
    new_empty_strided, record_stream, module_load, resize, resize_as, to_mkldnn,
    to_dense, __delitem__,
)  # fmt: skip


def _install() -> None:
    details: dict[str, Any] = {f"is_{device}": _on(device) for device in _DEVICES}
    details |= {name: _function(name) for name in _FUNCTIONS}
    details |= {name: _removed(name) for name in _REMOVED}
    details |= {device: _moved(device) for device in ("ipu", "mtia", "xpu")}
    details |= {function.__name__: function for function in _HERE}
    details |= {fact.__name__: property(fact) for fact in _DETAILS}
    for name, fact in details.items():
        if name in vars(Tensor):
            continue
        if not isinstance(fact, property):
            fact.__name__, fact.__qualname__ = name, f"Tensor.{name}"
        setattr(Tensor, name, fact)


_install()
