"""Operators of PyTorch's ``aten`` that are another form of something here: ``aten.slice.Tensor``.

``coredispatch.ops.aten.NAME`` finds operators of the table first, then these, then functions of the
top level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.tensor import Tensor

__all__ = ["form"]


def _to_copy(
    self: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A copy with another dtype, device or memory format."""
    options = {"dtype": dtype, "device": device, "memory_format": memory_format}
    given = {name: value for name, value in options.items() if value is not None}
    return self.to(copy=True, non_blocking=non_blocking, **given)


def _slice(self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """``self[start:end:step]`` along a dimension."""
    index = [slice(None)] * self.ndim
    index[dim] = slice(start, end, step)
    return self[tuple(index)]


def _index(self: Tensor, indices: Sequence[Any]) -> Tensor:
    """``self[indices]``; None among them takes a whole dimension."""
    return self[tuple(slice(None) if i is None else i for i in indices)]


def _sym_size(self: Tensor, dim: int | None = None) -> Any:
    """The length of a dimension, or all lengths."""
    return self.shape if dim is None else self.size(dim)


def _assert_scalar(self: Any, assert_msg: str) -> None:
    """Raise RuntimeError unless the number is true."""
    if not self:
        raise RuntimeError(assert_msg)


def _grouped_mm(
    self: Tensor, mat2: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    from coredispatch.frontend.nn.functional import grouped_mm

    return grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


_FORMS: dict[str, Callable[..., Any]] = {
    "_assert_scalar": _assert_scalar,
    "_conj": lambda self: self.conj(),
    "_grouped_mm": _grouped_mm,
    "_is_all_true": lambda self: self.all(),
    "_local_scalar_dense": lambda self: self.item(),
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "_to_copy": _to_copy,
    "_unsafe_view": lambda self, size: self.reshape(size),
    "alias": lambda self: self.view(self.shape),
    "index": _index,
    "lift_fresh": lambda self: self,
    "slice": _slice,
    "sym_numel": lambda self: self.numel(),
    "sym_size": _sym_size,
    "sym_stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
    "to": lambda self, *args, **kwargs: self.to(*args, **kwargs),
}

#: operators that libraries name without calling them: their kernels are PyTorch's own
_ANNOUNCED = tuple(
    (
        "_assert_tensor_metadata _convolution _embedding_bag _efficient_attention_forward "
        "_flash_attention_forward "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_flash_attention_for_cpu _sparse_addmm "
        "_sparse_mm_reduce_impl sym_constrain_range sym_constrain_range_for_size"
    ).split()
)


def form(name: str) -> Callable[..., Any] | None:
    """The function that serves ``aten.NAME``, or None."""
    found = _FORMS.get(name)
    if name in _ANNOUNCED:
        return announced_function(f"ops.aten.{name}", "call the operator of the public name")  # type: ignore[no-any-return]
    if found is None and not name.startswith("__"):
        import coredispatch

        late = coredispatch.__getattr__.quiet  # type: ignore[attr-defined]
        try:
            found = late(name)
        except AttributeError:
            found = getattr(Tensor, name, None) if name.endswith("_") else None
    return found if callable(found) and not isinstance(found, type) else None
